import asyncio

import pytest

from bal.serving.gate import Gate
from bal.serving.refusal import Refusal


def test_one_more_than_allowed_is_503_with_retry_after():
    """Fault 22."""
    gate = Gate(requests=2, max_bytes=100)
    with gate.entered(), gate.entered():
        with pytest.raises(Refusal, match="2 requests") as refused, gate.entered():
            pass
        assert (refused.value.status, refused.value.headers["Retry-After"]) == (503, "1")
        assert gate.inside == 2
    assert gate.inside == 0
    with gate.entered():
        pass


def test_bytes_are_counted_over_all_requests_and_given_back():
    gate = Gate(requests=9, max_bytes=100)
    with gate.entered() as first:
        first.hold(60)
        with gate.entered() as second:
            second.hold(40)
            with pytest.raises(Refusal, match="100 bytes"):
                second.hold(1)
        first.hold(40)
        assert gate.bytes == 100
    assert gate.bytes == 0


def test_a_closed_gate_lets_nobody_in_and_knows_when_all_have_left():
    async def scene():
        gate = Gate(requests=2, max_bytes=1)
        inside = gate.entered()
        inside.__enter__()
        gate.close()
        with pytest.raises(Refusal, match="shutting down") as refused, gate.entered():
            pass
        assert refused.value.status == 503
        assert not await gate.empty(0.01)
        asyncio.get_running_loop().call_later(0.02, inside.__exit__, None, None, None)
        assert await gate.empty(5)

    asyncio.run(scene())
