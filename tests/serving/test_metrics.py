import math

import numpy as np
import pytest
import torch
from prometheus_client.parser import text_string_to_metric_families

from bal.detectors import make_detector


def samples(service):
    """Every sample by its name and labels."""
    families = text_string_to_metric_families(service.metrics.text().decode())
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for family in families for s in family.samples}


def answered(service, x):
    columns = service.model.run([x])[0]
    service.metrics.saw_answer(columns)
    return columns


def test_decisions_classes_and_rates_are_counted(make_service, tiny_images):
    service = make_service()
    x = tiny_images[0].numpy().copy()
    x[0] = np.nan
    columns = answered(service, x)
    seen = samples(service)
    accepted = int((~columns["is_ood"]).sum())
    assert seen["bal_decisions_total", (("decision", "accepted"),)] == accepted
    assert seen["bal_decisions_total", (("decision", "invalid"),)] == 1
    assert seen["bal_decisions_total", (("decision", "rejected"),)] == 60 - accepted - 1
    by_class = {labels: n for (name, labels), n in seen.items() if name == "bal_accepted_total"}
    assert sum(by_class.values()) == accepted
    assert {dict(labels)["name"] for labels in by_class} <= {"left", "right", "low"}
    assert seen["bal_acceptance_rate", ()] == pytest.approx(accepted / 59)
    assert seen["bal_rejection_rate", ()] + seen["bal_acceptance_rate", ()] == pytest.approx(1)
    assert seen["bal_window_rows", ()] == 59, "an invalid row is no decision"
    assert seen["bal_score_count", ()] == 59, "an invalid row has no score"


def test_the_score_histogram_has_the_calibration_scores_beside_it(make_service, tiny_images):
    """The traffic here is the calibration data itself, so the two agree in every bucket."""
    service = make_service()
    answered(service, tiny_images[0].numpy())
    seen = samples(service)
    known = {dict(labels)["le"]: share for (name, labels), share in seen.items() if name == "bal_calibration_score_share"}
    traffic = {dict(labels)["le"]: n for (name, labels), n in seen.items() if name == "bal_score_bucket"}
    assert len(known) >= 5
    assert list(known.values())[-1] == 1
    for bound, share in known.items():
        assert traffic[bound] / 60 == pytest.approx(share, abs=0.05), "rounding may move a row over the edge of a bucket"


def test_without_calibration_nothing_is_promised_and_training_scores_are_compared_with(
    make_service, tiny_classifier, tiny_images
):
    service = make_service(make_detector("energy").fit(tiny_classifier, tiny_images, show_progress=False))
    seen = samples(service)
    assert math.isnan(seen["bal_promised_false_alarm", ()])
    assert math.isnan(seen["bal_acceptance_rate", ()]), "before the first decision"
    assert seen["bal_drift_alarm", ()] == 0
    assert any(name == "bal_calibration_score_share" for name, _ in seen)


def test_traffic_that_is_rejected_raises_the_drift_alarm(make_service, tiny_images):
    service = make_service()
    service.model.detector.threshold_ = torch.tensor(np.inf)
    answered(service, tiny_images[0].numpy())
    seen = samples(service)
    assert seen["bal_drift_alarm", ()] == 1
    assert seen["bal_rejection_rate_low", ()] > seen["bal_drift_limit", ()] > seen["bal_promised_false_alarm", ()] == 0.1


def test_rows_that_are_not_finite_are_no_drift(make_service):
    service = make_service()
    answered(service, np.full((60, 1, 4, 4), np.inf, np.float32))
    seen = samples(service)
    assert seen["bal_decisions_total", (("decision", "invalid"),)] == 60
    assert (seen["bal_window_rows", ()], seen["bal_drift_alarm", ()]) == (0, 0)


def test_batches_and_requests_are_counted(make_service):
    service = make_service()
    service.metrics.saw_batch(5, 0.02)
    service.metrics.saw_request("/v1/score", "ok", 0.01)
    service.metrics.saw_request("/v1/score", "overloaded", 0.001)
    seen = samples(service)
    assert (seen["bal_batch_rows_sum", ()], seen["bal_batch_rows_count", ()]) == (5, 1)
    assert seen["bal_requests_total", (("outcome", "overloaded"), ("route", "/v1/score"))] == 1
    assert seen["bal_request_seconds_count", (("route", "/v1/score"),)] == 2
    assert seen["bal_queue_rows", ()] == 0


def test_two_servers_in_one_process_do_not_share_metrics(make_service):
    one, other = make_service(), make_service()
    one.metrics.saw_batch(5, 0.02)
    assert samples(other)["bal_batch_rows_count", ()] == 0
