"""The micro-batcher by itself: batches, a bounded queue, deadlines, cancellation, errors (faults 22 and 23)."""

import asyncio
import threading
import time

import numpy as np
import pytest

from asking import Held, soon
from bal.errors import DataError
from bal.serving.batcher import DeadlineError, MicroBatcher, ModelError, QueueFullError


def doubled(items):
    return [2 * item for item in items]


def batcher_of(run, *, max_rows=4, queue_rows=16, watch=None):
    return MicroBatcher(run, max_rows=max_rows, queue_rows=queue_rows, watch=watch)


def submit(batcher, item, *, rows=1, seconds=20.0):
    return asyncio.ensure_future(batcher.submit(item, rows=rows, deadline=asyncio.get_running_loop().time() + seconds))


def test_every_answer_goes_to_the_one_who_asked():
    async def scene():
        batcher = batcher_of(doubled, queue_rows=500)
        batcher.start()
        answers = await asyncio.gather(*(submit(batcher, i) for i in range(500)))
        assert answers == [2 * i for i in range(500)]
        assert await batcher.stop(5)
        assert not batcher.alive

    asyncio.run(scene())


def test_while_the_model_works_the_next_batch_gathers_and_is_never_too_large():
    async def scene():
        model, seen = Held(doubled), []
        batcher = batcher_of(model, watch=lambda rows, seconds: seen.append((rows, seconds)))
        batcher.start()
        first = submit(batcher, 0)
        await soon(model.started.is_set)
        others = [submit(batcher, i, rows=rows) for i, rows in enumerate([1, 1, 1, 2, 2, 3, 1], start=1)]
        await soon(lambda: batcher.queued_rows == 11)
        model.go.set()
        assert await asyncio.gather(first, *others) == [0, 2, 4, 6, 8, 10, 12, 14]
        assert model.batches == [1, 3, 2, 2]  # jobs: (1 1 1) (2 2) (3 1), in order of arrival and of 4 rows at most
        assert [rows for rows, _ in seen] == [1, 3, 4, 4]
        await batcher.stop(5)

    asyncio.run(scene())


def test_two_models_work_at_the_same_time_and_a_batch_for_a_third_gathers():
    async def scene():
        models = Held(doubled), Held(doubled)
        batcher = MicroBatcher(*models, max_rows=4, queue_rows=16)
        batcher.start()
        first, second = submit(batcher, 1), submit(batcher, 2)
        await soon(lambda: all(model.started.is_set() for model in models))
        others = [submit(batcher, i) for i in (3, 4)]
        await soon(lambda: batcher.queued_rows == 2)
        models[1].go.set()  # the queue goes on behind the one that is free
        await asyncio.gather(*others)
        assert not (first.done() and second.done())
        models[0].go.set()
        assert [await job for job in (first, second, *others)] == [2, 4, 6, 8]
        assert sorted(model.batches for model in models) == [[1], [1, 2]]
        assert await batcher.stop(5)
        assert not batcher.alive
        assert batcher.busy_seconds() == 0

    asyncio.run(scene())


def test_more_rows_than_the_queue_holds_are_refused_and_the_others_answered():
    async def scene():
        model = Held(doubled)
        batcher = batcher_of(model, queue_rows=8)
        batcher.start()
        tasks = [submit(batcher, 0)]
        await soon(model.started.is_set)
        tasks += [submit(batcher, i) for i in range(1, 30)]
        await soon(lambda: sum(task.done() for task in tasks) == 21)
        assert batcher.queued_rows == 8
        model.go.set()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert outcomes[:9] == [2 * i for i in range(9)]
        assert {type(outcome) for outcome in outcomes[9:]} == {QueueFullError}
        await batcher.stop(5)

    asyncio.run(scene())


def test_what_is_late_or_cancelled_is_never_computed_and_makes_room():
    """Fault 22: dropped work is not computed."""

    async def scene():
        computed = []
        model = Held(lambda items: (computed.extend(items), doubled(items))[1])
        batcher = batcher_of(model, queue_rows=4)
        batcher.start()
        first = submit(batcher, 0)
        await soon(model.started.is_set)
        late, left, kept = submit(batcher, 1, seconds=0.05), submit(batcher, 2, rows=2), submit(batcher, 3)
        with pytest.raises(DeadlineError):
            await late
        left.cancel()
        await soon(left.cancelled)
        assert batcher.queued_rows == 1
        more = [submit(batcher, i) for i in (4, 5, 6)]
        model.go.set()
        assert await asyncio.gather(first, kept, *more) == [0, 6, 8, 10, 12]
        assert sorted(computed) == [0, 3, 4, 5, 6]
        await batcher.stop(5)

    asyncio.run(scene())


def test_a_deadline_that_passes_while_the_model_works_is_told_at_once_and_spoils_nothing():
    async def scene():
        model = Held(doubled)
        batcher = batcher_of(model)
        batcher.start()
        started = time.monotonic()
        with pytest.raises(DeadlineError):
            await submit(batcher, 1, seconds=0.1)
        assert time.monotonic() - started < 5
        assert batcher.busy_seconds() > 0
        model.go.set()
        assert await submit(batcher, 2) == 4
        await batcher.stop(5)

    asyncio.run(scene())


def test_an_item_that_breaks_the_model_spoils_nobody_elses_answer():
    def run(items):
        if "bad" in items:
            raise ValueError("bad")
        if "odd" in items:
            raise DataError("odd")
        return [item.upper() for item in items]

    async def scene():
        model = Held(run)
        batcher = batcher_of(model, max_rows=8)
        batcher.start()
        tasks = [submit(batcher, "first")]
        await soon(model.started.is_set)
        tasks += [submit(batcher, item) for item in ("a", "bad", "b", "odd", "c")]
        await soon(lambda: batcher.queued_rows == 5)
        model.go.set()
        first, a, bad, b, odd, c = await asyncio.gather(*tasks, return_exceptions=True)
        assert (first, a, b, c) == ("FIRST", "A", "B", "C")
        assert isinstance(bad, ModelError)
        assert isinstance(bad.__cause__, ValueError)
        assert isinstance(odd, DataError), "errors of ours are told as they are"
        await batcher.stop(5)

    asyncio.run(scene())


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, StopIteration, MemoryError])
def test_the_worker_survives_whatever_a_model_raises(error):
    """Fault 23."""

    def run(items):
        if items == ["end"]:
            raise error
        return items

    async def scene():
        batcher = batcher_of(run)
        batcher.start()
        with pytest.raises(ModelError, match=error.__name__):
            await submit(batcher, "end")
        assert await submit(batcher, "go on") == "go on"
        await batcher.stop(5)

    asyncio.run(scene())


def test_a_model_that_gives_too_few_answers_fails_rather_than_mixing_them_up():
    async def scene():
        batcher = batcher_of(lambda items: [])
        batcher.start()
        with pytest.raises(ModelError):
            await submit(batcher, 1)
        await batcher.stop(5)

    asyncio.run(scene())


def test_stopping_finishes_what_is_queued():
    async def scene():
        model = Held(doubled)
        batcher = batcher_of(model)
        batcher.start()
        tasks = [submit(batcher, i) for i in range(10)]
        await soon(model.started.is_set)
        stopping = asyncio.ensure_future(batcher.stop(10))
        model.go.set()
        assert await stopping
        assert await asyncio.gather(*tasks) == [2 * i for i in range(10)]

    asyncio.run(scene())


def test_stopping_does_not_wait_for_ever_for_a_model_that_does_not_come_back():
    async def scene():
        model = Held(doubled)
        batcher = batcher_of(model)
        batcher.start()
        task = submit(batcher, 1)
        await soon(model.started.is_set)
        assert not await batcher.stop(0.05)
        assert batcher.alive
        model.go.set()
        assert await task == 2

    asyncio.run(scene())


def test_a_thousand_jobs_of_all_kinds_each_end_exactly_once(rng):
    """Random sizes, deadlines and cancellations under overload: no job is lost, none is answered with another's answer."""

    async def scene():
        batcher = batcher_of(lambda items: (time.sleep(0.0005), doubled(items))[1], max_rows=8, queue_rows=64)
        batcher.start()
        tasks = []
        for i in range(1000):
            task = submit(batcher, i, rows=int(rng.integers(1, 9)), seconds=rng.choice([0.002, 0.02, 10]))
            tasks.append(task)
            if i % 7 == 0:
                asyncio.get_running_loop().call_later(float(rng.uniform(0, 0.01)), task.cancel)
            if i % 5 == 0:
                await asyncio.sleep(0)
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        answered = [i for i, outcome in enumerate(outcomes) if isinstance(outcome, int)]
        assert all(outcomes[i] == 2 * i for i in answered)
        assert answered
        assert {type(o) for o in outcomes} <= {int, QueueFullError, DeadlineError, asyncio.CancelledError}
        assert await batcher.stop(5)
        assert batcher.queued_rows == 0

    asyncio.run(scene())


def test_the_model_runs_in_one_thread_that_is_not_the_event_loops():
    async def scene():
        threads = set()
        batcher = batcher_of(lambda items: (threads.add(threading.get_ident()), items)[1])
        batcher.start()
        await asyncio.gather(*(submit(batcher, i) for i in range(16)))
        assert len(threads) == 1
        assert threading.get_ident() not in threads
        await batcher.stop(5)

    asyncio.run(scene())


def test_rows_are_counted_as_numbers_of_any_kind():
    async def scene():
        batcher = batcher_of(lambda items: [item.sum() for item in items])
        batcher.start()
        x = np.ones((3, 2))
        assert await submit(batcher, x, rows=len(x)) == 6
        await batcher.stop(5)

    asyncio.run(scene())
