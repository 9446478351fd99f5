"""The data sets of the paper, as data: files, official addresses, checksums, licences, classes and normalisation.

A data root (``BAL_DATA``, or the user's cache) holds one folder for each data set, with the official files as they were
downloaded and, where the official file is a .tar or .zip of many files, unpacked. Files that are there are used as they are.
"""

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Literal

from bal.data.readers import Labelled, read_cifar, read_idx_pair, read_omniglot, read_svhn, read_tiny_imagenet
from bal.errors import DataError
from bal.settings import suggestion

Split = Literal["train", "test"]
Reader = Callable[[Path, Split], Labelled]


@dataclass(frozen=True)
class File:
    """A file of the official release: its path in the data set's folder, and its MD5 as published, if any."""

    path: str
    md5: str = ""


@dataclass(frozen=True)
class DataSet:
    """What is known of a data set. ``mean`` and ``std`` are those of its training pixels in [0, 1], for each channel."""

    title: str
    address: str
    licence: str
    classes: int
    shape: tuple[int, ...]
    files: Mapping[Split, tuple[File, ...]]
    read: Reader
    mean: tuple[float, ...]
    std: tuple[float, ...]
    note: str = ""
    unpacked_from: Mapping[str, str] = field(default_factory=dict)  # official archive: its MD5


def idx_files(train_images: str, train_labels: str, test_images: str, test_labels: str) -> dict[Split, tuple[File, ...]]:
    """The four files of MNIST and its kin."""
    return {
        "train": (File("train-images-idx3-ubyte.gz", train_images), File("train-labels-idx1-ubyte.gz", train_labels)),
        "test": (File("t10k-images-idx3-ubyte.gz", test_images), File("t10k-labels-idx1-ubyte.gz", test_labels)),
    }


def read_mnist(folder: Path, split: Split) -> Labelled:
    """MNIST or Fashion-MNIST."""
    prefix = "train" if split == "train" else "t10k"
    return read_idx_pair(folder / f"{prefix}-images-idx3-ubyte.gz", folder / f"{prefix}-labels-idx1-ubyte.gz")


def read_cifar10(folder: Path, split: Split) -> Labelled:
    """CIFAR-10: five training batches, one test batch."""
    names = [f"data_batch_{i}.bin" for i in range(1, 6)] if split == "train" else ["test_batch.bin"]
    return read_cifar([folder / "cifar-10-batches-bin" / name for name in names], label_bytes=1, classes=10)


def read_cifar100(folder: Path, split: Split) -> Labelled:
    """CIFAR-100 with its fine labels."""
    return read_cifar([folder / "cifar-100-binary" / f"{split}.bin"], label_bytes=2, classes=100)


CATALOG: dict[str, DataSet] = {
    "mnist": DataSet(
        title="MNIST",
        address="http://yann.lecun.com/exdb/mnist/",
        licence="CC BY-SA 3.0",
        classes=10,
        shape=(28, 28),
        files=idx_files(
            "f68b3c2dcbeaaa9fbdd348bbdeb94873",
            "d53e105ee54ea40749a09fcbcd1e9432",
            "9fb629c4189551a2d022fa330f9573f3",
            "ec29112dd5afa0611ce80d1b7f02629c",
        ),
        read=read_mnist,
        mean=(0.1307,),
        std=(0.3081,),
    ),
    "fashion-mnist": DataSet(
        title="Fashion-MNIST",
        address="http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        licence="MIT",
        classes=10,
        shape=(28, 28),
        files=idx_files(
            "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            "25c81989df183df01b3e8a0aad5dffbe",
            "bef4ecab320f06d8554ea6380940ec79",
            "bb300cfdad3c16e7a12a480ee83cd310",
        ),
        read=read_mnist,
        mean=(0.2860,),
        std=(0.3530,),
    ),
    "omniglot": DataSet(
        title="Omniglot",
        address="https://github.com/brendenlake/omniglot/tree/master/python",
        licence="MIT",
        classes=1623,
        shape=(28, 28),
        files={
            "train": (File("images_background.zip", "68d2efa1b9178cc56df9314c21c6e718"),),
            "test": (File("images_evaluation.zip", "6b91aef0f799c5bb55b94e3f2daec811"),),
        },
        read=lambda folder, split: read_omniglot(folder / f"images_{'background' if split == 'train' else 'evaluation'}.zip"),
        mean=(0.0782,),
        std=(0.2336,),
        note="white ink on black, 28 x 28 bicubic; train is the background set, test the evaluation set",
    ),
    "cifar10": DataSet(
        title="CIFAR-10",
        address="https://www.cs.toronto.edu/~kriz/cifar.html",
        licence="none stated; research use",
        classes=10,
        shape=(3, 32, 32),
        files={
            "train": tuple(File(f"cifar-10-batches-bin/data_batch_{i}.bin") for i in range(1, 6)),
            "test": (File("cifar-10-batches-bin/test_batch.bin"),),
        },
        read=read_cifar10,
        mean=(0.4914, 0.4822, 0.4465),
        std=(0.2470, 0.2435, 0.2616),
        unpacked_from={"cifar-10-binary.tar.gz": "c32a1d4ab5d03f1284b67883e8d87530"},
    ),
    "cifar100": DataSet(
        title="CIFAR-100",
        address="https://www.cs.toronto.edu/~kriz/cifar.html",
        licence="none stated; research use",
        classes=100,
        shape=(3, 32, 32),
        files={"train": (File("cifar-100-binary/train.bin"),), "test": (File("cifar-100-binary/test.bin"),)},
        read=read_cifar100,
        mean=(0.5071, 0.4865, 0.4409),
        std=(0.2673, 0.2564, 0.2762),
        unpacked_from={"cifar-100-binary.tar.gz": "03b5dce01913d631647c71ecec9e9cb8"},
    ),
    "svhn": DataSet(
        title="SVHN (cropped digits)",
        address="http://ufldl.stanford.edu/housenumbers/",
        licence="non-commercial use",
        classes=10,
        shape=(3, 32, 32),
        files={
            "train": (File("train_32x32.mat", "e26dedcc434d2e4c54c9b2d4a06d8373"),),
            "test": (File("test_32x32.mat", "eb5a983be6a315427106f1b164d9cef3"),),
        },
        read=lambda folder, split: read_svhn(folder / f"{split}_32x32.mat"),
        mean=(0.4377, 0.4438, 0.4728),
        std=(0.1980, 0.2010, 0.1970),
    ),
    "tiny-imagenet": DataSet(
        title="TinyImageNet (validation)",
        address="http://cs231n.stanford.edu/tiny-imagenet-200.zip",
        licence="research use (ImageNet terms)",
        classes=200,
        shape=(3, 32, 32),
        files={"test": (File("tiny-imagenet-200/val/val_annotations.txt"),)},
        read=lambda folder, split: read_tiny_imagenet(folder / "tiny-imagenet-200"),
        mean=(0.4802, 0.4481, 0.3975),
        std=(0.2770, 0.2691, 0.2821),
        note="64 x 64 resized to 32 x 32, bicubic; the paper used files that ODIN's authors had resized",
        unpacked_from={"tiny-imagenet-200.zip": "90528d7ca1a48142e341f4ef8d21d0de"},
    ),
}


def data_root() -> Path:
    """BAL_DATA, or the user's cache."""
    given = os.environ.get("BAL_DATA")
    return Path(given) if given else Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "bal" / "data"


def find_data_set(name: str) -> DataSet:
    """The entry of that name; an unknown one is answered with those that are near."""
    if name not in CATALOG:
        hint = suggestion(name, {known: known for known in CATALOG}, n=2) or f"known: {', '.join(CATALOG)}"
        raise DataError(f"there is no data set {name!r}; {hint}")
    return CATALOG[name]


def load_data_set(name: str, split: Split, *, root: Path | None = None) -> Labelled:
    """(images, labels) of one part of a data set, from its official files under the data root."""
    data_set = find_data_set(name)
    if split not in data_set.files:
        raise DataError(f"{data_set.title} has no part {split!r} here; it has {', '.join(data_set.files)}")
    folder = (data_root() if root is None else root) / name
    missing = missing_files(data_set.files[split], folder)
    if missing:
        archives = "".join(f" (unpacked from {archive}, MD5 {md5})" for archive, md5 in data_set.unpacked_from.items())
        wanted = ", ".join(f"{file.path}{f' (MD5 {file.md5})' if file.md5 else ''}" for file in data_set.files[split])
        raise DataError(
            f"{data_set.title} is not complete: {folder} has no {', '.join(missing)}. Get {wanted}{archives} from "
            f"{data_set.address} and put it there, or set BAL_DATA to a folder that holds {name}/"
        )
    images, labels = data_set.read(folder, split)
    if images.shape[1:] != data_set.shape:
        raise DataError(f"{folder} gave images of shape {images.shape[1:]}, expected {data_set.shape}; is it {data_set.title}?")
    return images, labels


def missing_files(files: Iterable[File], folder: Path) -> list[str]:
    """Paths of the files that are not in the folder."""
    return [file.path for file in files if not (folder / file.path).is_file()]


def all_files(name: str) -> list[File]:
    """The files of every part of a data set."""
    return [file for files in find_data_set(name).files.values() for file in files]


def verify(name: str, *, root: Path | None = None) -> dict[str, str]:
    """What each file is: official, other (its MD5 is not the published one), unpacked (none is published) or missing."""
    folder = (data_root() if root is None else root) / name
    states = {}
    for file in all_files(name):
        path = folder / file.path
        if not path.is_file():
            states[file.path] = "missing"
        elif not file.md5:
            states[file.path] = "unpacked"
        else:
            states[file.path] = "official" if md5_of(path) == file.md5 else "other"
    return states


def shown_title(name: str) -> str:
    """The title for tables of results; "(derived)" where the files here are not the official ones."""
    return title_at(name, data_root())


@lru_cache
def title_at(name: str, root: Path) -> str:
    """The same for one data root; files are hashed once."""
    title = find_data_set(name).title
    return f"{title} (derived)" if "other" in verify(name, root=root).values() else title


def md5_of(path: Path) -> str:
    """MD5 as the data sets' authors publish it; it tells a damaged file, not a forged one."""
    md5 = hashlib.md5(usedforsecurity=False)
    with path.open("rb") as file:
        while block := file.read(2**20):
            md5.update(block)
    return md5.hexdigest()
