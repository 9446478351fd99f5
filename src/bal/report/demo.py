"""The report of `bal demo`: what was measured, and what it looks like."""

import json
import platform
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from bal._version import __version__
from bal.data import Sample, load_sample
from bal.detectors import log_max_softmax
from bal.evaluation.metrics import Scores
from bal.experiments import DemoSettings, SeedRun, summary
from bal.features import Features
from bal.report import figures
from bal.report.page import Page, Picture, Section, Table, write_page
from bal.storage import write_atomically

COLUMNS = {
    "fpr95": "FPR95 ↓",
    "detection_error": "det. error ↓",
    "auroc": "AUROC ↑",
    "aupr_in": "AUPR-in ↑",
    "aupr_out": "AUPR-out ↑",
    "accuracy": "accuracy",
    "seconds": "seconds",
}
LOWER_IS_BETTER = ("fpr95", "detection_error")
COMPARED = tuple(COLUMNS)[:5]


def summary_table(runs: Sequence[SeedRun]) -> Table:
    """Mean and standard deviation over the seeds, in per cent; the best mean of each detection metric is marked."""
    lines = list(summary(list(runs)))
    rows, best = [], set()
    for name, numbers in lines:
        cells = [f"{100 * mean:.2f} ± {100 * std:.2f}" for key, (mean, std) in numbers.items() if key != "seconds"]
        rows.append([name, *cells, f"{numbers['seconds'][0]:.1f}"])
    for column, key in enumerate(COMPARED, start=1):
        means = [numbers[key][0] for _, numbers in lines]
        pick = int(np.argmin(means) if key in LOWER_IS_BETTER else np.argmax(means))
        best.add((pick, column))
    return Table(["detector", *COLUMNS.values()], rows, frozenset(best))


def seed_table(runs: Sequence[SeedRun]) -> Table:
    """Every single row, with bootstrap intervals of FPR95 and AUROC."""
    rows = []
    for measured in (measured for run in runs for measured in run.measured):
        row, intervals = measured.row, measured.intervals
        rows.append(
            [row.detector, str(row.seed)]
            + [f"{100 * getattr(row, key):.2f}" for key in COMPARED]
            + [f"{100 * intervals[key].low:.1f} to {100 * intervals[key].high:.1f}" for key in ("fpr95", "auroc")]
        )
    header = ["detector", "seed", *(COLUMNS[key] for key in COMPARED), "FPR95 interval", "AUROC interval"]
    return Table(header, rows)


def lead(runs: Sequence[SeedRun]) -> str:
    """The result in one sentence, whichever way it came out."""
    numbers = dict(summary(list(runs)))
    ours, theirs = numbers["BAL"], numbers["max-softmax"]
    wins = sum((ours[key][0] < theirs[key][0]) == (key in LOWER_IS_BETTER) for key in COMPARED)
    row = runs[0].measured[0].row
    return (
        f"A classifier of {row.id} has never seen {row.ood}. Where 95 % of {row.id} is accepted, max-softmax also lets "
        f"{theirs['fpr95'][0]:.1%} of {row.ood} in, BAL {ours['fpr95'][0]:.1%} (mean of {len(runs)} seeds). "
        f"BAL is ahead on {wins} of {len(COMPARED)} detection metrics, and the classifier is the same network as before."
    )


def mistakes(run: SeedRun, sample: Sample, *, count: int = 9) -> tuple[list[Picture], list[Picture]]:
    """OOD images with the highest BAL score, and ID images with the lowest."""
    ours = run.measured[-1]
    accepted = np.argsort(-ours.ood_scores, kind="stable")[:count].tolist()
    rejected = np.argsort(ours.id_scores, kind="stable")[:count].tolist()
    return (
        [caption(sample.ood[0][i], run, run.ood, i, truth="", classes=sample.classes) for i in accepted],
        [
            caption(sample.test[0][i], run, run.test, i, truth=sample.classes[sample.test[1][i]], classes=sample.classes)
            for i in rejected
        ],
    )


def caption(
    image: NDArray[np.uint8], run: SeedRun, features: Features, row: int, *, truth: str, classes: Sequence[str]
) -> Picture:
    """An image with what it is (if known), what the classifier takes it for, p1 and p2."""
    f, logits = features.f[row : row + 1], features.logits[row : row + 1]
    c_hat = logits.argmax(1)
    p1 = log_max_softmax(logits).exp().item()
    p2 = run.detector.log_p2(f, c_hat).exp().item()
    lines = [f"taken for {classes[int(c_hat)]}", f"p1 {p1:.3f}, p2 {p2:.3f}"]
    return Picture(figures.picture(image), [f"is {truth}", *lines] if truth else lines)


def write_demo_report(runs: Sequence[SeedRun], settings: DemoSettings, path: Path) -> None:
    """Write ``report.html``, and beside it ``scores.svg``; curves and pictures are of the first seed."""
    sample = load_sample()
    first = runs[0]
    scores: dict[str, tuple[Scores, Scores]] = {m.row.detector: (m.id_scores, m.ood_scores) for m in first.measured}
    accepted, rejected = mistakes(first, sample)
    statuses = ", ".join(f"seed {run.seed}: {run.detector.result_.status}" for run in runs)
    count = f"{len(sample.test[0]):,} {sample.id_name} (ID) and {len(sample.ood[0]):,} {sample.ood_name} (OOD) test images"
    sections = [
        Section(
            "Results",
            [
                f"Mean ± standard deviation over {len(runs)} seeds, in per cent; each seed trains its own classifier and its own "
                f"BAL. {count}; ID is the positive class. Seconds: features, fit and scores on this machine."
            ],
            table=summary_table(runs),
        ),
        Section(
            "Every seed",
            ["The intervals are 95 % bootstrap intervals over the test images: they do not include the training's own spread."],
            table=seed_table(runs),
        ),
        Section(
            f"Scores (seed {first.seed})",
            [
                "Each ID bar holds about as many ID images, so the ID histogram is flat; an OOD image far to the left is easy to "
                "reject. What stands right of the dashed line is accepted when 95 % of ID is."
            ],
            svg=figures.score_histograms(scores),
        ),
        Section(f"ROC and precision-recall curves (seed {first.seed})", svg=figures.roc_and_pr_curves(scores)),
        Section(
            f"Training of D and G (seed {first.seed})",
            [f"How the trainings ended: {statuses}. D should be near 1 on ID pairs and near 0 on the others."],
            svg=figures.training_curves(first.history),
        ),
        Section(
            f"Features in two dimensions (seed {first.seed})",
            [
                "The normalised features that D sees, on the two main axes of the ID features: trivial OOD from REM, features "
                "made by the generator, and hard OOD, the same after the FGSM push of RSM."
            ],
            svg=figures.feature_map({name: f.numpy() for name, f in first.synthetic.items()}),
        ),
        Section(
            f"Most confident mistakes (seed {first.seed}): {sample.ood_name} that BAL trusts most",
            ["p1 is the classifier's confidence, p2 the discriminator's; BAL ranks by p1 · p2."],
            gallery=accepted,
        ),
        Section(f"Most confident mistakes (seed {first.seed}): {sample.id_name} that BAL trusts least", gallery=rejected),
        Section("Exact settings", ["Run again with: bal demo"], code=settings_text(settings)),
    ]
    write_atomically(path.with_name("scores.svg"), figures.score_histograms(scores).encode())
    title = f"bal demo: {sample.id_name} against {sample.ood_name}"
    write_page(Page(title, lead(runs), sections), path)


def settings_text(settings: DemoSettings) -> str:
    """Settings and versions as JSON."""
    versions = {"bal": __version__, "python": platform.python_version(), "torch": torch.__version__, "numpy": np.__version__}
    threads = torch.get_num_threads()
    return json.dumps({"settings": asdict(settings), "versions": versions, "threads": threads}, indent=2)
