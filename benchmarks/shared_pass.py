"""What fifteen feature detectors cost beside one: they share one pass of the classifier.

python benchmarks/shared_pass.py      about 2 minutes on 2 cores, the training of the classifier aside
"""

import time
from pathlib import Path

import torch

from bal.data import load_sample
from bal.detectors import Detector, make_detector
from bal.experiments import DemoSettings, compare, demo_classifier, extract_once

FIFTEEN = (
    "max-softmax",
    "max-logit",
    "energy",
    "entropy",
    "GEN",
    "KL-matching",
    "Mahalanobis",
    "Mahalanobis++",
    "relative Mahalanobis",
    "ViM",
    "fDBD",
    "NCI",
    "ReAct",
    "SCALE",
    "SHE",
)


def seconds(names: tuple[str, ...]) -> float:
    sample = load_sample()
    classifier = demo_classifier(DemoSettings(), sample, 0, Path("runs/demo"), show_progress=True)
    detectors: dict[str, Detector] = {name: make_detector(name) for name in names}
    started = time.perf_counter()
    comparison = extract_once(
        classifier, train=sample.train, test=sample.test, oods={"MNIST": sample.ood[0]}, id_name="Fashion-MNIST"
    )
    compare(comparison, detectors)
    return time.perf_counter() - started


def main() -> None:
    torch.set_num_threads(2)
    seconds(FIFTEEN[:1])  # warm up
    one, many = seconds(FIFTEEN[:1]), seconds(FIFTEEN)
    print(f"one detector {one:.2f} s, fifteen {many:.2f} s, ratio {many / one:.2f}")


if __name__ == "__main__":
    main()
