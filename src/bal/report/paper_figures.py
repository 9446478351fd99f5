"""The paper's figures, drawn from the arrays of ``bal.experiments.pictures``: each function returns SVG text."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from bal.report.figures import ID_COLOUR, OOD_COLOUR, new_figure, to_svg

Arrays = Mapping[str, Tensor]

SOFTMAX_COLOUR, BAL_COLOUR = "#2e7d32", "#c2185b"  # green and pink, as in the paper's Fig. 6
FIG6_THRESHOLD = 0.60


def draw_fig1(arrays: Arrays) -> str:
    """Confidence maps: yellow is sure, blue is not; the points are ID."""
    figure, axes = new_figure(4, width=3.3, height=3.1)
    panels = (
        ("mnist", "softmax", "ResNet18 on MNIST, softmax"),
        ("mnist", "bal", "ResNet18 on MNIST, BAL"),
        ("toy", "softmax", "MLP on two Gaussians, softmax"),
        ("toy", "bal", "MLP on two Gaussians, BAL"),
    )
    for panel, (data, method, title) in zip(axes, panels, strict=True):
        confidence_map(panel, arrays[f"{data}_{method}"], arrays[f"{data}_corners"], arrays[f"{data}_points"])
        panel.set_title(title, fontsize=9)
    figure.colorbar(axes[-1].images[0], ax=axes, label="confidence", shrink=0.85)
    return to_svg(figure, "fig1")


def confidence_map(panel: Axes, confidence: Tensor, corners: Tensor, points: Tensor) -> None:
    """Confidence over a plane, with the ID points on it."""
    side = round(len(confidence) ** 0.5)
    (left, bottom), (right, top) = corners.tolist()
    image = confidence.reshape(side, side).T.numpy()
    panel.imshow(image, extent=(left, right, bottom, top), origin="lower", aspect="auto", vmin=0, vmax=1, cmap="cividis")
    panel.scatter(points[:, 0].numpy(), points[:, 1].numpy(), s=1.5, color="#ff7043", lw=0, rasterized=True)
    panel.grid(visible=False)


def draw_fig2(arrays: Arrays) -> str:
    """Confidence of ID and OOD images, without and with BAL."""
    figure, axes = new_figure(2, width=4.8)
    for panel, method, title in zip(axes, ("softmax", "bal"), ("ResNet18, softmax", "ResNet18 with BAL"), strict=True):
        sides = {
            "ID: Fashion-MNIST": (arrays[f"fashion-mnist_{method}"].numpy(), ID_COLOUR),
            "OOD: MNIST and Omniglot": (
                torch.cat([arrays[f"{name}_{method}"] for name in ("mnist", "omniglot")]).numpy(),
                OOD_COLOUR,
            ),
        }
        for label, (values, colour) in sides.items():
            weights = np.full(len(values), 100 / len(values))
            panel.hist(values, np.linspace(0, 1, 41).tolist(), weights=weights, color=colour, alpha=0.6, label=label)
        panel.set(title=title, xlabel="confidence", ylabel="% of images", ylim=(0, 100))
        panel.legend(loc="upper center")
    return to_svg(figure, "fig2")


def draw_fig4(arrays: Arrays) -> str:
    """Features of MNIST's digits in 2 and in 3 dimensions."""
    figure = Figure(figsize=(10, 4.4), layout="constrained")
    for index, size in enumerate((2, 3), start=1):
        axes: list[Any] = list(arrays[f"points_{size}"].T.numpy())
        panel = figure.add_subplot(1, 2, index, projection="3d" if size == 3 else None)
        style: dict[str, Any] = {"c": arrays[f"labels_{size}"].numpy(), "cmap": "tab10", "s": 4, "lw": 0, "rasterized": True}
        shown = panel.scatter(*axes, **style)
        panel.set_title(f"{size} neurons, accuracy {100 * arrays[f'accuracy_{size}'].item():.1f} %", fontsize=10)
    figure.legend(*shown.legend_elements(), loc="outside right center", title="digit", frameon=False)
    return to_svg(figure, "fig4")


def draw_fig5(arrays: Arrays) -> str:
    """Trivial OOD, generated features and hard OOD beside two Gaussians."""
    figure, axes = new_figure(3, height=3.4)
    titles = {"trivial": "trivial OOD: uniform", "generated": "made by G", "hard": "hard OOD: G, then FGSM"}
    for panel, (name, title) in zip(axes, titles.items(), strict=True):
        for group, label, colour in (("known", "ID", ID_COLOUR), (name, name, OOD_COLOUR)):
            x, y = arrays[group].T.numpy()
            panel.scatter(x, y, s=5, color=colour, alpha=0.5, lw=0, label=label, rasterized=True)
        panel.set(title=title, xlim=(-8, 8), ylim=(-6, 6))
        panel.legend(loc="upper right", markerscale=2.5)
    return to_svg(figure, "fig5")


def draw_fig6(arrays: Arrays) -> str:
    """Random pictures of cats and dogs, and of other things: green the softmax confidence, pink BAL's; bold where accepted."""
    names = ("dogs-vs-cats", "dogs-vs-cats-other")
    shown = len(arrays[f"{names[0]}_rows"])
    figure = Figure(figsize=(1.25 * shown, 3.9), layout="constrained")
    axes = figure.subplots(2, shown)
    for line, name in zip(axes, names, strict=True):
        for i, panel in enumerate(line):
            row = int(arrays[f"{name}_rows"][i])
            panel.imshow(arrays[f"{name}_images"][i].permute(1, 2, 0).numpy())
            panel.set_axis_off()
            label = ("cat", "dog")[int(arrays[f"{name}_predicted"][row])]
            for height, method, colour in ((-0.14, "softmax", SOFTMAX_COLOUR), (-0.32, "bal", BAL_COLOUR)):
                confidence = arrays[f"{name}_{method}"][row].item()
                accepted = confidence >= FIG6_THRESHOLD
                text = f"{label} {confidence:.2f}" if accepted else f"OOD {confidence:.2f}"
                weight = "bold" if accepted else "normal"
                panel.text(0.5, height, text, transform=panel.transAxes, ha="center", color=colour, fontsize=9, weight=weight)
    axes[0][0].set_title("cats and dogs (ID)", fontsize=9, loc="left")
    axes[1][0].set_title("other pictures (OOD)", fontsize=9, loc="left")
    return to_svg(figure, "fig6")


def fig6_text(arrays: Arrays) -> str:
    """How many pictures of each kind pass the threshold, and how often cats and dogs get their right name."""
    known, other = "dogs-vs-cats", "dogs-vs-cats-other"
    right = (arrays[f"{known}_predicted"] == arrays[f"{known}_labels"]).double().mean().item()
    shares = {
        (name, method): (arrays[f"{name}_{method}"] >= FIG6_THRESHOLD).double().mean().item()
        for name in (known, other)
        for method in ("softmax", "bal")
    }
    return (
        f"{len(arrays[f'{known}_labels'])} pictures of cats and dogs, of which the network names {right:.1%} rightly, and "
        f"{len(arrays[f'{other}_labels'])} of other things. At the threshold of {FIG6_THRESHOLD:.2f}, softmax accepts "
        f"{shares[known, 'softmax']:.1%} of the cats and dogs and {shares[other, 'softmax']:.1%} of the others; BAL "
        f"{shares[known, 'bal']:.1%} and {shares[other, 'bal']:.1%}. Under each picture: softmax (green), then BAL (pink)."
    )


DRAWINGS: dict[str, Callable[[Arrays], str]] = {
    "fig1": draw_fig1,
    "fig2": draw_fig2,
    "fig4": draw_fig4,
    "fig5": draw_fig5,
    "fig6": draw_fig6,
}
CAPTIONS = {
    "fig1": "Fig. 1: confidence far from the data",
    "fig2": "Fig. 2: confidence of ID and OOD images",
    "fig4": "Fig. 4: features in 2 and 3 dimensions",
    "fig5": "Fig. 5: trivial and hard OOD",
    "fig6": "Fig. 6: cats and dogs in the open world",
}
