"""One way to read data: whatever the user has becomes a stream of (x, c) batches.

Accepted: a ``DataLoader``, a map-style ``Dataset``, a pair ``(x, c)`` of arrays or tensors, ``x`` alone without labels, or a
table of rows such as a Hugging Face ``Dataset``, with a column image or img of pictures or arrays, and label or labels. Rows and
batches may be dictionaries, as the processors and collators of Hugging Face make them: pixel_values or input_ids, and labels.
Images are (N, channels, height, width). Unsigned numbers of 8 and 16 bits are pixels and are scaled to [0, 1]; such images may
come as (N, height, width) when they are grey.
"""

from collections.abc import Iterable, Iterator, Mapping, Sized
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, default_collate

from bal.data.images import to_array
from bal.errors import DataError, ShapeError

Data: TypeAlias = Any  # DataLoader | Dataset | table | (x, c) | x, with torch tensors or numpy arrays
Batch: TypeAlias = tuple[Tensor, Tensor | None]

INPUT_COLUMNS = ("image", "img", "pixel_values", "input_values", "input_features", "input_ids")
LABEL_COLUMNS = ("label", "labels")
GRANTED = {"attention_mask": 1, "token_type_ids": 0}  # what a network assumes when these do not come with the input
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
        return dense(values)
    array = np.asarray(values)
    if array.dtype.kind not in "biuf":
        raise ShapeError(f"expected numbers, got an array of dtype {array.dtype}; convert images to uint8 or float32 first")
    native = array.dtype.newbyteorder("=") if array.dtype.itemsize <= 8 else np.dtype(np.float64)
    return torch.from_numpy(np.require(array, native, ["C", "W"]))


def dense(tensor: Tensor) -> Tensor:
    """The tensor itself, if it is a plain one with content; sparse, nested and meta tensors are refused."""
    if tensor.layout != torch.strided or tensor.is_nested or tensor.is_meta:
        kind = "nested" if tensor.is_nested else "meta" if tensor.is_meta else tensor.layout
        raise ShapeError(f"expected a plain tensor with its content, got a {kind} one; convert it, as to_dense() does")
    return tensor


def to_labels(labels: Any, rows: int) -> Tensor:
    """Class indices of shape (rows,), int64, on the CPU."""
    try:
        c = to_tensor(labels)
    except ShapeError as error:
        raise ShapeError(f"labels must be class indices, whole numbers from 0; got {type(labels).__name__} ({error})") from error
    if c.shape != (rows,):
        raise ShapeError(f"labels must be ({rows},), one class index for each row, got {tuple(c.shape)}")
    if c.is_floating_point():
        raise ShapeError(f"labels must be whole numbers, got {c.dtype}; for one-hot labels take argmax(1) first")
    return c.to("cpu", torch.int64)


@dataclass(frozen=True)
class Batches:
    """Batches of any supported data, in its own order; it can be walked more than once.

    ``rows`` is None when the data does not know its length.
    """

    data: Data
    batch_size: int = 256

    def __post_init__(self) -> None:
        for part in self.data if isinstance(self.data, (tuple, list)) else (self.data,):
            if isinstance(part, Tensor):
                dense(part)

    @property
    def rows(self) -> int | None:
        """Number of rows, if known."""
        data = self.data.dataset if isinstance(self.data, DataLoader) else self.data
        if data is self.data and isinstance(data, (tuple, list, Mapping)):
            return len(split_pair(data)[0])
        return len(data) if isinstance(data, Sized) else None

    def __iter__(self) -> Iterator[Batch]:
        for values, c in self._pairs():
            x = to_input(values)
            if len(x):
                yield x, None if c is None else to_labels(c, len(x))

    def _pairs(self) -> Iterator[tuple[Any, Any]]:
        data = self.data
        if isinstance(data, DataLoader):
            yield from map(split_pair, data)
        elif isinstance(data, IterableDataset):
            raise DataError("an IterableDataset has no rows to count; wrap it in a DataLoader")
        elif isinstance(data, Dataset):
            yield from map(split_pair, self._collated(data))
        elif is_table(data):
            yield from table_batches(data, self.batch_size)
        else:
            x, c = split_pair(data)
            check_pair(x, c)
            for start in range(0, len(x), self.batch_size):
                rows = slice(start, start + self.batch_size)
                yield x[rows], None if c is None else c[rows]

    def _collated(self, dataset: Any) -> Iterator[Any]:
        if not hasattr(dataset, "__len__"):
            raise DataError(f"a {type(dataset).__name__} without __len__ has no rows to count; give it one, or a DataLoader")
        for start in range(0, len(dataset), self.batch_size):
            yield collated([dataset[i] for i in range(start, min(start + self.batch_size, len(dataset)))])


def collated(rows: list[Any]) -> Any:
    """Rows of a Dataset as one batch."""
    try:
        return default_collate(rows)
    except (RuntimeError, TypeError, ValueError, LookupError) as error:
        raise ShapeError(
            f"the rows of the Dataset do not make a batch: {error}. Give tensors or arrays of one shape, or a DataLoader with a "
            "collate_fn of its own"
        ) from error


def is_table(data: Any) -> bool:
    """Whether the data are rows by number with named columns, as a Hugging Face Dataset is; nothing is imported to tell."""
    return all(hasattr(data, name) for name in ("__getitem__", "__len__")) and (
        hasattr(data, "column_names") or hasattr(data, "features")
    )


def table_batches(table: Any, batch_size: int) -> Iterator[tuple[Any, Any]]:
    """(x, c) of rows that are dictionaries; the first picture tells whether all are grey or colour."""
    if isinstance(table, dict):
        raise DataError(
            f"got several data sets, {', '.join(map(str, table))}; choose one, as in data[{next(iter(table), 'train')!r}]"
        )
    if not len(table):
        return
    image, label = columns_of(table[0])
    first = picture_array(table[0][image])
    for start in range(0, len(table), batch_size):
        rows = [table[i] for i in range(start, min(start + batch_size, len(table)))]
        pictures = [picture_array(row[image], first) for row in rows]
        refuse_companions(rows)
        labels = None if label is None else [row[label] for row in rows]
        if labels is not None and any(value is None for value in labels):
            raise DataError(f"rows {start} to {start + len(rows) - 1} lack a {label}; fill it, or remove the column")
        yield np.stack(pictures), labels


def columns_of(row: Mapping[str, Any]) -> tuple[str, str | None]:
    """Names of the input and of the label, if there is one."""
    found = [name for name in INPUT_COLUMNS if name in row]
    if not found:
        raise DataError(
            f"the rows have the columns {', '.join(map(str, row))}; expected the inputs in one of {', '.join(INPUT_COLUMNS)}"
        )
    return found[0], next((name for name in LABEL_COLUMNS if name in row), None)


def refuse_companions(rows: Iterable[Mapping[str, Any]]) -> None:
    """Refuse masks and segments that say more than a network takes for granted, since it is given the input alone."""
    for row in rows:
        for name, granted in GRANTED.items():
            if name in row and not np.all(np.asarray(row[name]) == granted):
                raise DataError(
                    f"the {name} is not {granted} throughout, but only the inputs themselves are read; wrap the network in a "
                    f"module that makes it from them, as in attention_mask=(input_ids != padding), and leave {name} out"
                )


def picture_array(picture: Any, first: NDArray[Any] | None = None) -> NDArray[Any]:
    """A Pillow picture as (channels, height, width), an array as it is; colour bytes that end in channels are turned round."""
    if isinstance(picture, Image.Image):
        array = to_array(picture, None)
        if first is not None and len(array) < len(first):
            array = np.repeat(array, len(first), 0)  # grey among colour
    else:
        array = np.asarray(picture)
        if array.dtype == np.uint8 and array.ndim == 3 and array.shape[2] == 3 and array.shape[0] != 3:
            array = array.transpose(2, 0, 1)
    if first is not None and array.shape != first.shape:
        raise ShapeError(
            f"an input has the shape {array.shape}, the first one {first.shape}; resize, convert or pad all alike first"
        )
    return array


def split_pair(item: Any) -> tuple[Any, Any]:
    """(x, c) of a batch; c is None where the batch is x alone."""
    if isinstance(item, Mapping):
        x, c = columns_of(item)
        refuse_companions([item])
        return item[x], None if c is None else item[c]
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


def split_rows(x: Tensor, size: int) -> list[Tensor]:
    """Parts of ``size`` rows; a single row at the end joins the part before it.

    Batch norm cannot learn from one row, and networks that squeeze their output lose its axis.

    >>> [len(part) for part in split_rows(torch.zeros(9), 4)]
    [4, 5]
    """
    parts = list(x.split(size))
    if size > 1 and len(parts) > 1 and len(parts[-1]) == 1:
        parts[-2:] = [x[(len(parts) - 2) * size :]]
    return parts


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
