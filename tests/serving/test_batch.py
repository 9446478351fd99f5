import csv
import json
from collections import Counter
from functools import partial

import numpy as np
import pytest
from PIL import Image

from bal.detectors import make_detector
from bal.errors import DataError, SettingsError, StorageError
from bal.serving import score_stream
from killing import killed_after, seconds_in_a_child


@pytest.fixture
def detector(tiny_classifier, tiny_images):
    x, c = tiny_images
    return make_detector("energy").fit(tiny_classifier, (x, c), show_progress=False).calibrate(x, false_alarm=0.1)


@pytest.fixture
def folder(tmp_path, rng):
    for place in ("photos/a", "photos/b"):
        (tmp_path / place).mkdir(parents=True)
        for i in range(10):
            Image.fromarray(rng.integers(0, 256, (5, 5), np.uint8)).save(tmp_path / place / f"{i}.png")
    return tmp_path / "photos"


def score(detector, folder, out, **settings):
    return score_stream(detector, [folder], out, **{"suffix": ".jsonl", "rows_per_shard": 4, "show_progress": False, **settings})


def outputs(out):
    return {path.relative_to(out).as_posix(): path.read_bytes() for path in sorted(out.rglob("*.jsonl"))}


def rows(out):
    return [json.loads(line) for content in outputs(out).values() for line in content.splitlines()]


def test_one_shard_for_each_input_shard_and_one_row_for_each_input(detector, folder, tmp_path):
    outcome = score(detector, folder, tmp_path / "out")
    assert (outcome.rows, outcome.errors, outcome.shards, outcome.found, outcome.failed) == (20, 0, 6, 0, {})
    written = rows(tmp_path / "out")
    assert [row["input"] for row in written] == [f"photos/{place}/{i}.png" for place in "ab" for i in range(10)]
    assert outcome.rejected == sum(row["label"] == -1 for row in written)
    x = np.stack([np.asarray(Image.open(folder / "a" / f"{i}.png").resize((4, 4), Image.Resampling.BICUBIC)) for i in range(4)])
    answer = detector.predict(x)
    assert [row["score"] for row in written[:4]] == answer.score.tolist()
    assert [row["p_value"] for row in written[:4]] == answer.p_value.tolist()


def test_a_rerun_does_what_is_missing_cut_or_out_of_date_and_nothing_else(detector, folder, tmp_path):
    """Fault 15."""
    out = tmp_path / "out"
    score(detector, folder, out)
    before = outputs(out)
    times = {name: (out / name).stat().st_mtime_ns for name in before}
    assert score(detector, folder, out).found == 6
    first, second, third, *_ = before
    (out / first).unlink()
    (out / second).write_bytes(before[second][:100])
    (out / third).write_bytes(before[third].splitlines(keepends=True)[0])
    outcome = score(detector, folder, out)
    assert (outcome.found, outcome.rows) == (3, 20)
    assert outputs(out) == before
    assert sum((out / name).stat().st_mtime_ns == times[name] for name in before) == 3


def test_changed_inputs_and_another_detector_replace_old_rows(detector, folder, tmp_path, tiny_images):
    """Fault 15: nothing doubled when files come and go, and never the scores of two detectors side by side."""
    out = tmp_path / "out"
    score(detector, folder, out)
    (folder / "a" / "00.png").write_bytes((folder / "a" / "0.png").read_bytes())
    assert score(detector, folder, out).found == 3
    assert len({row["input"] for row in rows(out)}) == len(rows(out)) == 21
    detector.calibrate(tiny_images[0], false_alarm=0.5)
    assert score(detector, folder, out).found == 0
    assert len(rows(out)) == 21
    assert score(detector, folder, out, suffix=".csv").found == 0
    assert outputs(out) == {}


def test_a_csv_cut_inside_its_last_row_is_done_again(detector, folder, tmp_path):
    """Fault 15: by someone else than us, for our own files are whole."""
    out = tmp_path / "out"
    score(detector, folder, out, suffix=".csv")
    path = next(out.rglob("*.csv"))
    whole = path.read_bytes()
    path.write_bytes(whole[: whole.rindex(b",", 0, -5)])
    assert score(detector, folder, out, suffix=".csv").found == 5
    assert path.read_bytes() == whole


def test_an_output_that_cannot_be_written_stops_the_job_and_keeps_what_is_done(detector, folder, tmp_path):
    """Fault 13: a file stands where the second folder of outputs should be."""
    out = tmp_path / "out"
    (out / "photos").mkdir(parents=True)
    (out / "photos" / "b").write_text("mine")
    with pytest.raises(StorageError, match="cannot write"):
        score(detector, folder, out)
    assert len(rows(out)) == 10
    (out / "photos" / "b").unlink()
    assert score(detector, folder, out).found == 3


def test_scores_of_other_inputs_in_the_same_folder_stop_the_job(detector, folder, tmp_path):
    out = tmp_path / "out"
    score(detector, folder, out)
    for i in range(8, 10):
        (folder / "b" / f"{i}.png").unlink()
    with pytest.raises(DataError, match="holds the scores of photos/b/00002, which is not among these inputs"):
        score(detector, folder, out)


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".jsonl"])
def test_unreadable_files_become_error_rows_and_the_job_goes_on(detector, folder, tmp_path, suffix):
    """Faults 8 and 4: their numbers are missing, not NaN."""
    out = tmp_path / "out"
    detector.class_names_ = ("x", "y", "z")
    (folder / "a" / "3.png").write_bytes(b"")
    for i in range(4):
        (folder / "b" / f"{i}.png").write_text("a whole block of no images")
    for _ in range(2):  # the second time they are counted in the files
        outcome = score(detector, folder, out, suffix=suffix)
        assert (outcome.rows, outcome.errors) == (20, 5)
    assert outcome.found == 6
    if suffix == ".parquet":
        parquet = pytest.importorskip("pyarrow.parquet")
        table = [row for path in sorted(out.rglob("*.parquet")) for row in parquet.ParquetFile(path).read().to_pylist()]
    elif suffix == ".jsonl":
        table = rows(out)
    else:
        table = [row for path in sorted(out.rglob("*.csv")) for row in csv.DictReader(path.read_text().splitlines())]
    bad = table[3]
    assert "photos/a/3.png is not an image" in bad["error"]
    assert str(bad["label"]) == "-1"
    assert not bad["score"]
    assert not bad["p_value"]
    assert not bad["class"]
    assert not table[4]["error"]
    assert {row["class"] for row in table if str(row["label"]) != "-1"} <= {"x", "y", "z"}


def test_a_shard_that_cannot_be_read_is_told_and_done_by_the_next_run(detector, tmp_path, rng):
    x = rng.random((600, 1, 4, 4), np.float32)
    np.savez(tmp_path / "x.npz", x=x)
    whole = (tmp_path / "x.npz").read_bytes()
    flipped = bytearray(whole)
    flipped[-1500] ^= 1
    (tmp_path / "x.npz").write_bytes(flipped)
    outcome = score(detector, tmp_path / "x.npz", tmp_path / "out", rows_per_shard=300)
    assert (outcome.rows, list(outcome.failed)) == (300, ["x.npz/00001"])
    (tmp_path / "x.npz").write_bytes(whole)
    outcome = score(detector, tmp_path / "x.npz", tmp_path / "out", rows_per_shard=300)
    assert (outcome.rows, outcome.failed) == (600, {})
    assert len(rows(tmp_path / "out")) == 600
    nan = x.copy()
    nan[7] = np.nan
    np.savez(tmp_path / "x.npz", x=nan)
    score(detector, tmp_path / "x.npz", tmp_path / "out")
    row = next(row for row in rows(tmp_path / "out") if row["input"] == "x.npz:7")
    assert (row["label"], row["valid"], row["score"], row["error"]) == (-1, False, None, None)


def test_files_that_cannot_be_opened_or_are_of_another_shape_do_not_stop_the_others(detector, tmp_path, rng):
    good, x = tmp_path / "good.npz", rng.random((8, 1, 4, 4), np.float32)
    cut, wrong = tmp_path / "cut.npz", tmp_path / "wrong.npz"
    for path in (good, cut):
        np.savez(path, x=x)
    np.savez(wrong, x=x[:, :, :3])
    whole = cut.read_bytes()

    def run():
        return score_stream(
            detector, [cut, wrong, good], tmp_path / "out", suffix=".jsonl", rows_per_shard=4, show_progress=False
        )

    assert (run().rows, len(rows(tmp_path / "out"))) == (16, 16)
    cut.write_bytes(whole[:-9])
    outcome = run()
    assert (outcome.rows, outcome.found, outcome.shards) == (8, 2, 5)
    assert list(outcome.failed) == ["cut.npz/00000", "wrong.npz/00000", "wrong.npz/00001"]
    assert "not an .npz file" in outcome.failed["cut.npz/00000"]
    assert "inputs must be (N, 1, 4, 4)" in outcome.failed["wrong.npz/00000"]
    assert len(rows(tmp_path / "out")) == 8, "what was scored before is out of date"
    cut.write_bytes(whole)
    assert run().rows == 16


def test_50_runs_of_scoring_ended_by_kill_9_and_a_rerun_give_exactly_one_row_for_each_input(detector, folder, tmp_path, rng):
    """Fault 15."""
    (folder / "a" / "3.png").write_bytes(b"no image")
    calm = [tmp_path / f"calm{i}" for i in range(3)]
    usual = sorted(seconds_in_a_child(partial(score, detector, folder, out)) for out in calm)[1]
    expected, out = outputs(calm[0]), tmp_path / "out"
    interrupted = runs = halfway = 0
    while interrupted < 50:
        if killed_after(rng.uniform(0, usual), lambda: score(detector, folder, out)):
            interrupted += 1
            halfway += 0 < len(outputs(out)) < len(expected)
            assert outputs(out).items() <= expected.items(), "every file there is, is whole"
        else:
            assert outputs(out) == expected
        if outputs(out) == expected:  # so that there is work again
            for path in list(out.rglob("*.jsonl"))[:: 1 + runs % 2]:
                path.unlink()
        runs += 1
        assert runs < 500, f"only {interrupted} of {runs} runs were killed in time"
    assert halfway, "some were killed between two outputs"
    outcome = score(detector, folder, out)
    assert (outcome.rows, len(outcome.failed)) == (20, 0)
    assert outputs(out) == expected
    assert Counter(row["input"] for row in rows(out)) == {f"photos/{place}/{i}.png": 1 for place in "ab" for i in range(10)}
    assert len([path for path in out.rglob("*") if path.is_file()]) == 6, "no temporaries are left"


def test_a_detector_without_inputs_nothing_to_score_and_nonsense_are_refused(detector, folder, tmp_path):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    (tmp_path / "empty").mkdir()
    parquet.write_table(arrow.table({"image": arrow.array([], arrow.binary())}), tmp_path / "empty.parquet")
    np.savez(tmp_path / "empty.npz", images=np.empty((0, 1, 4, 4), np.float32))
    for name in ("empty", "empty.parquet", "empty.npz"):
        with pytest.raises(DataError, match="nothing to score"):
            score(detector, tmp_path / name, tmp_path / "out")
    with pytest.raises(SettingsError, match="suffix must be one of"):
        score(detector, folder, tmp_path / "out", suffix=".txt")
    with pytest.raises(DataError, match="lies inside the inputs"):
        score(detector, folder, folder / "out")
    detector.classifier_ = None
    with pytest.raises(SettingsError, match="cannot read inputs"):
        score(detector, folder, tmp_path / "out")
