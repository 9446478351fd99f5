"""What a server allows: every number that bounds its memory, its queue and its patience."""

from dataclasses import dataclass, fields

from bal.data.images import MAX_PIXELS
from bal.settings import check_number

MIB = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Sizes in rows or bytes, times in seconds.

    Args:
        max_batch: rows that the model takes at once, and that one request may have.
        queue: rows that may wait, and requests that may be in the house at a time.
        deadline: from the last byte of a request to its answer; later is 504.
        max_bytes: of one body.
        max_pixels: of one image.
        held_bytes: of all bodies in memory together.
        body_seconds: for a client to send its body; later is 408.
        idle_seconds: for a client to send the head of a request and to go on reading an answer, and for an idle connection.
        connections: open at a time.
        workers: threads that run the model, each with modules of its own over the same weights.
        decoders: threads that read images and JSON.
        drain_seconds: after SIGTERM, to answer what was accepted.
        stuck_seconds: a batch that takes longer makes the server neither ready nor live.
        window: last decisions that the drift alarm looks at.
        drift_confidence: of the band round their rejection rate.
    """

    max_batch: int = 64
    queue: int = 256
    deadline: float = 5.0
    max_bytes: int = 10 * MIB
    max_pixels: int = MAX_PIXELS
    held_bytes: int = 256 * MIB
    body_seconds: float = 10.0
    idle_seconds: float = 10.0
    connections: int = 512
    workers: int = 1
    decoders: int = 2
    drain_seconds: float = 30.0
    stuck_seconds: float = 60.0
    window: int = 1000
    drift_confidence: float = 0.999

    def __post_init__(self) -> None:
        for item in fields(self):
            whole = item.type in (int, "int")
            low, high = (1, float("inf")) if whole else (0.01, 86_400)
            check_number(item.name, getattr(self, item.name), low=low, high=HIGHEST.get(item.name, high), whole=whole)
        check_number("queue", self.queue, low=self.max_batch, whole=True)


HIGHEST = {"drift_confidence": 0.999999, "window": 10_000, "decoders": 64, "workers": 64}
