"""The life of a request: a place, a body within its limits, inputs, a batch, an answer; each step may refuse."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, TypeAlias, TypeVar

from numpy.typing import NDArray
from starlette.requests import ClientDisconnect, Request

from bal.detectors.prediction import Columns
from bal.errors import BalError
from bal.serving.batcher import DeadlineError, MicroBatcher, ModelError, QueueFullError
from bal.serving.drift import Drift
from bal.serving.gate import Gate, Ticket
from bal.serving.limits import Limits
from bal.serving.logs import say
from bal.serving.metrics import Metrics
from bal.serving.model import ServedModel
from bal.serving.reading import Asked
from bal.serving.refusal import CLOSE, GONE, Refusal, internal, overloaded, too_large, too_late, unprocessable

Reader: TypeAlias = Callable[[bytes, ServedModel, Limits], Asked]
T = TypeVar("T")

DRIFT_LOOK = 1.0  # seconds between two looks at the drift alarm


class Service:
    """A model with its queue, limits and metrics; it knows nothing of routes."""

    def __init__(self, model: ServedModel, limits: Limits | None = None) -> None:
        self.model, self.limits = model, limits or Limits()
        models = [model, *(model.replica() for _ in range(1, self.limits.workers))]
        self.gate = Gate(requests=self.limits.queue, max_bytes=self.limits.held_bytes)
        self.drift = Drift(model.calibration, window=self.limits.window, confidence=self.limits.drift_confidence)
        self.metrics = Metrics(model, self.drift, self._gauges)
        self.batcher: MicroBatcher[NDArray[Any], Columns] = MicroBatcher(
            *(each.run for each in models),
            max_rows=self.limits.max_batch,
            queue_rows=self.limits.queue,
            watch=self.metrics.saw_batch,
        )
        self.clean = True  # nothing was left undone at the end
        self._end = 0.0  # when the drain is over
        self._alarm, self._looked = False, 0.0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Threads for the length of a block; at its end what is queued is finished."""
        self._decoders = ThreadPoolExecutor(self.limits.decoders, "bal-decoder")
        self.batcher.start()
        try:
            yield
        finally:
            self.close()
            left = max(0.1, self._end - time.monotonic())
            self.clean = await self.batcher.stop(left) and not self.gate.inside
            self._decoders.shutdown(wait=False, cancel_futures=True)

    def close(self) -> None:
        """Take no more requests; those inside have ``drain_seconds`` from now."""
        if not self.gate.closed:
            self.gate.close()
            self._end = time.monotonic() + self.limits.drain_seconds

    def abandon(self) -> None:
        """Wait for nobody any more."""
        self.gate.close()
        self._end = time.monotonic()

    @property
    def live(self) -> bool:
        """False where only a restart helps: no worker, or one that does not come back."""
        return self.batcher.alive and self.batcher.busy_seconds() < self.limits.stuck_seconds

    @property
    def ready(self) -> bool:
        """Whether requests are taken."""
        return self.live and not self.gate.closed

    async def answer(self, request: Request, read: Reader) -> tuple[Asked, Columns]:
        """What a request asks, and the answer to each of its rows."""
        with self.gate.entered() as ticket:
            body = await self._body(request, ticket)
            answer = await unless_gone(request, self._work(body, read))
            self.metrics.saw_answer(answer[1])
            self._look_for_drift()
            return answer

    async def _body(self, request: Request, ticket: Ticket) -> bytes:
        """All bytes of the body, in time and within its limit."""
        if request.headers.get("content-encoding", "identity").lower() != "identity":
            raise Refusal(415, "encoded", "the body must not be compressed; send it without Content-Encoding")
        declared = request.headers.get("content-length", "0")
        if declared.isdecimal() and (len(declared) > 15 or int(declared) > self.limits.max_bytes):
            raise self._too_many_bytes()
        try:
            return await asyncio.wait_for(self._read(request, ticket), self.limits.body_seconds)
        except asyncio.TimeoutError:
            message = f"the body did not arrive within {self.limits.body_seconds:g} s"
            raise Refusal(408, "slow_client", message, CLOSE) from None
        except ClientDisconnect:
            raise gone() from None

    async def _read(self, request: Request, ticket: Ticket) -> bytes:
        body = bytearray()
        async for chunk in request.stream():
            if len(body) + len(chunk) > self.limits.max_bytes:
                raise self._too_many_bytes()
            ticket.hold(len(chunk))
            body += chunk
        if not body:
            raise unprocessable("the body is empty", "empty")
        return bytes(body)

    def _too_many_bytes(self) -> Refusal:
        return too_large(f"a body may have {self.limits.max_bytes:,} bytes; send a smaller image or fewer rows")

    async def _work(self, body: bytes, read: Reader) -> tuple[Asked, Columns]:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.limits.deadline
        try:
            reading = loop.run_in_executor(self._decoders, read, body, self.model, self.limits)
            asked = await asyncio.wait_for(reading, self.limits.deadline)
            return asked, await self.batcher.submit(asked.inputs, rows=len(asked.inputs), deadline=deadline)
        except QueueFullError as error:
            raise overloaded(str(error)) from error
        except (DeadlineError, asyncio.TimeoutError):
            raise too_late(self.limits.deadline) from None
        except ModelError as error:
            raise internal() from error.__cause__
        except BalError as error:
            raise unprocessable(str(error)) from error

    def _gauges(self) -> dict[str, float]:
        return {
            "queue_rows": self.batcher.queued_rows,
            "requests_inside": self.gate.inside,
            "held_bytes": self.gate.bytes,
            "ready": float(self.ready),
        }

    def _look_for_drift(self) -> None:
        """Log when the alarm begins and when it ends."""
        if time.monotonic() - self._looked < DRIFT_LOOK:
            return
        self._looked, state = time.monotonic(), self.drift.state()
        if state.alarm != self._alarm:
            self._alarm = state.alarm
            say(
                "drift alarm" if state.alarm else "drift alarm over",
                rate=state.share,
                low=state.low,
                high=state.high,
                limit=state.limit,
                rows=state.rows,
            )


async def unless_gone(request: Request, work: Awaitable[T]) -> T:
    """The outcome of ``work``, which is dropped when the client goes away."""
    job, leaving = asyncio.ensure_future(work), asyncio.ensure_future(disconnected(request))
    try:
        await asyncio.wait({job, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not job.done():
            raise gone()
        return job.result()
    finally:
        for task in (job, leaving):
            task.cancel()
        await asyncio.gather(job, leaving, return_exceptions=True)


async def disconnected(request: Request) -> None:
    """Wait until the client has left."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def gone() -> Refusal:
    """Nobody will read this."""
    return Refusal(GONE, "client_gone", "the client has left")
