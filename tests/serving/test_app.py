"""The routes, what they refuse, and thousands of mutated bodies."""

import asyncio
import gc
import json
import logging
import os
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from asking import client_of, encoded, png, some_image, tensor
from bal.errors import DataError
from bal.serving.app import make_app

TOKEN = "a-token-of-enough-letters"  # noqa: S105
MUTATED = int(os.environ.get("BAL_FUZZ", "2000"))  # 20000 in the full run
EXPECTED = {200, 400, 413, 415, 422}


def ask(service, *requests, token=None):
    """Answers to (method, path, options), one after another."""

    async def scene():
        async with client_of(service, token) as client:
            return [await client.request(method, path, **options) for method, path, options in requests]

    return asyncio.run(scene())


def test_an_image_is_answered_with_all_that_was_decided(make_service, energy):
    image = np.random.default_rng(0).integers(0, 256, (4, 4), np.uint8)
    [answer] = ask(make_service(), ("POST", "/v1/score", {"content": encoded(image), "headers": {"X-Request-ID": "mine-1"}}))
    expected, said = energy.predict(image[None, None]), answer.json()
    assert answer.status_code == 200
    assert said["label"] == expected.label[0]
    assert said["class"] == (None if said["label"] < 0 else ("left", "right", "low")[said["label"]])
    assert said["score"] == pytest.approx(expected.score[0], rel=1e-5)
    assert said["p_value"] == pytest.approx(expected.p_value[0])
    assert said["confidence"] == pytest.approx(expected.confidence[0])
    assert said["threshold"] == energy.threshold_.item()
    assert said["is_ood"] == (said["label"] == -1)
    assert (said["model"], said["detector"], said["valid"], said["warnings"]) == ("tiny", "energy", True, [])
    assert said["fingerprint"].startswith(said["version"])
    assert said["request_id"] == answer.headers["x-request-id"] == "mine-1"
    assert "p1" not in said


def test_bal_answers_with_its_two_factors(make_service, bal_detector):
    [answer] = ask(make_service(bal_detector), ("POST", "/v1/score", {"content": some_image()}))
    said = answer.json()
    assert said["p1"] * said["p2"] == pytest.approx(said["confidence"])
    assert said["class"] is None, "without names there is none"


def test_the_open_inference_protocol(make_service, energy, tiny_images):
    x = tiny_images[0][:5].numpy()
    live, ready, server, model, model_ready, infer, chosen = ask(
        make_service(),
        ("GET", "/v2/health/live", {}),
        ("GET", "/v2/health/ready", {}),
        ("GET", "/v2", {}),
        ("GET", "/v2/models/tiny", {}),
        ("GET", "/v2/models/tiny/ready", {}),
        ("POST", "/v2/models/tiny/infer", {"content": tensor(x, id="seven")}),
        ("POST", "/v2/models/tiny/infer", {"content": tensor(x, outputs=[{"name": "is_ood"}, {"name": "label"}])}),
    )
    assert {answer.status_code for answer in (live, ready, server, model, model_ready, infer, chosen)} == {200}
    assert server.json()["name"] == "bal"
    assert model.json()["inputs"] == [{"name": "input", "datatype": "FP32", "shape": [-1, 1, 4, 4]}]
    said, expected = infer.json(), energy.predict(x)
    outputs = {output["name"]: output for output in said["outputs"]}
    assert [(o["name"], o["datatype"]) for o in model.json()["outputs"]] == [(o["name"], o["datatype"]) for o in said["outputs"]]
    assert {tuple(output["shape"]) for output in outputs.values()} == {(5,)}
    assert outputs["label"]["data"] == expected.label.tolist()
    assert outputs["score"]["data"] == pytest.approx(expected.score.tolist(), rel=1e-5)
    assert (said["id"], said["model_name"], said["model_version"]) == ("seven", "tiny", model.json()["versions"][0])
    assert len(said["parameters"]["classes"]) == 5
    assert [output["name"] for output in chosen.json()["outputs"]] == ["is_ood", "label"]


def test_numbers_that_are_not_finite_are_null(make_service, bal_detector, tiny_images):
    """Fault 4."""
    x = tiny_images[0][:2].numpy().astype(float)
    body = tensor(x).replace(str(x[0, 0, 0, 0]).encode(), b"1e999", 1)
    [answer] = ask(make_service(bal_detector), ("POST", "/v2/models/tiny/infer", {"content": body}))
    outputs = {output["name"]: output["data"] for output in json.loads(answer.text, parse_constant=pytest.fail)["outputs"]}
    assert (outputs["valid"], outputs["is_ood"][0], outputs["label"][0]) == ([False, True], True, -1)
    assert (outputs["score"][0], outputs["p1"][0], outputs["p2"][0], outputs["confidence"][0]) == (None, None, None, 0.0)
    assert None not in (outputs["score"][1], outputs["p1"][1])


@pytest.mark.parametrize(
    ("method", "path", "content", "status", "code"),
    [
        ("GET", "/nothing", b"", 404, "not_found"),
        ("GET", "/v1/score", b"", 405, "method_not_allowed"),
        ("POST", "/v2/health/live", b"x", 405, "method_not_allowed"),
        ("GET", "/v2/models/other", b"", 404, "no_such_model"),
        ("POST", "/v2/models/other/infer", b"{}", 404, "no_such_model"),
        ("GET", "/v2/models/../../etc/passwd", b"", 404, "not_found"),
        ("GET", "/docs", b"", 404, "not_found"),
        ("POST", "/v1/score", b"", 422, "empty"),
        ("POST", "/v1/score", b"hello", 415, "not_an_image"),
        ("POST", "/v1/score", png(13000, 13000), 413, "too_large"),
        ("POST", "/v2/models/tiny/infer", b"{", 400, "not_json"),
        ("POST", "/v2/models/tiny/infer", tensor(np.zeros((1, 3, 4, 4))), 422, "wrong_shape"),
        ("POST", "/v2/models/tiny/infer", tensor(np.zeros((65, 1, 4, 4))), 413, "too_large"),
        ("POST", "/v2/models/tiny/infer", tensor(np.zeros((1, 1, 4, 4)), outputs=[{"name": "x"}]), 422, "wrong_output"),
    ],
)
def test_a_refusal_is_json_with_a_code_a_sentence_and_the_id(make_service, method, path, content, status, code):
    """Fault 5; and fault 9, an image of 169 million pixels in a few bytes."""
    [answer] = ask(make_service(), (method, path, {"content": content}))
    said = answer.json()
    assert (answer.status_code, said["code"]) == (status, code)
    assert set(said) == {"error", "code", "request_id"}
    assert said["request_id"] == answer.headers["x-request-id"]
    assert len(said["error"]) > 10


def test_a_compressed_body_is_refused(make_service):
    options = {"content": some_image(), "headers": {"Content-Encoding": "gzip"}}
    [answer] = ask(make_service(), ("POST", "/v1/score", options))
    assert (answer.status_code, answer.json()["code"]) == (415, "encoded")


def test_every_route_but_health_and_the_index_wants_the_token(make_service):
    paths = [("POST", "/v1/score"), ("GET", "/metrics"), ("GET", "/v2/models/tiny"), ("POST", "/v2/models/tiny/infer")]
    paths += [("GET", "/v2"), ("GET", "/openapi.json"), ("GET", "/nothing"), ("GET", "/v2/health/live/")]
    for answer in ask(make_service(), *((method, path, {}) for method, path in paths), token=TOKEN):
        assert answer.status_code == 401, answer.url
        assert answer.headers["www-authenticate"] == "Bearer"
    right = {"headers": {"Authorization": f"Bearer {TOKEN}"}}
    opened = [("GET", "/v2/health/live", {}), ("GET", "/v2/health/ready", {}), ("GET", "/", {}), ("GET", "/metrics", right)]
    assert [answer.status_code for answer in ask(make_service(), *opened, token=TOKEN)] == [200] * 4


def test_the_index_lists_the_routes_that_there_are(make_service):
    index, described = ask(make_service(), ("GET", "/", {}), ("GET", "/openapi.json", {}))
    listed = set(index.json()["routes"]) - {"GET /openapi.json"}
    known = {f"{method.upper()} {path}" for path, methods in described.json()["paths"].items() for method in methods}
    assert listed == known - {"GET /"}


def test_an_error_of_ours_is_500_without_a_word_of_it(make_service, monkeypatch, caplog):
    caplog.set_level(logging.INFO, "bal.serving")
    service = make_service()
    monkeypatch.setattr(service.metrics, "text", lambda: 1 / 0)
    [answer] = ask(service, ("GET", "/metrics", {}))
    assert (answer.status_code, answer.json()["code"]) == (500, "internal")
    assert "Zero" not in answer.text
    record = next(record for record in caplog.records if record.getMessage() == "internal error")
    assert record.fields["error"] == "ZeroDivisionError"
    assert record.fields["request_id"] == answer.json()["request_id"]


def test_nothing_is_sent_to_a_collector_that_the_environment_names(make_service, monkeypatch):
    telemetry = pytest.importorskip("fastapi.telemetry._asgi")
    monkeypatch.setenv("FASTAPI_OTEL_AUTO_CONFIGURE", "true")
    monkeypatch.setattr(telemetry, "_unconfigured", lambda provider: False)  # as if there were a collector
    monkeypatch.setattr(telemetry.NativeTelemetry, "__call__", lambda *a, **k: pytest.fail("something would be sent"))
    service = make_service()
    assert make_app(service)._telemetry["auto_configure"] is False
    [answer] = ask(service, ("POST", "/v1/score", {"content": b"no image"}))
    assert answer.status_code == 415


def test_a_refusal_of_the_model_itself_is_422(make_service):
    def refuse(_):
        raise DataError("rows of this kind cannot be scored")

    service = make_service()
    service.batcher.runs = (refuse,)
    [answer] = ask(service, ("POST", "/v1/score", {"content": some_image()}))
    assert (answer.status_code, answer.json()["error"]) == (422, "rows of this kind cannot be scored")


def test_the_log_tells_what_happened_and_not_what_was_sent(make_service, caplog):
    caplog.set_level(logging.INFO, "bal.serving")
    secret = {"content": b"my-secret-body", "headers": {"Authorization": "Bearer my-secret-token", "X-Request-ID": "a\tb"}}
    ask(make_service(), ("POST", "/v1/score", {"content": some_image()}), ("POST", "/v1/score?key=my-secret-query", secret))
    good, bad = (record.fields for record in caplog.records if record.getMessage() == "request")
    assert (good["status"], good["code"], good["rows"], good["route"]) == (200, "ok", 1, "/v1/score")
    assert (bad["status"], bad["code"]) == (415, "not_an_image")
    assert "secret" not in repr([vars(record) for record in caplog.records])
    assert "\t" not in bad["request_id"]


def test_outcomes_are_counted_by_route(make_service):
    *_, metrics = ask(
        make_service(),
        ("POST", "/v1/score", {"content": some_image()}),
        ("POST", "/v1/score", {"content": b"x"}),
        ("GET", "/" + "x" * 50, {}),
        ("GET", "/metrics", {}),
    )
    assert 'bal_requests_total{outcome="ok",route="/v1/score"} 1.0' in metrics.text
    assert 'bal_requests_total{outcome="not_an_image",route="/v1/score"} 1.0' in metrics.text
    assert 'bal_requests_total{outcome="not_found",route="other"} 1.0' in metrics.text
    assert "bal_batch_rows_count 1.0" in metrics.text


def mutated(body, rng):
    """The body with some bytes changed, cut out, doubled, or put in."""
    body = bytearray(body)
    for _ in range(rng.integers(1, 6)):
        place, length = int(rng.integers(0, len(body) + 1)), int(rng.integers(0, 9))
        kind = rng.integers(0, 5)
        if kind == 0 and place < len(body):
            body[place] ^= 1 << int(rng.integers(0, 8))
        elif kind == 1:
            del body[place : place + length]
        elif kind == 2:
            body[place:place] = rng.bytes(length)
        elif kind == 3:
            body[place:place] = body[place : place + length] * 3
        else:
            words = (
                b"1e999",
                b"-1",
                b"null",
                b"[[",
                b"]",
                b"NaN",
                b'"',
                b"{}",
                b"true",
                b"\xff\xff\xff\xff",
                b"99999999999999999999",
            )
            body[place : place + length] = words[rng.integers(0, len(words))]
    return bytes(body[: rng.integers(0, len(body) + 1)] if rng.random() < 0.1 else body)


def traced_bytes():
    """Memory of Python's objects since the tracing began, but for large blocks, which are seen in the resident memory.

    Such a block is the interpreter's table of names: it is laid out anew now and then, and only the new one was traced.
    """
    return sum(trace.size for trace in tracemalloc.take_snapshot().traces if trace.size < 1 << 20)


def resident_bytes():
    """Memory of this process, with that of libraries; 0 where the system does not tell."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def test_mutated_bodies_are_answered_or_refused_and_nothing_breaks(make_service, rng, caplog):
    """20,000 of them with BAL_FUZZ=20000."""
    for name in ("bal.serving", "httpx2"):  # records that are kept would be growth
        caplog.set_level(logging.CRITICAL, name)
    photo = rng.integers(0, 256, (9, 7, 3), np.uint8)
    images = [encoded(photo, kind) for kind in ("PNG", "JPEG", "WEBP")] + [encoded(photo, "WEBP", lossless=True)]
    images += [encoded(photo[..., 0].astype(np.uint16)), encoded(np.dstack([photo, photo[..., :1]]))]
    json_body = tensor(rng.random((2, 1, 4, 4)).round(3), id="x", outputs=[{"name": "label"}])
    seeds = [("/v1/score", image) for image in images] + 6 * [("/v2/models/tiny/infer", json_body)]

    async def scene():
        seen = {}
        service = make_service(max_pixels=10_000, deadline=60, window=20)
        async with client_of(service) as client:
            for number in range(MUTATED):
                if number == MUTATED // 10:  # all that is made once is made
                    gc.collect()
                    tracemalloc.start()
                    resident = resident_bytes()
                path, seed = seeds[number % len(seeds)]
                body = mutated(seed, rng)
                answer = await client.post(path, content=body)
                assert answer.status_code in EXPECTED, (path, body, answer.text)
                said = json.loads(answer.text, parse_constant=pytest.fail)
                assert answer.status_code == 200 or set(said) == {"error", "code", "request_id"}
                seen[answer.status_code] = seen.get(answer.status_code, 0) + 1
            assert (await client.get("/v2/health/ready")).status_code == 200
            assert (service.gate.inside, service.gate.bytes, service.batcher.queued_rows) == (0, 0, 0)
            gc.collect()
            grown = traced_bytes(), resident_bytes() - resident
        assert service.clean
        return seen, grown

    try:
        seen, (traced, resident) = asyncio.run(scene())
    finally:
        tracemalloc.stop()
    logging.getLogger(__name__).info("answers %s; growth of %d bytes traced, %d bytes resident", seen, traced, resident)
    assert {200, 400, 415, 422} <= set(seen), seen
    assert traced < 300_000, "Python's objects: not 200 bytes for each of 1,800 bodies, and no more for ten times as many"
    assert resident < 32 << 20, "with the memory of decoders, which Python does not see"
