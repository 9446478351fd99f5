"""bal reproduce."""

import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import tyro

from bal.cli.common import check_folder, make_console, print_plainly
from bal.errors import DataError
from bal.settings import check_number

Experiment = Literal["table1", "table2", "table3", "table4", "table5", "fig1", "fig2", "fig4", "fig5", "fig6", "all"]


@dataclass(frozen=True, kw_only=True)
class Reproduce:
    """Run tables and figures of the paper again on real data, and print our numbers beside the paper's.

    Data sets are read from BAL_DATA, pre-trained weights from BAL_WEIGHTS; what is not there is said and left blank. What was
    measured before is not measured again, so a run that was stopped goes on where it was.

    Example: BAL_DATA=/data BAL_WEIGHTS=/weights bal reproduce table1 --preset cpu --seeds 5
    """

    experiments: tyro.conf.Positional[tuple[Experiment, ...]]
    """Tables and figures, or all."""
    preset: Literal["cpu", "paper"] = "cpu"
    """cpu ends within an hour or two on 2 cores; paper trains ResNet18 for 300 epochs and caps nothing."""
    seeds: int = 3
    """How many seeds each detector that draws random numbers is trained with."""
    out: Path = Path("runs/reproduce")
    """Where networks, features, cells and the page go."""
    results: Path | None = None
    """Where tables (JSON, Markdown) and figures (SVG) go; OUT/results when not given."""

    def __call__(self) -> None:
        """Run it."""
        if not self.experiments:
            raise DataError("name at least one table or figure, or all; for example: bal reproduce table1 fig5")
        check_number("seeds", self.seeds, low=1, whole=True)
        check_folder(self.out)
        from bal.experiments.networks import Store  # noqa: PLC0415
        from bal.experiments.pictures import PICTURES, picture  # noqa: PLC0415
        from bal.experiments.reproduce import reproduce_table  # noqa: PLC0415
        from bal.experiments.tables import TABLES  # noqa: PLC0415
        from bal.report.reproduction import write_average, write_figure, write_reproduction, write_table  # noqa: PLC0415

        console = make_console()
        say = partial(print_plainly, console)
        names = [*TABLES, *PICTURES] if "all" in self.experiments else list(dict.fromkeys(self.experiments))
        results = self.results or self.out / "results"
        settings = {"command": " ".join(["bal", *sys.argv[1:]]), "preset": self.preset, "seeds": self.seeds}
        store = Store(self.out, self.preset)
        sections: list[Any] = []
        compared: list[Any] = []
        for name in names:
            if name in TABLES:
                table = TABLES[name](self.preset)
                findings = reproduce_table(table, store, seeds=range(self.seeds), say=say)
                sections += write_table(table, findings, settings, results)
                compared += findings if name in ("table1", "table2") else []
                say(f"{table.title}: {sum(f.measured for f in findings)} of {len(findings)} lines measured")
            else:
                try:
                    sections += write_figure(name, picture(name, store), results)
                    say(f"{name}: {results / name}.svg")
                except DataError as error:
                    say(f"{name}: not drawn: {error}")
        if {"table1", "table2"} <= set(names):
            sections.insert(0, write_average(compared, results))
        page = self.out / f"{'all' if 'all' in self.experiments else '-'.join(names)}.html"
        write_reproduction(sections, settings, page)
        say(f"results: {results}\npage:    {page}")
