"""Overload, slow and vanishing clients, deadlines and the end of the service (faults 22 and 23)."""

import asyncio
import gc
import time
import tracemalloc

import pytest
import torch
from starlette.requests import Request
from torch import nn

from asking import Held, client_of, some_image, soon, tensor
from bal.backbones import Classifier
from bal.detectors import DETECTORS, load, make_detector
from bal.serving.reading import read_image
from bal.serving.refusal import Refusal


def score(client, seed=0, **options):
    return asyncio.ensure_future(client.post("/v1/score", content=some_image(seed), **options))


def held(service):
    model = Held(service.model.run)
    service.batcher.runs = (model,)
    return model


class Caller:
    """A client by hand, who can be slow, may never come to the end, and can hang up."""

    def __init__(self, *chunks, headers=(), whole=False):
        self.chunks, self.whole, self.gone = list(chunks), whole, asyncio.Event()
        self.request = Request({"type": "http", "method": "POST", "headers": list(headers)}, self.receive)

    async def receive(self):
        if self.chunks:
            body = self.chunks.pop(0)
            return {"type": "http.request", "body": body, "more_body": bool(self.chunks) or not self.whole}
        await self.gone.wait()
        return {"type": "http.disconnect"}


def test_overload_is_503_with_retry_after_and_every_accepted_request_is_answered(make_service):
    """Fault 22."""

    async def scene():
        service = make_service(max_batch=4, queue=8, deadline=20)
        model = held(service)
        async with client_of(service) as client:
            tasks = [score(client, i) for i in range(40)]
            await soon(lambda: sum(task.done() for task in tasks) == 32)
            model.go.set()
            answers = await asyncio.gather(*tasks)
        assert sorted(answer.status_code for answer in answers) == [200] * 8 + [503] * 32
        for answer in answers:
            if answer.status_code == 503:
                assert int(answer.headers["retry-after"]) >= 1
                assert answer.json()["code"] == "overloaded"
        assert (service.gate.inside, service.gate.bytes, service.batcher.queued_rows) == (0, 0, 0)
        assert service.clean

    asyncio.run(scene())


def test_requests_that_come_together_share_batches(make_service):
    async def scene():
        service = make_service(max_batch=16, queue=64, deadline=20)
        model = held(service)
        async with client_of(service) as client:
            first = score(client)
            await soon(model.started.is_set)
            tasks = [score(client, i) for i in range(32)]
            await soon(lambda: service.batcher.queued_rows == 32)
            model.go.set()
            await asyncio.gather(first, *tasks)
        assert model.batches == [1, 16, 16]

    asyncio.run(scene())


class Pause(nn.Module):
    """Lets other threads in, in the middle of a pass."""

    def forward(self, x):
        time.sleep(0.001)
        return x


@pytest.mark.parametrize("name", DETECTORS)
def test_several_workers_answer_as_one_does(make_service, tiny_model, tiny_images, tmp_path, name):
    """Each detector as it comes from a file, where the modes of its own networks are not those at the end of a fit."""
    classifier = Classifier(nn.Sequential(Pause(), *tiny_model[:3], Pause(), *tiny_model[3:]))
    make_detector(name).fit(classifier, tiny_images, show_progress=False).calibrate(tiny_images[0]).save(tmp_path / "d")
    detector = load(tmp_path / "d", classifier)
    state = {key: tensor.clone() for key, tensor in detector.state().items()}

    def answers(workers):
        async def scene():
            async with client_of(make_service(detector, workers=workers, max_batch=2)) as client:
                return [answer.json() for answer in await asyncio.gather(*(score(client, seed) for seed in range(24)))]

        return [{key: value for key, value in answer.items() if key != "request_id"} for answer in asyncio.run(scene())]

    for one, three in zip(answers(1), answers(3), strict=True):
        assert one.pop("map", []) == pytest.approx(three.pop("map", []), rel=1e-4)
        assert {k: v for k, v in one.items() if not isinstance(v, float)} == {
            k: v for k, v in three.items() if not isinstance(v, float)
        }
        assert [v for v in one.values() if isinstance(v, float)] == pytest.approx(
            [v for v in three.values() if isinstance(v, float)], rel=1e-4
        )
    assert all(torch.equal(tensor, state[key]) for key, tensor in detector.state().items())


def test_a_deadline_that_passes_is_504_and_the_rows_are_dropped(make_service):
    async def scene():
        service = make_service(deadline=0.1)
        model = held(service)
        async with client_of(service) as client:
            first = score(client)
            await soon(model.started.is_set)
            second = await score(client)
            assert (second.status_code, second.json()["code"]) == (504, "deadline")
            assert (await first).status_code == 504
            assert service.batcher.queued_rows == 0
            model.go.set()
        assert model.batches == [1], "the second was never computed"

    asyncio.run(scene())


def test_a_client_that_hangs_up_has_its_rows_dropped(make_service):
    """Fault 22: dropped work is not computed."""

    async def scene():
        service = make_service(deadline=20)
        model = held(service)
        async with client_of(service) as client:
            first = score(client)
            await soon(model.started.is_set)
            caller = Caller(some_image(1), whole=True)
            task = asyncio.ensure_future(service.answer(caller.request, read_image))
            await soon(lambda: service.batcher.queued_rows == 1)
            caller.gone.set()
            with pytest.raises(Refusal, match="left") as refused:
                await task
            assert refused.value.status == 499
            assert (service.batcher.queued_rows, service.gate.inside) == (0, 1)
            model.go.set()
            assert (await first).status_code == 200
        assert model.batches == [1]

    asyncio.run(scene())


def test_a_client_that_hangs_up_inside_its_body_gives_its_place_back(make_service):
    async def scene():
        service = make_service()
        async with service.running():
            caller = Caller(b"half a ")
            task = asyncio.ensure_future(service.answer(caller.request, read_image))
            await soon(lambda: service.gate.bytes == 7)
            caller.gone.set()
            with pytest.raises(Refusal) as refused:
                await task
            assert (refused.value.status, service.gate.inside, service.gate.bytes) == (499, 0, 0)

    asyncio.run(scene())


def test_a_body_that_trickles_is_408(make_service):
    """Fault 22."""

    async def scene():
        service = make_service(body_seconds=0.1)
        async with service.running():
            with pytest.raises(Refusal, match=r"within 0\.1 s") as refused:
                await service.answer(Caller(b"a", b"b").request, read_image)
            assert (refused.value.status, refused.value.headers) == (408, {"Connection": "close"})
            assert service.gate.inside == 0

    asyncio.run(scene())


@pytest.mark.parametrize(
    "caller",
    [
        ((), ((b"content-length", b"1001"),)),
        ((), ((b"content-length", b"9" * 4000),)),
        ((b"x" * 600, b"x" * 600), ()),
        ((b"x" * 600, b"x" * 600), ((b"content-length", b"10"),)),
    ],
    ids=["declared", "absurd", "chunked", "a lie"],
)
def test_an_oversize_body_is_413_whether_it_is_declared_or_not(make_service, caller):
    """Fault 22."""

    async def scene():
        service = make_service(max_bytes=1000)
        chunks, headers = caller
        async with service.running():
            with pytest.raises(Refusal, match="1,000 bytes") as refused:
                await service.answer(Caller(*chunks, headers=headers).request, read_image)
            assert (refused.value.status, service.gate.bytes) == (413, 0)

    asyncio.run(scene())


def test_bodies_together_are_bounded_too(make_service):
    async def scene():
        service = make_service(max_bytes=1000, held_bytes=1500)
        async with service.running():
            first = asyncio.ensure_future(service.answer(Caller(b"x" * 1000).request, read_image))
            await soon(lambda: service.gate.bytes == 1000)
            with pytest.raises(Refusal, match="holds 1,000 bytes") as refused:
                await service.answer(Caller(b"x" * 501).request, read_image)
            assert refused.value.status == 503
            first.cancel()
            with pytest.raises(asyncio.CancelledError):
                await first
            assert service.gate.bytes == 0

    asyncio.run(scene())


def test_an_input_that_breaks_the_model_is_500_for_its_request_alone(make_service):
    async def scene():
        service = make_service(max_batch=8, deadline=20)
        run = service.model.run

        def fragile(items):
            if any(len(item) == 3 for item in items):
                raise RuntimeError("secret")
            return run(items)

        model = Held(fragile)
        service.batcher.runs = (model,)
        rows = [[[[0.5] * 4] * 4]]
        async with client_of(service) as client:
            first = score(client)
            await soon(model.started.is_set)
            bodies = [tensor(rows * n) for n in (1, 3, 2)]
            tasks = [asyncio.ensure_future(client.post("/v2/models/tiny/infer", content=body)) for body in bodies]
            await soon(lambda: service.batcher.queued_rows == 6)
            model.go.set()
            answers = await asyncio.gather(first, *tasks)
        assert [answer.status_code for answer in answers] == [200, 200, 500, 200]
        assert "secret" not in answers[2].text
        assert "Traceback" not in answers[2].text
        assert service.batcher.alive is False

    asyncio.run(scene())


def test_a_model_that_does_not_come_back_makes_the_server_neither_ready_nor_live(make_service):
    """Fault 23."""

    async def scene():
        service = make_service(deadline=0.05, stuck_seconds=0.1, drain_seconds=0.05)
        model = held(service)
        async with client_of(service) as client:
            assert (await client.get("/v2/health/live")).status_code == 200
            assert (await score(client)).status_code == 504
            await asyncio.sleep(0.1)
            for route in ("live", "ready"):
                answer = await client.get(f"/v2/health/{route}")
                assert (answer.status_code, answer.json()["code"]) == (503, "stuck")
        assert not service.clean
        model.go.set()

    asyncio.run(scene())


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_dead_worker_makes_the_server_neither_ready_nor_live(make_service, monkeypatch):
    """Fault 23: the thread of the model ends, though nobody asked it to."""

    def die(*_):
        raise MemoryError("outside of what the worker can answer for")

    async def scene():
        service = make_service(deadline=60, drain_seconds=0.05)
        monkeypatch.setattr("bal.serving.batcher.outcomes_of", die)
        async with client_of(service) as client:
            for route in ("health/live", "health/ready", "models/tiny/ready"):
                assert (await client.get(f"/v2/{route}")).status_code == 200
            asked = score(client)
            await soon(lambda: not service.batcher.alive)
            for route in ("health/live", "health/ready", "models/tiny/ready"):
                answer = await client.get(f"/v2/{route}")
                assert (answer.status_code, answer.json()["code"]) == (503, "stuck")
            assert "bal_ready 0.0" in (await client.get("/metrics")).text
            asked.cancel()
            await asyncio.gather(asked, return_exceptions=True)
            assert (service.gate.inside, service.batcher.queued_rows) == (0, 0)
        assert not service.clean

    asyncio.run(scene())


def test_a_service_that_ends_answers_what_it_accepted(make_service):
    """Fault 23."""

    async def scene():
        service = make_service(max_batch=2, deadline=20)
        model = held(service)
        async with client_of(service) as client:
            tasks = [score(client, i) for i in range(7)]
            await soon(lambda: service.gate.inside == 7 and model.started.is_set())
            service.gate.close()
            refused = await client.get("/v2/health/ready")
            assert (refused.status_code, refused.json()["code"]) == (503, "draining")
            assert (await client.get("/v2/models/tiny/ready")).status_code == 503
            assert (await client.get("/v2/health/live")).status_code == 200
            assert (await score(client)).json()["code"] == "draining"
            model.go.set()
            assert await service.gate.empty(10)
            assert [(await task).status_code for task in tasks] == [200] * 7
        assert service.clean

    asyncio.run(scene())


def test_memory_does_not_grow_with_refused_requests(make_service):
    """Fault 22: 4x overload, again and again."""

    async def scene():
        service = make_service(max_batch=4, queue=8, deadline=20)
        async with client_of(service) as client:

            async def rush():
                answers = await asyncio.gather(*(score(client, i) for i in range(64)))
                assert {answer.status_code for answer in answers} == {200, 503}

            await rush()
            gc.collect()
            tracemalloc.start()
            before = tracemalloc.get_traced_memory()[0]
            for _ in range(10):
                await rush()
            gc.collect()
            grown = tracemalloc.get_traced_memory()[0] - before
            tracemalloc.stop()
        assert grown < 500_000

    asyncio.run(scene())
