"""The data sets of the paper, as data: files, official addresses, checksums, licences, classes and normalisation.

A data root (``BAL_DATA``, or the user's cache) holds one folder for each data set, with the official files as they were
downloaded and, where the official file is a .tar or .zip of many files, unpacked. Files that are there are used as they are.
"""

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Literal

import numpy as np

from bal.data.archives import missing_paths
from bal.data.folders import read_image_folder
from bal.data.readers import Labelled, read_cifar, read_idx_pair, read_omniglot, read_svhn, read_tiny_imagenet
from bal.errors import DataError
from bal.settings import suggestion

Split = Literal["train", "test"]
Reader = Callable[[Path, Split], Labelled]

OMNIGLOT = "https://raw.githubusercontent.com/brendenlake/omniglot/master/python/"
CIFAR = "https://www.cs.toronto.edu/~kriz/"
SVHN = "http://ufldl.stanford.edu/housenumbers/"
TINY_IMAGENET = "http://cs231n.stanford.edu/tiny-imagenet-200.zip"
IMAGENET_LICENCE = "research use (ImageNet terms)"
LSUN_LICENCE = "none stated; research use"


@dataclass(frozen=True)
class File:
    """A file of the official release: its path in the data set's folder, its MD5 as published and its address, if any.

    A path that ends in / is a folder of files.
    """

    path: str
    md5: str = ""
    url: str = ""


@dataclass(frozen=True)
class DataSet:
    """What is known of a data set; ``classes`` is 0 where it has no labels, and every label is -1.

    ``mean`` and ``std`` are those of its training pixels in [0, 1], for each channel, and empty where nobody measured them.
    """

    title: str
    address: str
    licence: str
    classes: int
    shape: tuple[int, ...]
    files: Mapping[Split, tuple[File, ...]]
    read: Reader
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    note: str = ""
    archive: File | None = None  # that the files are unpacked from
    folder: str = ""  # under the data root; the entry's name when not given


def idx_files(
    base: str, train_images: str, train_labels: str, test_images: str, test_labels: str
) -> dict[Split, tuple[File, ...]]:
    """The four files of MNIST and its kin at one address."""

    def file(name: str, md5: str) -> File:
        return File(name, md5, base + name)

    return {
        "train": (file("train-images-idx3-ubyte.gz", train_images), file("train-labels-idx1-ubyte.gz", train_labels)),
        "test": (file("t10k-images-idx3-ubyte.gz", test_images), file("t10k-labels-idx1-ubyte.gz", test_labels)),
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


def read_unlabelled(folder: Path, split: Split, *, below: str, crop: bool = False) -> Labelled:
    """All images below a folder at 32 x 32; every label is -1."""
    images = read_image_folder(folder / below, (3, 32, 32), classes=(), crop=crop).images
    return images, np.full(len(images), -1, np.int64)


def read_dogs_vs_cats(folder: Path, split: Split) -> Labelled:
    """Cats 0, dogs 1; every fifth image of each class, in the order of names, is for testing."""
    found = read_image_folder(folder, (3, 32, 32), classes=("cats", "dogs"))
    labels = np.asarray(found.labels)
    place = np.concatenate([np.arange(count) for count in np.bincount(labels, minlength=2)])
    chosen = (place % 5 == 4) == (split == "test")
    return found.images[chosen], labels[chosen]


def odin_set(title: str, archive: str, key: str, md5: str, *, crop: bool, licence: str) -> DataSet:
    """One of the OOD sets that the authors of ODIN made, and that the paper measures on."""
    below = f"{archive.partition('.')[0]}/"
    return DataSet(
        title=title,
        address="https://github.com/facebookresearch/odin",
        licence=licence,
        classes=0,
        shape=(3, 32, 32),
        files={"test": (File(below),)},
        read=partial(read_unlabelled, below=below, crop=crop),
        note="made by ODIN's authors, who publish no MD5; this one is recorded by pytorch-ood"
        + ("; the middle 32 x 32 of larger images" if crop else ""),
        archive=File(archive, md5, f"https://www.dropbox.com/s/{key}/{archive}?dl=1"),
    )


CATALOG: dict[str, DataSet] = {
    "mnist": DataSet(
        title="MNIST",
        address="http://yann.lecun.com/exdb/mnist/",
        licence="CC BY-SA 3.0",
        classes=10,
        shape=(28, 28),
        files=idx_files(
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
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
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
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
            "train": (File("images_background.zip", "68d2efa1b9178cc56df9314c21c6e718", OMNIGLOT + "images_background.zip"),),
            "test": (File("images_evaluation.zip", "6b91aef0f799c5bb55b94e3f2daec811", OMNIGLOT + "images_evaluation.zip"),),
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
        archive=File("cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530", CIFAR + "cifar-10-binary.tar.gz"),
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
        archive=File("cifar-100-binary.tar.gz", "03b5dce01913d631647c71ecec9e9cb8", CIFAR + "cifar-100-binary.tar.gz"),
    ),
    "svhn": DataSet(
        title="SVHN",
        address=SVHN,
        licence="non-commercial use",
        classes=10,
        shape=(3, 32, 32),
        files={
            "train": (File("train_32x32.mat", "e26dedcc434d2e4c54c9b2d4a06d8373", SVHN + "train_32x32.mat"),),
            "test": (File("test_32x32.mat", "eb5a983be6a315427106f1b164d9cef3", SVHN + "test_32x32.mat"),),
        },
        read=lambda folder, split: read_svhn(folder / f"{split}_32x32.mat"),
        mean=(0.4377, 0.4438, 0.4728),
        std=(0.1980, 0.2010, 0.1970),
    ),
    "tiny-imagenet": DataSet(
        title="TinyImageNet (validation)",
        address=TINY_IMAGENET,
        licence=IMAGENET_LICENCE,
        classes=200,
        shape=(3, 32, 32),
        files={"test": (File("tiny-imagenet-200/val/val_annotations.txt"),)},
        read=lambda folder, split: read_tiny_imagenet(folder / "tiny-imagenet-200"),
        mean=(0.4802, 0.4481, 0.3975),
        std=(0.2770, 0.2691, 0.2821),
        note="64 x 64 resized to 32 x 32, bicubic; the paper used files that ODIN's authors had resized",
        archive=File("tiny-imagenet-200.zip", "90528d7ca1a48142e341f4ef8d21d0de", TINY_IMAGENET),
    ),
    "tiny-imagenet-crop": odin_set(
        "TinyImageNet (crop)",
        "Imagenet.tar.gz",
        "avgm2u562itwpkl",
        "7c0827e4246c3718a5ee076e999e52e5",
        crop=True,
        licence=IMAGENET_LICENCE,
    ),
    "tiny-imagenet-resize": odin_set(
        "TinyImageNet (resize)",
        "Imagenet_resize.tar.gz",
        "kp3my3412u5k9rl",
        "0f9ff11d45babf2eff5fe12281d1ac31",
        crop=False,
        licence=IMAGENET_LICENCE,
    ),
    "lsun": DataSet(
        title="LSUN (test)",
        address="https://www.yf.io/p/lsun",
        licence=LSUN_LICENCE,
        classes=0,
        shape=(3, 32, 32),
        files={"test": (File("test/"),)},
        read=partial(read_unlabelled, below="test"),
        note="resized to 32 x 32; the official test_lmdb.zip is a database, whose images https://github.com/fyu/lsun exports",
    ),
    "lsun-crop": odin_set(
        "LSUN (crop)",
        "LSUN.tar.gz",
        "fhtsw1m3qxlwj6h",
        "458a0a0ab8e5f1cb4516d7400568e460",
        crop=True,
        licence=LSUN_LICENCE,
    ),
    "lsun-resize": odin_set(
        "LSUN (resize)",
        "LSUN_resize.tar.gz",
        "moqh2wh8696c3yl",
        "278b7b31c8cb7e804a1465a8ce03a2dc",
        crop=False,
        licence=LSUN_LICENCE,
    ),
    "dogs-vs-cats": DataSet(
        title="Dogs vs. Cats",
        address="https://www.kaggle.com/c/dogs-vs-cats",
        licence="competition rules; research use",
        classes=2,
        shape=(3, 32, 32),
        files={"train": (File("cats/"), File("dogs/")), "test": (File("cats/"), File("dogs/"))},
        read=read_dogs_vs_cats,
        note="resized to 32 x 32; cats 0, dogs 1; no official labelled test part: every fifth image of each class is for testing",
    ),
    "dogs-vs-cats-other": DataSet(
        title="Pictures of neither dogs nor cats",
        address="https://www.kaggle.com/c/dogs-vs-cats",
        licence="that of the pictures you put there",
        classes=0,
        shape=(3, 32, 32),
        files={"test": (File("other/"),)},
        read=partial(read_unlabelled, below="other"),
        note="any pictures, resized to 32 x 32, in the folder other/ of dogs-vs-cats",
        folder="dogs-vs-cats",
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


def folder_of(name: str, root: Path | None = None) -> Path:
    """Where the files of a data set are, or would be."""
    return (data_root() if root is None else root) / (find_data_set(name).folder or name)


def load_data_set(name: str, split: Split, *, root: Path | None = None) -> Labelled:
    """(images, labels) of one part of a data set, from its official files under the data root."""
    data_set = find_data_set(name)
    if split not in data_set.files:
        raise DataError(f"{data_set.title} has no part {split!r} here; it has {', '.join(data_set.files)}")
    folder = folder_of(name, root)
    missing = missing_files(data_set.files[split], folder)
    if missing:
        source = data_set.archive
        archive = f" (unpacked from {source.path}, MD5 {source.md5})" if source else ""
        wanted = ", ".join(f"{file.path}{f' (MD5 {file.md5})' if file.md5 else ''}" for file in data_set.files[split])
        fetch = f"Run `bal data get {name}`, or get" if source or data_set.files[split][0].url else "Get"
        raise DataError(
            f"{data_set.title} is not complete: {folder} has no {', '.join(missing)}. {fetch} {wanted}{archive} from "
            f"{data_set.address} and put it there, or set BAL_DATA to a folder that holds {folder.name}/"
        )
    images, labels = data_set.read(folder, split)
    if images.shape[1:] != data_set.shape:
        raise DataError(f"{folder} gave images of shape {images.shape[1:]}, expected {data_set.shape}; is it {data_set.title}?")
    return images, labels


def missing_files(files: Iterable[File], folder: Path) -> list[str]:
    """Paths of the files that are not in the folder."""
    return missing_paths((file.path for file in files), folder)


def all_files(name: str) -> list[File]:
    """The files of every part of a data set, each once."""
    return list(dict.fromkeys(file for files in find_data_set(name).files.values() for file in files))


def verify(name: str, *, root: Path | None = None) -> dict[str, str]:
    """What each file is: official, other (its MD5 is not the published one), unpacked (none is published) or missing."""
    folder = folder_of(name, root)
    states = {}
    for file in all_files(name):
        if missing_files([file], folder):
            states[file.path] = "missing"
        elif not file.md5:
            states[file.path] = "unpacked"
        else:
            states[file.path] = "official" if md5_of(folder / file.path) == file.md5 else "other"
    return states


def shown_title(name: str) -> str:
    """The title for tables of results; "(derived)" where a file here is not the official one. A .zip may be packed anew."""
    return title_at(name, data_root())


@lru_cache
def title_at(name: str, root: Path) -> str:
    """The same for one data root; files are hashed once."""
    title = find_data_set(name).title
    other = any(state == "other" and not path.endswith(".zip") for path, state in verify(name, root=root).items())
    return f"{title} (derived)" if other else title


def md5_of(path: Path) -> str:
    """MD5 as the data sets' authors publish it; it tells a damaged file, not a forged one."""
    md5 = hashlib.md5(usedforsecurity=False)
    with path.open("rb") as file:
        while block := file.read(2**20):
            md5.update(block)
    return md5.hexdigest()
