"""Images in Parquet files, as Hugging Face and others write them."""

import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bal.data.extras import import_extra
from bal.data.folders import BUDGET, Shape, decode_all
from bal.errors import DataError
from bal.progress import track

IMAGE_COLUMNS = ("image", "img", "images", "x", "pixels")
PART = re.compile(r"(train|test|validation|valid|val)(?=[-_.\d]|$)")  # at the beginning of a file's name
LABEL_COLUMNS = ("label", "labels", "fine_label", "y", "target")


def read_parquet(path: str | Path, shape: Shape | None = None, *, split: str | None = None, budget: float = BUDGET) -> Any:
    """(images, labels) of a Parquet file or a folder of them, or images alone where there is no column of labels.

    The column of images holds encoded files, as bytes or as {bytes, path}, or lists of numbers; flat lists need ``shape``.
    Encoded images are resized to ``shape``; without it all must have one size. One that cannot be read is left out as in
    :func:`bal.data.folders.read_image_folder`. ``split`` takes the files of a folder whose names begin so.
    """
    images, labels, _ = read_parquet_rows(path, shape, split=split, budget=budget)
    return images if labels is None else (images, labels)


def read_parquet_rows(
    path: str | Path, shape: Shape | None = None, *, split: str | None = None, budget: float = BUDGET
) -> tuple[NDArray[Any], NDArray[np.int64] | None, dict[str, str]]:
    """The same as images, labels or None, and what was left out: why, by name."""
    arrow, parquet = import_extra("pyarrow"), import_extra("pyarrow.parquet")
    tables = []
    for file in parquet_files(Path(path), split):
        try:
            names = parquet.read_schema(file).names
            tables.append(parquet.ParquetFile(file).read(columns=[pick(names, IMAGE_COLUMNS, file), *labels_of(names)]))
        except (arrow.ArrowException, OSError) as error:
            raise DataError(f"{file} is not a Parquet file that can be read ({error}); fetch or write it again") from error
    if len({table.schema.remove_metadata() for table in tables}) > 1:
        raise DataError(f"the Parquet files of {path} differ in their columns or types; give the files of one data set")
    table = arrow.concat_tables(tables).combine_chunks()
    images, kept, left_out = read_images(table.column(0), shape, str(path), budget)
    return images, None if table.num_columns == 1 else read_labels(table.column(1), str(path))[kept], left_out


def parquet_files(path: Path, split: str | None = None) -> list[Path]:
    """The file itself, or those of a folder in the order of their names; parts that must not be mixed are refused."""
    if path.is_file():
        return [path]
    files = sorted(path.glob("*.parquet"))
    parts = sorted({part_of(file) for file in files})
    if split is not None:
        files = [file for file in files if part_of(file) == split]
    elif len(parts) > 1 and any(PART.fullmatch(part) for part in parts):
        raise DataError(f"{path} holds several parts, {', '.join(parts)}; choose one, as in {path}:{parts[0]}")
    if not files:
        wanted = f"{split}-*.parquet or {split}.parquet" if split else "*.parquet"
        raise DataError(f"there is no Parquet file {path if path.suffix else path / wanted}; found {', '.join(parts) or 'none'}")
    return files


def part_of(file: Path) -> str:
    """The part of a data set that a file belongs to, by the beginning of its name.

    >>> [part_of(Path(name)) for name in ("train-00000-of-00002.parquet", "test_0000.parquet", "cats-1.parquet")]
    ['train', 'test', 'cats']
    """
    match = PART.match(file.stem)
    return match[1] if match else file.stem.split("-")[0]


def pick(names: list[str], known: tuple[str, ...], file: Path) -> str:
    """The first of the known columns that is there."""
    for name in known:
        if name in names:
            return name
    raise DataError(f"{file} has the columns {', '.join(names)}; expected the images in one of {', '.join(known)}")


def labels_of(names: list[str]) -> list[str]:
    """The column of labels, if there is one."""
    return [name for name in LABEL_COLUMNS if name in names][:1]


def read_images(column: Any, shape: Shape | None, where: str, budget: float) -> tuple[NDArray[Any], list[int], dict[str, str]]:
    """The images of a column, the rows they come from, and what was left out."""
    files = encoded(column)
    if files is None:
        return stack_lists(column, shape, where), list(range(len(column))), {}
    items = ((f"row {row} of {where}", partial(content_of, value)) for row, value in enumerate(files))
    decoded = decode_all(track(items, "reading images", len(files)), shape, where=where, budget=budget)
    return decoded.images, list(decoded.kept), decoded.left_out


def encoded(column: Any) -> Any | None:
    """The column of image files, as bytes, in a column of images; None if it holds lists of numbers."""
    types = import_extra("pyarrow").types
    if types.is_struct(column.type) and "bytes" in {field.name for field in column.type}:
        column = import_extra("pyarrow.compute").struct_field(column, "bytes")
    if types.is_binary(column.type) or types.is_large_binary(column.type):
        return column
    if types.is_list(column.type) or types.is_large_list(column.type) or types.is_fixed_size_list(column.type):
        return None
    raise DataError(f"images are of type {column.type}; expected bytes, {{bytes, path}} or lists of numbers")


def content_of(value: Any) -> bytes:
    """The bytes of one cell."""
    content = value.as_py()
    if content is None:
        raise DataError("a row has no bytes; embed the image files when the Parquet file is written")
    return bytes(content)


def stack_lists(column: Any, shape: Shape | None, where: str) -> NDArray[Any]:
    """Lists of numbers, nested or flat, as one array; the lengths of nested lists are the shape."""
    arrow, compute = import_extra("pyarrow"), import_extra("pyarrow.compute")
    rows, lengths = len(column), []
    values = arrow.concat_arrays(column.chunks) if isinstance(column, arrow.ChunkedArray) else column
    while hasattr(values.type, "value_type"):
        counts = compute.unique(compute.list_value_length(values)).to_pylist()
        if len(counts) != 1 or counts[0] is None or values.null_count:
            raise DataError(f"the lists of {where} are missing or of several lengths, {counts[:5]}; all must be alike")
        lengths.append(counts[0])
        values = values.flatten()
    target = tuple(lengths) if shape is None or len(lengths) > 1 else tuple(shape)
    if values.null_count or values.to_numpy(zero_copy_only=False).dtype.kind not in "iuf":
        raise DataError(f"the images of {where} hold {values.type} with {values.null_count} missing; expected numbers, all there")
    if len(values) != rows * int(np.prod(target)):
        raise DataError(f"each image of {where} has {len(values) // max(rows, 1)} numbers, expected {target}; give its shape")
    if len(target) == 1:
        raise DataError(f"the images of {where} are flat lists of {target[0]} numbers; give their shape, such as (3, 32, 32)")
    return np.asarray(values.to_numpy(zero_copy_only=False).reshape(rows, *target))


def read_labels(column: Any, where: str) -> NDArray[np.int64]:
    """Class indices."""
    if column.null_count or not import_extra("pyarrow").types.is_integer(column.type):
        raise DataError(
            f"the labels of {where} are {column.type} with {column.null_count} missing; expected a class index in each row"
        )
    return np.asarray(column.to_numpy(), np.int64)
