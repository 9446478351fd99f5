"""Logs as JSON, one object a line: what happened to which request, never what was in it."""

import json
import logging
import sys
import time
import traceback
from types import TracebackType
from typing import Any

LOGGER = logging.getLogger("bal.serving")


def say(event: str, *, level: int = logging.INFO, **fields: Any) -> None:
    """One line of the log."""
    LOGGER.log(level, event, extra={"fields": fields})


def say_failure(event: str, error: BaseException, **fields: Any) -> None:
    """An error by its type and the places in the code; its words may hold what a client sent."""
    cause = error.__cause__ if error.__cause__ is not None else error
    say(event, level=logging.ERROR, error=type(cause).__name__, places=places(cause.__traceback__), **fields)


def places(trace: TracebackType | None) -> list[str]:
    """file:line function, outermost first."""
    return [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in traceback.extract_tb(trace)]


class JsonLines(logging.Formatter):
    """A record as one JSON object; of an exception only type and places."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z"
        line: dict[str, Any] = {"time": moment, "level": record.levelname.lower(), "event": record.getMessage().strip()}
        line |= getattr(record, "fields", {})
        if record.exc_info and record.exc_info[1] is not None:
            line |= {"error": type(record.exc_info[1]).__name__, "places": places(record.exc_info[2])}
        return json.dumps(line, default=str)


def configure() -> None:
    """Send our lines, and the warnings of uvicorn, asyncio and any other module, to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logging.captureWarnings(True)
    for name in ("bal.serving", "uvicorn", "asyncio", "py.warnings"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(logging.INFO if name == "bal.serving" else logging.WARNING)
