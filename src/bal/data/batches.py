"""One way to read data: whatever the user has becomes a stream of (x, c) batches.

Accepted: a ``DataLoader``, a map-style ``Dataset``, a pair ``(x, c)`` of arrays or tensors, or ``x`` alone without labels.
Images are (N, channels, height, width). Unsigned numbers of 8 and 16 bits are pixels and are scaled to [0, 1]; such images may
come as (N, height, width) when they are grey.
"""

from collections.abc import Iterator, Sized
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, default_collate

from bal.errors import DataError, ShapeError

Data: TypeAlias = Any  # DataLoader | Dataset | (x, c) | x, with torch tensors or numpy arrays
Batch: TypeAlias = tuple[Tensor, Tensor | None]

PIXEL_RANGE = {torch.uint8: 255.0, torch.uint16: 65535.0}


def to_input(values: Any) -> Tensor:
    """A tensor fit for a network: 8- and 16-bit pixels become float32 in [0, 1], grey images get their channel.

    >>> to_input(np.array([[[0, 255]]], np.uint8))
    tensor([[[[0., 1.]]]])
    """
    x = to_tensor(values)
    if x.dtype in PIXEL_RANGE:
        x = x.to(torch.float32) / PIXEL_RANGE[x.dtype]
        return x.unsqueeze(1) if x.ndim == 3 else x
    return x.to(torch.float32) if x.dtype == torch.float64 else x


def to_tensor(values: Any) -> Tensor:
    """A tensor that shares memory with the array where it can; anything that is not numeric is refused."""
    if isinstance(values, Tensor):
        return values
    array = np.asarray(values)
    if array.dtype.kind not in "biuf":
        raise ShapeError(f"expected numbers, got an array of dtype {array.dtype}; convert images to uint8 or float32 first")
    native = array.dtype.newbyteorder("=") if array.dtype.itemsize <= 8 else np.dtype(np.float64)
    return torch.from_numpy(np.require(array, native, ["C", "W"]))


def to_labels(labels: Any, rows: int) -> Tensor:
    """Class indices of shape (rows,), int64."""
    try:
        c = to_tensor(labels)
    except ShapeError as error:
        raise ShapeError(f"labels must be class indices, whole numbers from 0; got {type(labels).__name__} ({error})") from error
    if c.shape != (rows,):
        raise ShapeError(f"labels must be ({rows},), one class index for each row, got {tuple(c.shape)}")
    if c.is_floating_point():
        raise ShapeError(f"labels must be whole numbers, got {c.dtype}; for one-hot labels take argmax(1) first")
    return c.to(torch.int64)


@dataclass(frozen=True)
class Batches:
    """Batches of any supported data, in its own order; it can be walked more than once.

    ``rows`` is None when the data does not know its length.
    """

    data: Data
    batch_size: int = 256

    @property
    def rows(self) -> int | None:
        """Number of rows, if known."""
        data = self.data.dataset if isinstance(self.data, DataLoader) else self.data
        if isinstance(data, (tuple, list)):
            return len(data[0])
        return len(data) if isinstance(data, Sized) else None

    def __iter__(self) -> Iterator[Batch]:
        for x, c in self._pairs():
            if len(x):
                yield to_input(x), None if c is None else to_labels(c, len(x))

    def _pairs(self) -> Iterator[tuple[Any, Any]]:
        data = self.data
        if isinstance(data, DataLoader):
            yield from map(split_pair, data)
        elif isinstance(data, IterableDataset):
            raise DataError("an IterableDataset has no rows to count; wrap it in a DataLoader")
        elif isinstance(data, Dataset):
            yield from map(split_pair, self._collated(data))
        else:
            x, c = split_pair(data)
            check_pair(x, c)
            for start in range(0, len(x), self.batch_size):
                rows = slice(start, start + self.batch_size)
                yield x[rows], None if c is None else c[rows]

    def _collated(self, dataset: Any) -> Iterator[Any]:
        for start in range(0, len(dataset), self.batch_size):
            yield default_collate([dataset[i] for i in range(start, min(start + self.batch_size, len(dataset)))])


def split_pair(item: Any) -> tuple[Any, Any]:
    """(x, c) of a batch; c is None where the batch is x alone."""
    if not isinstance(item, (tuple, list)):
        return item, None
    if len(item) == 1:
        return item[0], None
    if len(item) == 2:
        return item[0], item[1]
    raise DataError(f"expected (x, labels) or x, got a sequence of {len(item)} parts; give the images and their labels only")


def check_pair(x: Any, c: Any) -> None:
    """Refuse what has no rows, or labels for another number of rows."""
    if not isinstance(x, (Tensor, np.ndarray)):
        raise DataError(
            f"expected a DataLoader, a Dataset, an array or a pair (x, labels) of arrays, got {type(x).__name__}; "
            "wrap lists with numpy.asarray"
        )
    if x.ndim == 0:
        raise ShapeError("expected an array with one row for each input, got a single number")
    if c is not None and len(x) != len(c):
        raise ShapeError(f"{len(x)} inputs came with {len(c)} labels; give one label for each input")


def stack(data: Data) -> tuple[Tensor, Tensor]:
    """All inputs and labels as two tensors."""
    inputs, labels = [], []
    for x, c in Batches(data):
        if c is None:
            raise DataError("learning needs labels; give (x, labels) instead of x")
        inputs.append(x)
        labels.append(c)
    if not inputs:
        raise DataError("the training data is empty; give at least one row")
    return torch.cat(inputs), torch.cat(labels)
