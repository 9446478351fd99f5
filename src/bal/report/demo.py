"""The report of `bal demo`: what was measured, and what it looks like."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bal.data import Sample, load_sample
from bal.detectors import log_max_softmax
from bal.experiments import DemoSettings, SeedRun, advice, ranking
from bal.experiments.compare import LOWER_IS_BETTER, METRICS, Measured
from bal.features import Features
from bal.report import figures
from bal.report.comparison import cost_sections, detector_settings, ranking_table, row_table, scores_of, settings_text
from bal.report.page import Page, Picture, Section, write_page
from bal.storage import write_atomically


def lead(measured: Sequence[Measured], seeds: int) -> str:
    """The result in a few sentences, whichever way it came out."""
    standings = {standing.detector: standing.mean for standing in ranking([m.row for m in measured])}
    ours, theirs = standings["BAL"], standings["max-softmax"]
    wins = sum((ours[key] < theirs[key]) == (key in LOWER_IS_BETTER) for key in METRICS)
    row = measured[0].row
    place = list(standings).index("BAL") + 1
    return (
        f"A classifier of {row.id} has never seen {row.ood}. Where 95 % of {row.id} is accepted, max-softmax also lets "
        f"{theirs['fpr95']:.1%} of {row.ood} in, BAL {ours['fpr95']:.1%} (mean of {seeds} seeds). BAL is ahead of max-softmax "
        f"on {wins} of {len(METRICS)} metrics, and number {place} of {len(standings)} detectors by AUROC. The classifier is the "
        "same network as before."
    )


def mistakes(run: SeedRun, sample: Sample, *, count: int = 8) -> tuple[list[Picture], list[Picture]]:
    """OOD images with the highest BAL score, and ID images with the lowest."""
    ours = next(m for m in run.measured if m.row.detector == "BAL")
    accepted = np.argsort(-ours.ood_scores, kind="stable")[:count].tolist()
    rejected = np.argsort(ours.id_scores, kind="stable")[:count].tolist()
    ood = run.comparison.oods[sample.ood_name].features
    return (
        [caption(sample.ood[0][i], run, ood, i, truth="", classes=sample.classes) for i in accepted],
        [
            caption(
                sample.test[0][i],
                run,
                run.comparison.test.features,
                i,
                truth=sample.classes[sample.test[1][i]],
                classes=sample.classes,
            )
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
    p2 = run.bal.log_p2(f, logits).exp().item()
    lines = [f"taken for {classes[int(c_hat)]}", f"p1 {p1:.3f}, p2 {p2:.3f}"]
    return Picture(figures.picture(image), [f"is {truth}", *lines] if truth else lines)


def write_demo_report(runs: Sequence[SeedRun], settings: DemoSettings, path: Path) -> None:
    """Write ``report.html``, and beside it ``scores.svg``; curves and pictures are of the first seed."""
    sample = load_sample()
    first = runs[0]
    measured = [m for run in runs for m in run.measured]
    standings = ranking([m.row for m in measured])
    compared = scores_of(first.measured, ["max-softmax", "BAL"], seed=first.seed, ood=sample.ood_name)
    histograms = figures.score_histograms(compared)
    top = list(dict.fromkeys(["BAL", "max-softmax", *(s.detector for s in standings)]))[:6]
    curves = scores_of(first.measured, top, seed=first.seed, ood=sample.ood_name)
    accepted, rejected = mistakes(first, sample)
    statuses = ", ".join(f"seed {run.seed}: {run.bal.result_.status}" for run in runs)
    count = f"{len(sample.test[0]):,} {sample.id_name} (ID) and {len(sample.ood[0]):,} {sample.ood_name} (OOD) test images"
    sections = [
        Section(
            "Results",
            [
                f"Mean ± standard deviation over {len(runs)} seeds, in per cent; each seed trains its own classifier and its own "
                f"detectors. {count}; ID is the positive class. Generalized ODIN and GCPL train networks of their own, so their "
                "accuracy is their own; all others leave the classifier as it is. 'BAL before training' is p1 · p2 with D at its "
                "start, a ball round each class: what BAL has beyond it, it learnt."
            ],
            table=ranking_table(standings),
        ),
        Section("What to use", advice(standings)),
        Section(
            f"Scores (seed {first.seed})",
            [
                "Each ID bar holds about as many ID images, so the ID histogram is flat; an OOD image far to the left is easy to "
                "reject. What stands right of the dashed line is accepted when 95 % of ID is."
            ],
            svg=histograms,
        ),
        Section(f"ROC and precision-recall curves (seed {first.seed})", svg=figures.roc_and_pr_curves(curves)),
        Section(
            f"Training of D and G (seed {first.seed})",
            [f"How the trainings ended: {statuses}. D should be near 1 on ID pairs and near 0 on the others."],
            svg=figures.training_curves(first.bal.result_.history),
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
        *cost_sections(standings),
        Section(
            "Every seed",
            ["The intervals are 95 % bootstrap intervals over the test images: they do not include the training's own spread."],
            table=row_table(measured),
        ),
        Section(
            "Exact settings",
            ["Run again with: bal demo"],
            code=settings_text({"demo": asdict(settings), "detectors": detector_settings(first.measured)}),
        ),
    ]
    write_atomically(path.with_name("scores.svg"), histograms.encode())
    title = f"bal demo: {sample.id_name} against {sample.ood_name}"
    write_page(Page(title, lead(measured, len(runs)), sections), path)
