import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.data import DataLoader, TensorDataset

from bal.backbones import Classifier, Normalise
from bal.errors import BalWarning, DataError, ShapeError
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
    assert (whole.spec.shape, whole.spec.floating) == ((1, 4, 4), True)
    assert whole.spec == parts.spec


def test_the_second_extraction_comes_from_the_cache_bit_for_bit(tiny_model, tiny_images, tmp_path):
    classifier, cache = Counting(tiny_model), FeatureCache(tmp_path)
    first = extract(classifier, tiny_images, cache=cache)
    second = extract(classifier, tiny_images, cache=cache, batch_size=11)
    assert classifier.rows == 60 + 4, "four rows are computed again to be sure that it is the same network"
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


class Squash(torch.nn.Module):
    """A network whose activation is a plain function: neither its weights nor its printed form tell which."""

    def __init__(self, activation):
        super().__init__()
        self.body, self.head, self.activation = torch.nn.Linear(16, 6), torch.nn.Linear(6, 3), activation

    def forward(self, x):
        return self.head(self.activation(self.body(x.flatten(1))))


def test_another_network_with_the_same_weights_is_not_answered_from_the_cache(tiny_images, tmp_path):
    a, b = Squash(torch.relu), Squash(torch.tanh)
    b.load_state_dict(a.state_dict())
    cache = FeatureCache(tmp_path)
    extract(Classifier(a), tiny_images, cache=cache)
    expected = extract(Classifier(b), tiny_images)
    assert torch.equal(extract(Classifier(b), tiny_images, cache=cache).f, expected.f)


def test_a_cache_that_cannot_be_written_is_warned_of_and_the_features_are_not_lost(tiny_classifier, tiny_images, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.warns(BalWarning, match="not cached"):
        features = extract(tiny_classifier, tiny_images, cache=FeatureCache(tmp_path / "file"))
    assert len(features) == 60


def test_a_nan_that_the_network_swallows_still_makes_its_row_invalid(tiny_images):
    model = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3, stride=3), torch.nn.Flatten(), torch.nn.Linear(2, 3))
    x = tiny_images[0].clone()
    x[7, 0, 3, 3] = torch.nan  # the last row and column are never looked at
    assert torch.nonzero(~extract(Classifier(model), x).valid).ravel().tolist() == [7]


def test_features_may_be_given_as_arrays_of_any_precision():
    features = Features(np.zeros((3, 2)), torch.zeros(3, 2, dtype=torch.float64, requires_grad=True), [0, 1, 1])
    assert features.f.dtype == features.logits.dtype == torch.float32
    assert features.labels.tolist() == [0, 1, 1]
    assert not features.logits.requires_grad


@pytest.mark.parametrize(
    "kind", [lambda part: part.numpy(), lambda part: part.double().requires_grad_(), lambda part: part.tolist()]
)
def test_the_head_may_be_given_as_arrays_of_any_precision(kind):
    W, b = torch.randn(2, 4), torch.randn(2)
    features = Features(torch.zeros(3, 4), torch.zeros(3, 2), head=(kind(W), kind(b)))
    assert torch.equal(features.head[0], W)
    assert torch.equal(features.head[1], b)
    assert not features.head[0].requires_grad


@pytest.mark.parametrize(
    ("head", "words"),
    [
        ((torch.zeros(4, 2), torch.zeros(2)), r"W \(2, 4\) and b \(2,\).*got \(4, 2\) and \(2,\)"),
        ((torch.zeros(2, 4), torch.zeros(2, 1)), r"got \(2, 4\) and \(2, 1\)"),
        ((torch.zeros(2, 4), 0.0), r"got \(2, 4\) and \(\)"),
        ((torch.zeros(2, 4), None), "expected numbers"),
        ((torch.zeros(2, 4),), "the pair"),
        (torch.zeros(2, 4), "the pair"),
        (5, "the pair"),
    ],
)
def test_a_head_that_is_not_that_of_the_features_is_refused(head, words):
    with pytest.raises(ShapeError, match=words):
        Features(torch.zeros(3, 4), torch.zeros(3, 2), head=head)


@pytest.mark.parametrize(("m", "classes"), [(0, 2), (4, 0)])
def test_features_and_logits_without_a_column_are_refused(m, classes):
    with pytest.raises(ShapeError, match=r"at least one column, got \(3, \d\)"):
        Features(torch.zeros(3, m), torch.zeros(3, classes))


def test_features_given_on_a_gpu_are_kept_on_the_cpu():
    with FakeTensorMode():  # tensors without content, on any device
        f, logits, labels = torch.empty(3, 4), torch.empty(3, 2), torch.empty(3, dtype=torch.int32)
        on_gpu = [torch.empty_like(tensor, device="cuda") for tensor in (f, logits, labels)]
        features = Features(*on_gpu, head=(torch.empty(2, 4, device="cuda"), torch.empty(2, device="cuda")))
    assert {t.device.type for t in (features.f, features.logits, features.labels, *features.head)} == {"cpu"}


def test_a_shuffling_loader_is_never_answered_from_the_cache_with_another_order(tiny_model, tiny_images, tmp_path):
    classifier, cache = Counting(tiny_model), FeatureCache(tmp_path)
    loader = DataLoader(TensorDataset(*tiny_images), batch_size=8, shuffle=True)
    for _ in range(2):
        features = extract(classifier, loader, cache=cache)
        in_order = extract(Classifier(tiny_model), tiny_images)
        nearest = torch.cdist(features.f, in_order.f).argmin(1)
        assert torch.equal(in_order.labels[nearest], features.labels), "features and labels stay together"
    assert classifier.rows == 120


def test_nan_pixels_make_their_own_row_invalid_and_no_other(tiny_classifier, tiny_images):
    """Fault 1."""
    x = tiny_images[0].clone()
    x[5, 0, 1, 1], x[9, 0, 0, 0] = torch.nan, torch.inf
    assert torch.nonzero(~extract(tiny_classifier, x).valid).ravel().tolist() == [5, 9]


def test_accuracy_counts_the_right_labels():
    features = Features(torch.zeros(4, 2), torch.eye(2)[[0, 1, 1, 0]], torch.tensor([0, 1, 0, 0]))
    assert features.accuracy() == 0.75
    with pytest.raises(DataError, match="labels are needed"):
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


@pytest.mark.parametrize("batch_size", [256, 7])
def test_a_warm_cache_does_not_hide_inputs_of_another_scale(tiny_classifier, tiny_images, tmp_path, batch_size):
    """All batches are looked at, not the first alone."""
    x = tiny_images[0].clone()
    x[50:] *= 255
    extract(tiny_classifier, x, cache=tmp_path)
    spec = InputSpec((1, 4, 4), floating=True, low=0.0, high=1.0)
    with pytest.raises(DataError, match="inputs range from"):
        extract(tiny_classifier, x, cache=tmp_path, spec=spec, strict=True, batch_size=batch_size)
    with pytest.warns(BalWarning, match="inputs range from") as told:
        extract(tiny_classifier, x, cache=tmp_path, spec=spec, batch_size=batch_size)
    assert len(told) == 1
    with pytest.raises(ShapeError, match="resize the images"):
        extract(tiny_classifier, x, cache=tmp_path, spec=InputSpec((1, 5, 5), floating=True))


class Stream(torch.utils.data.IterableDataset):
    """Rows that come once."""

    def __init__(self, rows):
        self.rows = iter(rows)

    def __iter__(self):
        return self.rows


def test_data_that_can_be_read_only_once_is_named_as_such_where_a_cache_reads_it_twice(tiny_classifier, tiny_images, tmp_path):
    assert len(extract(tiny_classifier, DataLoader(Stream(tiny_images[0]), batch_size=8))) == 60
    with pytest.raises(DataError, match=r"read only once, but a cache reads it twice.*leave the cache out"):
        extract(tiny_classifier, DataLoader(Stream(tiny_images[0]), batch_size=8), cache=tmp_path)
    with pytest.raises(DataError, match="the data is empty"):
        extract(tiny_classifier, tiny_images[0][:0], cache=tmp_path)


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
