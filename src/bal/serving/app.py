"""The routes: Open Inference Protocol v2, /v1/score, /metrics and a page; and the envelope round every one of them."""

import asyncio
import json
import re
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bal._version import __version__
from bal.serving import protocol
from bal.serving.logs import say, say_failure
from bal.serving.metrics import CONTENT_TYPE
from bal.serving.page import SCRIPTS, index, page_data, page_headers, static, wants_html
from bal.serving.reading import read_image, read_tensors
from bal.serving.refusal import Refusal, draining, internal
from bal.serving.security import Guard
from bal.serving.service import Service

if TYPE_CHECKING:
    from fastapi.telemetry import TelemetryConfig  # older versions have none, and ignore the argument

# FastAPI would send exceptions with their words to a collector that the environment names; ours is the only log
SILENT: "TelemetryConfig" = {
    "tracing": False,
    "metrics": False,
    "logs": False,
    "operation_spans": False,
    "auto_configure": False,
}
# Without a token: they tell nothing about the model
OPEN = {"/", "/v2/health/live", "/v2/health/ready", *(f"/static/{name}" for name in SCRIPTS)}
REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
HEADERS = [(b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff")]


def make_app(service: Service, guard: Guard | None = None) -> FastAPI:
    """The application; a server runs it, and tests call it."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with service.running():
            yield

    app = FastAPI(
        title="bal",
        version=__version__,
        lifespan=lifespan,
        docs_url=None,  # its page loads scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
        telemetry=SILENT,
    )
    app.add_middleware(Envelope, service=service, guard=guard or Guard(None))
    app.add_exception_handler(HTTPException, no_such_route)
    add_health(app, service)
    add_models(app, service)
    add_others(app, service)
    add_page(app, service)
    return app


def add_health(app: FastAPI, service: Service) -> None:
    """Is it alive, and does it take requests?"""

    @app.get("/v2/health/live")
    async def live() -> Response:
        if not service.live:
            raise Refusal(503, "stuck", "the model does not come back; restart the server")
        return to_json({"live": True})

    @app.get("/v2/health/ready")
    async def ready() -> Response:
        check_ready(service)
        return to_json({"ready": True})


def add_models(app: FastAPI, service: Service) -> None:
    """The Open Inference Protocol for the one model there is."""

    @app.get("/v2")
    async def server() -> Response:
        return to_json(protocol.server_metadata())

    @app.get("/v2/models/{name}")
    async def model(name: str) -> Response:
        check_name(service, name)
        return to_json(described)

    @app.get("/v2/models/{name}/ready")
    async def model_ready(name: str) -> Response:
        check_name(service, name)
        check_ready(service)
        return to_json({"name": name, "ready": True})

    @app.post("/v2/models/{name}/infer")
    async def infer(name: str, request: Request) -> Response:
        check_name(service, name)
        asked, columns = await service.answer(request, read_tensors)
        request.scope["bal.rows"] = len(asked.inputs)
        return to_json(protocol.infer_response(service.model, asked, columns, request.scope["bal.id"]))

    described = protocol.metadata(service.model)


def add_others(app: FastAPI, service: Service) -> None:
    """Images and metrics."""

    @app.post("/v1/score")
    async def score(request: Request) -> Response:
        asked, columns = await service.answer(request, read_image)
        request.scope["bal.rows"] = len(asked.inputs)
        return to_json(protocol.one_row(service.model, asked, columns, request.scope["bal.id"]))

    @app.get("/metrics")
    async def metrics() -> Response:
        return Response(service.metrics.text(), media_type=CONTENT_TYPE)


def add_page(app: FastAPI, service: Service) -> None:
    """The page, and what it shows; for programs the index."""
    html, scripts = static("page.html"), {name: static(name) for name in SCRIPTS}
    headers, shown = page_headers(html), page_data(service.model, service.limits)

    @app.get("/")
    async def home(request: Request) -> Response:
        if wants_html(request.headers.get("accept", "")):
            return Response(html, headers=headers, media_type="text/html")
        return to_json(index(), headers={"Vary": "Accept"})

    @app.get("/static/{name}")
    async def script(name: str) -> Response:
        if name not in scripts:
            raise HTTPException(404)
        return Response(scripts[name], media_type="text/javascript")

    @app.get("/v1/page")
    async def page() -> Response:
        return to_json(shown)


def check_name(service: Service, name: str) -> None:
    """The name in a route must be that of the model."""
    if name != service.model.name:
        raise Refusal(404, "no_such_model", f"there is no model {name[:64]!r} here; this server has {service.model.name!r}")


def check_ready(service: Service) -> None:
    """503 while the server stops, or while the model does not come back."""
    if service.gate.closed:
        raise draining()
    if not service.ready:
        raise Refusal(503, "stuck", "the model does not come back; restart the server")


async def no_such_route(_: Request, error: Exception) -> Response:
    """404 and 405 in our own words."""
    if not isinstance(error, HTTPException):
        raise error
    code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "refused")
    message = "there is no such route with this method; GET / lists all of them"
    raise Refusal(error.status_code, code, message, error.headers)


def to_json(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """JSON; NaN and Infinity in it would be an error of ours."""
    content = json.dumps(value, allow_nan=False).encode()
    return Response(content, status, headers, media_type="application/json")


class Envelope:
    """Round every request: its id, the token, errors as JSON, a line in the log, a count in the metrics."""

    def __init__(self, app: ASGIApp, service: Service, guard: Guard) -> None:
        self.app, self.service, self.guard = app, service, guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        scope["bal.id"], scope["bal.rows"] = request_id(scope), 0
        record: dict[str, Any] = {"status": 0, "code": "ok"}
        started = time.perf_counter()

        async def send_marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                record["status"] = message["status"]
                message["headers"] = [*message["headers"], *HEADERS, (b"x-request-id", scope["bal.id"].encode())]
            await send(message)

        try:
            await self._answer(scope, receive, send_marked, record)
        finally:
            self._record(scope, record, time.perf_counter() - started)

    async def _answer(self, scope: Scope, receive: Receive, send: Send, record: dict[str, Any]) -> None:
        try:
            if scope["path"] not in OPEN:
                self.guard.check(header(scope, b"authorization"))
            await self.app(scope, receive, send)
            return
        except asyncio.CancelledError:  # the drain is over
            if not self.service.gate.closed:
                raise
            refusal = draining()
        except Refusal as error:
            refusal = error
            if refusal.status == 500:
                say_failure("model failed", error, request_id=scope["bal.id"])
        except Exception as error:
            refusal = internal()
            say_failure("internal error", error, request_id=scope["bal.id"])
        record["code"] = refusal.code
        if not record["status"]:
            answer = to_json(refusal.body(scope["bal.id"]), refusal.status, refusal.headers)
            await answer(scope, receive, send)

    def _record(self, scope: Scope, record: dict[str, Any], seconds: float) -> None:
        route = getattr(scope.get("route"), "path", "other")
        if not record["status"]:
            record["code"] = "cancelled"
        self.service.metrics.saw_request(route, record["code"], seconds)
        say(
            "request",
            request_id=scope["bal.id"],
            method=scope["method"][:16],
            route=route,
            **record,
            rows=scope["bal.rows"],
            milliseconds=round(1000 * seconds, 3),
        )


def header(scope: Scope, name: bytes) -> bytes | None:
    """The first header of that name."""
    return next((value for key, value in scope["headers"] if key == name), None)


def request_id(scope: Scope) -> str:
    """The client's X-Request-ID if it is a plain word, or else a new one."""
    given = header(scope, b"x-request-id") or b""
    return given.decode() if REQUEST_ID.fullmatch(given) else uuid.uuid4().hex
