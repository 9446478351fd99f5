"""A study of settings: variants x seeds x networks on cached features, chosen between by stand-ins alone.

A run keeps some ID training images out of the fit. Half of them stand for ID, from the other half the stand-ins for OOD are made;
their miss is what settings may be chosen by. The true OOD sets are measured too, but only to show what the choice is worth: the
rank correlation between both over many runs.
"""

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bal.data.standins import stand_ins
from bal.detectors import FeatureDetector
from bal.evaluation import evaluate
from bal.experiments.cells import part_of
from bal.experiments.compare import Say, with_seed
from bal.experiments.networks import Store, find_network
from bal.features import Features
from bal.seeding import make_generator
from bal.storage import write_atomically

VERSION = 1
HELD_OUT = 2000  # ID training images that no variant learns from


@dataclass(frozen=True)
class StudyRun:
    """One variant with one seed on one network: AUROC and FPR95 against every stand-in and every true OOD set, as shares."""

    variant: str
    network: str
    seed: int
    stand_ins: dict[str, tuple[float, float]]
    oods: dict[str, tuple[float, float]]
    status: str
    seconds: float

    @property
    def promise(self) -> float:
        """The miss against the stand-ins: the only number a choice may look at. Less is better."""
        return miss([auroc for auroc, _ in self.stand_ins.values()])

    @property
    def truth(self) -> float:
        """The miss against the true OOD sets."""
        return miss([auroc for auroc, _ in self.oods.values()])

    @property
    def fpr95(self) -> float:
        """Mean FPR95 against the true OOD sets."""
        return float(np.mean([fpr95 for _, fpr95 in self.oods.values()]))


def miss(aurocs: Sequence[float]) -> float:
    """The geometric mean of 1 - AUROC, each 1e-4 at least: to halve a miss counts the same for far OOD and for near OOD.

    >>> round(miss([0.99, 0.96]), 4)
    0.02
    """
    return float(np.exp(np.mean(np.log(np.maximum(1 - np.asarray(aurocs), 1e-4)))))


@dataclass(frozen=True)
class StudyBench:
    """The features of one network: for fitting, of held-out ID images, of stand-ins, of ID test images and of true OOD sets."""

    fit: Features
    held_out: Features
    stand_ins: Mapping[str, Features]
    test: Features
    oods: Mapping[str, Features]

    @classmethod
    def open(cls, name: str, oods: Sequence[str], store: Store) -> "StudyBench":
        """Extract what is not cached."""
        network = find_network(name)
        classifier = network.classifier(store)
        train = part_of(network, classifier, store, network.data, "train")
        order = torch.randperm(len(train.features), generator=make_generator(0))
        held_out, other = order[: HELD_OUT // 2], order[HELD_OUT // 2 : HELD_OUT]
        images: Any = train.data
        probe = to_pixels(images[0], other)
        made = stand_ins(probe, make_generator(0))
        return cls(
            fit=train.features.rows(order[HELD_OUT:]),
            held_out=train.features.rows(held_out),
            stand_ins={kind: store.extract(classifier, x) for kind, x in made.items()},
            test=part_of(network, classifier, store, network.data, "test").features,
            oods={ood: part_of(network, classifier, store, ood, "test").features for ood in oods},
        )

    def run(self, name: str, network: str, detector: FeatureDetector) -> StudyRun:
        """Fit one variant and measure it on both sides."""
        started = time.perf_counter()
        detector.fit_features(self.fit)
        seconds = time.perf_counter() - started

        def measured(known: Features, others: Mapping[str, Features]) -> dict[str, tuple[float, float]]:
            id_scores = detector.score(known)
            metrics = {kind: evaluate(id_scores, detector.score(features)) for kind, features in others.items()}
            return {kind: (m.auroc, m.fpr95) for kind, m in metrics.items()}

        status = detector.result_.status if hasattr(detector, "result_") else "finished"
        return StudyRun(
            variant=name,
            network=network,
            seed=getattr(detector, "seed", 0),
            stand_ins=measured(self.held_out, self.stand_ins),
            oods=measured(self.test, self.oods),
            status=status,
            seconds=round(seconds, 1),
        )


def to_pixels(images: Any, rows: Tensor) -> Tensor:
    """Some images as (N, channels, height, width) in [0, 1]."""
    x = torch.as_tensor(images[rows.numpy()]).float() / 255
    return x if x.ndim == 4 else x.unsqueeze(1)


def run_study(
    variants: Mapping[str, FeatureDetector],
    networks: Mapping[str, Sequence[str]],
    store: Store,
    *,
    seeds: Sequence[int],
    say: Say,
) -> list[StudyRun]:
    """Every variant with every seed on every network; ``networks`` names the true OOD sets of each. Finished runs are kept."""
    runs = []
    for network, oods in networks.items():
        bench: StudyBench | None = None
        for name, variant in variants.items():
            for detector in with_seeds(variant, seeds):
                path = store.folder / "study" / run_file(network, oods, detector)
                if not path.exists():
                    bench = bench or StudyBench.open(network, oods, store)
                    run = bench.run(name, network, detector)
                    write_atomically(path, (json.dumps(asdict(run)) + "\n").encode())
                    misses = f"miss on stand-ins {run.promise:.2%}, on OOD {run.truth:.2%}"
                    say(f"{network}, {name}, seed {run.seed}: {misses}, {run.seconds} s")
                runs.append(replace(StudyRun(**json.loads(path.read_text())), variant=name))
    return runs


def with_seeds(variant: FeatureDetector, seeds: Sequence[int]) -> list[FeatureDetector]:
    """A fresh copy for each seed; one alone where nothing is random."""
    return [with_seed(variant, seed) for seed in (seeds if hasattr(variant, "seed") else (0,))]


def run_file(network: str, oods: Sequence[str], detector: FeatureDetector) -> str:
    """The name of a run's file, by all that it depends on."""
    settings = json.dumps(asdict(detector), default=str, sort_keys=True)  # type: ignore[call-overload]
    recipe = json.dumps(find_network(network).recipe("cpu"), sort_keys=True)
    identity = f"{VERSION}{recipe}{sorted(oods)}{type(detector).__name__}{settings}"
    return f"{network}-{hashlib.sha256(identity.encode()).hexdigest()[:16]}.json"


def rank_correlation(x: Sequence[float], y: Sequence[float]) -> float:
    """Spearman's rho: the correlation of ranks, ties with their mean rank.

    >>> rank_correlation([1, 2, 3], [10, 20, 15])
    0.5
    """
    return float(np.round(np.corrcoef(mean_ranks(x), mean_ranks(y))[0, 1], 12))


def mean_ranks(values: Sequence[float]) -> Any:
    """The rank of each value, ties with the mean of theirs."""
    array = np.asarray(values, dtype=np.float64)
    _, place, counts = np.unique(array, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[place]


def worth_of_stand_ins(runs: Sequence[StudyRun]) -> dict[str, float]:
    """For each network the rank correlation between the miss on stand-ins and on true OOD over its runs."""
    found = {}
    for network in dict.fromkeys(run.network for run in runs):
        own = [run for run in runs if run.network == network]
        found[network] = rank_correlation([run.promise for run in own], [run.truth for run in own])
    return found
