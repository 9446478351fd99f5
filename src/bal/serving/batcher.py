"""Requests that come at the same time share a pass of the model: a bounded queue, deadlines, one worker thread.

While the model is at work the next batch gathers, so nobody waits for a batch to fill. Work that nobody waits for any more, since
its deadline has passed or its client has gone, is taken out of the queue and never computed.
"""

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Generic, TypeAlias, TypeVar

from bal.errors import BalError

In = TypeVar("In")
Out = TypeVar("Out")


class QueueFullError(BalError):
    """No room for more rows."""


class DeadlineError(BalError):
    """There was no answer in time."""


class ModelError(BalError):
    """The model failed on this item; the cause is attached."""


@dataclass(eq=False)
class Job(Generic[In, Out]):
    """One request's rows, and who waits for them."""

    item: In
    rows: int
    waiting: "asyncio.Future[Out]"

    @property
    def wanted(self) -> bool:
        """Whether somebody still waits for the answer."""
        return not self.waiting.done()


Outcome: TypeAlias = "tuple[Job[In, Out], Out | BaseException]"
Watch: TypeAlias = Callable[[int, float], None]  # rows of a batch and the seconds it took


class MicroBatcher(Generic[In, Out]):
    """``run`` takes the items of a batch and gives one answer for each, in order; it is called by one thread of our own.

    All other methods belong to the event loop. An item that makes ``run`` fail spoils nobody else's answer: its batch is run
    again one by one.
    """

    def __init__(
        self, run: Callable[[list[In]], list[Out]], *, max_rows: int, queue_rows: int, watch: Watch | None = None
    ) -> None:
        self.run, self.max_rows, self.queue_rows, self.watch = run, max_rows, queue_rows, watch
        self.queued_rows = 0
        self._queue: dict[Job[In, Out], None] = {}  # in order of arrival; a dict, since jobs leave from the middle
        self._batches: SimpleQueue[list[Job[In, Out]] | None] = SimpleQueue()
        self._busy_since: float | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the worker; inside a running event loop."""
        self._loop = asyncio.get_running_loop()
        self._idle = asyncio.Event()
        self._idle.set()
        self._thread = threading.Thread(target=self._work, name="bal-model", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether the worker can take a batch."""
        return self._thread is not None and self._thread.is_alive()

    def busy_seconds(self) -> float:
        """How long the model has been at work on the current batch."""
        since = self._busy_since
        return 0.0 if since is None else time.monotonic() - since

    async def submit(self, item: In, *, rows: int, deadline: float) -> Out:
        """The answer for an item; ``deadline`` is a time of the event loop."""
        if rows > self.max_rows or self.queued_rows + rows > self.queue_rows:
            raise QueueFullError(f"{self.queued_rows} rows are waiting, {rows} more do not fit into {self.queue_rows}")
        job: Job[In, Out] = Job(item, rows, self._loop.create_future())
        timer = self._loop.call_at(deadline, expire, job)
        self._queue[job] = None
        self.queued_rows += rows
        self._feed()
        try:
            return await job.waiting
        finally:
            timer.cancel()
            self._leave(job)

    async def stop(self, seconds: float) -> bool:
        """Finish what is queued and end the worker; False if it is still at work after so many seconds."""
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._idle.wait(), seconds)
        self._batches.put(None)
        if self._thread is not None and self._idle.is_set():
            self._thread.join(1)
        return self._idle.is_set()

    def _leave(self, job: Job[In, Out]) -> None:
        if job in self._queue:
            del self._queue[job]
            self.queued_rows -= job.rows

    def _feed(self) -> None:
        """Give the worker a batch, if it is free and there is one."""
        if self._busy_since is not None:
            return
        batch = self._take()
        if not batch:
            self._idle.set()
            return
        self._idle.clear()
        self._busy_since = time.monotonic()
        self._batches.put(batch)

    def _take(self) -> list[Job[In, Out]]:
        """The oldest jobs that fit into a batch."""
        batch: list[Job[In, Out]] = []
        rows = 0
        for job in list(self._queue):
            if rows + job.rows > self.max_rows:
                break
            self._leave(job)
            if job.wanted:
                batch.append(job)
                rows += job.rows
        return batch

    def _work(self) -> None:
        """The worker thread."""
        while (batch := self._batches.get()) is not None:
            started = time.monotonic()
            outcomes = self._outcomes(batch)
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(self._deliver, outcomes, time.monotonic() - started)

    def _outcomes(self, batch: list[Job[In, Out]]) -> "list[Outcome[In, Out]]":
        try:
            return list(zip(batch, self.run([job.item for job in batch]), strict=True))
        except BaseException as error:
            if len(batch) == 1:
                return [(batch[0], error)]
        return [outcome for job in batch if job.wanted for outcome in self._outcomes([job])]

    def _deliver(self, outcomes: "list[Outcome[In, Out]]", seconds: float) -> None:
        self._busy_since = None
        self._feed()  # the worker goes on while the answers are written
        if self.watch is not None:
            self.watch(sum(job.rows for job, _ in outcomes), seconds)
        for job, outcome in outcomes:
            if not job.wanted:
                continue
            if isinstance(outcome, BaseException):
                job.waiting.set_exception(as_error(outcome))
            else:
                job.waiting.set_result(outcome)


def expire(job: Job[In, Out]) -> None:
    """The deadline has passed."""
    if job.wanted:
        job.waiting.set_exception(DeadlineError("the deadline has passed"))


def as_error(error: BaseException) -> BalError:
    """Errors of ours as they are; anything else is a failure of the model."""
    if isinstance(error, BalError):
        return error
    failure = ModelError(f"the model failed with {type(error).__name__}")
    failure.__cause__ = error
    return failure
