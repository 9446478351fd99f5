"""Folders of images: each sub-folder is a class, or none is. A file that cannot be read is left out and said."""

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bal.data.images import MAX_PIXELS, decode, fit
from bal.errors import BalWarning, DataError
from bal.progress import track

BUDGET = 0.01  # share of files that may be left out
NAMED = 5  # files that a message names

Shape = tuple[int, ...]
Content = Callable[[], bytes]


@dataclass(frozen=True)
class Decoded:
    """``images`` (N, ...) uint8; ``kept`` is the number of each among all items; ``left_out`` says why, by name."""

    images: NDArray[np.uint8]
    kept: tuple[int, ...]
    left_out: dict[str, str]


@dataclass(frozen=True)
class ImageFolder:
    """``labels`` index ``classes``, and are None in a folder without classes; ``left_out`` says why, by path."""

    images: NDArray[np.uint8]
    labels: NDArray[np.int64] | None
    classes: tuple[str, ...]
    paths: tuple[Path, ...]
    left_out: dict[str, str]


def read_image_folder(
    folder: str | Path,
    shape: Shape | None = None,
    *,
    classes: Sequence[str] | None = None,
    crop: bool = False,
    budget: float = BUDGET,
) -> ImageFolder:
    """Every image below a folder, as ``shape``: (height, width) for grey or (channels, height, width).

    Without a shape all must have one size, that of the first. Classes are the sub-folders in sorted order, or those given in
    their order; ``()`` takes all images below the folder, without labels. Every file counts but hidden ones: one that cannot be
    read is left out with a BalWarning, and past ``budget``, a share of all files, it is an error. ``crop`` takes the middle of
    images that are larger; else they are resized, bicubic.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise DataError(f"there is no folder {folder}; give a folder of images, or of one folder for each class")
    if classes is None:
        classes = class_folders(folder)
        strays = [path for path in files_in(folder, deep=False) if classes]
    else:
        strays = []
        if absent := [name for name in classes if not (folder / name).is_dir()]:
            raise DataError(f"{folder} has no folder {', '.join(absent)}; expected one for each class of {', '.join(classes)}")
    groups = [files_in(folder / name) for name in classes] if classes else [files_in(folder)]
    paths = [path for group in groups for path in group]
    labels = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
    outside = {printable(path): "lies beside the folders of the classes" for path in strays}
    items = track([(printable(path), path.read_bytes) for path in paths], "reading images", len(paths))
    decoded = decode_all(items, shape, crop=crop, budget=budget, where=str(folder), left_out=outside)
    kept = list(decoded.kept)
    return ImageFolder(
        decoded.images,
        labels[kept].astype(np.int64) if classes else None,
        tuple(classes),
        tuple(paths[i] for i in kept),
        decoded.left_out,
    )


def class_folders(folder: Path) -> list[str]:
    """Names of the sub-folders in sorted order, without hidden ones; a link to a folder counts, unless it leads back up."""
    try:
        with os.scandir(folder) as items:
            found = [item for item in items if is_folder(item) and not item.name.startswith(".")]
    except OSError as error:
        raise DataError(f"the folder {folder} cannot be read ({error}); allow it, or take it out") from error
    return sorted(item.name for item in found if not (item.is_symlink() and leads_up(folder / item.name)))


def printable(path: str | Path) -> str:
    """A path, or a name, as text; bytes that are no text are shown as numbers."""
    return os.fsencode(path).decode(errors="backslashreplace")


def is_folder(item: "os.DirEntry[str]") -> bool:
    """Whether it is a folder, or a link to one; a link to itself is none."""
    try:
        return item.is_dir()
    except OSError:
        return False


def leads_up(link: Path) -> bool:
    """Whether a link leads to a folder that it lies in."""
    return link.resolve() in {place.resolve() for place in link.absolute().parents}


def folders_in(folder: Path) -> Iterator[Path]:
    """A folder and those below it, in the order of their names."""
    names = class_folders(folder)
    yield folder
    for name in names:
        yield from folders_in(folder / name)


def files_in(folder: Path, *, deep: bool = True) -> list[Path]:
    """Files in sorted order, without hidden ones."""
    places = folders_in(folder) if deep else [folder]
    return sorted(path for place in places for path in place.iterdir() if path.is_file() and not path.name.startswith("."))


def decode_all(
    items: Iterable[tuple[str, Content]],
    shape: Shape | None,
    *,
    where: str,
    crop: bool = False,
    budget: float = BUDGET,
    left_out: dict[str, str] | None = None,
) -> Decoded:
    """Decode named image files into one array; those that cannot be read are left out, up to a share ``budget`` of all."""
    if shape is not None:
        check_image_shape(shape)
    images: list[NDArray[np.uint8]] = []
    kept: list[int] = []
    left_out = dict(left_out or {})
    for row, (name, content) in enumerate(items):
        try:
            image = decode_as(shape, content, name, crop=crop)
        except (DataError, OSError) as error:
            left_out[name] = str(error)
            continue
        if shape is None and images:
            image = alike(image, images[0], name)
        images.append(image)
        kept.append(row)
    check_left_out(left_out, len(images) + len(left_out), where, budget)
    return Decoded(np.stack(images), tuple(kept), left_out)


def check_left_out(left_out: dict[str, str], total: int, where: str, budget: float = BUDGET) -> None:
    """Warn of files that cannot be read; refuse more of them than a share ``budget`` of all, and a place without any other."""
    reasons = [reason if name in reason else f"{name}: {reason}" for name, reason in left_out.items()]
    examples = "; ".join(reasons[:NAMED]) + ("; ..." if len(reasons) > NAMED else "")
    if len(left_out) == total:
        raise DataError(f"{where} holds no image that can be read" + (f": {examples}" if left_out else "; it is empty"))
    if len(left_out) > budget * total:
        raise DataError(
            f"{len(left_out)} of {total} files in {where} cannot be read, more than {budget:.1%}: {examples}. "
            "Remove or mend them, or allow a larger budget"
        )
    if left_out:
        warnings.warn(f"{len(left_out)} of {total} files in {where} were left out: {examples}", BalWarning, stacklevel=4)


def check_image_shape(shape: Shape) -> None:
    """Refuse what an image file cannot become."""
    if len(shape) not in (2, 3) or (len(shape) == 3 and shape[0] not in (1, 3)):
        raise DataError(f"image files become (height, width), (1, height, width) or (3, height, width), not {tuple(shape)}")
    if min(shape) < 1 or shape[-2] * shape[-1] > MAX_PIXELS:
        raise DataError(
            f"image files become at least one pixel high and wide and at most {MAX_PIXELS:,} pixels, not {tuple(shape)}"
        )


def decode_as(
    shape: Shape | None, content: Content, name: str, *, crop: bool = False, max_pixels: int = MAX_PIXELS
) -> NDArray[np.uint8]:
    """One image file as ``shape``, or as it is."""
    channels = None if shape is None else shape[0] if len(shape) == 3 else 1
    image = decode(content(), channels=channels, name=name, max_pixels=max_pixels)
    return image if shape is None else fit(image, (shape[-2], shape[-1]), crop=crop).reshape(shape)


def alike(image: NDArray[np.uint8], first: NDArray[np.uint8], name: str) -> NDArray[np.uint8]:
    """The image if it can stand beside the first one; a grey one among colour is made colour."""
    if image.shape[1:] != first.shape[1:] or len(image) > len(first):
        raise DataError(
            f"{name} is {image.shape}, but the first image is {first.shape} (channels, height, width); "
            "give the shape that all are to have"
        )
    return np.repeat(image, len(first) // len(image), 0)
