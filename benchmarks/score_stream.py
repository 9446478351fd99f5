"""Memory of `bal score` over many small images, beyond what the model and the libraries take.

python benchmarks/score_stream.py                    1,000,000 images of 28 x 28 in an .npz
python benchmarks/score_stream.py --kind parquet     the same as PNG files in Parquet
python benchmarks/score_stream.py --kind folder --rows 100000
"""

import argparse
import io
import resource
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image

SIDE, BLOCK, LIMIT = 28, 4096, 1.5  # LIMIT in GiB
MODEL = """
import torch
from torch import nn

def build():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 16), nn.ReLU(), nn.Linear(16, 3))
"""


def blocks(rows: int) -> Iterator[np.ndarray]:
    rng = np.random.default_rng(0)
    for start in range(0, rows, BLOCK):
        yield rng.integers(0, 256, (min(BLOCK, rows - start), SIDE, SIDE), np.uint8)


def png(image: np.ndarray) -> bytes:
    sink = io.BytesIO()
    Image.fromarray(image).save(sink, "png", compress_level=1)
    return sink.getvalue()


def write_npz(path: Path, rows: int) -> None:
    with zipfile.ZipFile(path, "w") as archive, archive.open("images.npy", "w", force_zip64=True) as file:
        header = {"descr": "|u1", "fortran_order": False, "shape": (rows, SIDE, SIDE)}
        np.lib.format.write_array_header_1_0(file, header)
        for block in blocks(rows):
            file.write(block.tobytes())


def write_parquet(path: Path, rows: int) -> None:
    import pyarrow as arrow  # noqa: PLC0415
    from pyarrow import parquet  # noqa: PLC0415

    with parquet.ParquetWriter(path, arrow.schema({"image": arrow.binary()})) as writer:
        for block in blocks(rows):
            writer.write_table(arrow.table({"image": arrow.array([png(image) for image in block], arrow.binary())}))


def write_folder(path: Path, rows: int) -> None:
    for number, block in enumerate(blocks(rows)):
        (path / f"{number:04d}").mkdir(parents=True)
        for row, image in enumerate(block):
            (path / f"{number:04d}" / f"{row:04d}.png").write_bytes(png(image))


KINDS = {"npz": (write_npz, ".npz"), "parquet": (write_parquet, ".parquet"), "folder": (write_folder, "")}


def bal(folder: Path, *arguments: str) -> tuple[float, float]:
    """Seconds, and the largest resident memory in GiB of any child so far."""
    started = time.perf_counter()
    subprocess.run([sys.executable, "-m", "bal", *arguments], check=True, cwd=folder)  # noqa: S603
    return time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--kind", choices=KINDS, default="npz")
    parser.add_argument("--format", choices=("parquet", "csv", "jsonl"), default="parquet")
    settings = parser.parse_args()
    write, suffix = KINDS[settings.kind]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "tiny_model.py").write_text(MODEL)
        x = next(blocks(300))
        np.savez(folder / "train.npz", images=x, labels=np.arange(300) % 3)
        write(folder / f"few{suffix}", 10)
        write(folder / f"many{suffix}", settings.rows)
        name = ("--classifier", "tiny_model:build")
        bal(folder, "fit", *name, "--train", "train.npz", "--detector", "energy", "--out", "d")
        score = ("score", "d", *name, "--format", settings.format, "--error-budget", "0")
        _, base = bal(folder, *score, "--data", f"few{suffix}", "--out", "few-scores")
        seconds, peak = bal(folder, *score, "--data", f"many{suffix}", "--out", "many-scores")
        again, _ = bal(folder, *score, "--data", f"many{suffix}", "--out", "many-scores")
    speed = f"{seconds:.0f} s, {settings.rows / seconds:,.0f} a second; rerun {again:.0f} s"
    print(f"{settings.rows:,} images ({settings.kind}) in {speed}")
    print(f"peak {peak:.2f} GiB, {peak - base:.2f} GiB beyond the {base:.2f} GiB of model and libraries (limit {LIMIT} GiB)")
    sys.exit(peak - base > LIMIT)


if __name__ == "__main__":
    main()
