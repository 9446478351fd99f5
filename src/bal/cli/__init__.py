"""The command line. torch is imported inside commands, so that help is quick."""

import os
import sys
import warnings
from dataclasses import dataclass
from io import TextIOWrapper
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.markup import escape

from bal._version import __version__
from bal.cli.compare import Compare
from bal.cli.data import DataCommand
from bal.cli.demo import Demo
from bal.cli.evaluate import Evaluate
from bal.cli.export import Export
from bal.cli.fit import Calibrate, Fit
from bal.cli.info import Info
from bal.cli.report import Report
from bal.cli.reproduce import Reproduce
from bal.cli.score import Score
from bal.cli.serve import Serve
from bal.errors import BalError


@dataclass(frozen=True)
class Version:
    """Print the version."""

    def __call__(self) -> None:
        """Run it."""
        Console().print(f"bal {__version__}", highlight=False)


Command = (
    Annotated[Demo, tyro.conf.subcommand("demo")]
    | Annotated[Fit, tyro.conf.subcommand("fit")]
    | Annotated[Calibrate, tyro.conf.subcommand("calibrate")]
    | Annotated[Score, tyro.conf.subcommand("score")]
    | Annotated[Evaluate, tyro.conf.subcommand("evaluate")]
    | Annotated[Report, tyro.conf.subcommand("report")]
    | Annotated[Export, tyro.conf.subcommand("export")]
    | Annotated[Serve, tyro.conf.subcommand("serve")]
    | Annotated[Info, tyro.conf.subcommand("info")]
    | Annotated[Compare, tyro.conf.subcommand("compare")]
    | Annotated[Reproduce, tyro.conf.subcommand("reproduce")]
    | Annotated[DataCommand, tyro.conf.subcommand("data")]
    | Annotated[Version, tyro.conf.subcommand("version")]
)  # fmt: skip


def main() -> None:
    """Entry point: 0 when all went well, 1 on an error that says what to do, 2 on wrong arguments."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without these letters shows others
    asked = ["version"] if sys.argv[1:] == ["--version"] else None  # as every command line has it
    command = tyro.cli(Command, args=asked, prog="bal", description="Teach a trained classifier to say: I don't know this.")
    warnings.showwarning = show_warning
    try:
        command()
    except BalError as error:
        Console(stderr=True).print(f"[red]error:[/red] {escape(str(error))}", highlight=False)
        sys.exit(1)
    except OSError as error:  # of standard output: a full disk, or a reader that has gone
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123 - nothing more can be said there
        if not isinstance(error, BrokenPipeError):
            Console(stderr=True).print(f"[red]error:[/red] {escape(error.strerror or str(error))}", highlight=False)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)


def show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    """A warning as a sentence, without the place in the code that it came from."""
    Console(stderr=True).print(f"[yellow]warning:[/yellow] {escape(str(message))}", highlight=False)
