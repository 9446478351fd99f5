import numpy as np
import pytest

from bal.data.files import load_npz
from bal.errors import DataError


def test_inputs_and_labels_by_any_of_their_names(tmp_path):
    x, y = np.arange(4.0), np.arange(4)
    np.savez(tmp_path / "a.npz", images=x, labels=y)
    np.savez_compressed(tmp_path / "b.npz", x=x, y=y)
    np.savez(tmp_path / "c.npz", x=x)
    for name in "ab":
        images, labels = load_npz(tmp_path / f"{name}.npz")
        assert np.array_equal(images, x)
        assert np.array_equal(labels, y)
    assert np.array_equal(load_npz(tmp_path / "c.npz"), x)


def test_a_pickle_is_refused(tmp_path):
    """Fault 10."""
    np.savez(tmp_path / "evil.npz", images=np.array([object()], dtype=object))
    with pytest.raises(DataError, match="plain arrays"):
        load_npz(tmp_path / "evil.npz")


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut", b"not a zip"])
def test_what_is_no_archive_is_refused(tmp_path, content):
    (tmp_path / "x.npz").write_bytes(content)
    with pytest.raises(DataError, match=r"is not an \.npz file"):
        load_npz(tmp_path / "x.npz")


def test_other_names_are_listed(tmp_path):
    np.savez(tmp_path / "x.npz", pictures=np.zeros(2))
    with pytest.raises(DataError, match=r"holds \['pictures'\]; expected"):
        load_npz(tmp_path / "x.npz")
