"""Does BAL need luck? Fifty seeds of it on one classifier of `bal demo`: how each training ended, and the spread of the outcome.

python benchmarks/bal_seeds.py [--seeds 50]      some minutes on 2 cores, the training of the classifier aside
"""

import warnings
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch
import tyro

from bal.data import load_sample
from bal.detectors import BAL
from bal.evaluation import evaluate
from bal.experiments import DemoSettings, demo_classifier
from bal.features import Features, extract


@cache
def features() -> tuple[Features, Features, Features]:
    """Of the training, test and OOD images."""
    sample = load_sample()
    classifier = demo_classifier(DemoSettings(), sample, 0, Path("runs/demo"), show_progress=False)
    train, test, ood = (extract(classifier, data, show_progress=False) for data in (sample.train, sample.test, sample.ood[0]))
    return train, test, ood


def one(seed: int) -> tuple[str, float, float]:
    """How the training ended, FPR95 and AUROC."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)  # one process for each core is faster than one fit on all of them
    train, test, ood = features()
    detector = BAL(seed=seed).fit_features(train)
    metrics = evaluate(detector.score(test), detector.score(ood))
    return detector.result_.status, 100 * metrics.fpr95, 100 * metrics.auroc


def main(seeds: int = 50) -> None:
    """Fit, count, measure."""
    workers = torch.get_num_threads()
    features()  # the classifier is trained here, once
    ends: Counter[str] = Counter()
    found = []
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        for seed, (status, fpr95, auroc) in enumerate(pool.map(one, range(seeds))):
            ends[status] += 1
            found.append((fpr95, auroc))
            print(f"seed {seed}: {status}, FPR95 {fpr95:.2f}, AUROC {auroc:.2f}", flush=True)
    mean, std, worst = np.mean(found, 0), np.std(found, 0, ddof=1), min(auroc for _, auroc in found)
    print(f"{dict(ends)}; FPR95 {mean[0]:.2f} ± {std[0]:.2f}, AUROC {mean[1]:.2f} ± {std[1]:.2f}, {worst:.2f} at worst")


if __name__ == "__main__":
    tyro.cli(main)
