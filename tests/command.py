"""The command line as a person types it, and in this process where that is quicker."""

import os
import subprocess
import sys

from bal.cli import main


def bal(*arguments, cwd=None, **environment):
    command, environment = [sys.executable, "-m", "bal", *arguments], {**os.environ, **environment}
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, check=False, env=environment)


def bal_here(monkeypatch, capsys, *arguments):
    """The exit code, what was printed, and what was complained of in one line, without a new process."""
    monkeypatch.setattr(sys, "argv", ["bal", *map(str, arguments)])
    try:
        main()
        code = 0
    except SystemExit as stop:
        code = stop.code
    said = capsys.readouterr()
    return code, said.out, " ".join(said.err.split())
