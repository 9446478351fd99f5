"""Distance to the k-th nearest training feature."""

from dataclasses import dataclass

import torch
from torch import Tensor

from bal.detectors.base import FeatureDetector
from bal.errors import DataError
from bal.features import unit_rows
from bal.settings import check_number

CHUNK_NUMBERS = 2**25  # of any intermediate array: 128 MiB of float32


def kth_distance(queries: Tensor, bank: Tensor, k: int) -> Tensor:
    """Euclidean distance of each query to its k-th nearest row of ``bank``, (N,), in bounded memory.

    Rows have length 1. The neighbours are found by inner products in chunks; their distances are then computed as differences,
    since sqrt(2 - 2 <q, b>) has no digits left for near neighbours.
    """
    rows = max(1, CHUNK_NUMBERS // max(len(bank), k * bank.shape[1]))
    parts = []
    for chunk in queries.split(rows):
        neighbours = bank[(chunk @ bank.T).topk(k, 1).indices]  # (rows, k, m)
        parts.append((neighbours - chunk.unsqueeze(1)).norm(dim=2).max(1).values)
    return torch.cat(parts)


@dataclass(eq=False)
class KNN(FeatureDetector):
    """- distance to the k-th nearest training feature, all of length 1 (Sun et al., ICML 2022, Eq. 3); k = 50 by default."""

    k: int = 50

    def __post_init__(self) -> None:
        check_number("k", self.k, low=1, whole=True)

    def _fit(self, f: Tensor, logits: Tensor, c: Tensor) -> None:
        if self.k > len(f):
            raise DataError(
                f"k must be 1 to {len(f)}, the number of training rows, got {self.k}; choose a smaller k or give more rows"
            )
        self.bank_ = unit_rows(f.float())

    def _score(self, f: Tensor, logits: Tensor) -> Tensor:
        return -kth_distance(unit_rows(f.float()), self.bank_, self.k)
