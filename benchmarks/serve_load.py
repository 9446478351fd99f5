"""How `bal serve` holds up on this machine: BAL on a network of the paper and small PNG files, all over 127.0.0.1.

Three parts, each bounded in time and in number of requests:

1. offline: what `bal score` does (decode, predict, write rows), images a second, in this process with all cores, half before
   the loads and half after them.
2. sustained: 16 clients, each with one connection and one image at a time; images a second, share of the offline rate, p50, p99.
3. overload: four times the sustained rate is offered over many connections to a server with a short queue; share of 503, whether
   each has Retry-After, whether every request got an answer, and the server's resident memory from the first seconds to the last.

The clients run on the same cores as the server and take their share of them, so the rates are lower than a server alone has.
Times mean something only on a machine that does nothing else. Exit code 1 if a request had no answer or a 503 no Retry-After.

python benchmarks/serve_load.py                                  DenseNet-BC-100, about two minutes on 2 cores
python benchmarks/serve_load.py --network resnet18 --seconds 5   a network so fast that HTTP costs as much as it does
"""

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
from PIL import Image

from bal.backbones import load_classifier
from bal.data import load_sample
from bal.detectors import load
from bal.serving import score_stream

MODEL = """
from bal.backbones import Classifier, DenseNetBC, ResNet18
from bal.seeding import make_generator

def densenet():
    return Classifier(DenseNetBC(generator=make_generator(0)))

def resnet18():
    return Classifier(ResNet18(stem="7x7", generator=make_generator(0)))
"""
CLIENTS, OVERLOAD, SHORT_QUEUE, CROWD = 16, 4, 64, 256


@dataclass
class Load:
    """What the clients saw."""

    seconds: float = 0.0
    times: list[float] = field(default_factory=list)  # of 200s
    statuses: Counter[int] = field(default_factory=Counter)
    without_retry: int = 0
    unanswered: int = 0

    @property
    def rate(self) -> float:
        """Answers a second."""
        return self.statuses[200] / self.seconds


class Client:
    """One connection that is kept, opened again when it breaks."""

    def __init__(self, url: str) -> None:
        address = urlsplit(url)
        self.host, self.port, self.streams = address.hostname, address.port, None

    async def post(self, body: bytes) -> tuple[int, bytes]:
        """Status and head of the answer."""
        if self.streams is None:
            self.streams = await asyncio.open_connection(self.host, self.port)
        reader, writer = self.streams
        writer.write(b"POST /v1/score HTTP/1.1\r\nHost: bal\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = int(head.split(b"content-length:")[1].split(b"\r\n")[0])
        await reader.readexactly(length)
        if b"connection: close" in head:
            self.close()
        return int(head.split(b" ", 2)[1]), head

    def close(self) -> None:
        """Hang up."""
        if self.streams is not None:
            self.streams[1].close()
            self.streams = None


async def press(url: str, bodies: list[bytes], *, clients: int, seconds: float, most: int, rate: float | None = None) -> Load:
    """Clients that ask one thing after another; with ``rate``, together that many a second and no more."""
    load, started, sent = Load(), time.perf_counter(), 0

    async def ask(number: int) -> None:
        nonlocal sent
        client, turn = Client(url), 0
        while time.perf_counter() - started < seconds and sent < most:
            if rate is not None:
                await asyncio.sleep(max(0.0, started + (number + turn * clients) / rate - time.perf_counter()))
            sent, turn, before = sent + 1, turn + 1, time.perf_counter()
            try:
                status, head = await asyncio.wait_for(client.post(bodies[(number + turn) % len(bodies)]), 60)
            except (OSError, asyncio.IncompleteReadError, asyncio.TimeoutError):
                load.unanswered += 1
                client.close()
                continue
            load.statuses[status] += 1
            load.without_retry += status == 503 and b"retry-after:" not in head
            if status == 200:
                load.times.append(time.perf_counter() - before)
        client.close()

    await asyncio.gather(*map(ask, range(clients)))
    load.seconds = time.perf_counter() - started
    return load


class Server:
    """`bal serve` in a process of its own, ended by SIGTERM."""

    def __init__(self, folder: Path, network: str, *arguments: str) -> None:
        command = [sys.executable, "-m", "bal", "serve", "d", "--classifier", f"load_model:{network}", "--port", "0"]
        command += arguments
        self.log = (folder / "log").open("w")
        self.process = subprocess.Popen(command, cwd=folder, stderr=self.log)  # noqa: S603
        self.url = self._url(folder / "log")

    def _url(self, log: Path) -> str:
        for _ in range(600):
            time.sleep(0.1)
            for line in log.read_text().splitlines():
                if line.startswith("{") and json.loads(line)["event"] == "started":
                    return str(json.loads(line)["url"])
        raise RuntimeError(log.read_text())

    def resident(self) -> float:
        """MiB."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) / 1024

    def stop(self) -> int:
        """The exit code."""
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(60)
        self.log.close()
        return code


async def watched(server: Server, work: asyncio.Future[Load]) -> tuple[Load, list[float]]:
    """The load, and the server's memory every 0.2 s of it."""
    task, memory = asyncio.ensure_future(work), []
    while not task.done():
        memory.append(server.resident())
        await asyncio.sleep(0.2)
    return await task, memory


def as_seen_by(network: str, images: np.ndarray) -> np.ndarray:
    """The sample's (N, 28, 28) as (N, channels, height, width)."""
    return images[:, None] if network == "resnet18" else np.pad(images, ((0, 0), (2, 2), (2, 2)))[:, None].repeat(3, 1)


def prepare(folder: Path, network: str, images: int) -> list[bytes]:
    """A detector in ``folder``/d, and pictures in ``folder``/photos."""
    (folder / "load_model.py").write_text(MODEL)
    sample = load_sample()
    np.savez(folder / "train.npz", images=as_seen_by(network, sample.train[0][:1000]), labels=sample.train[1][:1000])
    np.savez(folder / "held-out.npz", images=as_seen_by(network, sample.test[0][:500]))
    (folder / "photos").mkdir()
    for i, image in enumerate(as_seen_by(network, np.concatenate([sample.test[0], sample.ood[0]])[:images])):
        Image.fromarray(image.transpose(1, 2, 0).squeeze()).save(folder / "photos" / f"{i:04d}.png")
    data = ["--train", "train.npz", "--calibrate", "held-out.npz", "--out", "d"]
    command = [sys.executable, "-m", "bal", "fit", "--classifier", f"load_model:{network}", *data]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)  # noqa: S603
    return [path.read_bytes() for path in sorted((folder / "photos").iterdir())]


def offline(folder: Path, network: str, images: int, name: str) -> float:
    """Seconds of `bal score`, without the time to start."""
    os.chdir(folder)
    detector = load("d", load_classifier(f"load_model:{network}"))
    detector.predict(np.zeros((64, *detector.spec_.shape), np.float32))  # warm
    started = time.perf_counter()
    score_stream(detector, ["photos"], name, suffix=".jsonl", show_progress=False)
    return time.perf_counter() - started


def table(rows: list[tuple[str, str]]) -> None:
    for name, value in rows:
        print(f"{name:44s} {value}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=15, help="of each of the two loads")
    parser.add_argument("--most", type=int, default=100_000, help="requests of each load")
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--network", choices=("densenet", "resnet18"), default="densenet")
    settings = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder, network = Path(place), settings.network
        bodies = prepare(folder, network, settings.images)
        alone = offline(folder, network, settings.images, "before")
        server = Server(folder, network)
        asyncio.run(press(server.url, bodies, clients=CLIENTS, seconds=2, most=settings.most))  # warm
        calm = asyncio.run(press(server.url, bodies, clients=CLIENTS, seconds=settings.seconds, most=settings.most))
        codes = [server.stop()]
        server = Server(folder, network, "--queue", str(SHORT_QUEUE))
        rush = press(server.url, bodies, clients=CROWD, seconds=settings.seconds, most=settings.most, rate=OVERLOAD * calm.rate)
        busy, memory = asyncio.run(watched(server, rush))
        codes.append(server.stop())
        alone = 2 * settings.images / (alone + offline(folder, network, settings.images, "after"))
        os.chdir("/")
    p50, p99 = (1000 * np.quantile(calm.times, share) for share in (0.5, 0.99))
    asked = sum(busy.statuses.values()) + busy.unanswered
    quarter = max(1, len(memory) // 4)
    table(
        [
            ("offline, images a second", f"{alone:.0f}"),
            (f"{CLIENTS} clients, images a second", f"{calm.rate:.0f}, {calm.rate / alone:.0%} of offline"),
            ("p50, p99 in milliseconds", f"{p50:.1f}, {p99:.1f}"),
            ("answers by status", str(dict(calm.statuses))),
            ("overload: offered, images a second", f"{asked / busy.seconds:.0f} of {OVERLOAD * calm.rate:.0f} wanted"),
            ("overload: answers by status", str(dict(busy.statuses))),
            ("overload: share of 503", f"{busy.statuses[503] / asked:.0%}, without Retry-After: {busy.without_retry}"),
            ("overload: accepted, images a second", f"{busy.rate:.0f}"),
            ("overload: requests without an answer", f"{busy.unanswered} of {asked}"),
            ("overload: resident MiB, first and last quarter", f"{max(memory[:quarter]):.0f}, {max(memory[-quarter:]):.0f}"),
            ("exit codes after SIGTERM", str(codes)),
        ]
    )
    sys.exit(bool(calm.unanswered or busy.unanswered or busy.without_retry or any(codes)))


if __name__ == "__main__":
    main()
