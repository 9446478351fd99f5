"""The simulation behind docs/scale.md, where the answer is known."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

PATH = Path(__file__).parents[2] / "benchmarks" / "scale.py"
SPEC = importlib.util.spec_from_file_location("scale", PATH)
scale = sys.modules.setdefault("scale", importlib.util.module_from_spec(SPEC))
SPEC.loader.exec_module(scale)

EVEN = scale.Fleet("even", workers=4, cores=1, lost_per_hour=0.0, start=10.0, jitter=0.0)


def test_even_workers_without_losses_take_turns():
    """9 shards of 100 rows at 10 a second on 4 workers: three turns of 10 s after a start of 10 s."""
    assert scale.makespan(900, 100, 10.0, EVEN, np.random.default_rng(0)) == (pytest.approx(40.0), 0)


def test_lost_shards_are_done_again_at_the_rate_of_losses():
    fleet = scale.replace(EVEN, lost_per_hour=36.0)  # one in 100 s of work, shards of 10 s: 1 - exp(-0.1) are lost
    seconds, again = scale.makespan(400_000, 100, 10.0, fleet, np.random.default_rng(0))
    assert again / (4000 + again) == pytest.approx(1 - np.exp(-0.1), rel=0.1)
    assert seconds > 10_000


def test_the_bottleneck_is_the_slowest_stage_and_moves():
    rates = scale.Rates(model=50, decode=1000, detector=10_000, write=100_000, image_bytes=1000)
    fleet = scale.Fleet("f", workers=10, cores=4, storage=1e9)
    assert scale.stages(rates, fleet)["model"] == pytest.approx(4 / (1 / 50 + 1 / 1000 + 1 / 10_000 + 1 / 100_000))
    bottleneck = {
        cores: min(rate := scale.stages(rates, scale.replace(fleet, gpu=20_000, cores=cores)), key=rate.get) for cores in (4, 64)
    }
    assert bottleneck == {4: "decoding", 64: "model"}
    many = scale.stages(rates, scale.replace(fleet, gpu=20_000, cores=64, workers=1000))
    assert (min(many, key=many.get), many["storage"]) == ("storage", 1000)


def test_part_of_a_large_fleet_stands_for_the_whole():
    fleet = scale.replace(EVEN, workers=100, jitter=0.1)
    whole, part = (scale.simulate(10**7, scale.Rates(), fleet, rows=1000, most=most)["hours"] for most in (10**6, 2000))
    assert part == pytest.approx(whole, rel=0.02)
