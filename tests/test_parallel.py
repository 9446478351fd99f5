"""Two processes train the same BAL as one does: run for real, by torchrun with gloo."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from bal.parallel import check_alike, mean_over_ranks, process_group, rank, ranks, share

TRAINING = """
import json, sys
from pathlib import Path
import torch
from bal.detectors import BAL
from bal.discrimination import GANTraining
from bal.parallel import process_group, rank
from bal.storage import digest
from conftest import make_blobs

torch.set_num_threads(1)
out, seeds = Path(sys.argv[1]), int(sys.argv[2])
settings = GANTraining(epochs=3, batch_size=50, learning_rate_D=1e-3, learning_rate_G=1e-3)
with process_group():
    bal = BAL(hidden_D=(16,), hidden_G=(16,), noise_dim=4, training=settings, seed=seeds * rank())
    bal.fit_features(make_blobs(300), checkpoint=out / "checkpoint")
    said = {"history": bal.result_.history, "D": digest(bal.D_.state_dict()), "G": digest(bal.G_.state_dict())}
    (out / f"rank{rank()}.json").write_text(json.dumps(said))
"""


ONE_RANK_ALONE = """
import sys
from pathlib import Path
import torch
from torch import distributed
from bal.detectors import BAL
from bal.discrimination import GANTraining
from conftest import make_blobs

distributed.init_process_group("gloo")
if distributed.get_rank() == 0:
    BAL(hidden_D=(4,), hidden_G=(4,), training=GANTraining(epochs=1)).fit_features(make_blobs(60))
    (Path(sys.argv[1]) / "rank0.json").write_text('"fitted"')
distributed.barrier()
distributed.destroy_process_group()
"""


def train(folder, processes, seeds=0, program=TRAINING):
    """The script on so many processes; what each rank said."""
    folder.mkdir()
    script = folder / "train.py"
    script.write_text(f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n{program}")
    run = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    done = subprocess.run([*run, script, folder, str(seeds)], check=False, capture_output=True, text=True, timeout=300)
    return done, [json.loads(path.read_text()) for path in sorted(folder.glob("rank*.json"))]


@pytest.mark.skipif(not torch.distributed.is_available(), reason="this torch has no torch.distributed")
def test_two_ranks_end_in_the_same_weights_and_learn_as_one_does(tmp_path):
    """All ranks draw the same global batch, so that the curves differ by rounding alone."""
    _, (one,) = train(tmp_path / "one", 1)
    done, both = train(tmp_path / "two", 2)
    assert done.returncode == 0, done.stderr
    assert both[0] == both[1]
    assert len(both[0]["history"]) == len(one["history"]) == 3
    for together, alone in zip(both[0]["history"], one["history"], strict=True):
        for name in ("L_d", "L_g", "D_id", "D_hard"):
            assert together[name] == pytest.approx(alone[name], rel=1e-3), name


def test_ranks_that_do_not_start_alike_are_refused(tmp_path):
    done, said = train(tmp_path / "unlike", 2, seeds=1)
    assert done.returncode != 0
    assert not said
    assert "the ranks do not start alike" in done.stderr


def test_one_rank_of_a_program_with_a_group_of_its_own_may_fit_alone(tmp_path):
    """The others wait at their barrier, not in the fit."""
    done, said = train(tmp_path / "own", 2, program=ONE_RANK_ALONE)
    assert done.returncode == 0, done.stderr
    assert said == ["fitted"]


def test_a_group_of_ones_own_is_used_inside_process_group_alone(monkeypatch):
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 1)
    assert (rank(), ranks()) == (0, 1)
    with process_group():
        assert (rank(), ranks()) == (1, 2)
    assert (rank(), ranks()) == (0, 1)


def test_one_process_is_the_only_rank():
    with process_group():
        assert (rank(), ranks(), share(10)) == (0, 1, slice(0, 10, 1))
        tensor = torch.ones(2)
        assert mean_over_ranks([tensor])[0] is tensor
        check_alike("0a")
