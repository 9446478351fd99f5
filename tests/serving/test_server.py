"""A real server in a process of its own: signals, tokens, slow clients, answers over a socket (faults 22 and 23)."""

import asyncio
import http.client
import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest
import uvicorn

from asking import encoded, some_image
from bal.backbones import Classifier
from bal.detectors import load, make_detector
from bal.errors import SettingsError
from bal.serving.app import make_app
from bal.serving.server import impatient, listen

TOKEN = "a-token-of-enough-letters"  # noqa: S105
MODEL = """
import time
from pathlib import Path
import torch
from torch import nn

class Model(nn.Sequential):
    def forward(self, x):
        if Path("seconds").exists():
            time.sleep(float(Path("seconds").read_text()))
        return super().forward(x)

def build():
    torch.manual_seed(0)
    return Model(nn.Flatten(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 3))
"""


@pytest.fixture
def folder(tmp_path, rng):
    (tmp_path / "my_model.py").write_text(MODEL)
    namespace = {}
    exec(MODEL, namespace)  # noqa: S102
    x = rng.integers(0, 256, (90, 1, 4, 4), np.uint8)
    classifier = Classifier(namespace["build"]())
    make_detector("energy").fit(classifier, (x, np.arange(90) % 3), show_progress=False).calibrate(x).save(tmp_path / "d")
    return tmp_path


class Running:
    """`bal serve` at a free port; its log as JSON."""

    def __init__(self, folder, *arguments, **environment):
        command = [sys.executable, "-m", "bal", "serve", "d", "--classifier", "my_model:build", "--port", "0", *arguments]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
        self.process = subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True)
        self.lines, self.fresh = [], queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()
        self.url = self.until("started")["url"]

    def _listen(self):
        for line in self.process.stderr:
            self.lines.append(line)
            self.fresh.put(line)
        self.fresh.put("")

    def until(self, event):
        """The first line of that event that was not waited for before."""
        while line := self.fresh.get(timeout=60):
            if line.startswith("{") and json.loads(line)["event"] == event:
                return json.loads(line)
        raise AssertionError("".join(self.lines))

    def connection(self):
        return http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=30)

    def ask(self, method, path, body=None, **headers):
        connection = self.connection()
        try:
            connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read()), dict(answer.getheaders())
        finally:
            connection.close()

    def socket(self):
        address = urlsplit(self.url)
        return socket.create_connection((address.hostname, address.port), timeout=30)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait(30)
        self.process.stderr.close()


def soon(condition):
    for _ in range(1000):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("it never came true")


def test_sigterm_answers_what_was_accepted_refuses_what_comes_later_and_ends_with_0(folder):
    """Fault 23."""
    with Running(folder, "--max-batch", "1", "--deadline", "20") as server, ThreadPoolExecutor(4) as clients:
        assert server.ask("GET", "/v2/health/ready")[0] == 200
        children = [Path(task, "children").read_text() for task in Path(f"/proc/{server.process.pid}/task").iterdir()]
        assert not "".join(children).strip(), "one process, so nothing can be orphaned"
        (folder / "seconds").write_text("0.4")
        asked = [clients.submit(server.ask, "POST", "/v1/score", some_image(i)) for i in range(4)]
        soon(lambda: b"bal_requests_inside 4.0" in raw_metrics(server))
        server.process.send_signal(signal.SIGTERM)
        server.until("draining")
        status, said, headers = server.ask("GET", "/v2/health/ready")
        assert (status, said["code"]) == (503, "draining")
        status, said, headers = server.ask("POST", "/v1/score", some_image())
        assert (status, said["code"], headers["retry-after"]) == (503, "draining", "1")
        assert [answer.result(30)[0] for answer in asked] == [200] * 4
        assert server.process.wait(10) == 0
        assert server.until("stopped")["clean"] is True
        with pytest.raises(ConnectionRefusedError):
            server.socket()


def raw_metrics(server):
    connection = server.connection()
    connection.request("GET", "/metrics")
    content = connection.getresponse().read()
    connection.close()
    return content


def test_a_model_that_does_not_come_back_does_not_keep_the_process_beyond_its_limit(folder):
    """Fault 23: it ends with 1, since something was left undone, and the client has its 504."""
    with Running(folder, "--deadline", "0.3", "--drain", "0.5") as server:
        (folder / "seconds").write_text("60")
        assert server.ask("POST", "/v1/score", some_image())[0] == 504
        started = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(10) == 1
        assert time.monotonic() - started < 8
        assert server.until("stopped")["clean"] is False


def test_what_is_not_done_at_the_end_of_the_drain_is_refused_as_json_and_the_exit_code_is_1(folder):
    """Fault 23."""
    with Running(folder, "--max-batch", "1", "--deadline", "50", "--drain", "0.5") as server, ThreadPoolExecutor(2) as clients:
        (folder / "seconds").write_text("60")
        asked = [clients.submit(server.ask, "POST", "/v1/score", some_image(i)) for i in range(2)]
        soon(lambda: b"bal_requests_inside 2.0" in raw_metrics(server))
        started = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        assert [(status, said["code"]) for status, said, _ in (answer.result(30) for answer in asked)] == [(503, "draining")] * 2
        assert server.process.wait(10) == 1
        assert time.monotonic() - started < 8


def test_a_second_signal_does_not_wait_and_tells_that_something_was_left_undone(folder):
    with Running(folder, "--deadline", "50") as server, ThreadPoolExecutor(1) as clients:
        (folder / "seconds").write_text("60")
        asked = clients.submit(server.ask, "POST", "/v1/score", some_image())
        soon(lambda: b"bal_requests_inside 1.0" in raw_metrics(server))
        server.process.send_signal(signal.SIGTERM)
        server.until("draining")
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(10) == 1
        assert asked.exception(10) is not None or asked.result()[0] == 503


def test_a_token_of_the_environment_is_wanted_and_never_shown(folder):
    with Running(folder, BAL_TOKEN=TOKEN) as server:
        assert server.ask("GET", "/v2/health/ready")[0] == 200
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Bearer {TOKEN}x"}):
            status, said, _ = server.ask("POST", "/v1/score", some_image(), **headers)
            assert (status, said["code"]) == (401, "unauthorized")
        image = np.random.default_rng(3).integers(0, 256, (4, 4), np.uint8)
        status, said, _ = server.ask("POST", "/v1/score", encoded(image), Authorization=f"Bearer {TOKEN}")
        assert status == 200
        assert TOKEN.encode() not in Path(f"/proc/{server.process.pid}/cmdline").read_bytes()
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(20) == 0
        assert TOKEN not in "".join(server.lines)
        assert all(json.loads(line) for line in server.lines), "every line is JSON"
    namespace = {}
    exec(MODEL, namespace)  # noqa: S102
    offline = load(folder / "d", Classifier(namespace["build"]())).predict(image[None, None])
    assert said["score"] == pytest.approx(offline.score[0], rel=1e-5)
    assert said["p_value"] == pytest.approx(offline.p_value[0])


def test_slow_oversize_vanishing_and_wordless_clients_harm_nobody(folder):
    """Fault 22."""
    with Running(folder, "--body-seconds", "0.5", "--max-bytes", "5000") as server:
        with server.socket() as slow:
            slow.sendall(b"POST /v1/score HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nhalf")
            assert slow.recv(4096).startswith(b"HTTP/1.1 408 ")
            soon(lambda: not slow.recv(4096))
        assert server.ask("POST", "/v1/score", b"x" * 5001)[0] == 413
        with server.socket() as endless:
            endless.sendall(b"POST /v1/score HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
            for _ in range(3):
                endless.sendall(b"7d0\r\n" + b"x" * 2000 + b"\r\n")
            assert endless.recv(4096).startswith(b"HTTP/1.1 413 ")
        with server.socket() as rubbish:
            rubbish.sendall(b"\x16\x03\x01 no http\r\n\r\n")
            answer = rubbish.recv(4096)
            assert answer.startswith(b"HTTP/1.1 400 ")
            assert b'"not_http"' in answer
        (folder / "seconds").write_text("0.5")
        body = some_image()
        with server.socket() as first, server.socket() as vanishing:
            for client in (first, vanishing):
                client.sendall(b"POST /v1/score HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
                time.sleep(0.1)
            vanishing.close()
            assert first.recv(4096).startswith(b"HTTP/1.1 200 ")
        soon(lambda: b'bal_requests_total{outcome="client_gone",route="/v1/score"} 1.0' in raw_metrics(server))
        assert b"bal_batch_rows_sum 1.0" in raw_metrics(server), "the row of the one who left was never computed"
        (folder / "seconds").unlink()
        assert server.ask("POST", "/v1/score", body)[0] == 200


def test_an_address_that_is_taken_is_said():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SettingsError, match=f"cannot listen on 127.0.0.1:{port}"):
            listen("127.0.0.1", port)
    with pytest.raises(SettingsError, match="cannot listen"):
        listen("no.such.host.invalid", 8000)


def test_a_client_that_sends_its_head_drop_by_drop_is_hung_up_on_and_a_crowd_is_refused(make_service):
    """Fault 22: what uvicorn alone does not bound."""

    async def trickle(reader, writer):
        started = time.monotonic()
        with suppress(ConnectionError):
            while not reader.at_eof() and time.monotonic() - started < 10:
                writer.write(b"X")
                await writer.drain()
                with suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(reader.read(1), 0.05)
        writer.close()
        return time.monotonic() - started

    async def scene():
        listener = listen("127.0.0.1", 0)
        config = uvicorn.Config(make_app(make_service()), http=impatient(0.3, 2), ws="none", log_config=None)
        server = uvicorn.Server(config)
        running = asyncio.ensure_future(server.serve(sockets=[listener]))
        while not server.started:
            await asyncio.sleep(0.01)
        where = listener.getsockname()
        first, second = [await asyncio.open_connection(*where) for _ in range(2)]
        third = await asyncio.open_connection(*where)
        refused = await third[0].read()
        assert refused.startswith(b"HTTP/1.1 503 ")
        assert b"Retry-After: 1" in refused
        assert 0.2 < await trickle(*first) < 5
        third[1].close()
        second[1].close()
        calm = await asyncio.open_connection(*where)
        for _ in range(2):  # a connection is kept between requests
            calm[1].write(b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n")
            assert (await calm[0].readuntil(b"}")).startswith(b"HTTP/1.1 200 ")
            await asyncio.sleep(0.15)
        assert await calm[0].read() == b"", "and closed when it is idle for too long"
        calm[1].close()
        server.should_exit = True
        await running

    asyncio.run(scene())


@pytest.mark.parametrize("requests", [1, 5000])
def test_a_client_that_does_not_read_its_answers_is_hung_up_on(make_service, requests):
    """Fault 22: an answer, or many asked for at once, that fill all buffers on the way."""

    async def large(_scope, _receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"8000000")]})
        await send({"type": "http.response.body", "body": bytes(8_000_000)})

    async def scene():
        listener = listen("127.0.0.1", 0)
        app = large if requests == 1 else make_app(make_service())
        config = uvicorn.Config(app, http=impatient(0.5, 4), ws="none", lifespan="off", log_config=None, timeout_keep_alive=60)
        server = uvicorn.Server(config)
        running = asyncio.ensure_future(server.serve(sockets=[listener]))
        while not server.started:
            await asyncio.sleep(0.01)
        with socket.socket() as deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # so that the system does not take the answer
            deaf.connect(listener.getsockname())
            deaf.setblocking(False)
            with suppress(BlockingIOError):
                deaf.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * requests)
            while not server.server_state.connections:
                await asyncio.sleep(0.01)
            started = time.monotonic()
            while server.server_state.connections and time.monotonic() - started < 20:
                await asyncio.sleep(0.05)
            assert 0.3 < time.monotonic() - started < 20
        if requests == 1:  # one who reads gets everything, however large
            reader, writer = await asyncio.open_connection(*listener.getsockname())
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            await reader.readuntil(b"\r\n\r\n")
            for _ in range(8):
                assert len(await reader.readexactly(1_000_000)) == 1_000_000
                await asyncio.sleep(0.2)
            writer.close()
        server.should_exit = True
        await running

    asyncio.run(scene())


def test_answers_are_sent_without_delay():
    """asyncio sets TCP_NODELAY for sockets that tell their protocol; without it each answer waits 40 ms."""
    with listen("127.0.0.1", 0) as listener:
        assert listener.proto == socket.IPPROTO_TCP
