"""What it costs to score an archive of images: rates measured here, and a simulation of a job of many workers.

A worker takes a shard, reads its bytes from a storage that all share, decodes and scores while the next shard is being read, and
writes one file of rows; then it takes the next shard. Workers differ in speed from shard to shard, and some are lost: the shard
at work begins again elsewhere, as with `bal score --engine ray`, and the worker comes back after its start.

python benchmarks/scale.py                              the tables of docs/scale.md, from the rates below; seconds
python benchmarks/scale.py --decode 254 --image-bytes 42300 the same for photos of 500 x 375
python benchmarks/scale.py --measure FOLDER             from the rates of this machine, with the images of a folder

What is not measured but assumed (the GPU, prices, the storage) is named so, and each number can be changed: see --help.
"""

import argparse
import heapq
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch

from bal import BAL
from bal.data.folders import decode_as
from bal.detectors.prediction import write_table
from bal.discrimination import GANTraining
from bal.features import Features
from bal.seeding import make_generator

HOUR = 3600.0


@dataclass(frozen=True)
class Rates:
    """Images a second of one core, and the sizes of one image and of one row of results."""

    model: float = 38.0  # DenseNet-BC-100, 3 x 32 x 32 (benchmarks/batch_rows.py: 77 on 2 cores)
    decode: float = 1_830.0  # JPEG of 64 x 64 to 3 x 32 x 32 (--measure TinyImageNet)
    detector: float = 56_000.0  # BAL on 342 features and 10 logits (--measure)
    write: float = 318_000.0  # rows of Parquet (--measure)
    image_bytes: float = 1_950.0  # TinyImageNet's mean
    row_bytes: float = 34.0  # (--measure)


@dataclass(frozen=True)
class Fleet:
    """Workers of one kind. ``gpu`` is images a second of the model on the worker's GPU; without one its cores run the model."""

    name: str
    workers: int
    cores: int
    gpu: float | None = None
    network: float = 1.25e9  # bytes a second of one worker (10 Gbit/s), assumed
    storage: float = 10e9  # bytes a second of the storage for all workers together, assumed
    lost_per_hour: float = 0.05  # of workers, assumed: machines that may be taken away
    start: float = 30.0  # seconds until a new worker takes a shard
    jitter: float = 0.1  # standard deviation of the log of a shard's time, assumed
    core_price: float = 0.04  # dollars an hour, assumed
    gpu_price: float = 2.0  # dollars an hour, assumed


def stages(rates: Rates, fleet: Fleet) -> dict[str, float]:
    """Images a second of one worker at each stage, if it did nothing else. The slowest is the bottleneck.

    Decoding, the detector and writing share the worker's cores with each other, and with the model where there is no GPU.
    """
    cpu = 1 / rates.decode + 1 / rates.detector + 1 / rates.write
    reading = min(fleet.network, fleet.storage / fleet.workers) / rates.image_bytes
    if fleet.gpu is None:
        return {"model": fleet.cores / (cpu + 1 / rates.model), "storage": reading}
    return {"model": fleet.gpu, "decoding": fleet.cores / cpu, "storage": reading}


def makespan(images: int, rows: int, rate: float, fleet: Fleet, rng: np.random.Generator) -> tuple[float, int]:
    """Seconds until the last row is written, and how many shards were begun again.

    Each event is a worker that is free at a time; the earliest takes the next shard.
    """
    shards, again = -(-images // rows), 0
    free = [fleet.start] * fleet.workers
    last = 0.0
    while shards:
        begun = heapq.heappop(free)
        seconds = rows / rate * np.exp(fleet.jitter * rng.standard_normal() - fleet.jitter**2 / 2)
        lost = rng.exponential(HOUR / fleet.lost_per_hour) if fleet.lost_per_hour else np.inf
        if lost < seconds:
            again += 1
            heapq.heappush(free, begun + lost + fleet.start)
            continue
        shards -= 1
        last = max(last, begun + seconds)
        heapq.heappush(free, begun + seconds)
    return last, again


def simulate(images: int, rates: Rates, fleet: Fleet, *, rows: int, seed: int = 0, most: int = 200_000) -> dict[str, float | str]:
    """One job. Beyond ``most`` shards a share of the fleet with the same share of the images stands for the whole."""
    rate_of = stages(rates, fleet)
    bottleneck = min(rate_of, key=rate_of.__getitem__)
    share = min(1.0, most * rows / images)
    part = replace(fleet, workers=max(1, round(fleet.workers * share)))
    mine = round(images * part.workers / fleet.workers)
    seconds, again = makespan(mine, rows, rate_of[bottleneck], part, np.random.default_rng(seed))
    ideal = images / (fleet.workers * rate_of[bottleneck])
    price = fleet.cores * fleet.core_price + (0.0 if fleet.gpu is None else fleet.gpu_price)
    return {
        "hours": seconds / HOUR,
        "bottleneck": bottleneck,
        "overhead": seconds / ideal - 1,
        "again": again / max(1, -(-mine // rows)),
        "dollars": seconds / HOUR * fleet.workers * price,
    }


def timed(run: Callable[[], object], seconds: float = 3.0) -> float:
    """Calls a second."""
    run()
    started, calls = time.perf_counter(), 0
    while time.perf_counter() - started < seconds:
        run()
        calls += 1
    return calls / (time.perf_counter() - started)


def measure(folder: Path) -> Rates:
    """The rates of one core of this machine."""
    torch.set_num_threads(1)
    images = sorted(path for path in folder.rglob("*") if path.suffix.lower() in {".jpg", ".jpeg", ".png"})
    files = [path.read_bytes() for path in images[:200]]
    rows, dim, classes = 4096, 342, 10
    g = make_generator(0)
    labels = torch.arange(rows) % classes
    f = torch.randn(rows, dim, generator=g) + 3 * torch.randn(classes, dim, generator=g)[labels]
    known = Features(f, 5 * torch.nn.functional.one_hot(labels, classes).float(), labels)
    detector = BAL(training=GANTraining(epochs=1)).fit_features(known).calibrate(known, false_alarm=0.05)
    names = np.array([f"shard-000/{i:08d}.jpg" for i in range(rows)], object)
    columns = {"input": names, **detector.predict(known).columns()}
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "rows.parquet"
        write = timed(lambda: write_table(columns, path)) * rows
        size = path.stat().st_size / rows
    return Rates(
        decode=timed(lambda: [decode_as((3, 32, 32), partial(bytes, file), "x") for file in files]) * len(files),
        detector=timed(lambda: detector.predict(known)) * rows,
        write=write,
        image_bytes=float(np.mean([len(file) for file in files])),
        row_bytes=size,
    )


FLEETS = (
    Fleet("1 machine, 2 cores", 1, 2, lost_per_hour=0.0),
    Fleet("16 machines of 16 cores", 16, 16),
    Fleet("250 machines of 16 cores", 250, 16),
    Fleet("8 GPU, 8 cores each", 8, 8, gpu=15_000.0),
    Fleet("8 GPU, 32 cores each", 8, 32, gpu=15_000.0),
    Fleet("64 GPU, 32 cores each", 64, 32, gpu=15_000.0),
    Fleet("500 GPU, 32 cores each", 500, 32, gpu=15_000.0),
)


def span(hours: float) -> str:
    """A time as people say it.

    >>> span(0.5), span(30), span(400)
    ('30 min', '30 h', '17 days')
    """
    return f"{60 * hours:.0f} min" if hours < 1 else f"{hours:.0f} h" if hours < 72 else f"{hours / 24:.0f} days"


def report(rates: Rates, rows: int) -> None:
    """The tables of docs/scale.md."""
    for images in (10**8, 10**10):
        print(
            f"\n{images:,} images, {images * rates.image_bytes / 1e12:.2f} TB in, {images * rates.row_bytes / 1e9:.0f} GB out\n"
        )
        print("| fleet | time | bottleneck | beyond the ideal | shards done again | dollars |\n|---|---|---|---|---|---|")
        for fleet in FLEETS:
            done = simulate(images, rates, fleet, rows=rows)
            cells = (
                fleet.name,
                span(float(done["hours"])),
                done["bottleneck"],
                f"{done['overhead']:.1%}",
                f"{done['again']:.2%}",
            )
            print(f"| {' | '.join(map(str, cells))} | {done['dollars']:,.0f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", type=Path, metavar="FOLDER", help="measure all rates but the model's here")
    for name in ("model", "decode", "image_bytes"):
        parser.add_argument(f"--{name.replace('_', '-')}", type=float, help=f"in place of {getattr(Rates, name):g}")
    parser.add_argument("--rows", type=int, default=4096, help="of a shard")
    settings = parser.parse_args()
    rates = Rates() if settings.measure is None else measure(settings.measure)
    given = {name: getattr(settings, name) for name in ("model", "decode", "image_bytes")}
    rates = replace(rates, **{name: value for name, value in given.items() if value is not None})
    print(rates)
    report(rates, settings.rows)


if __name__ == "__main__":
    main()
