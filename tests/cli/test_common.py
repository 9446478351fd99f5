"""What all commands have in common."""

import math
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from bal import __version__
from bal.cli.common import check_folder, named_sources, with_known_labels, without_nan
from bal.data.files import Loaded
from bal.errors import DataError
from command import bal, bal_here

COMMANDS = ("demo", "fit", "calibrate", "score", "serve", "evaluate", "report", "export", "info", "compare", "reproduce", "data")


def test_help_names_the_commands():
    said = bal("--help").stdout
    assert all(command in said for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_a_command_shows_an_example(command):
    assert "Example:" in bal(command, "--help").stdout


def test_help_takes_less_than_half_a_second_of_processor_time():
    """And imports no torch, which is in test_package.py; the best of three, for the machine may be busy."""
    spent = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", "bal", "--help"], check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(spent) < 0.5


def test_json_has_null_for_numbers_that_are_not_finite():
    """Fault 4."""
    assert without_nan({"a": [math.nan, 1.5, (math.inf,)], "b": "NaN"}) == {"a": [None, 1.5, [None]], "b": "NaN"}


@pytest.mark.parametrize("asked", ["version", "--version"])
def test_version(asked):
    assert bal(asked).stdout.strip() == f"bal {__version__}"


@pytest.mark.parametrize("arguments", [(), ("no-such-command",), ("demo", "--seeds", "many")])
def test_wrong_arguments_exit_with_2(arguments):
    assert bal(*arguments).returncode == 2


REQUIRED = {  # without which a command would exit with 2 for want of them
    "fit": "--classifier m:build --train x.npz --out d",
    "calibrate": "d --data x.npz",
    "score": "d --data x.npz --out s",
    "serve": "d",
    "evaluate": "d --test x.npz --ood y.npz",
    "report": "d --test x.npz",
    "export": "d --out m.onnx",
    "info": "d",
    "reproduce": "table1",
    "data": "list",
}


@pytest.mark.parametrize("command", [*COMMANDS, "version", "data list", "data get", "data verify"])
def test_an_option_that_no_command_has_exits_with_2_and_is_named(monkeypatch, capsys, command):
    arguments = f"{command} {REQUIRED.get(command, '')}".split()
    code, _, complaint = bal_here(monkeypatch, capsys, *arguments, "--no-such")
    assert code == 2
    assert "--no-such" in complaint
    assert "Traceback" not in complaint


def test_an_error_is_one_sentence_and_exit_1(tmp_path):
    result = bal("demo", "--seeds", cwd=tmp_path)
    assert result.returncode == 1
    assert "at least one whole number" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("seeds", "words"),
    [(("-1",), "from 0 to"), (("0", "0"), "differ from each other"), (("99999999999999999999999",), "from 0 to")],
)
def test_seeds_that_cannot_be_used_are_refused_before_anything_is_trained(tmp_path, seeds, words):
    result = bal("demo", "--seeds", *seeds, cwd=tmp_path)
    assert result.returncode == 1
    assert words in result.stderr


def test_a_folder_that_cannot_be_written_is_refused_before_anything_is_trained(tmp_path):
    (tmp_path / "file[bold]").write_text("")
    result = bal("demo", "--out", "file[bold]/x", cwd=tmp_path)
    assert result.returncode == 1
    assert "cannot write to file[bold]/x" in result.stderr.replace("\n", "")


def test_a_probe_of_a_folder_touches_no_file_of_its_owner(tmp_path):
    (tmp_path / ".bal").write_text("mine")
    check_folder(tmp_path)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["mine"]


def test_an_ood_set_may_have_a_path_with_an_equals_sign():
    assert named_sources(["runs/lr=0.1/ood.npz", "noise=runs/lr=0.1/x.npz"]) == {
        "ood": "runs/lr=0.1/ood.npz",
        "noise": "runs/lr=0.1/x.npz",
    }


@pytest.mark.parametrize("item", ["x=", "=noise.npz"])
def test_an_ood_set_needs_a_name_and_data(item):
    with pytest.raises(DataError, match="takes NAME=DATA"):
        named_sources([item])


def test_a_terminal_without_our_letters_shows_others():
    result = bal("data", "list", PYTHONIOENCODING="ascii")
    assert result.returncode == 0
    assert "Traceback" not in result.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_standard_output_that_cannot_be_written_is_told_in_a_sentence():
    with Path("/dev/full").open("w") as full:
        result = subprocess.run(
            [sys.executable, "-m", "bal", "version"], check=False, stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert result.returncode == 1
    assert "No space left" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_reader_that_has_gone_is_no_matter():
    with subprocess.Popen([sys.executable, "-m", "bal", "version"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.stderr.read() == b""


def test_labels_by_folders_are_numbers_of_the_known_classes(tmp_path):
    for name in ("cat", "fox"):
        (tmp_path / name).mkdir()
        Image.new("L", (2, 2)).save(tmp_path / name / "0.png")
    loaded = Loaded("images", np.array([0, 1]))
    assert with_known_labels(loaded, str(tmp_path), ("cat", "dog", "fox")).labels.tolist() == [0, 2]
    assert with_known_labels(loaded, str(tmp_path), ()) is loaded, "without names, their order has to do"
    with pytest.raises(DataError, match="no known classes: fox; known are cat, dog"):
        with_known_labels(loaded, str(tmp_path), ("cat", "dog"))
