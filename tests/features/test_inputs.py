import warnings

import pytest
import torch

from bal.backbones import Classifier
from bal.detectors import make_detector
from bal.errors import BalWarning, DataError, ShapeError
from bal.features import InputSpec, extract

PIXELS = InputSpec((1, 4, 4), floating=True, low=0.0, high=1.0)


def test_the_range_is_that_of_all_finite_numbers_of_all_batches(tiny_classifier, tiny_images):
    x = tiny_images[0].clone()
    x[3, 0, 0, 0], x[50, 0, 1, 1], x[7, 0, 2, 2] = -2.0, 3.0, torch.inf
    spec = extract(tiny_classifier, x, batch_size=7).spec
    assert spec == InputSpec((1, 4, 4), floating=True, low=-2.0, high=3.0)
    assert InputSpec.from_state(spec.state()) == spec
    without = {name: tensor for name, tensor in spec.state().items() if name != "input_range"}  # as older caches have it
    assert InputSpec.from_state(without) == InputSpec((1, 4, 4), floating=True)
    assert InputSpec.from_state({}) is None


def test_a_batch_without_a_finite_number_has_no_range():
    spec = InputSpec.of(torch.full((2, 3), torch.nan))
    assert spec == InputSpec((3,), floating=True)
    assert spec.joined(torch.tensor([[1.0, 2.0, 5.0]])) == InputSpec((3,), floating=True, low=1.0, high=5.0)
    spec.check(torch.full((1, 3), 1e9))  # nothing to compare with
    with pytest.raises(ShapeError, match=r"\(N, 3\)"):
        spec.joined(torch.zeros(2, 4))


def test_pixels_of_0_to_255_where_0_to_1_was_fitted_are_warned_of_and_refused_if_strict():
    """Fault 6."""
    x = 255 * torch.rand(2, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    with pytest.warns(BalWarning, match=r"inputs range from .* to 2\d\d\.\d+, those of the fit from 0 to 1; scale them"):
        PIXELS.check(x)
    with pytest.raises(DataError, match="those of the fit from 0 to 1"):
        PIXELS.check(x, strict=True)


@pytest.mark.parametrize("value", [2.0, -3.0, torch.nan, torch.inf])
def test_numbers_somewhat_outside_the_range_and_numbers_that_are_none_are_not_warned_of(value):
    PIXELS.check(torch.full((1, 1, 4, 4), value), strict=True)


def test_token_ids_have_no_range():
    spec = InputSpec.of(torch.tensor([[1, 2, 3]]))
    assert spec == InputSpec((3,), floating=False)
    spec.check(torch.tensor([[1000, 2, 3]]), strict=True)


@pytest.mark.parametrize("name", ["energy", "ODIN"])
def test_detectors_warn_of_the_scale_or_refuse_it_when_they_score_and_calibrate(name, tiny_model, tiny_images):
    """Fault 6, from the fit on, for detectors of features and of inputs."""
    detector = make_detector(name).fit(Classifier(tiny_model), tiny_images, show_progress=False)
    bright = 255 * tiny_images[0]
    for use in (detector.score, detector.predict, detector.calibrate):
        with pytest.warns(BalWarning, match="scale them as for the fit"):
            use(bright)
    detector.strict = True
    for use in (detector.score, detector.predict, detector.calibrate):
        with pytest.raises(DataError, match="scale them as for the fit"):
            use(bright)
    detector.predict(tiny_images[0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        detector.predict(bright.clamp(max=255).to(torch.uint8))  # bytes are pixels, scaled as ever
