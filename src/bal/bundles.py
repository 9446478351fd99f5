"""Several parts and a manifest as one thing on disk: a directory, or a stored zip whose name ends in .bal.

The manifest holds the SHA-256 of every part, and its own. In a directory parts are named by their content and the manifest is
renamed into place last: before that moment the old manifest stands beside its old parts, after it the new one beside its own. So
a kill at any time leaves the old bundle or the new one, and files of others in the directory are left alone.
"""

import hashlib
import json
import re
import struct
import zipfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import Any

from bal.errors import StorageError
from bal.storage import folder_lock, sync_folder, write_atomically

MANIFEST = "manifest.json"
SUFFIX = ".bal"
SAFE_NAME = re.compile(r"[A-Za-z0-9][\w.-]*")
UNREADABLE = (
    OSError,
    EOFError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    RuntimeError,
    struct.error,
    zipfile.BadZipFile,
)
EARLIEST = (1980, 1, 1, 0, 0, 0)  # the same bundle gives the same bytes at any time of day

Manifest = dict[str, Any]
Read = Callable[[str], bytes]


def write_bundle(path: Path, manifest: Mapping[str, Any], parts: Mapping[str, bytes]) -> None:
    """Write parts called like ``tensors.safetensors`` and a manifest with a "schema", whole or not at all."""
    files = {f"{Path(name).stem}-{sha256(content)[:16]}{Path(name).suffix}": content for name, content in parts.items()}
    listed = {
        name: {"file": file, "sha256": sha256(content), "bytes": len(content)}
        for name, (file, content) in zip(parts, files.items(), strict=True)
    }
    sealed = {**manifest, "parts": listed}
    sealed["sha256"] = seal(sealed)
    content = json.dumps(sealed, indent=1, allow_nan=False).encode()
    if path.suffix == SUFFIX:
        write_atomically(path, zipped({MANIFEST: content, **files}))
    else:
        write_folder(path, content, files)


def write_folder(folder: Path, manifest: bytes, files: Mapping[str, bytes]) -> None:
    """Parts first, the manifest last, then what no manifest names any more: older parts, and those of a save that was killed."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with folder_lock(folder):
            for name, content in files.items():
                write_atomically(folder / name, content)
            write_atomically(folder / MANIFEST, manifest)
            sync_folder(folder.absolute().parent)  # the folder itself may be new
            ours = re.compile("|".join(rf"\.?{name.split('-')[0]}-[0-9a-f]{{16}}\..*" for name in files))
            for other in folder.iterdir():
                if ours.fullmatch(other.name) and other.name not in files:
                    with suppress(OSError):
                        other.unlink()
    except OSError as error:
        if isinstance(error, StorageError):
            raise
        raise StorageError(
            f"cannot write the folder {folder}: {error.strerror or error}; choose another name, or one that ends in {SUFFIX}"
        ) from error


def zipped(files: Mapping[str, bytes]) -> bytes:
    """A zip archive of the files, not compressed."""
    sink = BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_STORED) as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name, EARLIEST), content)
    return sink.getvalue()


def read_bundle(path: Path, *, schema: int) -> tuple[Manifest, dict[str, bytes]]:
    """The manifest and the parts by name; what is damaged, incomplete or of a schema newer than ``schema`` is refused."""
    try:
        if not path.is_dir():
            with zipfile.ZipFile(plain(path)) as archive:
                return checked(path, lambda name: stored(archive, name), schema)
        with folder_lock(path, shared=True):
            return checked(path, lambda name: plain(path / name).read_bytes(), schema)
    except StorageError:
        raise
    except UNREADABLE as error:
        raise StorageError(
            f"{path} is damaged, incomplete or was not written by bal ({error}); check the path, or make it again"
        ) from error


def plain(path: Path) -> Path:
    """The path of a plain file; a pipe or a device would be read for ever."""
    if path.exists() and not path.is_file():
        raise ValueError(f"{path.name} is no plain file")
    return path


def checked(path: Path, read: Read, schema: int) -> tuple[Manifest, dict[str, bytes]]:
    """Read the manifest, then the parts it names, and compare every digest."""
    manifest: Manifest = json.loads(read(MANIFEST))
    if int(manifest["schema"]) > schema:
        raise StorageError(f"{path} has schema {manifest['schema']}, this bal reads up to {schema}; update bal")
    unsealed = {name: value for name, value in manifest.items() if name != "sha256"}
    parts = {name: read(safe_name(entry["file"])) for name, entry in manifest["parts"].items()}
    wrong = [name for name, content in parts.items() if sha256(content) != manifest["parts"][name]["sha256"]]
    if seal(unsealed) != manifest["sha256"]:
        wrong.append(MANIFEST)
    if wrong:
        raise StorageError(f"{path} is damaged: {', '.join(wrong)} does not match its SHA-256; make it again")
    return manifest, parts


def stored(archive: zipfile.ZipFile, name: str) -> bytes:
    """A member of the archive that is not compressed, so that no few bytes become gigabytes."""
    if archive.getinfo(name).compress_type != zipfile.ZIP_STORED:
        raise ValueError(f"{name} is compressed")
    return archive.read(name)


def safe_name(name: str) -> str:
    """A plain file name, which cannot lead out of the bundle."""
    if not SAFE_NAME.fullmatch(name):
        raise ValueError(f"a part is called {name!r}")
    return name


def sha256(content: bytes) -> str:
    """The digest in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def seal(manifest: Mapping[str, Any]) -> str:
    """The digest of what a manifest says, however it is laid out."""
    return sha256(json.dumps(manifest, sort_keys=True, allow_nan=False).encode())
