"""Requests that come at the same time share a pass of the model: a bounded queue, deadlines, a thread for each model.

While the models are at work the next batch gathers, so nobody waits for a batch to fill. Work that nobody waits for any more,
since its deadline has passed or its client has gone, is taken out of the queue and never computed.
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
Run: TypeAlias = Callable[[list[In]], list[Out]]


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
    """Each of ``runs`` takes the items of a batch and gives one answer for each, in order; it is called by a thread of its own.

    All other methods belong to the event loop. An item that makes a run fail spoils nobody else's answer: its batch is run again
    one by one.
    """

    def __init__(self, *runs: Run[In, Out], max_rows: int, queue_rows: int, watch: Watch | None = None) -> None:
        self.runs, self.max_rows, self.queue_rows, self.watch = runs, max_rows, queue_rows, watch
        self.queued_rows = 0
        self._queue: dict[Job[In, Out], None] = {}  # in order of arrival; a dict, since jobs leave from the middle
        self._batches: SimpleQueue[tuple[int, list[Job[In, Out]]] | None] = SimpleQueue()
        self._number = 0  # of the last batch
        self._at_work: dict[int, float] = {}  # since when, by the number of a batch
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Start the workers; inside a running event loop."""
        self._loop = asyncio.get_running_loop()
        self._idle = asyncio.Event()
        self._idle.set()
        self._threads = [threading.Thread(target=self._work, args=(run,), name="bal-model", daemon=True) for run in self.runs]
        for thread in self._threads:
            thread.start()

    @property
    def alive(self) -> bool:
        """Whether every worker can take a batch."""
        return bool(self._threads) and all(thread.is_alive() for thread in self._threads)

    def busy_seconds(self) -> float:
        """How long the oldest batch has been at work."""
        return time.monotonic() - min(self._at_work.values()) if self._at_work else 0.0

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
        """Finish what is queued and end the workers; False if one is still at work after so many seconds."""
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._idle.wait(), seconds)
        for _ in self._threads:
            self._batches.put(None)
        for thread in self._threads if self._idle.is_set() else []:
            thread.join(1)
        return self._idle.is_set()

    def _leave(self, job: Job[In, Out]) -> None:
        if job in self._queue:
            del self._queue[job]
            self.queued_rows -= job.rows

    def _feed(self) -> None:
        """Give a free worker a batch, if there are both."""
        if len(self._at_work) == len(self.runs):
            return
        batch = self._take()
        if batch:
            self._idle.clear()
            self._number += 1
            self._at_work[self._number] = time.monotonic()
            self._batches.put((self._number, batch))
        elif not self._at_work:
            self._idle.set()

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

    def _work(self, run: Run[In, Out]) -> None:
        """A worker thread."""
        while (given := self._batches.get()) is not None:
            number, batch = given
            started = time.monotonic()
            outcomes = outcomes_of(run, batch)
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(self._deliver, number, outcomes, time.monotonic() - started)

    def _deliver(self, number: int, outcomes: "list[Outcome[In, Out]]", seconds: float) -> None:
        del self._at_work[number]
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


def outcomes_of(run: Run[In, Out], batch: list[Job[In, Out]]) -> "list[Outcome[In, Out]]":
    """The answers of a batch; if it fails, those of its jobs one by one."""
    try:
        return list(zip(batch, run([job.item for job in batch]), strict=True))
    except BaseException as error:
        if len(batch) == 1:
            return [(batch[0], error)]
    return [outcome for job in batch if job.wanted for outcome in outcomes_of(run, [job])]


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
