"""Does BAL need luck? Fifty seeds of it on one classifier of `bal demo`: how each training ended, and the spread of the outcome.

python benchmarks/bal_seeds.py [--seeds 50]      six minutes on 2 cores, the training of the classifier aside
"""

import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import tyro

from bal.data import load_sample
from bal.detectors import BAL
from bal.evaluation import evaluate
from bal.experiments import DemoSettings, demo_classifier
from bal.features import extract


def main(seeds: int = 50) -> None:
    """Fit, count, measure."""
    warnings.simplefilter("ignore")
    sample = load_sample()
    classifier = demo_classifier(DemoSettings(), sample, 0, Path("runs/demo"), show_progress=True)
    train, test, ood = (extract(classifier, data) for data in (sample.train, sample.test, sample.ood[0]))
    ends: Counter[str] = Counter()
    found = []
    for seed in range(seeds):
        detector = BAL(seed=seed).fit_features(train)
        ends[detector.result_.status] += 1
        metrics = evaluate(detector.score(test), detector.score(ood))
        found.append((100 * metrics.fpr95, 100 * metrics.auroc))
        print(f"seed {seed}: {detector.result_.status}, FPR95 {found[-1][0]:.2f}, AUROC {found[-1][1]:.2f}", flush=True)
    mean, std, worst = np.mean(found, 0), np.std(found, 0, ddof=1), min(auroc for _, auroc in found)
    print(f"{dict(ends)}; FPR95 {mean[0]:.2f} ± {std[0]:.2f}, AUROC {mean[1]:.2f} ± {std[1]:.2f}, {worst:.2f} at worst")


if __name__ == "__main__":
    tyro.cli(main)
