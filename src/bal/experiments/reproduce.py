"""`bal reproduce`: run what is missing of a table, and put our numbers beside the paper's."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bal.experiments.cells import Outcome, read_outcome, run_cells
from bal.experiments.compare import Row, Say
from bal.experiments.networks import Store
from bal.experiments.tables import Line, TableSpec


@dataclass(frozen=True)
class Finding:
    """One line of a table as measured: per cent by metric, mean and deviation over seeds; or why there is nothing."""

    line: Line
    mean: dict[str, float]
    std: dict[str, float]
    seeds: int
    seconds: float
    unhealthy: int = 0
    reason: str = ""

    @property
    def measured(self) -> bool:
        """Whether there are numbers."""
        return bool(self.mean)

    def difference(self, metric: str) -> float | None:
        """Ours minus the paper's, where both are there."""
        if metric not in self.line.paper or not self.measured:
            return None
        return self.mean[metric] - self.line.paper[metric]


KEYS = ("accuracy", "fpr95", "detection_error", "auroc", "aupr_in", "aupr_out")


def reproduce_table(table: TableSpec, store: Store, *, seeds: Sequence[int], say: Say) -> list[Finding]:
    """Measure the cells that are missing and summarise every line."""
    say(f"{table.title} ({store.preset} preset, seeds {', '.join(map(str, seeds))})")
    reasons = run_cells([cell for line in table.lines for cell in line.cell.seeded(seeds)], store, say=say)
    return [summarise(line, store, seeds=seeds, reasons=reasons) for line in table.lines]


def summarise(line: Line, store: Store, *, seeds: Sequence[int], reasons: dict[str, str]) -> Finding:
    """The numbers of a line, all seeds or none."""
    cells = line.cell.seeded(seeds)
    outcomes: list[Outcome] = [outcome for cell in cells if (outcome := read_outcome(store, cell)) and line.ood in outcome.rows]
    if len(outcomes) < len(cells):
        missing = [name.partition("/")[0] for name in (line.cell.network, *line.ood.split("+")) if name in reasons]
        return Finding(line, {}, {}, 0, 0.0, reason=f"{' and '.join(missing)} not at hand" if missing else "not measured yet")
    rows: list[Row] = [outcome.rows[line.ood] for outcome in outcomes]
    values = {key: [100 * getattr(row, key) for row in rows] for key in KEYS}
    return Finding(
        line,
        mean={key: round(float(np.mean(own)), 4) for key, own in values.items()},
        std={key: round(float(np.std(own, ddof=1)), 4) if len(own) > 1 else 0.0 for key, own in values.items()},
        seeds=len(rows),
        seconds=sum(outcome.environment["seconds"] for outcome in outcomes),
        unhealthy=sum(outcome.status != "finished" for outcome in outcomes),
    )
