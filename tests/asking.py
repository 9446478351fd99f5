"""A server in this process, without sockets: a client for its routes, images as bytes, a model that can be held."""

import asyncio
import io
import json
import struct
import threading
import zlib
from contextlib import asynccontextmanager

import httpx2
import numpy as np
from PIL import Image

from bal.serving.app import make_app
from bal.serving.security import Guard


@asynccontextmanager
async def client_of(service, token=None):
    """The service at work, and somebody to ask it."""
    transport = httpx2.ASGITransport(app=make_app(service, Guard(token)))
    async with service.running(), httpx2.AsyncClient(transport=transport, base_url="http://bal") as client:
        yield client


async def soon(condition):
    """Wait until something holds, but not for ever."""
    for _ in range(2000):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it never came true")


def encoded(image, kind="PNG", **options):
    """The bytes of an image file."""
    buffer = io.BytesIO()
    (image if isinstance(image, Image.Image) else Image.fromarray(image)).save(buffer, kind, **options)
    return buffer.getvalue()


def png(width, height):
    """A tiny file that claims to be large."""

    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(100))) + chunk(b"IEND", b"")


def some_image(seed=0, side=5):
    return encoded(np.random.default_rng(seed).integers(0, 256, (side, side), np.uint8))


def tensor(x, datatype="FP32", **more):
    """A request of the Open Inference Protocol."""
    x = np.asarray(x)
    inputs = [{"name": "input", "shape": list(x.shape), "datatype": datatype, "data": x.ravel().tolist()}]
    return json.dumps({"inputs": inputs, **more}).encode()


class Held:
    """A model that waits to be let go; it remembers the rows of every batch."""

    def __init__(self, run):
        self.run, self.batches, self.started, self.go = run, [], threading.Event(), threading.Event()

    def __call__(self, items):
        self.batches.append(len(items))
        self.started.set()
        self.go.wait(20)
        return self.run(items)
