"""The pictures of a report: each function draws one figure and returns it as SVG text."""

import base64
import io
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image

from bal.discrimination import Record
from bal.evaluation.metrics import Scores
from bal.evaluation.selective import RiskCoverage, thinned

ID_COLOUR, OOD_COLOUR = "#1f6fb4", "#d95f1e"
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",  # text stays text: smaller, and it can be searched
    "font.size": 10,
    "font.family": "sans-serif",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e6e6e6",
    "axes.axisbelow": True,
    "legend.frameon": False,
}
LINES = ("#d95f1e", "#1f6fb4", "#3a8f4d", "#8a5bb0", "#7f7f7f", "#b8860b", "#c2185b", "#00897b")


def to_svg(figure: Figure, name: str) -> str:
    """SVG text without the XML header, the same bytes for the same figure."""
    buffer = io.StringIO()
    with mpl.rc_context({**STYLE, "svg.hashsalt": name}):
        figure.savefig(buffer, format="svg", metadata={"Date": None}, bbox_inches="tight")
    text = buffer.getvalue()
    return text[text.index("<svg") :]


def new_figure(panels: int, *, width: float = 3.6, height: float = 2.9) -> tuple[Figure, Sequence[Axes]]:
    """A row of panels in the report's style."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(width * panels, height), layout="constrained")
        axes = figure.subplots(1, panels, squeeze=False)[0]
    return figure, axes


def score_histograms(scores: Mapping[str, tuple[Scores, Scores]], *, cut: float = 0.05, words: str = "95 % of ID kept") -> str:
    """Confidence of ID and OOD, a panel for each detector or OOD set, on an axis where every bin holds as many ID scores.

    Scores of detectors have no common unit, and most of max-softmax's stick to 0; so the axis is the rank among ID scores.
    ``cut`` marks a threshold, as the share of ID scores below it.
    """
    figure, axes = new_figure(len(scores), width=5.2)
    for panel, (name, (known, unknown)) in zip(axes, scores.items(), strict=True):
        rank = np.sort(known)
        places = {
            "ID": (np.searchsorted(rank, known) / len(rank), ID_COLOUR),
            "OOD": (np.searchsorted(rank, unknown) / len(rank), OOD_COLOUR),
        }
        for label, (place, colour) in places.items():
            weights = np.full(len(place), 100 / len(place))
            panel.hist(place, np.linspace(0, 1, 41).tolist(), weights=weights, color=colour, alpha=0.6, label=label)
        panel.axvline(cut, color="#444444", lw=1, ls="--")
        panel.text(cut + 0.01, 0.97, words, transform=panel.get_xaxis_transform(), va="top", fontsize=8)
        panel.set(title=name, xlabel="share of ID test rows with a lower score", ylabel="% of rows", yscale="symlog")
        panel.set_yticks([0, 1, 5, 20, 100], ["0", "1", "5", "20", "100"])
        panel.legend(loc="upper right")
    return to_svg(figure, "histograms")


def roc_and_pr_curves(scores: Mapping[str, tuple[Scores, Scores]]) -> str:
    """ROC (ID positive) and both precision-recall curves, a line for each detector."""
    figure, (roc, pr_in, pr_out) = new_figure(3)
    for colour, (name, (known, unknown)) in zip(LINES, scores.items(), strict=False):
        tpr, fpr, precision = curve(known, unknown)
        roc.plot(fpr, tpr, color=colour, label=name)
        pr_in.plot(tpr, precision, color=colour, label=name)
        recall, _, precision = curve(-unknown, -known)
        pr_out.plot(recall, precision, color=colour, label=name)
    roc.axhline(0.95, color="#444444", lw=0.8, ls="--")
    roc.set(title="ROC", xlabel="OOD accepted (FPR)", ylabel="ID accepted (TPR)", xlim=(0, 1), ylim=(0, 1.01))
    pr_in.set(title="precision-recall, ID", xlabel="recall", ylabel="precision", xlim=(0, 1), ylim=(0.45, 1.01))
    pr_out.set(title="precision-recall, OOD", xlabel="recall", ylabel="precision", xlim=(0, 1), ylim=(0.45, 1.01))
    roc.legend(loc="lower right")
    return to_svg(figure, "curves")


def curve(positive: Scores, negative: Scores, points: int = 400) -> tuple[Scores, Scores, Scores]:
    """(recall, false positive rate, precision) at up to ``points`` thresholds, from the strictest to accepting all."""
    positive, negative = np.sort(positive), np.sort(negative)
    pooled = np.unique(np.concatenate([positive, negative]))
    thresholds = pooled[np.unique(np.linspace(len(pooled) - 1, 0, points).astype(int))[::-1]]
    true = len(positive) - np.searchsorted(positive, thresholds)
    false = len(negative) - np.searchsorted(negative, thresholds)
    return true / len(positive), false / len(negative), true / np.maximum(true + false, 1)


def risk_coverage_curves(curves: Mapping[str, RiskCoverage], chosen: tuple[float, float] | None) -> str:
    """Errors among accepted rows as fewer are accepted, a line for each score; ``chosen`` is the coverage and risk of now."""
    figure, (panel,) = new_figure(1, width=6.4, height=3.4)
    for colour, (name, found) in zip(LINES, curves.items(), strict=False):
        coverage, risk = thinned(found)
        panel.step(100 * coverage, 100 * risk, color=colour, where="post", label=f"{name} (AURC {found.aurc:.4f})")
    if chosen is not None:
        panel.plot(100 * chosen[0], 100 * chosen[1], "o", color="#1c2530", ms=6, label="at the threshold", zorder=4)
    panel.set(xlabel="accepted, % of valid ID rows (coverage)", ylabel="% of them wrong (risk)", xlim=(0, 101))
    panel.set_ylim(bottom=0)
    panel.legend(loc="upper left")
    return to_svg(figure, "risk")


def training_curves(history: Sequence[Record]) -> str:
    """The losses of Algorithm 1, and what D answers to each kind of pair, epoch by epoch."""
    figure, (losses, answers) = new_figure(2, width=5.2)
    epochs = [record["epoch"] for record in history]
    for panel, names in (
        (losses, ("L_d", "L_t", "L_s", "L_u", "L_g")),
        (answers, ("D_id", "D_shuffled", "D_fake", "D_trivial", "D_hard")),
    ):
        for colour, name in zip(LINES, names, strict=False):
            panel.plot(epochs, [record[name] for record in history], color=colour, marker="o", ms=3, label=name.replace("D_", ""))
        panel.set(xlabel="epoch")
        panel.legend(fontsize=8, ncols=2)
    losses.set(title="losses")
    answers.set(title="mean of D over a batch", ylim=(-0.02, 1.02))
    return to_svg(figure, "training")


def feature_map(groups: Mapping[str, NDArray[np.float32]]) -> str:
    """All groups on the two main axes of the ID group (PCA), ID on top of each panel's own synthetic group."""
    known = groups["ID"]
    centre = known.mean(0)
    axes_2d = np.linalg.svd(known - centre, full_matrices=False)[2][:2].T  # (m, 2)
    places = {name: (f - centre) @ axes_2d for name, f in groups.items()}
    names = [name for name in groups if name != "ID"]
    figure, panels = new_figure(len(names), height=3.3)
    for panel, name in zip(panels, names, strict=True):
        panel.scatter(
            places[name][:, 0], places[name][:, 1], s=6, color=OOD_COLOUR, alpha=0.55, lw=0, label=name, rasterized=True
        )
        panel.scatter(places["ID"][:, 0], places["ID"][:, 1], s=6, color=ID_COLOUR, alpha=0.55, lw=0, label="ID", rasterized=True)
        panel.set(title=f"ID and {name}", xlabel="first axis", ylabel="second axis")
        panel.legend(loc="upper right", markerscale=2.5)
    return to_svg(figure, "map")


def cost_scatter(points: Mapping[str, tuple[float, float]]) -> str:
    """AUROC in per cent against seconds, a named point for each detector; names are moved apart where they would overlap."""
    figure, (panel,) = new_figure(1, width=9.6, height=4.6)
    taken: list[float] = []
    low = min(auroc for _, auroc in points.values())
    high = max(auroc for _, auroc in points.values())
    step = max(high - low, 1e-9) / 24
    panel.set_xscale("log")
    for name, (seconds, auroc) in sorted(points.items(), key=lambda item: -item[1][1]):
        colour = OOD_COLOUR if name == "BAL" else ID_COLOUR
        panel.scatter([seconds], [auroc], s=26, color=colour, zorder=3)
        place = auroc if not taken else min(auroc, taken[-1] - step)
        taken.append(place)
        panel.annotate(
            f"{name}  {auroc:.1f}",
            (seconds, auroc),
            xytext=(1.02, place),
            textcoords=panel.get_yaxis_transform(),
            va="center",
            fontsize=8,
            color=colour,
            arrowprops={"arrowstyle": "-", "lw": 0.4, "color": "#b0b8c0"},
            annotation_clip=False,
        )
    panel.set(xlabel="seconds for 1,000 inputs (log scale)", ylabel="AUROC, %")
    for axis_formatter in (panel.xaxis.set_major_formatter, panel.xaxis.set_minor_formatter):
        axis_formatter(lambda value, _: f"{value:g}")
    return to_svg(figure, "cost")


def picture(image: NDArray[np.uint8]) -> str:
    """A small image as a data address for the page."""
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "PNG")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()
