"""Which BAL? Variants of its modules on several networks, ranked by stand-ins; OOD data only judges the stand-ins.

BAL_DATA=... BAL_WEIGHTS=... python benchmarks/recipe_study.py [--seeds 1] [--networks resnet20-cifar10 ...]

Finished runs are kept under runs/reproduce/study, so it can be stopped and started again; features come from the cache of
`bal reproduce`. Writes study.html, study.md, study.json, study.svg and curves.svg into --out, runs/study when not given.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tyro

from bal.detectors import BAL, FeatureDetector, make_detector
from bal.discrimination import GANTraining
from bal.experiments.networks import Store
from bal.experiments.study import StudyRun, run_study
from bal.report.figures import ID_COLOUR, OOD_COLOUR, new_figure, to_svg
from bal.report.study import miss_over, write_study
from bal.sampling import Epsilon
from bal.storage import write_atomically

NETWORKS = {
    "resnet20-cifar10": ("svhn", "cifar100"),
    "densenet-cifar10": ("svhn", "tiny-imagenet"),
    "resnet18-fashion-mnist": ("mnist", "omniglot"),
}
RIVALS = ("max-softmax", "energy", "kNN", "Mahalanobis++", "ViM", "NCI", "fDBD")


def bal(training: dict[str, Any] | None = None, **settings: Any) -> BAL:
    """The default with some settings changed."""
    return BAL(training=replace(GANTraining(), **(training or {})), **settings)


def variants() -> dict[str, FeatureDetector]:
    """One change of the default at a time, by module; first those of the start, which need no training."""
    start: dict[str, Any] = {"epochs": 0}
    found: dict[str, FeatureDetector] = {"default": bal(), "start": bal(start)}
    for unit in ("unit", "mean", "q95"):
        found[f"start, radius in units of {unit}"] = bal(start, radius=unit)
    for b in (1.0, 2.0, 8.0):
        found[f"start, b = {b:g}"] = bal(start, radial_start=(2 * b, b))
    for a in (4.0, 12.0):
        found[f"start, a = {a:g}"] = bal(start, radial_start=(a, 4.0))
    for weight in (0.5, 2.0, 4.0):
        found[f"start, energy x {weight:g}"] = bal(start, evidence_start=weight)
    found["start, no evidence"] = bal(start, evidence="none")
    for weight in (0.5, 1.0):
        found[f"start, length x {weight:g}"] = bal(start, evidence="length", evidence_start=weight)
    found["start, a = 6, b = 3, radius as it is, no evidence"] = bal(
        start, radial_start=(6.0, 3.0), radius="unit", evidence="none"
    )
    for temperature in (0.5, 2.0, 4.0):
        found[f"start, temperature {temperature:g}"] = bal(start, temperature=temperature)
    found["start, prior 5 %"] = bal(start, prior_quantile=0.05)
    for geometry in ("identity", "standardise", "l2", "whiten", "l2+whiten+residual"):
        found[f"start, geometry {geometry}"] = bal(start, normalisation=geometry)

    found["losses as printed"] = BAL.paper()
    found["losses as printed, our geometry and D"] = bal({"form": "printed"})
    for rate in (1e-5, 1e-4, 3e-4, 1e-3):
        found[f"rate of D {rate:g}"] = bal({"learning_rate_D": rate})
    for geometry in ("identity", "l2", "whiten", "l2+whiten+residual"):
        found[f"geometry {geometry}"] = bal(normalisation=geometry)
    for conditioning in ("concatenate", "per-class", "projection", "centred"):
        found[f"conditioning {conditioning}"] = bal({"learning_rate_D": 1e-3}, conditioning=conditioning)
    for sampler in ("uniform", "random-scale", "interpolation", "coordinate-shuffle", "gaussian"):
        found[f"sampler {sampler}"] = bal(sampler=sampler)
    found["no fakes in L_t"] = bal({"fake_weight": 0.0})
    found["fakes warm up"] = bal({"warm_up": 0.5})
    found["push from real features"] = bal({"push_base": "real"})
    found["three FGSM steps"] = bal({"push_steps": 3})
    found["epsilon by spread"] = bal({"epsilon": Epsilon(relative=True)})
    for share in (0.0, 0.8):
        found[f"hard share {share}"] = bal({"hard_share": share})
    found["dropout"] = bal(dropout=0.2)
    found["spectral norm"] = bal(spectral_norm=True)
    found["R1"] = bal({"r1": 0.1})
    found["no moving average"] = bal({"decay": 0.0})
    found["wide D"] = bal(hidden_D=(1024, 1024))
    found["small D"] = bal(hidden_D=(64,))
    found["small G"] = bal(hidden_G=(64,))
    found["ensemble of 3"] = bal(members=3)
    return found


# how the miss moves with the settings that matter most: each value and the variant that has it; the default's own comes last
CURVES: dict[str, tuple[dict[float, str], float]] = {
    "b, weight of the radius": ({1: "start, b = 1", 2: "start, b = 2", 4: "start", 8: "start, b = 8"}, 4),
    "k, weight of the energy": (
        {0: "start, no evidence", 0.5: "start, energy x 0.5", 1: "start", 2: "start, energy x 2", 4: "start, energy x 4"},
        1,
    ),
    "learning rate of D": (
        {
            0: "start",
            1e-5: "rate of D 1e-05",
            3e-5: "default",
            1e-4: "rate of D 0.0001",
            3e-4: "rate of D 0.0003",
            1e-3: "rate of D 0.001",
        },
        3e-5,
    ),
}


def curves(runs: list[StudyRun], networks: tuple[str, ...]) -> str:
    """Miss on stand-ins and on true OOD over each setting of CURVES, the geometric mean over networks; the default is dashed."""
    figure, panels = new_figure(len(CURVES), height=3.0)
    for panel, (title, (variants_of, chosen)) in zip(panels, CURVES.items(), strict=True):
        places = range(len(variants_of))
        for key, colour, label in (
            ("promise", ID_COLOUR, "stand-ins, which choose"),
            ("truth", OOD_COLOUR, "true OOD, which judges"),
        ):
            misses = [miss_over([run for run in runs if run.variant == name], networks, key) for name in variants_of.values()]
            panel.plot(places, misses, marker="o", ms=4, color=colour, label=label)
        panel.axvline(list(variants_of).index(chosen), color="grey", ls="--", lw=1)
        panel.set(xlabel=title, ylabel="miss, %", ylim=(0, None))
        panel.set_xticks(list(places), [f"{value:g}" for value in variants_of])
    panels[0].legend(loc="lower right")
    return to_svg(figure, "recipe")


@dataclass(frozen=True)
class Study:
    """Rank variants of BAL by stand-ins."""

    seeds: int = 1
    networks: tuple[str, ...] = tuple(NETWORKS)
    out: Path = Path("runs/study")
    store: Path = Path("runs/reproduce")

    def __call__(self) -> None:
        """Run what is missing and write the page."""
        store = Store(self.store, show_progress=False)
        chosen = {name: NETWORKS[name] for name in self.networks}
        rivals: dict[str, Any] = {name: make_detector(name) for name in RIVALS}
        runs = run_study({**variants(), **rivals}, chosen, store, seeds=range(self.seeds), say=print)
        write_atomically(self.out / "curves.svg", curves(runs, self.networks).encode())
        write_study(runs, {"command": "python benchmarks/recipe_study.py", "seeds": self.seeds}, self.out, marked="default")


if __name__ == "__main__":
    tyro.cli(Study)()
