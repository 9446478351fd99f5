"""The page of a study: variants ranked by what their stand-ins promise, and what the stand-ins are worth."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from bal.experiments.study import StudyRun, rank_correlation, worth_of_stand_ins
from bal.report.comparison import settings_text
from bal.report.figures import ID_COLOUR, OOD_COLOUR, new_figure, to_svg
from bal.report.page import Page, Section, Table, write_page
from bal.storage import write_atomically


def variant_table(runs: Sequence[StudyRun]) -> Table:
    """One line for each variant, the best promise first: mean over networks of the stand-ins' AUROC, then of the true sets."""
    networks = list(dict.fromkeys(run.network for run in runs))
    rows = []
    for variant in dict.fromkeys(run.variant for run in runs):
        own = [run for run in runs if run.variant == variant]
        promise, truth, false_positives = (mean_over(own, networks, key) for key in ("promise", "truth", "fpr95"))
        unhealthy = sum(run.status != "finished" for run in own)
        cells = [by_network(own, network) for network in networks]
        rows.append((promise, [variant, f"{promise:.2f}", f"{truth:.2f}", f"{false_positives:.2f}", str(unhealthy), *cells]))
    header = ["variant", "stand-ins", "true AUROC", "true FPR95", "stopped", *networks]
    return Table(header, [row for _, row in sorted(rows, key=lambda item: -item[0])])


def mean_over(runs: Sequence[StudyRun], networks: Sequence[str], key: str) -> float:
    """The mean over networks of the mean over seeds, in per cent."""
    found = [[getattr(run, key) for run in runs if run.network == network] for network in networks]
    return 100 * float(np.mean([np.mean(values) for values in found if values]))


def by_network(runs: Sequence[StudyRun], network: str) -> str:
    """Stand-ins / true AUROC ± its deviation over seeds, on one network."""
    own = [run for run in runs if run.network == network]
    if not own:
        return "-"
    truths = [100 * run.truth for run in own]
    spread = f" ± {np.std(truths, ddof=1):.2f}" if len(truths) > 1 else ""
    return f"{100 * np.mean([run.promise for run in own]):.2f} / {np.mean(truths):.2f}{spread}"


def promise_and_truth(runs: Sequence[StudyRun], marked: str = "") -> str:
    """Stand-ins against true AUROC, a panel for each network and a point for each run; ``marked`` is a variant to show."""
    networks = list(dict.fromkeys(run.network for run in runs))
    figure, panels = new_figure(len(networks), height=3.3)
    for panel, network in zip(panels, networks, strict=True):
        own = [run for run in runs if run.network == network]
        for chosen, colour in ((False, ID_COLOUR), (True, OOD_COLOUR)):
            shown = [run for run in own if (run.variant == marked) == chosen]
            x, y = [100 * run.promise for run in shown], [100 * run.truth for run in shown]
            panel.scatter(x, y, s=14, color=colour, alpha=0.7, lw=0, label=marked if chosen else "other variants")
        rho = rank_correlation([run.promise for run in own], [run.truth for run in own])
        panel.set(title=f"{network}: rank correlation {rho:.2f}", xlabel="AUROC against stand-ins, %", ylabel="true AUROC, %")
    if marked:
        panels[0].legend(loc="lower right")
    return to_svg(figure, "study")


def write_study(runs: Sequence[StudyRun], settings: Mapping[str, Any], folder: Path, *, marked: str = "") -> None:
    """``study.json`` with every run, ``study.svg`` and ``study.html``."""
    worth = ", ".join(f"{network} {rho:.2f}" for network, rho in worth_of_stand_ins(runs).items())
    figure = promise_and_truth(runs, marked)
    sections = [
        Section(
            "What the stand-ins are worth",
            [f"Rank correlation between the AUROC against stand-ins and against true OOD sets, over {len(runs)} runs: {worth}."],
            svg=figure,
        ),
        Section(
            "Variants",
            [
                "Per cent, the best against stand-ins first: nothing else may choose. In the columns of networks: stand-ins / "
                "true AUROC ± deviation over seeds."
            ],
            table=variant_table(runs),
        ),
        Section("Exact settings", code=settings_text(settings)),
    ]
    write_atomically(folder / "study.json", (json.dumps([asdict(run) for run in runs], indent=1) + "\n").encode())
    write_atomically(folder / "study.svg", figure.encode())
    write_page(Page("bal: a study of settings", f"{len(runs)} runs, none chosen by OOD data.", sections), folder / "study.html")
