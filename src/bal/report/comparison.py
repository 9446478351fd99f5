"""Pieces of a report about several detectors: tables, advice, curves; and the page of `bal compare`."""

import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bal._version import __version__
from bal.evaluation.metrics import Scores
from bal.experiments.compare import LOWER_IS_BETTER, METRICS, Measured, Standing, advice, ranking
from bal.report import figures
from bal.report.page import Page, Section, Table, write_page

HEADINGS = {
    "fpr95": "FPR95 ↓",
    "detection_error": "det. error ↓",
    "auroc": "AUROC ↑",
    "aupr_in": "AUPR-in ↑",
    "aupr_out": "AUPR-out ↑",
}
SHOWN_CURVES = 5


def ranking_table(standings: Sequence[Standing]) -> Table:
    """Mean and standard deviation over the seeds, in per cent; the best mean of each detection metric is marked."""
    rows = []
    for standing in standings:
        cells = [f"{100 * standing.mean[key]:.2f} ± {100 * standing.std[key]:.2f}" for key in (*METRICS, "accuracy")]
        rows.append([standing.detector, *cells])
    best: set[tuple[int, int]] = set()
    for column, key in enumerate(METRICS, start=1):
        values = [round(standing.mean[key], 4) for standing in standings]  # as printed, so that ties share the mark
        winner = min(values) if key in LOWER_IS_BETTER else max(values)
        best |= {(row, column) for row, value in enumerate(values) if value == winner}
    return Table(["detector", *HEADINGS.values(), "accuracy"], rows, frozenset(best))


def cost_table(standings: Sequence[Standing]) -> Table:
    """Seconds and megabytes of every detector, the quickest to score first."""
    rows = [
        [s.detector, f"{s.mean['fit_seconds']:.2f}", f"{s.mean['score_seconds']:.3f}", f"{s.mean['megabytes']:.2f}"]
        for s in sorted(standings, key=lambda s: s.mean["score_seconds"])
    ]
    return Table(["detector", "fit, s", "score 1,000 inputs, s", "kept, MB"], rows)


def cost_sections(standings: Sequence[Standing]) -> list[Section]:
    """What each detector costs, as a picture and as a table."""
    points = {s.detector: (s.mean["score_seconds"], 100 * s.mean["auroc"]) for s in standings}
    text = "Seconds to score 1,000 inputs on this machine, the classifier's pass included. Up and left is better."
    return [
        Section("Accuracy against time", [text], svg=figures.cost_scatter(points)),
        Section("Cost", table=cost_table(standings)),
    ]


def row_table(measured: Sequence[Measured]) -> Table:
    """Every single row, with bootstrap intervals of FPR95 and AUROC."""
    rows = []
    for item in measured:
        row, intervals = item.row, item.intervals()
        rows.append(
            [row.detector, row.ood, str(row.seed)]
            + [f"{100 * getattr(row, key):.2f}" for key in METRICS]
            + [f"{100 * intervals[key].low:.1f} to {100 * intervals[key].high:.1f}" for key in ("fpr95", "auroc")]
        )
    return Table(["detector", "OOD", "seed", *HEADINGS.values(), "FPR95 interval", "AUROC interval"], rows)


def scores_of(measured: Sequence[Measured], names: Sequence[str], *, seed: int, ood: str) -> dict[str, tuple[Scores, Scores]]:
    """Scores of some detectors on one OOD set, of the given seed or, for detectors without one, of their only run."""
    chosen = {}
    for name in names:
        own = [m for m in measured if m.row.detector == name and m.row.ood == ood]
        pick = next((m for m in own if m.row.seed == seed), own[0])
        chosen[name] = (pick.id_scores, pick.ood_scores)
    return chosen


def settings_text(settings: Mapping[str, Any]) -> str:
    """Settings, versions and threads as JSON."""
    versions = {"bal": __version__, "python": platform.python_version(), "torch": torch.__version__, "numpy": np.__version__}
    return json.dumps({**settings, "versions": versions, "threads": torch.get_num_threads()}, indent=2, default=str)


def detector_settings(measured: Sequence[Measured]) -> dict[str, Any]:
    """The settings of every detector, by name."""
    return {m.row.detector: asdict(m.detector) for m in measured}  # type: ignore[call-overload]


def write_comparison_report(measured: Sequence[Measured], settings: Mapping[str, Any], path: Path) -> None:
    """The page of `bal compare`."""
    standings = ranking([m.row for m in measured])
    first = measured[0].row
    oods = list(dict.fromkeys(m.row.ood for m in measured))
    top = [standing.detector for standing in standings[:SHOWN_CURVES]]
    sections = [
        Section("What to use", advice(standings)),
        Section(
            "Ranking",
            [
                f"Mean over {', '.join(oods)} as OOD, ± standard deviation over seeds, in per cent; ID is the positive class, "
                "counts of both sides are equal. Det. error is the mean of the ID rejected and the OOD accepted there. "
                "± 0.00 where a detector has nothing random: the classifier is the same for all."
            ],
            table=ranking_table(standings),
        ),
        *cost_sections(standings),
    ]
    for ood in oods:
        scores = scores_of(measured, top, seed=first.seed, ood=ood)
        sections.append(
            Section(f"ROC and precision-recall curves: {ood} (the best {len(top)})", svg=figures.roc_and_pr_curves(scores))
        )
    sections += [
        Section("Every row", ["The intervals are 95 % bootstrap intervals over the test images."], table=row_table(measured)),
        Section("Exact settings", code=settings_text({**settings, "detectors": detector_settings(measured)})),
    ]
    lead = f"{len(standings)} detectors on one classifier of {first.id}, against {', '.join(oods)}. {advice(standings)[0]}"
    write_page(Page(f"bal compare: {first.id}", lead, sections), path)
