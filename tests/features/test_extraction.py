import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from bal.backbones import Classifier, Normalise
from bal.errors import DataError, ShapeError
from bal.features import FeatureCache, Features, InputSpec, extract


class Counting(Classifier):
    """A classifier that counts the rows it is asked for."""

    rows = 0

    def __call__(self, x):
        self.rows += len(x)
        return super().__call__(x)


def test_extraction_keeps_the_order_and_does_not_depend_on_the_batch_size(tiny_classifier, tiny_images):
    whole = extract(tiny_classifier, tiny_images, batch_size=60)
    parts = extract(tiny_classifier, tiny_images, batch_size=7)
    torch.testing.assert_close(whole.f, parts.f, rtol=1e-5, atol=1e-6)
    assert torch.equal(whole.labels, tiny_images[1])
    assert whole.spec == InputSpec((1, 4, 4), floating=True)


def test_the_second_extraction_comes_from_the_cache_bit_for_bit(tiny_model, tiny_images, tmp_path):
    classifier, cache = Counting(tiny_model), FeatureCache(tmp_path)
    first = extract(classifier, tiny_images, cache=cache)
    second = extract(classifier, tiny_images, cache=cache, batch_size=11)
    assert classifier.rows == 60
    assert torch.equal(first.f, second.f)
    assert torch.equal(first.logits, second.logits)
    assert torch.equal(first.labels, second.labels)
    assert first.spec == second.spec


@pytest.mark.parametrize("change", ["weights", "structure", "preprocessing", "pixels", "labels", "head"])
def test_any_change_of_model_preprocessing_or_data_misses_the_cache(tiny_model, tiny_images, tmp_path, change):
    cache = FeatureCache(tmp_path)
    extract(Classifier(tiny_model), tiny_images, cache=cache)
    x, c = tiny_images[0].clone(), tiny_images[1].clone()
    preprocess, head = None, None
    if change == "weights":
        with torch.no_grad():
            tiny_model[-1].bias[0] += 1e-6
    elif change == "structure":
        tiny_model[2] = torch.nn.GELU()  # no weights of its own
    elif change == "preprocessing":
        preprocess = Normalise((0.0,), (1.0,))
    elif change == "pixels":
        x[30, 0, 0, 0] += 1e-6
    elif change == "labels":
        c[30] = (c[30] + 1) % 3
    else:
        head = "5"
    changed = Counting(tiny_model, preprocess=preprocess, head=head)
    extract(changed, (x, c), cache=cache)
    assert changed.rows == 60


def test_a_damaged_cache_file_is_computed_again(tiny_model, tiny_images, tmp_path):
    classifier, cache = Counting(tiny_model), FeatureCache(tmp_path)
    first = extract(classifier, tiny_images, cache=cache)
    file = next(tmp_path.glob("*.safetensors"))
    content = bytearray(file.read_bytes())
    content[-3] ^= 1  # one flipped bit, which safetensors itself does not notice
    file.write_bytes(content)
    assert torch.equal(extract(classifier, tiny_images, cache=cache).f, first.f)
    assert classifier.rows == 120


def test_a_shuffling_loader_is_never_answered_from_the_cache_with_another_order(tiny_classifier, tiny_images, tmp_path):
    cache = FeatureCache(tmp_path)
    loader = DataLoader(TensorDataset(*tiny_images), batch_size=8, shuffle=True)
    for _ in range(2):
        features = extract(tiny_classifier, loader, cache=cache)
        in_order = extract(tiny_classifier, tiny_images)
        assert torch.equal(features.labels.bincount(), in_order.labels.bincount())
        nearest = torch.cdist(features.f, in_order.f).argmin(1)
        assert torch.equal(in_order.labels[nearest], features.labels), "features and labels stay together"


def test_nan_pixels_make_their_own_row_invalid_and_no_other(tiny_classifier, tiny_images):
    """Fault 1."""
    x = tiny_images[0].clone()
    x[5, 0, 1, 1], x[9, 0, 0, 0] = torch.nan, torch.inf
    assert torch.nonzero(~extract(tiny_classifier, x).valid).ravel().tolist() == [5, 9]


def test_accuracy_counts_the_right_labels():
    features = Features(torch.zeros(4, 2), torch.eye(2)[[0, 1, 1, 0]], torch.tensor([0, 1, 0, 0]))
    assert features.accuracy() == 0.75
    with pytest.raises(DataError, match="needs labels"):
        Features(torch.zeros(4, 2), torch.zeros(4, 2)).accuracy()


@pytest.mark.parametrize(
    ("f", "logits", "labels"),
    [
        (torch.zeros(3), torch.zeros(3, 2), None),
        (torch.zeros(3, 2), torch.zeros(4, 2), None),
        (torch.zeros(3, 2), torch.zeros(3, 2), torch.zeros(2)),
    ],
)
def test_features_that_do_not_belong_together_are_refused(f, logits, labels):
    with pytest.raises(ShapeError):
        Features(f, logits, labels)


@pytest.mark.parametrize(
    ("x", "words"),
    [
        (torch.zeros(2, 3, 4, 4), r"\(N, 1, 4, 4\), got \(2, 3, 4, 4\)"),
        (torch.zeros(2, 1, 8, 8), r"got \(2, 1, 8, 8\)"),
        (torch.zeros(2, 1, 4, 4, dtype=torch.int64), "must be pixels"),
    ],
)
def test_inputs_of_another_kind_are_refused_with_both_shapes(tiny_classifier, x, words):
    """Fault 5."""
    with pytest.raises(ShapeError, match=words):
        extract(tiny_classifier, x, spec=InputSpec((1, 4, 4), floating=True))


def test_an_empty_data_set_is_refused(tiny_classifier):
    with pytest.raises(DataError, match="empty"):
        extract(tiny_classifier, torch.zeros(0, 1, 4, 4))


def test_labels_on_some_batches_only_are_refused(tiny_classifier, tiny_images):
    x, c = tiny_images
    loader = DataLoader([(x[0], c[0])], batch_size=1)
    mixed = type("Mixed", (torch.utils.data.IterableDataset,), {"__iter__": lambda self: iter([x[0], (x[1], c[1])])})()
    with pytest.raises(DataError, match="some batches have labels"):
        extract(tiny_classifier, DataLoader(mixed, batch_size=1))
    assert extract(tiny_classifier, loader).labels.tolist() == [0]
