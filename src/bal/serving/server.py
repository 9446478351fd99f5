"""uvicorn round the application: one process, patience with slow clients that ends, and a graceful end on SIGTERM."""

import asyncio
import json
import os
import socket
import sys
from types import FrameType
from typing import Any, cast

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from bal.errors import SettingsError
from bal.serving.app import make_app
from bal.serving.logs import configure, say
from bal.serving.refusal import RETRY
from bal.serving.security import Guard
from bal.serving.service import Service

LAST_WORDS = 2  # seconds for answers to leave after the drain


def serve(service: Service, *, host: str, port: int, token: str | None = None) -> None:
    """Serve until SIGTERM or SIGINT; returns when everything accepted was answered, else ends the process with 1."""
    configure()
    listener = listen(host, port)
    config = uvicorn.Config(
        make_app(service, Guard(token)),
        http=impatient(service.limits.idle_seconds, service.limits.connections),
        ws="none",
        lifespan="on",
        loop="asyncio",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=int(max(1, service.limits.idle_seconds)),
        timeout_graceful_shutdown=LAST_WORDS,
    )
    server = Server(config, service)
    server.run(sockets=[listener])
    clean = service.clean and not server.late and not server.force_exit
    say("stopped", clean=clean)
    if not clean:  # a thread that does not come back would keep the process
        sys.stderr.flush()
        os._exit(1)


def listen(host: str, port: int) -> socket.socket:
    """A socket at the address, or an error that says why not."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)  # asyncio sends without delay only where the protocol is told
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
        except OSError:
            listener.close()
            raise
    except (OSError, OverflowError) as error:
        raise SettingsError(f"cannot listen on {host}:{port} ({error}); choose another --host or --port") from error
    return listener


class Server(uvicorn.Server):
    """SIGTERM and SIGINT close the gate, wait until all inside are answered, and then stop; a second signal stops at once."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self.service, self.late = service, False
        self._draining: asyncio.Task[None] | None = None
        self._running: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Say where the server is."""
        await super().startup(sockets)
        self._running = asyncio.get_running_loop()
        model, address = self.service.model, (sockets or [])[0].getsockname()
        url = f"http://[{address[0]}]:{address[1]}" if ":" in address[0] else f"http://{address[0]}:{address[1]}"
        say("started", url=url, model=model.name, detector=model.kind, version=model.version, process=os.getpid())

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A signal; unlike uvicorn we end with 0, since the signal was obeyed."""
        if self._running is None:
            self.should_exit = True
            return
        if self._draining is not None:
            self.service.abandon()
            self.should_exit = self.force_exit = True
            return
        self._running.call_soon_threadsafe(self._drain_soon)

    def _drain_soon(self) -> None:
        if self._draining is None:
            self._draining = asyncio.ensure_future(self._drain())

    async def _drain(self) -> None:
        self.service.close()
        say("draining", requests_inside=self.service.gate.inside)
        self.late = not await self.service.gate.empty(self.service.limits.drain_seconds)
        self.should_exit = True


class Together:
    """A transport where the writes of one turn of the event loop leave as one: the head of an answer and its body."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._held: list[bytes] = []

    def write(self, data: bytes) -> None:
        """Soon."""
        if not self._held:
            self._loop.call_soon(self._leave)
        self._held.append(data)

    def close(self) -> None:
        """After what was written."""
        self._leave()
        self._transport.close()

    def _leave(self) -> None:
        held, self._held = b"".join(self._held), []
        if held:
            self._transport.write(held)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


def impatient(seconds: float, connections: int) -> type[H11Protocol]:
    """Uvicorn's protocol with what it lacks: limits of time for clients who write or read slowly, and of connections."""

    class Impatient(H11Protocol):
        """A connection outside of a request has ``seconds``, however many bytes trickle in; so has an answer that is not read."""

        _patience: asyncio.TimerHandle | None = None  # with who is to send a request
        _stalled: asyncio.TimerHandle | None = None  # since the client does not read

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(cast(asyncio.Transport, Together(transport, self.loop)))
            if len(self.connections) > connections:
                transport.write(raw(503, "Service Unavailable", "overloaded", "too many connections; try again later", RETRY))
                transport.close()
            else:
                self._wait()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.cycle is not None and not self.cycle.response_complete:
                self._stop_waiting()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            if self.cycle.response_complete:  # else the next request, which was there already, is at work
                self._wait()

        def pause_writing(self) -> None:
            super().pause_writing()
            self._stalled = self.loop.call_later(seconds, self._give_up)

        def resume_writing(self) -> None:
            super().resume_writing()
            self._go_on()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_waiting()
            self._go_on()
            super().connection_lost(exc)

        def send_400_response(self, msg: str) -> None:
            self.transport.write(raw(400, "Bad Request", "not_http", msg))
            self.transport.close()

        def _wait(self) -> None:
            self._stop_waiting()
            self._patience = self.loop.call_later(seconds, self._give_up)

        def _stop_waiting(self) -> None:
            if self._patience is not None:
                self._patience.cancel()
                self._patience = None

        def _go_on(self) -> None:
            if self._stalled is not None:
                self._stalled.cancel()
                self._stalled = None

        def _give_up(self) -> None:
            self.transport.abort()  # to close would wait until all that was written is read

    return Impatient


def raw(status: int, phrase: str, code: str, message: str, headers: dict[str, str] | None = None) -> bytes:
    """An answer by hand, where there is no request to answer."""
    body: dict[str, Any] = {"error": message, "code": code, "request_id": None}
    content = json.dumps(body)
    lines = {"Content-Type": "application/json", "Content-Length": str(len(content)), "Connection": "close", **(headers or {})}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"HTTP/1.1 {status} {phrase}\r\n{head}\r\n{content}".encode()
