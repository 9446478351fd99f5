"""What stands at /: for now a list of the routes. It tells nothing about the model, since it needs no token."""

from typing import Any

from bal._version import __version__

ROUTES = {
    "POST /v1/score": "the bytes of one PNG, JPEG or WebP file; answers with label, confidence, p_value, is_ood",
    "GET /v2": "Open Inference Protocol: the server",
    "GET /v2/health/live": "200 unless only a restart helps",
    "GET /v2/health/ready": "200 if requests are taken",
    "GET /v2/models/{name}": "inputs, outputs, classes, threshold",
    "GET /v2/models/{name}/ready": "200 if requests are taken",
    "POST /v2/models/{name}/infer": "tensors as JSON",
    "GET /metrics": "for Prometheus",
    "GET /openapi.json": "these routes as OpenAPI",
}


def index() -> dict[str, Any]:
    """The routes."""
    return {"name": "bal", "version": __version__, "routes": ROUTES}
