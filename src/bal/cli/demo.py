"""bal demo."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bal.cli.common import check_folder, check_seeds, make_console, print_plainly, print_ranking


@dataclass(frozen=True, kw_only=True)
class Demo:
    """Train a small classifier on Fashion-MNIST, fit BAL and its rivals, compare them on MNIST, write a report.

    Everything it needs ships with the package; about 7 minutes on 2 cores.

    Example: bal demo --seeds 0 1 2 --out runs/demo
    """

    seeds: tuple[int, ...] = (0, 1, 2)
    """One classifier and one of each detector are trained for each."""
    out: Path = Path("runs/demo")
    """Where results.json, report.html and the training logs go."""

    def __call__(self) -> None:
        """Run it."""
        check_seeds(self.seeds)
        check_folder(self.out)
        from bal.experiments import DemoSettings, ranking, run_demo  # noqa: PLC0415 - torch is slow to import
        from bal.report import write_demo_report  # noqa: PLC0415

        console = make_console()
        settings = DemoSettings(seeds=self.seeds)
        runs = run_demo(settings, self.out, say=partial(print_plainly, console))
        write_demo_report(runs, settings, self.out / "report.html")
        print_ranking(console, ranking([m.row for run in runs for m in run.measured]), self.out)
