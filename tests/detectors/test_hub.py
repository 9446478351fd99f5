"""Local folders only: the real hub is out of reach of these tests."""

from importlib.util import find_spec

import pytest

import bal
from bal.detectors import make_detector
from bal.errors import DataError


@pytest.mark.parametrize("name", ["d", "d.bal"])
def test_from_pretrained_reads_a_local_folder_or_file(tiny_classifier, tiny_images, tmp_path, name):
    detector = make_detector("energy").fit(tiny_classifier, tiny_images, show_progress=False)
    detector.save(tmp_path / name)
    again = bal.from_pretrained(tmp_path / name, tiny_classifier)
    assert again.score(tiny_images[0]).tobytes() == detector.score(tiny_images[0]).tobytes()


@pytest.mark.skipif(find_spec("huggingface_hub") is not None, reason="huggingface_hub is installed")
def test_without_the_extra_the_error_says_what_to_install(tiny_classifier, tiny_images):
    detector = make_detector("energy").fit(tiny_classifier, tiny_images, show_progress=False)
    with pytest.raises(DataError, match=r"bal-ood\[hub\]"):
        bal.push_to_hub(detector, "someone/something")
    with pytest.raises(DataError, match=r"bal-ood\[hub\]"):
        bal.from_pretrained("someone/something")
