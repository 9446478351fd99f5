"""The page of a study: variants ranked by what their stand-ins promise, and what the stand-ins are worth."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.ticker import LogLocator, NullLocator

from bal.experiments.study import StudyRun, rank_correlation, worth_of_stand_ins
from bal.report.comparison import settings_text
from bal.report.figures import ID_COLOUR, OOD_COLOUR, new_figure, to_svg
from bal.report.page import Page, Section, Table, markdown, write_page
from bal.storage import write_atomically


def variant_table(runs: Sequence[StudyRun]) -> Table:
    """One line for each variant, the best promise first: the miss over all networks on stand-ins, then on the true sets."""
    networks = list(dict.fromkeys(run.network for run in runs))
    rows = []
    for variant in dict.fromkeys(run.variant for run in runs):
        own = [run for run in runs if run.variant == variant]
        promise, truth = (miss_over(own, networks, key) for key in ("promise", "truth"))
        false_positives = 100 * float(np.mean([run.fpr95 for run in own]))
        unhealthy = sum(run.status != "finished" for run in own)
        cells = [by_network(own, network) for network in networks]
        rows.append((promise, [variant, f"{promise:.2f}", f"{truth:.2f}", f"{false_positives:.2f}", str(unhealthy), *cells]))
    header = ["variant", "miss on stand-ins", "miss on OOD", "FPR95 on OOD", "stopped", *networks]
    return Table(header, [row for _, row in sorted(rows, key=lambda item: item[0])])


def miss_over(runs: Sequence[StudyRun], networks: Sequence[str], key: str) -> float:
    """The geometric mean over networks of that over seeds, in per cent."""
    found = [[np.log(getattr(run, key)) for run in runs if run.network == network] for network in networks]
    return 100 * float(np.exp(np.mean([np.mean(values) for values in found if values])))


def worth_over_all(runs: Sequence[StudyRun]) -> float:
    """Rank correlation between the variants' miss on stand-ins and on OOD, each over all networks."""
    networks = list(dict.fromkeys(run.network for run in runs))
    variants = [[run for run in runs if run.variant == variant] for variant in dict.fromkeys(run.variant for run in runs)]
    promise, truth = ([miss_over(own, networks, key) for own in variants] for key in ("promise", "truth"))
    return rank_correlation(promise, truth)


def by_network(runs: Sequence[StudyRun], network: str) -> str:
    """Miss on stand-ins / on OOD ± its deviation over seeds, on one network."""
    own = [run for run in runs if run.network == network]
    if not own:
        return "-"
    spread = f" ± {np.std([100 * run.truth for run in own], ddof=1):.2f}" if len(own) > 1 else ""
    return f"{miss_over(own, [network], 'promise'):.2f} / {miss_over(own, [network], 'truth'):.2f}{spread}"


def promise_and_truth(runs: Sequence[StudyRun], marked: str = "") -> str:
    """Miss on stand-ins against miss on OOD, a panel for each network, a point for each run; ``marked`` is a variant to show."""
    networks = list(dict.fromkeys(run.network for run in runs))
    figure, panels = new_figure(len(networks), height=3.3)
    for panel, network in zip(panels, networks, strict=True):
        own = [run for run in runs if run.network == network]
        for chosen, colour in ((False, ID_COLOUR), (True, OOD_COLOUR)):
            shown = [run for run in own if (run.variant == marked) == chosen]
            x, y = [100 * run.promise for run in shown], [100 * run.truth for run in shown]
            panel.scatter(x, y, s=14, color=colour, alpha=0.7, lw=0, label=marked if chosen else "other variants")
        rho = rank_correlation([run.promise for run in own], [run.truth for run in own])
        panel.set(title=f"{network}\nrank correlation {rho:.2f}", xlabel="miss on stand-ins, %", ylabel="miss on true OOD, %")
        panel.set(xscale="log", yscale="log")
        for axis in (panel.xaxis, panel.yaxis):
            axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axis.set_major_formatter("{x:g}")
            axis.set_minor_locator(NullLocator())
    if marked:
        panels[0].legend(loc="lower right")
    return to_svg(figure, "study")


def write_study(runs: Sequence[StudyRun], settings: Mapping[str, Any], folder: Path, *, marked: str = "") -> None:
    """``study.json`` with every run, ``study.svg``, ``study.md`` and ``study.html``."""
    worth = ", ".join(f"{network} {rho:.2f}" for network, rho in worth_of_stand_ins(runs).items())
    worth += f"; of the variants, each over all networks: {worth_over_all(runs):.2f}"
    figure = promise_and_truth(runs, marked)
    sections = [
        Section(
            "What the stand-ins are worth",
            [
                "A miss is the geometric mean of 1 - AUROC over several sets. Rank correlation between the miss on stand-ins and "
                f"on true OOD sets, over {len(runs)} runs: {worth}."
            ],
            svg=figure,
        ),
        Section(
            "Variants",
            [
                "Per cent, less is better, the best on stand-ins first: nothing else may choose. In the columns of networks: "
                "miss on stand-ins / on OOD ± deviation over seeds."
            ],
            table=variant_table(runs),
        ),
        Section("Exact settings", code=settings_text(settings)),
    ]
    write_atomically(folder / "study.json", (json.dumps([asdict(run) for run in runs], indent=1) + "\n").encode())
    write_atomically(folder / "study.svg", figure.encode())
    write_atomically(folder / "study.md", markdown(sections[:2], "study.svg").encode())
    write_page(Page("bal: a study of settings", f"{len(runs)} runs, none chosen by OOD data.", sections), folder / "study.html")
