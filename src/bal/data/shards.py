"""Inputs of any size as a stream: shards with a name and a known number of rows, read a few rows at a time.

A folder of images has a shard for every so many files of each of its folders, in the order of their names; a Parquet file one for
each row group; an .npz one for every so many rows. A shard must be read before the next one is taken, or not at all; another
process finds it again by itself.
"""

import hashlib
import math
import os
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, repeat
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from bal.data.archives import DAMAGED
from bal.data.extras import import_extra
from bal.data.files import INPUT_NAMES, is_parquet
from bal.data.folders import Content, Shape, check_image_shape, decode_as, folders_in, is_folder, printable
from bal.data.parquet import IMAGE_COLUMNS, content_of, encoded, parquet_files, pick, stack_lists
from bal.errors import DataError

BLOCK = 256  # rows in memory at a time
MAX_BYTES = 1 << 28  # of one image file
READ_AHEAD = 1 << 20  # bytes of a Parquet column that are read at a time
PACKED = 1032  # bytes that deflate makes of one, at most


@dataclass(frozen=True)
class Block:
    """Some rows: their names, why some of them cannot be read, and the inputs of all others."""

    names: list[str]
    errors: list[str | None]
    inputs: NDArray[Any]


@dataclass(frozen=True)
class Shard:
    """``identity`` changes when the input does; ``blocks`` reads the rows, image files as the given shape.

    ``blocks`` may hold an open file, so a shard stays in its process; ``again`` can be sent, and gives this shard first.
    """

    name: str
    rows: int
    identity: str
    blocks: Callable[[Shape], Iterator[Block]]
    again: Callable[[], Iterator["Shard"]]


def find_shards(sources: Sequence[str | Path], *, rows: int) -> Iterator[Shard]:
    """The shards of folders, .parquet and .npz files, in an order that is always the same."""
    paths = {printable(Path(source).resolve().name): Path(source) for source in sources}
    if len(paths) != len(sources):
        raise DataError("two inputs have the same name, so their rows could not be told apart; give each a name of its own")
    for name, path in paths.items():
        if is_parquet(path):
            for file in parquet_files(path):
                label = name if path.is_file() else f"{name}/{printable(file.name)}"
                yield from or_failing(partial(parquet_shards, file, label), file, label)
        elif path.is_dir():
            yield from image_shards(path, name, rows)
        elif path.is_file():
            yield from or_failing(partial(npz_shards, path, name, rows), path, name)
        else:
            raise DataError(f"there is no file or folder {path}; give a folder of images, .parquet or .npz")


def or_failing(find: Callable[[], Iterator[Shard]], path: Path, name: str) -> Iterator[Shard]:
    """The shards of one file; of a file that cannot be opened one without rows, which says why when it is read."""
    try:
        yield from find()
    except DataError as error:
        again = partial(or_failing, find, path, name)
        yield Shard(f"{name}/00000", 0, digest(name, state_of(path)), partial(fail, error=error), again)


def fail(_: Shape, *, error: DataError) -> Iterator[Block]:
    """What is read of a file that cannot be opened."""
    raise error


def image_shards(folder: Path, name: str, rows: int) -> Iterator[Shard]:
    """Every file below a folder but hidden ones, folder by folder."""
    for place in folders_in(folder):
        yield from file_shards(place, Path(name, place.relative_to(folder)), rows)


def file_shards(place: Path, below: Path, rows: int, *, number: int = 0) -> Iterator[Shard]:
    """The files of one folder, from shard ``number`` on."""
    with os.scandir(place) as items:
        chosen = sorted(item.name for item in items if not item.name.startswith(".") and not is_folder(item))
    for index, start in list(enumerate(range(0, len(chosen), rows)))[number:]:
        some = chosen[start : start + rows]
        states = [f"{item}:{state_of(place / item)}" for item in some]
        paths, names = [place / item for item in some], [printable(below / item) for item in some]
        read = partial(image_blocks, paths=paths, names=names)
        again = partial(file_shards, place, below, rows, number=index)
        yield Shard(f"{printable(below)}/{index:05d}", len(some), digest(*states), read, again)


def image_blocks(shape: Shape, *, paths: list[Path], names: list[str]) -> Iterator[Block]:
    """Decode the files."""
    for start in range(0, len(paths), BLOCK):
        some = slice(start, start + BLOCK)
        yield decoded(names[some], [partial(read_file, path) for path in paths[some]], shape)


def read_file(path: Path) -> bytes:
    """The content of a plain file; a pipe would wait for ever, a huge file would fill the memory."""
    if not path.is_file():
        raise DataError(f"{printable(path)} is gone or is no plain file")
    if (size := path.stat().st_size) > MAX_BYTES:
        raise DataError(f"{printable(path)} has {size:,} bytes, more than {MAX_BYTES:,}, which no image needs")
    return path.read_bytes()


def decoded(names: list[str], contents: Sequence[Content], shape: Shape) -> Block:
    """Image files as one array; what cannot be read becomes an error of its row."""
    check_image_shape(shape)
    images: list[NDArray[np.uint8]] = []
    errors: list[str | None] = []
    for name, content in zip(names, contents, strict=True):
        try:
            images.append(decode_as(shape, content, name))
            errors.append(None)
        except (DataError, OSError) as error:
            errors.append(str(error))
    return Block(names, errors, np.stack(images) if images else np.empty((0, *shape), np.uint8))


def parquet_shards(path: Path, name: str, *, number: int = 0) -> Iterator[Shard]:
    """A shard for each row group that has rows, from ``number`` on."""
    arrow, parquet = import_extra("pyarrow"), import_extra("pyarrow.parquet")
    try:
        file = parquet.ParquetFile(path, buffer_size=READ_AHEAD, pre_buffer=False)
    except (arrow.ArrowException, OSError) as error:
        raise DataError(f"{path} is not a Parquet file that can be read ({error}); fetch or write it again") from error
    with file:
        column = pick(file.schema_arrow.names, IMAGE_COLUMNS, path)
        counts = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
        for group, (rows, first) in list(enumerate(zip(counts, accumulate(counts, initial=0), strict=False)))[number:]:
            if not rows:
                continue
            read = partial(parquet_blocks, file=file, group=group, column=column, name=name, first=first)
            again = partial(parquet_shards, path, name, number=group)
            yield Shard(f"{name}/{group:05d}", rows, digest(name, state_of(path), group), read, again)


def parquet_blocks(shape: Shape, *, file: Any, group: int, column: str, name: str, first: int) -> Iterator[Block]:
    """Rows of one row group, with their numbers in the file."""
    arrow = import_extra("pyarrow")
    try:
        for batch in file.iter_batches(BLOCK, row_groups=[group], columns=[column], use_threads=False):
            values, names = batch.column(0), [f"{name}:{first + row}" for row in range(len(batch))]
            first += len(batch)
            files = encoded(values)
            if files is None:
                yield Block(names, [None] * len(names), stack_lists(values, shape, name))
            else:
                yield decoded(names, [partial(content_of, value) for value in files], shape)
    except (arrow.ArrowException, OSError) as error:
        raise DataError(f"row group {group} of {name} cannot be read ({error}); fetch or write it again") from error


def npz_shards(path: Path, name: str, rows: int, *, number: int = 0) -> Iterator[Shard]:
    """A shard for every so many rows of the array of inputs, from ``number`` on; read from front to back, never whole."""
    try:
        with zipfile.ZipFile(path) as archive:
            member = next((f"{item}.npy" for item in INPUT_NAMES if f"{item}.npy" in archive.namelist()), None)
            if member is None:
                raise ValueError(f"it holds {', '.join(archive.namelist())}, none of {', '.join(INPUT_NAMES)}")
            with archive.open(member) as stream:
                shape, dtype, start = read_header(stream)
                there = min(archive.getinfo(member).file_size, PACKED * path.stat().st_size)
                if start + math.prod(shape) * dtype.itemsize > there:
                    raise ValueError(f"its inputs of shape {shape} need more bytes than it has")
                array = partial(npz_blocks, stream=stream, start=start, row_shape=shape[1:], dtype=dtype)
                for first in range(number * rows, shape[0], rows):
                    index, count = first // rows, min(rows, shape[0] - first)
                    read = partial(array, name=name, first=first, count=count)
                    again = partial(npz_shards, path, name, rows, number=index)
                    yield Shard(f"{name}/{index:05d}", count, digest(name, state_of(path), first, count), read, again)
    except (ValueError, OSError, *DAMAGED) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path} is not an .npz file of plain arrays ({error}); write it with numpy.savez") from error


def read_header(stream: IO[bytes]) -> tuple[Shape, np.dtype[Any], int]:
    """Shape and dtype of an .npy file, and where its numbers begin; objects, which would be unpickled, are refused."""
    version = np.lib.format.read_magic(stream)
    read: Any = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, by_columns, dtype = read(stream)
    if dtype.kind not in "biuf" or by_columns or not shape or min(shape[1:], default=1) < 1:
        raise ValueError(
            f"its inputs are {dtype} of shape {shape}{' in Fortran order' if by_columns else ''}, not rows of numbers"
        )
    return shape, dtype, stream.tell()


def npz_blocks(
    _: Shape, *, stream: IO[bytes], start: int, row_shape: Shape, dtype: np.dtype[Any], name: str, first: int, count: int
) -> Iterator[Block]:
    """Rows first to first + count; a later place in the stream is reached by reading on."""
    size = dtype.itemsize * math.prod(row_shape)
    for row in range(first, first + count, BLOCK):
        some = min(BLOCK, first + count - row)
        try:
            stream.seek(start + row * size)
            content = stream.read(some * size)
        except (OSError, *DAMAGED) as error:
            raise DataError(f"{name} is damaged ({error}); write it again") from error
        if len(content) != some * size:
            raise DataError(f"{name} ends before row {row + some}; write it again")
        inputs = np.frombuffer(content, dtype).reshape(some, *row_shape)
        yield Block([f"{name}:{row + i}" for i in range(some)], list(repeat(None, some)), inputs)


def state_of(path: Path) -> str:
    """Size and time of change; the file may be gone by now."""
    try:
        state = path.stat()
    except OSError:
        return "gone"
    return f"{state.st_size}:{state.st_mtime_ns}"


def digest(*parts: object) -> str:
    """SHA-256 of some words."""
    return hashlib.sha256("\n".join(map(repr, parts)).encode()).hexdigest()
