"""The command line as a person types it."""

import subprocess
import sys

import pytest

from bal import __version__


def bal(*arguments, cwd=None):
    return subprocess.run([sys.executable, "-m", "bal.cli", *arguments], capture_output=True, text=True, cwd=cwd, check=False)


def test_help_names_the_commands_and_shows_an_example():
    assert "demo" in bal("--help").stdout
    assert "Example: bal demo" in bal("demo", "--help").stdout


def test_version():
    assert bal("version").stdout.strip() == f"bal {__version__}"


@pytest.mark.parametrize("arguments", [(), ("no-such-command",), ("demo", "--seeds", "many")])
def test_wrong_arguments_exit_with_2(arguments):
    assert bal(*arguments).returncode == 2


def test_an_error_is_one_sentence_and_exit_1(tmp_path):
    result = bal("demo", "--seeds", cwd=tmp_path)
    assert result.returncode == 1
    assert "at least one whole number" in result.stderr
    assert "Traceback" not in result.stderr
