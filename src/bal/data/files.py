"""Data sets by their path or their name: .npz archives of arrays, Parquet, folders of images, the catalog."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np

from bal.data.archives import DAMAGED
from bal.data.batches import split_pair
from bal.data.catalog import CATALOG, Split, load_data_set
from bal.data.folders import Shape, class_folders, printable, read_image_folder
from bal.data.parquet import read_parquet_rows
from bal.errors import DataError
from bal.settings import suggestion

INPUT_NAMES = ("images", "x", "inputs", "data")
LABEL_NAMES = ("labels", "y", "targets")


@dataclass(frozen=True)
class Loaded:
    """Inputs, their labels if there are any, and what could not be read: why, by name."""

    inputs: Any
    labels: Any = None
    left_out: Mapping[str, str] = field(default_factory=dict)

    @property
    def data(self) -> Any:
        """(inputs, labels), or inputs alone."""
        return self.inputs if self.labels is None else (self.inputs, self.labels)


def load_data(source: str | Path, shape: Shape | None = None, *, split: Split = "test") -> Any:
    """(inputs, labels), or inputs alone, of a name of the catalog or of a path; see :func:`read_data`."""
    return read_data(source, shape, split=split).data


def read_data(source: str | Path, shape: Shape | None = None, *, split: Split = "test") -> Loaded:
    """The data of a name of the catalog or of a path.

    - ``cifar10:test``, or ``cifar10`` for its part ``split``: a data set of the catalog. It goes before a path of the same name,
      which is given as ``./cifar10``.
    - a .parquet file, or a folder of them; ``folder:train`` takes those whose names begin with train.
    - any other folder: images, with one folder for each class or none.
    - any other file: .npz.

    ``shape`` is what image files, in folders or in Parquet, are resized to.
    """
    name, separator, part = str(source).rpartition(":") if ":" in str(source) else (str(source), "", "")
    if name in CATALOG:
        images, labels = load_data_set(name, cast(Split, part) if separator else split)
        return Loaded(images, labels if CATALOG[name].classes else None)
    path = Path(source)
    if separator and not path.exists() and Path(name).is_dir():
        return Loaded(*read_parquet_rows(name, shape, split=part))
    if is_parquet(path):
        return Loaded(*read_parquet_rows(path, shape))
    if path.is_dir():
        found = read_image_folder(path, shape)
        return Loaded(found.images, found.labels, found.left_out)
    hint = "" if path.suffix else suggestion(name, {known: known for known in CATALOG}, n=2)
    if hint and not path.exists():
        raise DataError(f"there is no file, folder or data set {name!r}; {hint}")
    return Loaded(*split_pair(load_npz(path)))


def is_parquet(path: Path) -> bool:
    """Whether a path is a Parquet file or a folder of them."""
    return path.suffix == ".parquet" or (path.is_dir() and any(path.glob("*.parquet")))


def class_names_of(source: str | Path) -> tuple[str, ...] | None:
    """What the classes are called, where the names of folders tell it."""
    path = Path(source)
    named = str(source) not in CATALOG and path.is_dir() and not is_parquet(path)
    return tuple(map(printable, class_folders(path))) or None if named else None


def load_npz(path: str | Path) -> Any:
    """(inputs, labels) of an .npz file, or inputs alone; arrays are called images or x, labels or y. Nothing is unpickled."""
    path = Path(path)
    if not path.is_file():
        raise DataError(f"there is no file {path}; give the path of an .npz file with arrays 'images' and 'labels'")
    try:
        with path.open("rb") as file:
            archive = np.load(file, allow_pickle=False)
            arrays = None if isinstance(archive, np.ndarray) else {name: archive[name] for name in archive.files}
    except MemoryError as error:
        raise DataError(f"{path} needs more memory than there is ({error}); give fewer rows, or write it again") from error
    except (ValueError, OSError, AttributeError, *DAMAGED) as error:
        raise DataError(f"{path} is not an .npz file of plain arrays ({error}); write it with numpy.savez_compressed") from error
    if arrays is None:
        raise DataError(
            f"{path} is one array without a name (.npy); write it as numpy.savez_compressed('data.npz', images=..., labels=...)"
        )
    inputs = next((arrays[name] for name in INPUT_NAMES if name in arrays), None)
    labels = next((arrays[name] for name in LABEL_NAMES if name in arrays), None)
    if inputs is None:
        raise DataError(f"{path} holds {sorted(arrays)}; expected an array called one of {', '.join(INPUT_NAMES)}")
    return inputs if labels is None else (inputs, labels)
