"""Why a request is not answered as asked: a status, a code for machines and a sentence for people."""

from collections.abc import Mapping
from typing import Any

RETRY = {"Retry-After": "1"}
CLOSE = {"Connection": "close"}
GONE = 499  # the client has left; nobody reads this status, but logs and metrics do


class Refusal(Exception):  # noqa: N818 - most of them are no error of ours
    """An answer other than 200."""

    def __init__(self, status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.headers = status, code, message, dict(headers or {})

    def body(self, request_id: str) -> dict[str, Any]:
        """As JSON; ``error`` is the field of the Open Inference Protocol."""
        return {"error": self.message, "code": self.code, "request_id": request_id}


def overloaded(message: str) -> Refusal:
    """Too much work at the moment."""
    return Refusal(503, "overloaded", f"{message}; try again later", RETRY)


def draining() -> Refusal:
    """The server is about to stop."""
    return Refusal(503, "draining", "the server is shutting down and takes no new work; ask another one", RETRY)


def too_late(seconds: float) -> Refusal:
    """The deadline has passed."""
    return Refusal(504, "deadline", f"there was no answer within {seconds:g} s; the work was dropped, try again later", RETRY)


def too_large(message: str) -> Refusal:
    """A body, an image or a batch over its limit."""
    return Refusal(413, "too_large", message)


def unprocessable(message: str, code: str = "unprocessable") -> Refusal:
    """Content that cannot be used as given."""
    return Refusal(422, code, message)


def internal() -> Refusal:
    """What went wrong stands in the log under the request's id, not in the answer."""
    return Refusal(500, "internal", "the model failed on this request; the server's log has the reason under this request id")
