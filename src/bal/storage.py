"""Tensors on disk: one safetensors file, checked and replaced as a whole, never pickle.

safetensors does not notice a flipped bit and `torch.save` may be cut in half by a kill. So the SHA-256 of every name, dtype,
shape, byte and setting is kept in the file's own header, and a file only ever appears by renaming a finished one.
"""

import fcntl
import hashlib
import json
import os
import platform
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from bal.errors import StorageError

Settings = Mapping[str, Any]


def tensor_bytes(tensor: Tensor) -> memoryview:
    """The tensor's content as bytes, without a copy when it is contiguous and on the CPU."""
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data


def digest(tensors: Mapping[str, Tensor], settings: Settings | None = None) -> str:
    """SHA-256 over the settings and over each tensor's name, dtype, shape and bytes, in the order of the names."""
    sha = hashlib.sha256(json.dumps(settings or {}, sort_keys=True).encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        sha.update(f"{name}:{tensor.dtype}:{tuple(tensor.shape)};".encode())
        sha.update(tensor_bytes(tensor))
    return sha.hexdigest()


def write_atomically(path: Path, content: bytes) -> None:
    """Write a whole new file or none: temporary, fsync, rename, fsync of the folder.

    A kill at any moment, a full disk or a read-only folder leaves the old file as it was. A link stays, and the file that it
    leads to is replaced.
    """
    try:
        replace_file(path.resolve(), content)
    except (OSError, ValueError, RuntimeError) as error:  # a path may hold a null, or be a link to itself
        raise StorageError(
            f"cannot write {path}: {getattr(error, 'strerror', None) or error}; the old file, if any, is kept. "
            "Free some space or choose a folder you may write to"
        ) from error


def replace_file(path: Path, content: bytes) -> None:
    """Write a temporary file beside the path and rename it; folders, devices and links to themselves are no files to replace."""
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise OSError("what is there is no plain file")
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_stale(path)
    temporary = path.with_name(f".{path.name}.{platform.node()}.{os.getpid()}.{uuid4().hex}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        sync_folder(path.parent)
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def remove_stale(path: Path) -> None:
    """Remove temporaries that killed processes of this machine left behind; those of processes still at work stay."""
    ours = re.compile(rf"\.{re.escape(path.name)}\.{re.escape(platform.node())}\.([0-9]{{1,9}})\.[0-9a-f]+\.tmp")
    with os.scandir(path.parent) as items:
        found = [match for item in items if (match := ours.fullmatch(item.name))]
    for match in found:
        if not is_running(int(match[1])):
            path.with_name(match[0]).unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Bring the names in a folder to disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def is_running(process: int) -> bool:
    """Whether a process of this machine is alive."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


@contextmanager
def folder_lock(folder: Path, *, shared: bool = False) -> Iterator[None]:
    """Hold a folder for one writer, or for many readers; a killed process lets go. Where there are no locks, go on without."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def save_tensors(path: Path, tensors: Mapping[str, Tensor], settings: Settings | None = None) -> None:
    """Write tensors and JSON settings to one safetensors file that carries its own SHA-256."""
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    header = {"settings": json.dumps(settings or {}, sort_keys=True), "sha256": digest(tensors, settings)}
    write_atomically(path, save(tensors, metadata=header))


def load_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read what :func:`save_tensors` wrote; a damaged or foreign file is refused."""
    if not path.is_file():
        raise StorageError(f"there is no file {path}; give the path of a file written by bal")
    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
        settings: dict[str, Any] = json.loads(header["settings"])
        intact = digest(tensors, settings) == header["sha256"]
    except (SafetensorError, KeyError, ValueError, OSError) as error:
        raise StorageError(f"{path} is damaged or was not written by bal ({error}); check the path, or make it again") from error
    if not intact:
        raise StorageError(f"{path} is damaged: its content does not match its SHA-256; delete it and make it again")
    return tensors, settings
