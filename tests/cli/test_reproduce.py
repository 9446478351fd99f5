import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import toy_network
from command import bal


def test_reproduce_draws_a_figure_that_needs_no_data(tmp_path):
    result = bal("reproduce", "fig5", "--out", "r", "--results", "published", cwd=tmp_path, OMP_NUM_THREADS="1")
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "published" / "fig5.svg").read_text().startswith("<svg")
    assert "Fig. 5: trivial and hard OOD" in (tmp_path / "r" / "fig5.html").read_text()


def test_reproduce_says_what_it_lacks_and_leaves_it_blank(tmp_path):
    places = {"BAL_DATA": str(tmp_path / "none"), "BAL_WEIGHTS": str(tmp_path / "none")}
    result = bal("reproduce", "table3", "fig4", "--out", "r", cwd=tmp_path, **places)
    assert result.returncode == 0, result.stderr
    said = " ".join(result.stdout.split())
    assert "densenet-cifar10: not measured: there are no weights densenetbc100_cifar10.pt; set BAL_WEIGHTS" in said
    assert "fig4: not drawn: MNIST is not complete" in said
    assert "0 of 11 lines measured" in said
    lines = json.loads((tmp_path / "r" / "results" / "table3.json").read_text())["lines"]
    assert all(line["mean"] == {} and line["reason"] == "densenet-cifar10 not at hand" for line in lines)


def test_reproduce_refuses_what_it_does_not_know(tmp_path):
    assert bal("reproduce", "table9", cwd=tmp_path).returncode == 2
    assert "name at least one table or figure" in bal("reproduce", cwd=tmp_path).stderr
    assert "Example: BAL_DATA" in bal("reproduce", "--help").stdout
    assert bal("reproduce", "fig5", "--seeds", "0", cwd=tmp_path).returncode == 1


TOY = """
import sys
sys.path.insert(0, {tests!r})
import toy_network
toy_network.register()
from bal.cli import main
from bal.detectors import BAL
from bal.discrimination import GANTraining
from bal.experiments.cells import Cell
from bal.experiments.tables import TABLES, Line, TableSpec
cell = Cell("toy", BAL(training=GANTraining(epochs=20, batch_size=32)), "BAL", ("omniglot",))
TABLES["table1"] = lambda preset: TableSpec("table1", "Toy", 1, ("auroc",), (Line("toy", cell, {{"auroc": 99.0}}),))
sys.argv[0] = "bal"
main()
"""


def test_reproduce_after_kill_9_does_exactly_the_cells_that_remain(tmp_path):
    """Fault 14's cousin: the command itself, with a toy in the place of Table 1."""
    script = TOY.format(tests=str(Path(toy_network.__file__).parent))
    command = [sys.executable, "-W", "ignore", "-c", script, "reproduce", "table1", "--seeds", "4", "--out", str(tmp_path)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 300
    while not list((tmp_path / "cells").glob("*.json")):
        assert process.poll() is None, "it ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert not (tmp_path / "table1.html").exists()
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "cells").glob("*.json")}
    done = {int(path.name.split("-")[2]) for path in before}
    assert 1 <= len(done) < 4
    again = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    measured = [int(seed) for seed in re.findall(r"toy, BAL, seed (\d): FPR95", again.stdout)]
    assert sorted(measured) == sorted({0, 1, 2, 3} - done)
    assert "1 of 1 lines measured" in again.stdout
    assert {path: path.stat().st_mtime_ns for path in before} == before, "finished cells are not touched"
    assert len(list((tmp_path / "cells").iterdir())) == 4
    assert json.loads((tmp_path / "results" / "table1.json").read_text())["lines"][0]["seeds"] == 4
    assert (tmp_path / "table1.html").exists()
