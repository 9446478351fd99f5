"""One short reader for each official format. Every reader returns (images, labels) as uint8 (N, ...) and int64 (N,) arrays.

A file that is cut, of another kind or of another size is refused with its name and what was expected; nothing is unpickled.
"""

import gzip
import math
import zipfile
import zlib
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path, PureWindowsPath

import numpy as np
from numpy.typing import NDArray

from bal.data.archives import DAMAGED
from bal.data.extras import import_extra
from bal.data.images import decode, resize
from bal.errors import DataError

Labelled = tuple[NDArray[np.uint8], NDArray[np.int64]]

IDX_UBYTE = 0x08
CIFAR_PIXELS = 3 * 32 * 32


def read_bytes(path: Path) -> bytes:
    """The content of a file, uncompressed if it is gzip."""
    if not path.is_file():
        raise DataError(f"there is no file {path}; see `bal data list` for the files a data set needs and where to put them")
    try:
        return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} is damaged ({error}); fetch it again") from error


def read_idx(path: Path) -> NDArray[np.uint8]:
    """An array in the IDX format of MNIST: magic 0, 0, type, dimensions; big-endian sizes; bytes."""
    content = read_bytes(path)
    if len(content) < 4 or content[:3] != bytes([0, 0, IDX_UBYTE]):
        raise DataError(f"{path} is not an IDX file of bytes: it begins with {content[:4].hex() or 'nothing'}, expected 000008")
    dimensions = content[3]
    start = 4 + 4 * dimensions
    shape = tuple(np.frombuffer(content[4:start], ">u4").tolist()) if len(content) >= start else (-1,)
    if len(shape) != dimensions or len(content) - start != math.prod(shape):  # of Python's integers, which never wrap round
        raise DataError(f"{path} is cut or too long: {len(content)} bytes for the shape {shape}; fetch it again")
    try:
        return np.frombuffer(content, np.uint8, offset=start).reshape(shape)
    except ValueError as error:
        raise DataError(f"{path} tells of {dimensions} dimensions that no array has ({error}); fetch it again") from error


def read_idx_pair(images: Path, labels: Path) -> Labelled:
    """MNIST and Fashion-MNIST: (N, 28, 28) images and their labels."""
    x, c = read_idx(images), read_idx(labels)
    if x.ndim != 3 or c.ndim != 1 or len(x) != len(c):
        raise DataError(f"{images} holds {x.shape} and {labels} {c.shape}; expected N images and N labels of one data set")
    return x, c.astype(np.int64)


def read_cifar(paths: Sequence[Path], *, label_bytes: int, classes: int) -> Labelled:
    """CIFAR's binary version: each image has its label bytes (one, or coarse and fine for CIFAR-100), then R, G, B planes."""
    record = label_bytes + CIFAR_PIXELS
    parts = []
    for path in paths:
        content = np.frombuffer(read_bytes(path), np.uint8)
        if not len(content) or len(content) % record:
            raise DataError(f"{path} has {len(content)} bytes, not a multiple of {record}; is it the binary version, and whole?")
        parts.append(content.reshape(-1, record))
    rows = np.concatenate(parts)
    labels = rows[:, label_bytes - 1].astype(np.int64)  # the fine label comes last
    if labels.max() >= classes:
        raise DataError(f"{paths[0].name} has the label {labels.max()}, expected 0 to {classes - 1}; is it another data set?")
    return rows[:, label_bytes:].reshape(-1, 3, 32, 32), labels


def read_svhn(path: Path) -> Labelled:
    """SVHN's cropped digits: X (32, 32, 3, N) and y (N, 1) in a MATLAB file, where the digit 0 has the label 10."""
    matlab = import_extra("scipy.io")
    try:
        arrays = matlab.loadmat(BytesIO(read_bytes(path)), variable_names=["X", "y"])
        x, y = arrays["X"], arrays["y"].ravel()
    except (ValueError, TypeError, LookupError, AttributeError, OSError, *DAMAGED, matlab.matlab.MatReadError) as error:
        raise DataError(f"{path} is not SVHN's cropped format, a MATLAB file with X and y ({error}); fetch it again") from error
    if x.ndim != 4 or x.shape[:3] != (32, 32, 3) or x.shape[3] != len(y) or x.dtype != np.uint8 or y.dtype.kind not in "iuf":
        raise DataError(
            f"{path} holds X {x.shape} {x.dtype} and y {y.shape} {y.dtype}; expected (32, 32, 3, N) uint8 and N numbers"
        )
    return np.ascontiguousarray(x.transpose(3, 2, 0, 1)), (y % 10).astype(np.int64)


def read_omniglot(path: Path, *, size: int = 28) -> Labelled:
    """Omniglot's zip of drawings: white ink on black, resized; the label is the number of the character in the zip."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = sorted(name for name in archive.namelist() if name.endswith(".png"))
            images = [resize(255 - decode(archive.read(name), channels=1), size) for name in names]
    except FileNotFoundError:
        raise DataError(f"there is no file {path}; see `bal data list` for where to put it") from None
    except (*DAMAGED, KeyError, OSError) as error:
        raise DataError(f"{path} is not a whole zip archive that can be read ({error}); fetch it again") from error
    if not names:
        raise DataError(f"{path} holds no drawings (*.png); expected images_background.zip or images_evaluation.zip of Omniglot")
    characters = {character: label for label, character in enumerate(sorted({name.rsplit("/", 1)[0] for name in names}))}
    labels = np.array([characters[name.rsplit("/", 1)[0]] for name in names], np.int64)
    return np.stack(images)[:, 0], labels


def read_tiny_imagenet(folder: Path, *, size: int = 32) -> Labelled:
    """The validation part of tiny-imagenet-200: val/images and val/val_annotations.txt; classes in the order of wnids.txt."""
    annotations, classes = folder / "val" / "val_annotations.txt", folder / "wnids.txt"
    if not annotations.is_file():
        raise DataError(f"there is no {annotations}; put the unpacked tiny-imagenet-200 there")
    wnids = read_annotations(annotations)
    known = read_text(classes).split() if classes.is_file() else sorted(set(wnids.values()))
    numbers = {wnid: label for label, wnid in enumerate(known)}
    images, labels = [], []
    for name, wnid in wnids.items():
        path = folder / "val" / "images" / name
        if not path.is_file():  # a part of the set is used as it is
            continue
        if wnid not in numbers:
            raise DataError(f"{annotations} gives {name} the class {wnid!r}, which is not in {classes}; fetch both again")
        images.append(resize(decode(read_bytes(path), channels=3, name=str(path)), size))
        labels.append(numbers[wnid])
    if not images:
        raise DataError(f"{folder / 'val' / 'images'} holds none of the images that {annotations.name} lists")
    return np.stack(images), np.array(labels, np.int64)


def read_annotations(path: Path) -> dict[str, str]:
    """The class of each image by its name: lines of name, tab, class and a box; a name that is a path is refused."""
    wnids = {}
    for number, line in enumerate(read_text(path).splitlines(), 1):
        if not line.strip():
            continue
        name, *rest = line.split("\t")
        if not rest:
            raise DataError(f"line {number} of {path} is {line[:60]!r}, expected an image, a tab and its class; fetch it again")
        if PureWindowsPath(name).name != name or name in ("", ".."):  # splits at / and at \, and knows drives
            raise DataError(f"line {number} of {path} names {name[:60]!r}, which leads out of its folder; refused")
        wnids[name] = rest[0]
    return wnids


def read_text(path: Path) -> str:
    """A file of text in UTF-8."""
    try:
        return read_bytes(path).decode()
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not text in UTF-8 ({error}); fetch it again") from error
