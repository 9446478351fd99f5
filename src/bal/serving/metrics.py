"""What Prometheus sees: times, queue, batches, outcomes, decisions, scores against those of calibration, drift."""

import math
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
from numpy.typing import NDArray
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from bal.detectors.prediction import Columns
from bal.serving.drift import Drift
from bal.serving.model import ServedModel

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
SHARES = np.linspace(0.1, 1, 10)  # of the calibration scores, so that ID traffic fills the buckets evenly
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Gauges = Callable[[], dict[str, float]]


class Metrics:
    """All metrics of one server, in a registry of its own."""

    def __init__(self, model: ServedModel, drift: Drift, gauges: Gauges) -> None:
        self.model, self.drift = model, drift
        self.registry = CollectorRegistry()
        counter, histogram = partial(Counter, registry=self.registry), partial(Histogram, registry=self.registry)
        self.requests = counter("bal_requests", "Requests by route and outcome", ["route", "outcome"])
        self.seconds = histogram("bal_request_seconds", "From head to answer", ["route"], buckets=SECONDS)
        self.model_seconds = histogram("bal_model_seconds", "The model's time for a batch", buckets=SECONDS)
        self.batches = histogram("bal_batch_rows", "Rows that the model took at once", buckets=BATCHES)
        self.decisions = counter("bal_decisions", "Rows accepted, rejected, and rejected as not finite", ["decision"])
        self.classes = counter("bal_accepted", "Rows accepted as each class", ["label", "name"])
        known = calibration_scores(model)
        bounds = score_bounds(known)
        self.scores = histogram("bal_score", "Scores; buckets are tenths of the calibration scores", buckets=bounds)
        self.registry.register(OnDemand(lambda: {**gauges(), **drift_gauges(drift)}, known, bounds))
        for decision in ("accepted", "rejected", "invalid"):
            self.decisions.labels(decision)  # zero is told too

    def saw_batch(self, rows: int, seconds: float) -> None:
        """The model has done a batch."""
        self.batches.observe(rows)
        self.model_seconds.observe(seconds)

    def saw_request(self, route: str, outcome: str, seconds: float) -> None:
        """A request has ended."""
        self.requests.labels(route, outcome).inc()
        self.seconds.labels(route).observe(seconds)

    def saw_answer(self, columns: Columns) -> None:
        """Rows were answered."""
        self.drift.add(columns["is_ood"][columns["valid"]].tolist())
        for label, score, valid in zip(*(columns[name].tolist() for name in ("label", "score", "valid")), strict=True):
            if not valid:
                self.decisions.labels("invalid").inc()
                continue
            self.scores.observe(score)
            self.decisions.labels("rejected" if label < 0 else "accepted").inc()
            if label >= 0:
                self.classes.labels(str(label), self.model.class_name(label) or "").inc()

    def text(self) -> bytes:
        """The exposition format."""
        return bytes(generate_latest(self.registry))


class OnDemand(Collector):
    """Numbers that are asked for at the moment of a scrape."""

    def __init__(self, gauges: Gauges, known: NDArray[np.float64], bounds: list[float]) -> None:
        self.gauges, self.known, self.bounds = gauges, known, bounds

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Nothing is asked when the collector is registered."""
        return iter(())

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """All gauges."""
        for name, value in self.gauges().items():
            yield GaugeMetricFamily(f"bal_{name}", HELP[name], value=value)
        reference = GaugeMetricFamily("bal_calibration_score_share", HELP["calibration_score_share"], labels=["le"])
        for bound in self.bounds:
            reference.add_metric([repr(bound)], float(np.searchsorted(self.known, bound, side="right") / len(self.known)))
        yield reference


HELP = {
    "queue_rows": "Rows that wait for the model",
    "requests_inside": "Requests being read, waiting or being answered",
    "held_bytes": "Bytes of request bodies in memory",
    "ready": "1 if the server takes requests",
    "acceptance_rate": "Accepted share of the window",
    "window_rows": "Decisions in the window of the drift alarm",
    "rejection_rate": "Rejected share of the window",
    "rejection_rate_low": "Lower end of the band of the rejection rate",
    "rejection_rate_high": "Upper end of the band of the rejection rate",
    "promised_false_alarm": "False-alarm rate of the calibration; NaN without one",
    "drift_limit": "Highest false-alarm rate that this calibration is likely to have; NaN without one",
    "drift_alarm": "1 if the band of the rejection rate lies above the limit",
    "calibration_score_share": "Share of the calibration scores at or below each bucket of bal_score",
}


def drift_gauges(drift: Drift) -> dict[str, float]:
    """The state of the window; NaN where something is not known."""
    state = drift.state()
    share = math.nan if state.share is None else state.share
    return {
        "acceptance_rate": 1 - share,
        "window_rows": state.rows,
        "rejection_rate": share,
        "rejection_rate_low": state.low,
        "rejection_rate_high": state.high,
        "promised_false_alarm": math.nan if state.promised is None else state.promised,
        "drift_limit": math.nan if state.limit is None else state.limit,
        "drift_alarm": float(state.alarm),
    }


def calibration_scores(model: ServedModel) -> NDArray[np.float64]:
    """Sorted scores that those of the traffic are compared with: of calibration, or else quantiles of the training rows."""
    groups = (model.ranks,) if model.calibration is None else model.calibration.groups
    return np.sort(np.concatenate(groups).astype(np.float64))


def score_bounds(known: NDArray[np.float64]) -> list[float]:
    """Upper ends of the buckets, rising."""
    return [float(bound) for bound in np.unique(np.quantile(known, SHARES, method="lower"))]
