"""What stands at /: a page for people, a list of the routes for programs.

Neither tells anything about the model, since neither needs a token. The page is static files that ask the data routes with the
token they are given. Its Content-Security-Policy lets it load nothing but its own scripts and ask nobody but this server.
"""

import base64
import hashlib
import re
from importlib.resources import files
from typing import Any

from bal._version import __version__
from bal.serving.histogram import score_histogram
from bal.serving.limits import Limits
from bal.serving.metrics import calibration_scores
from bal.serving.model import ServedModel
from bal.serving.protocol import about
from bal.serving.samples import sample_pictures

SCRIPTS = ("page.js", "pictures.js", "words.js")
ROUTES = {
    "GET /static/{name}": "scripts of the page that a browser sees at /",
    "POST /v1/score": "the bytes of one PNG, JPEG or WebP file; answers with label, confidence, p_value, is_ood",
    "GET /v1/page": "what the page shows of the detector: classes, threshold, histogram, map, pictures to try",
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


def static(name: str) -> str:
    """A file of the page."""
    return files("bal.serving").joinpath("static", name).read_text(encoding="utf-8")


def page_headers(html: str) -> dict[str, str]:
    """What a browser may do with the page; its inline style is let in by its hash."""
    allowed = {
        "default-src": "'none'",
        "script-src": "'self'",
        "style-src": " ".join(f"'sha256-{digest(style)}'" for style in re.findall(r"<style>(.*?)</style>", html, re.DOTALL)),
        "img-src": "data:",
        "connect-src": "'self'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
    }
    policy = "; ".join(f"{what} {who}" for what, who in allowed.items())
    return {"Content-Security-Policy": policy, "Referrer-Policy": "no-referrer", "Vary": "Accept"}


def digest(text: str) -> str:
    """SHA-256 as a Content-Security-Policy wants it."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def wants_html(accept: str) -> bool:
    """Whether a browser asks; programs say that they take anything, or JSON."""
    return "text/html" in accept


def page_data(model: ServedModel, limits: Limits) -> dict[str, Any]:
    """The answer of /v1/page: the detector in words and numbers, and what the page draws."""
    calibration, classifier = model.calibration, model.classifier
    return {
        **about(model),
        "bal": __version__,
        "classifier": {"name": classifier.source, "fingerprint": classifier.fingerprint(), "classes": classifier.classes},
        "classes": model.class_names,
        "threshold": model.detector.threshold_.tolist(),
        "false_alarm": None if calibration is None else calibration.false_alarm,
        "log_probability": model.detector.log_probability,
        "takes_images": model.takes_images,
        "shape": list(model.spec.shape),
        "max_bytes": limits.max_bytes,
        "histogram": {
            "source": "training" if calibration is None else "calibration",
            **score_histogram(
                calibration_scores(model), model.detector.threshold_.numpy(), log_probability=model.detector.log_probability
            ),
        },
        "map": None if model.map is None else model.map.to_json(),
        "samples": sample_pictures(model.spec.shape),
    }
