"""Many detectors on one classifier: one pass of features for all that read features, the same test rows for everyone.

The classifier's own time is measured apart, on a warm pass without the cache, so that costs do not depend on what was cached.
"""

import math
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bal.backbones import Classifier
from bal.data import Batches, Data
from bal.detectors import BAL, Detector, FeatureDetector
from bal.discrimination import Callback
from bal.errors import BalError, BalWarning, DataError
from bal.evaluation import Interval, bootstrap, evaluate
from bal.evaluation.metrics import Scores
from bal.features import FeatureCache, Features, extract

Say = Callable[[str], None]
METRICS = ("fpr95", "detection_error", "auroc", "aupr_in", "aupr_out")
LOWER_IS_BETTER = ("fpr95", "detection_error")


@dataclass(frozen=True)
class Row:
    """One detector on one pair of data sets with one seed. Metrics are shares in [0, 1].

    seconds: features, fit and scores of both test sets; score_seconds: for 1,000 inputs, the classifier's pass included;
    megabytes: what the fitted detector keeps.
    """

    detector: str
    id: str
    ood: str
    seed: int
    fpr95: float
    detection_error: float
    auroc: float
    aupr_in: float
    aupr_out: float
    accuracy: float
    seconds: float
    fit_seconds: float
    score_seconds: float
    megabytes: float


@dataclass(frozen=True)
class Measured:
    """A row, with the fitted detector and its scores."""

    row: Row
    detector: Detector
    id_scores: Scores
    ood_scores: Scores

    def intervals(self) -> dict[str, Interval]:
        """95 % bootstrap intervals of the metrics; computed when asked, since they cost more than most detectors."""
        return bootstrap(self.id_scores, self.ood_scores, resamples=300)


@dataclass(frozen=True)
class Comparison:
    """The data of a comparison, each set with its features, and the classifier's seconds for one input."""

    classifier: Classifier
    train: "Part"
    test: "Part"
    oods: Mapping[str, "Part"]
    id_name: str
    pass_seconds: float


@dataclass(frozen=True)
class Part:
    """One data set, extracted once."""

    data: Data
    features: Features


def extract_once(
    classifier: Classifier,
    *,
    train: Data,
    test: Data,
    oods: Mapping[str, Data],
    id_name: str,
    cache: FeatureCache | None = None,
    show_progress: bool = True,
) -> Comparison:
    """Run the classifier once over every data set."""

    def part(data: Data) -> Part:
        return Part(data, extract(classifier, data, cache=cache, show_progress=show_progress))

    if not oods:
        raise DataError("a comparison needs at least one OOD data set; give oods={name: data}")
    parts = {name: part(data) for name, data in oods.items()}
    return Comparison(classifier, part(train), part(test), parts, id_name, time_of_a_pass(classifier, test))


def time_of_a_pass(classifier: Classifier, data: Data, *, rows: int = 1000) -> float:
    """Seconds of the classifier for one input: the second of two passes over the first batches of ``data``."""
    batches, seen = [], 0
    for x, _ in Batches(data):
        batches.append(x)
        seen += len(x)
        if seen >= rows:
            break
    seconds = 0.0
    for _ in range(2):
        started = time.perf_counter()
        for x in batches:
            classifier(x)
        seconds = time.perf_counter() - started
    return seconds / max(1, seen)


def compare(
    comparison: Comparison,
    detectors: Mapping[str, Detector],
    *,
    seeds: Sequence[int] = (0,),
    callbacks: Mapping[str, Sequence[Callback]] | None = None,
    say: Say = lambda _: None,
    show_progress: bool = True,
    failures: dict[str, str] | None = None,
) -> list[Measured]:
    """Fit and measure every detector; those without a seed of their own run once. ``callbacks`` watch BAL's training, by name.

    With ``failures``, a detector that cannot be fitted on this data is put there with the reason, and the others go on.
    """
    fingerprint = comparison.classifier.fingerprint()
    measured = []
    for name, template in detectors.items():
        own_seeds = seeds if hasattr(template, "seed") else seeds[:1]
        for seed in own_seeds:
            detector = with_seed(template, seed)
            try:
                fit_seconds = fit(detector, comparison, (callbacks or {}).get(name, ()), show_progress=show_progress)
            except BalError as error:
                if failures is None:
                    raise
                failures[name] = str(error)
                say(f"  {name}: not measured: {error}")
                break
            measured += measure(name, detector, comparison, seed, fit_seconds)
            best = ", ".join(
                f"{m.row.ood} FPR95 {m.row.fpr95:.1%} AUROC {m.row.auroc:.1%}" for m in measured[-len(comparison.oods) :]
            )
            say(f"  {name}: {best}")
    if comparison.classifier.fingerprint() != fingerprint:
        raise BalError("a detector changed the classifier's weights; none may, please report it")
    return measured


def with_seed(detector: Any, seed: int) -> Any:
    """A fresh copy of the settings, with the seed if the detector has one."""
    return replace(detector, seed=seed) if hasattr(detector, "seed") else replace(detector)


def fit(detector: Detector, comparison: Comparison, callbacks: Iterable[Callback], *, show_progress: bool) -> float:
    """Fit on the training part and return the seconds, without those of the shared extraction."""
    started = time.perf_counter()
    if isinstance(detector, BAL):
        detector.fit_features(comparison.train.features, classifier=comparison.classifier, callbacks=callbacks)
    elif isinstance(detector, FeatureDetector):
        detector.fit_features(comparison.train.features, classifier=comparison.classifier)
    else:
        detector.fit(comparison.classifier, comparison.train.data, show_progress=show_progress)
    return time.perf_counter() - started


def measure(name: str, detector: Detector, comparison: Comparison, seed: int, fit_seconds: float) -> list[Measured]:
    """One row for each OOD set. A threshold of -inf accepts all, so that the label is the network's own."""
    shared = isinstance(detector, FeatureDetector)

    def scored(part: Part, which: str) -> tuple[Scores, NDArray[np.int64], float]:
        started = time.perf_counter()
        answer = detector.predict(part.features if shared else part.data, threshold=-math.inf)
        seconds = time.perf_counter() - started + (comparison.pass_seconds * len(part.features) if shared else 0.0)
        invalid = int((~answer.valid).sum())
        if invalid:
            told = f"{invalid} of {len(answer.valid)} rows of {which} are invalid for {name} and count as rejected"
            warnings.warn(told, BalWarning, stacklevel=4)
        return answer.score, answer.label, seconds

    id_scores, labels, id_seconds = scored(comparison.test, comparison.id_name)
    truth = comparison.test.features.known_labels.numpy()
    extraction = comparison.pass_seconds * len(comparison.train.features)
    megabytes = sum(tensor.nbytes for tensor in detector.state().values()) / 1e6
    rows = []
    for ood, part in comparison.oods.items():
        ood_scores, _, ood_seconds = scored(part, ood)
        row = Row(
            detector=name,
            id=comparison.id_name,
            ood=ood,
            seed=seed,
            **asdict(evaluate(id_scores, ood_scores, seed=0)),  # the same rows for every seed
            accuracy=float(np.mean(labels == truth)),
            seconds=round(fit_seconds + id_seconds + ood_seconds + (extraction if shared else 0.0), 3),
            fit_seconds=round(fit_seconds, 3),
            score_seconds=round(1000 * (id_seconds + ood_seconds) / (len(id_scores) + len(ood_scores)), 4),
            megabytes=round(megabytes, 3),
        )
        rows.append(Measured(row, detector, id_scores, ood_scores))
    return rows


@dataclass(frozen=True)
class Standing:
    """Mean and standard deviation of every number of one detector, over seeds and OOD sets; the deviation is over seeds alone."""

    detector: str
    mean: dict[str, float]
    std: dict[str, float]


def ranking(rows: Sequence[Row]) -> list[Standing]:
    """Every detector's standing, the best mean AUROC first."""
    keys = (*METRICS, "accuracy", "seconds", "fit_seconds", "score_seconds", "megabytes")
    standings = []
    for name in dict.fromkeys(row.detector for row in rows):
        own = [row for row in rows if row.detector == name]
        by_seed = {
            key: [np.mean([getattr(row, key) for row in own if row.seed == seed]) for seed in dict.fromkeys(r.seed for r in own)]
            for key in keys
        }
        mean = {key: float(np.mean(values)) for key, values in by_seed.items()}
        std = {key: float(np.std(values, ddof=1)) if len(values) > 1 else 0.0 for key, values in by_seed.items()}
        standings.append(Standing(name, mean, std))
    return sorted(standings, key=lambda standing: -standing.mean["auroc"])


def advice(standings: Sequence[Standing]) -> list[str]:
    """Which detector for what: the most accurate, and the quickest that is nearly as good; ties as printed are named together."""
    best = max(standings, key=lambda s: s.mean["auroc"])
    lowest = min(standings, key=lambda s: s.mean["fpr95"])
    near = [s for s in standings if s.mean["auroc"] >= best.mean["auroc"] - 0.01]
    quick = min(near, key=lambda s: s.mean["score_seconds"])
    return [
        f"Best ranking of ID above OOD: {ties(standings, best, 'auroc')}, AUROC {best.mean['auroc']:.2%}.",
        f"Fewest OOD accepted where 95 % of ID is: {ties(standings, lowest, 'fpr95')}, FPR95 {lowest.mean['fpr95']:.2%}.",
        f"Quickest within one point of the best AUROC: {quick.detector}, {quick.mean['score_seconds']:.3f} s for 1,000 inputs "
        f"(AUROC {quick.mean['auroc']:.2%}), {quick.mean['fit_seconds']:.1f} s to fit, {quick.mean['megabytes']:.1f} MB.",
        "These are the ranks on these OOD sets; on other ones they may differ.",
    ]


def ties(standings: Sequence[Standing], best: Standing, key: str) -> str:
    """All detectors that print the same number as the best."""
    return ", ".join(s.detector for s in standings if f"{s.mean[key]:.4f}" == f"{best.mean[key]:.4f}")
