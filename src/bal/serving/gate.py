"""The door of the server: how many requests are in the house, how many bytes they hold, and whether it is closed."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from bal.serving.refusal import draining, overloaded


class Ticket:
    """The place of one request; it counts the bytes of its body."""

    def __init__(self, gate: "Gate") -> None:
        self.gate, self.held = gate, 0

    def hold(self, count: int) -> None:
        """Keep so many more bytes in memory, or be refused."""
        if self.gate.bytes + count > self.gate.max_bytes:
            raise overloaded(
                f"the server holds {self.gate.bytes:,} bytes of requests and takes no more than {self.gate.max_bytes:,}"
            )
        self.held += count
        self.gate.bytes += count

    def release(self) -> None:
        """Let go of the bytes."""
        self.gate.bytes -= self.held
        self.held = 0


class Gate:
    """Lets a bounded number of requests in; once closed, only out."""

    def __init__(self, *, requests: int, max_bytes: int) -> None:
        self.max_requests, self.max_bytes = requests, max_bytes
        self.inside = self.bytes = 0
        self.closed = False
        self._left = asyncio.Event()

    @contextmanager
    def entered(self) -> Iterator[Ticket]:
        """A place in the house for the length of a block; 503 if there is none."""
        if self.closed:
            raise draining()
        if self.inside >= self.max_requests:
            raise overloaded(f"{self.inside} requests are being answered and {self.max_requests} are allowed")
        ticket = Ticket(self)
        self.inside += 1
        try:
            yield ticket
        finally:
            ticket.release()
            self.inside -= 1
            self._left.set()

    def close(self) -> None:
        """Let nobody in any more."""
        self.closed = True

    async def empty(self, seconds: float) -> bool:
        """Wait until all have left, for so many seconds at most; whether they have."""
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._emptied(), seconds)
        return not self.inside

    async def _emptied(self) -> None:
        while self.inside:
            self._left.clear()
            await self._left.wait()
