"""kNN over 50,000 x 512 features with 10,000 queries: seconds, and memory above the features.

python benchmarks/knn.py      about a minute, 1 GB
"""

import resource
import time

import torch

from bal.detectors.knn import kth_distance


def megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    g = torch.Generator().manual_seed(0)
    bank = torch.nn.functional.normalize(torch.randn(50_000, 512, generator=g), dim=1)
    queries = torch.nn.functional.normalize(torch.randn(10_000, 512, generator=g), dim=1)
    before, started = megabytes(), time.perf_counter()
    distances = kth_distance(queries, bank, 50)
    seconds, above = time.perf_counter() - started, megabytes() - before
    rows = torch.arange(0, 10_000, 500)
    exact = torch.cdist(queries[rows].double(), bank.double()).topk(50, 1, largest=False).values[:, -1]
    assert torch.allclose(distances[rows].double(), exact, atol=1e-6)
    print(f"10,000 queries in 50,000 x 512: {seconds:.1f} s, {above:.0f} MB above the features")


if __name__ == "__main__":
    main()
