"""What is served is what is scored offline."""

import json
import warnings

import numpy as np
import pytest
import torch
from torch import nn

from asking import encoded
from bal.backbones import ClassifierTraining, ResNet18, train_classifier
from bal.data import load_sample
from bal.detectors import BAL, make_detector
from bal.errors import SettingsError, ShapeError
from bal.serving import score_stream
from bal.serving.limits import Limits
from bal.serving.model import ServedModel
from bal.serving.reading import read_image


def test_served_scores_of_real_images_are_the_offline_ones(tmp_path, generator):
    """To 1e-5, in batches of any size, for png, jpeg and webp.

    The network is trained: features of a random one are nearly collinear, and whitening them makes of torch's own rounding, which
    differs from one batch size to another, up to 2e-5, offline as served.
    """
    sample = load_sample()
    x, c = sample.train[0][:600], sample.train[1][:600]
    model = ResNet18(channels=1, classes=10, width=4, generator=generator)
    train_classifier(model, (x, c), ClassifierTraining(epochs=3, batch_size=32), generator=generator, show_progress=False)
    detector = BAL().fit(model, (x, c), show_progress=False).calibrate(sample.test[0][:200], false_alarm=0.05)
    (tmp_path / "photos").mkdir()
    images = np.concatenate([sample.test[0][200:215], sample.ood[0][:15]])
    for i, (kind, image) in enumerate(zip(["png", "jpeg", "webp"] * 10, images, strict=True)):
        (tmp_path / "photos" / f"{i:02d}.{kind}").write_bytes(encoded(image, kind))
    score_stream(detector, [tmp_path / "photos"], tmp_path / "out", suffix=".jsonl", show_progress=False)
    offline = [json.loads(line) for path in (tmp_path / "out").rglob("*.jsonl") for line in path.read_text().splitlines()]
    served = ServedModel(detector)
    inputs = [read_image(path.read_bytes(), served, Limits()).inputs for path in sorted((tmp_path / "photos").iterdir())]
    for size in (1, 7, 30):
        answers = [row for start in range(0, 30, size) for row in served.run(inputs[start : start + size])]
        for answer, row in zip(answers, offline, strict=True):
            assert (answer["label"][0], answer["valid"][0]) == (row["label"], row["valid"])
            for name in ("score", "confidence", "p_value"):
                assert answer[name][0] == pytest.approx(row[name], rel=1e-5, abs=1e-5)
            assert answer["p1"][0] * answer["p2"][0] == pytest.approx(answer["confidence"][0], rel=1e-12)


class Quarters(nn.Module):
    """Predicts the class of tiny_images by the brightness of their quarters, so that every class has rows."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 3, bias=False)
        with torch.no_grad():
            self.head.weight.copy_(5 * torch.eye(3, 4))

    def forward(self, x):
        return self.head(nn.functional.adaptive_avg_pool2d(x, 2).flatten(1))


@pytest.mark.parametrize("name", ["energy", "ODIN", "BAL"])
@pytest.mark.parametrize("per_class", [False, True])
def test_each_row_is_told_the_threshold_it_was_held_against(tiny_images, name, per_class):
    x, c = tiny_images
    detector = make_detector(name).fit(Quarters(), (x, c), show_progress=False)
    detector.calibrate(x, false_alarm=0.2, per_class=per_class)
    columns = ServedModel(detector).run([x.numpy()])[0]
    assert len(np.unique(columns["threshold"])) == (3 if per_class else 1)
    assert np.array_equal(columns["is_ood"], ~(columns["score"] >= columns["threshold"]))
    assert np.array_equal(columns["label"], detector.predict(x).label)
    assert ("p1" in columns) == (name == "BAL")


def test_a_row_with_nan_is_invalid_and_has_no_factors(bal_detector, tiny_images):
    """Fault 1."""
    x = tiny_images[0][:3].numpy().copy()
    x[1, 0, 0, 0] = np.nan
    columns = ServedModel(bal_detector).run([x])[0]
    assert columns["valid"].tolist() == [True, False, True]
    assert columns["is_ood"][1]
    assert np.isnan([columns["p1"][1], columns["p2"][1]]).all()


def test_requests_of_several_rows_and_kinds_get_their_own_rows_back(energy, tiny_images):
    model = ServedModel(energy)
    pixels = (255 * tiny_images[0].clamp(0, 1)).numpy().astype(np.uint8)
    parts = [pixels[:2], tiny_images[0][2:3].numpy(), pixels[3:6]]
    together = model.run(parts)
    assert [len(columns["score"]) for columns in together] == [2, 1, 3]
    for part, columns in zip(parts, together, strict=True):
        assert columns["score"] == pytest.approx(energy.score(part), rel=1e-5)


def test_inputs_of_another_shape_are_refused_and_of_another_scale_are_told(energy, tiny_images):
    """Faults 5 and 6; no warning is raised where the model runs, among the rows of others."""
    model = ServedModel(energy)
    with pytest.raises(ShapeError, match=r"inputs must be \(N, 1, 4, 4\), got \(2, 1, 5, 4\)"):
        model.check(np.zeros((2, 1, 5, 4), np.float32))
    x = tiny_images[0][:2].numpy()
    assert model.check(x) == []
    assert "range from" in model.check(255 * x)[0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.run([255 * x])


def test_a_detector_of_features_alone_and_a_name_that_fits_no_route_are_refused(energy, blobs):
    with pytest.raises(SettingsError, match="cannot read inputs"):
        ServedModel(make_detector("energy").fit_features(blobs))
    for name in ("", "a/b", "../x", "a b", "é"):
        with pytest.raises(SettingsError, match="the name of a model"):
            ServedModel(energy, name)


def test_the_version_changes_with_the_threshold_and_the_detector_given_is_left_as_it_was(energy, tiny_images):
    before, spec = ServedModel(energy), energy.spec_
    before.warm_up()
    assert energy.spec_ is spec
    after = ServedModel(energy.calibrate(tiny_images[0], false_alarm=0.5))
    assert before.version != after.version
    assert before.class_name(1) == "right"
    assert before.class_name(-1) is None
