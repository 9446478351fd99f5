"""The cost of `BAL().fit_features` on 50,000 x 512 features of 10 classes: seconds, and peak memory of the whole process.

python benchmarks/bal_fit.py      half a minute on 2 cores
"""

import resource
import time

import torch

from bal.detectors import BAL
from bal.features import Features


def main() -> None:
    """Gaussian classes: the cost depends on the sizes alone."""
    g = torch.Generator().manual_seed(0)
    c = torch.arange(50_000) % 10
    head = torch.randn(10, 512, generator=g) / 512**0.5
    f = 3 * head[c] * 512**0.5 + torch.randn(50_000, 512, generator=g)
    features = Features(f, f @ head.T, c)
    started = time.perf_counter()
    detector = BAL().fit_features(features)
    seconds = time.perf_counter() - started
    gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{detector.result_.status}: {seconds:.1f} s, {gib:.2f} GiB at most, features and libraries included")


if __name__ == "__main__":
    main()
