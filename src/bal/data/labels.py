"""Labels of data that is read by shards: they are small, so they are read whole and apart from the inputs."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bal.data.archives import DAMAGED
from bal.data.catalog import CATALOG
from bal.data.extras import import_extra
from bal.data.files import LABEL_NAMES, is_parquet
from bal.data.folders import class_folders, printable
from bal.data.parquet import labels_of, parquet_files, read_labels
from bal.errors import DataError

STRAY = -1  # the label of a file that lies beside the folders of the classes


def shard_paths(source: str | Path) -> list[Path]:
    """The paths of DATA for :func:`bal.data.shards.find_shards`; ``folder:train`` takes Parquet files whose names begin so."""
    name, _, part = str(source).rpartition(":")
    if (name or str(source)) in CATALOG:
        raise DataError(f"{source} is a name of the catalog, which is read whole, not by shards; give a path, or leave Ray out")
    if name and not Path(source).exists() and Path(name).is_dir():
        return parquet_files(Path(name), part)
    return [Path(source)]


def row_labels(paths: Sequence[Path], names: Sequence[str]) -> NDArray[np.int64] | None:
    """One label for each row of the shards of ``paths``, whose names are given in their order; None where there are no labels.

    In a folder the classes are its folders in sorted order; what lies beside them is ``STRAY``.
    """
    first = paths[0]
    if is_parquet(first):
        return parquet_labels([file for path in paths for file in parquet_files(path)])
    if not first.is_dir():
        return npz_labels(first)
    numbers = {printable(name): number for number, name in enumerate(class_folders(first))}
    if not numbers:
        return None
    return np.array([numbers.get(Path(name).parts[1], STRAY) for name in names], np.int64)


def parquet_labels(files: Sequence[Path]) -> NDArray[np.int64] | None:
    """The column of labels in several files."""
    arrow, parquet = import_extra("pyarrow"), import_extra("pyarrow.parquet")
    labels = []
    for file in files:
        try:
            column = labels_of(parquet.read_schema(file).names)
            table = parquet.ParquetFile(file).read(columns=column)
        except (arrow.ArrowException, OSError) as error:
            raise DataError(f"the labels of {file} cannot be read ({error}); fetch or write it again") from error
        if not column:
            return None
        labels.append(read_labels(table.column(0), str(file)))
    return np.concatenate(labels)


def npz_labels(path: Path) -> NDArray[np.int64] | None:
    """The array of labels in an .npz file."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            name = next((name for name in LABEL_NAMES if name in archive.files), None)
            return None if name is None else np.asarray(archive[name])
    except (ValueError, OSError, MemoryError, *DAMAGED) as error:
        raise DataError(f"the labels of {path} cannot be read ({error}); write it with numpy.savez") from error
