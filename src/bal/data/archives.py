"""Unpacking archives that nobody has looked into: all of it or nothing, and nothing outside its folder.

Refused, before anything gets its place: members with an absolute path or with ``..``, links, devices, more bytes or members than
the limits below, a damaged archive, one that lacks what it should hold. Permissions and owners in the archive are not applied.
"""

import lzma
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from gzip import BadGzipFile
from pathlib import Path, PureWindowsPath
from tokenize import TokenError
from typing import IO, Literal

from bal.errors import DataError, StorageError

MAX_BYTES = 4 * 2**30  # unpacked, all members together; the largest data set of the catalog has a tenth of it
MAX_MEMBERS = 500_000

Kind = Literal["file", "folder", "other"]
DAMAGED = (  # whatever readers of archives, and of arrays in them, raise when a file is broken
    tarfile.TarError,
    zipfile.BadZipFile,
    BadGzipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    RuntimeError,
    UnicodeError,
    SyntaxError,
    TokenError,
)


@dataclass(frozen=True)
class Member:
    """One entry of an archive; ``content`` is open while the archive stands at it."""

    name: str
    size: int
    kind: Kind
    content: IO[bytes] | None = None


def missing_paths(paths: Iterable[str], folder: Path) -> list[str]:
    """Those that are not in the folder; a path that ends in / is a folder, which must hold something."""
    return [path for path in paths if not (holds_a_file(folder / path) if path.endswith("/") else (folder / path).is_file())]


def holds_a_file(folder: Path) -> bool:
    """Whether there is a file in it, however deep."""
    return any(path.is_file() for path in folder.rglob("*"))


def unpack(archive: Path, folder: Path, *, wanted: Sequence[str] = (), max_bytes: int = MAX_BYTES) -> None:
    """Unpack a .zip or .tar of any compression into a folder; ``wanted`` are paths that it must hold.

    Everything is written beside its place first. A folder that is not there yet appears whole, by one renaming; in one that is
    there already files are replaced one by one, the wanted ones last.
    """
    staging = folder / f".{archive.name}.unpacking"
    try:
        shutil.rmtree(staging, ignore_errors=True)  # of a killed run
        staging.mkdir(parents=True)
        write_members(archive, staging, max_bytes)
        if missing := missing_paths(wanted, staging):
            raise DataError(f"{archive} does not hold {', '.join(missing)}; is it another archive? Fetch it again")
        settle(staging, folder, last=wanted)
    except OSError as error:
        raise StorageError(f"cannot unpack {archive} into {folder}: {error}; free some space or choose another folder") from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def write_members(archive: Path, folder: Path, max_bytes: int) -> None:
    """Write every member below the folder, or raise at the first one that must not be written."""
    total = 0
    with open_members(archive) as members:
        for count, member in enumerate(members, 1):
            place = folder.joinpath(*safe_parts(member.name, archive))
            total += member.size
            if member.kind == "other":
                raise DataError(f"{archive} holds a link or a device, {member.name!r}; refused, nothing was unpacked")
            if total > max_bytes or count > MAX_MEMBERS:
                raise DataError(
                    f"{archive} unpacks to more than {max_bytes:,} bytes or {MAX_MEMBERS:,} files; refused, nothing was unpacked"
                )
            if member.content is None:
                place.mkdir(parents=True, exist_ok=True)
                continue
            place.parent.mkdir(parents=True, exist_ok=True)
            with place.open("wb") as file:
                shutil.copyfileobj(member.content, file)


def safe_parts(name: str, archive: Path) -> tuple[str, ...]:
    """The parts of a member's path, if it stays below the folder on every system."""
    path = PureWindowsPath(name)  # splits at / and at \, and knows drives
    if path.drive or path.root or ".." in path.parts or "\0" in name:
        raise DataError(f"{archive} holds {name!r}, which leads out of its folder; refused, nothing was unpacked")
    return path.parts


@contextmanager
def open_members(archive: Path) -> Iterator[Iterator[Member]]:
    """The members in their order; whatever is wrong with the archive itself becomes a DataError."""
    try:
        if archive.suffix == ".zip":
            with zipfile.ZipFile(archive) as file:
                yield zip_members(file)
        else:
            with tarfile.open(archive) as file:
                yield tar_members(file)
    except DAMAGED as error:
        raise DataError(f"{archive} is not a whole archive that can be read ({error}); fetch it again") from error


def zip_members(archive: zipfile.ZipFile) -> Iterator[Member]:
    """Entries of a zip; a Unix mode, where there is one, tells links."""
    for info in archive.infolist():
        kind = stat.S_IFMT(info.external_attr >> 16)
        if info.is_dir():
            yield Member(info.filename, 0, "folder")
        elif kind not in (0, stat.S_IFREG):
            yield Member(info.filename, info.file_size, "other")
        else:
            with archive.open(info) as content:
                yield Member(info.filename, info.file_size, "file", content)


def tar_members(archive: tarfile.TarFile) -> Iterator[Member]:
    """Entries of a tar."""
    for info in archive:
        if info.isdir():
            yield Member(info.name, 0, "folder")
        elif content := archive.extractfile(info) if info.isreg() else None:
            with content:
                yield Member(info.name, info.size, "file", content)
        else:
            yield Member(info.name, info.size, "other")
    if archive.fileobj is not None:
        archive.fileobj.read(2**20)  # to the end of the stream, where gzip keeps its checksum


def settle(staging: Path, folder: Path, *, last: Sequence[str]) -> None:
    """Move what was unpacked to its place."""
    for entry in sorted(staging.iterdir()):
        if not (folder / entry.name).exists():
            entry.rename(folder / entry.name)
    rest = [path.relative_to(staging) for path in staging.rglob("*") if path.is_file()]
    for path in sorted(rest, key=lambda path: (path.as_posix() in last, path)):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (staging / path).replace(folder / path)
