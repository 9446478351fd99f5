"""The command line: ``bal demo``. torch is imported inside the commands, so that help is quick."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.table import Table

from bal._version import __version__
from bal.errors import BalError


@dataclass(frozen=True, kw_only=True)
class Demo:
    """Train a small classifier on Fashion-MNIST, fit BAL, compare it with max-softmax on MNIST, write a report.

    Everything it needs ships with the package; about 3 minutes on 2 cores.

    Example: bal demo --seeds 0 1 2 --out runs/demo
    """

    seeds: tuple[int, ...] = (0, 1, 2)
    """One classifier and one BAL are trained for each."""
    out: Path = Path("runs/demo")
    """Where results.json, report.html and the training logs go."""

    def __call__(self) -> None:
        """Run it."""
        from bal.experiments import DemoSettings, run_demo  # noqa: PLC0415 - torch is slow to import
        from bal.report import summary_table, write_demo_report  # noqa: PLC0415

        if not self.seeds:
            raise BalError("--seeds needs at least one whole number, for example --seeds 0 1 2")
        console = Console()
        if not console.is_terminal:
            console.width = 140  # a log has room for the table
        settings = DemoSettings(seeds=self.seeds)
        runs = run_demo(settings, self.out, say=lambda line: console.print(line, highlight=False))
        report = self.out / "report.html"
        write_demo_report(runs, settings, report)
        summary = summary_table(runs)
        table = Table(title=f"mean ± standard deviation of {len(runs)} seeds, in per cent")
        for index, name in enumerate(summary.header):
            table.add_column(name, justify="right" if index else "left")
        for r, row in enumerate(summary.rows):
            table.add_row(*(f"[bold]{cell}[/bold]" if (r, c) in summary.best else cell for c, cell in enumerate(row)))
        console.print(table)
        console.print(f"results: {self.out / 'results.json'}\nreport:  {report}", highlight=False)


@dataclass(frozen=True)
class Version:
    """Print the version."""

    def __call__(self) -> None:
        """Run it."""
        Console().print(f"bal {__version__}", highlight=False)


Command = (
    Annotated[Demo, tyro.conf.subcommand("demo")]
    | Annotated[Version, tyro.conf.subcommand("version")]
)  # fmt: skip


def main() -> None:
    """Entry point: 0 when all went well, 1 on an error that says what to do, 2 on wrong arguments."""
    command = tyro.cli(Command, prog="bal", description="Teach a trained classifier to say: I don't know this.")
    try:
        command()
    except BalError as error:
        Console(stderr=True).print(f"[red]error:[/red] {error}", highlight=False)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
