import io
import warnings
from collections import UserDict

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, TensorDataset

from bal.data import Batches, to_input
from bal.data.images import decode
from bal.errors import DataError, ShapeError


def stacked(data, batch_size=4):
    parts = list(Batches(data, batch_size))
    x = torch.cat([x for x, _ in parts])
    c = None if parts[0][1] is None else torch.cat([c for _, c in parts])
    return x, c


X = np.arange(10 * 2 * 2, dtype=np.uint8).reshape(10, 2, 2)
C = np.arange(10) % 3


@pytest.mark.parametrize(
    "data",
    [
        (X, C),
        [X, C],
        (torch.from_numpy(X), torch.from_numpy(C)),
        TensorDataset(torch.from_numpy(X), torch.from_numpy(C)),
        DataLoader(TensorDataset(torch.from_numpy(X), torch.from_numpy(C)), batch_size=3),
    ],
    ids=["arrays", "list", "tensors", "dataset", "loader"],
)
def test_every_kind_of_data_gives_the_same_rows_in_order(data):
    x, c = stacked(data)
    assert torch.equal(x, torch.from_numpy(X).unsqueeze(1) / 255)
    assert torch.equal(c, torch.from_numpy(C))
    assert Batches(data).rows == 10


def test_inputs_alone_have_no_labels():
    x, c = stacked(X)
    assert x.shape == (10, 1, 2, 2)
    assert c is None


def test_sixteen_bit_pixels_are_scaled_and_not_clipped():
    x = to_input(np.array([[[0, 65535, 32768]]], np.uint16))
    assert torch.allclose(x, torch.tensor([[[[0.0, 1.0, 32768 / 65535]]]]))


def test_token_ids_stay_whole_numbers():
    assert to_input(np.array([[1, 2, 300]])).dtype == torch.int64


def test_read_only_arrays_are_accepted():
    x = np.ones((2, 3, 3), np.float32)
    x.setflags(write=False)
    assert torch.equal(to_input(x), torch.ones(2, 3, 3))


def test_big_endian_and_long_double_arrays_are_accepted():
    assert to_input(np.arange(3, dtype=">f4")).tolist() == [0.0, 1.0, 2.0]
    assert to_input(np.arange(3, dtype=np.longdouble)).dtype == torch.float32


def test_three_dimensional_floats_are_sequences_and_get_no_channel():
    assert to_input(np.zeros((2, 5, 7), np.float32)).shape == (2, 5, 7)


@pytest.mark.parametrize(
    ("data", "error", "words"),
    [
        ((X, C[:5]), ShapeError, "10 inputs came with 5 labels"),
        ((X, np.eye(3)[C]), ShapeError, "one class index"),
        ((X, C.astype(float)), ShapeError, "whole numbers"),
        ((X, C, C), DataError, "3 parts"),
        ("folder", DataError, "got str"),
        (np.float32(1), DataError, "got float32"),
        (np.array(["a", "b"]), ShapeError, "expected numbers"),
    ],
)
def test_what_cannot_be_read_is_refused_with_the_way_out(data, error, words):
    with pytest.raises(error, match=words):
        stacked(data)


class Rows(Dataset):
    """A Dataset of given rows; without them, one that does not know how many it has."""

    def __init__(self, rows):
        self.rows = rows

    def __getitem__(self, row):
        return self.rows[row]


class Counted(Rows):
    def __len__(self):
        return len(self.rows)


RAGGED = [torch.zeros(2), torch.zeros(3)]


@pytest.mark.parametrize(
    ("data", "error", "words"),
    [
        (Rows(RAGGED), DataError, "Rows without __len__"),
        (Counted(RAGGED), ShapeError, "do not make a batch.*equal size"),
        (Counted([(RAGGED[0], 0), (RAGGED[0],)]), ShapeError, "do not make a batch"),
        (Counted([None, None]), ShapeError, "do not make a batch.*NoneType"),
    ],
)
def test_a_dataset_whose_rows_make_no_batch_is_refused(data, error, words):
    with pytest.raises(error, match=words):
        stacked(data)


def nested():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch: they may change
        return torch.nested.nested_tensor(RAGGED)


@pytest.mark.parametrize(
    ("make", "word"),
    [(nested, "nested"), (lambda: torch.eye(4).to_sparse(), "sparse"), (lambda: torch.eye(4, device="meta"), "meta")],
)
def test_tensors_that_are_not_plain_are_refused(make, word):
    tensor = make()
    for data in (tensor, (tensor, C[:4]), DataLoader([tensor], batch_size=None)):
        with pytest.raises(ShapeError, match=f"plain tensor with its content, got a .*{word}"):
            list(Batches(data))


class Table:
    """What a Hugging Face Dataset looks like from outside."""

    def __init__(self, **columns):
        self.columns = columns
        self.column_names = list(columns)

    def __len__(self):
        return len(next(iter(self.columns.values())))

    def __getitem__(self, row):
        return {name: values[row] for name, values in self.columns.items()}


PICTURES = [Image.fromarray(x) for x in X]


@pytest.mark.parametrize(
    "table",
    [
        Table(image=PICTURES, label=C.tolist()),
        Table(id=list("abcdefghij"), img=list(X), labels=C),
        Table(image=[x.tolist() for x in X.astype(float) / 255], label=C),
    ],
    ids=["pictures", "arrays", "lists"],
)
def test_a_table_of_rows_gives_its_pictures_and_labels(table):
    x, c = stacked(table)
    assert torch.allclose(x.reshape(10, 2, 2), torch.from_numpy(X) / 255)
    assert torch.equal(c, torch.from_numpy(C))
    assert Batches(table).rows == 10


def test_a_table_without_labels_and_an_empty_one():
    x, c = stacked(Table(image=PICTURES))
    assert x.shape == (10, 1, 2, 2)
    assert c is None
    assert list(Batches(Table(image=[]))) == []


def test_colour_comes_as_channels_height_width_whether_picture_or_array():
    pixels = np.random.default_rng(0).integers(0, 256, (2, 4, 5, 3), np.uint8)
    expected = torch.from_numpy(pixels.transpose(0, 3, 1, 2).copy()) / 255
    for images in ([Image.fromarray(x) for x in pixels], list(pixels), list(pixels.transpose(0, 3, 1, 2))):
        assert torch.equal(stacked(Table(image=images))[0], expected)


def test_pictures_are_turned_as_their_exif_says_as_files_are():
    """Fault 7."""
    exif, buffer = Image.Exif(), io.BytesIO()
    exif[0x0112] = 6  # rotate by 90 degrees to the right
    Image.fromarray(np.arange(2 * 4 * 3, dtype=np.uint8).reshape(2, 4, 3)).save(buffer, "PNG", exif=exif)
    x, _ = stacked(Table(image=[Image.open(buffer)]))
    assert x.shape == (1, 3, 4, 2)
    assert torch.equal(x, to_input(decode(buffer.getvalue(), channels=3)[None]))


def test_grey_among_colour_becomes_colour_and_colour_among_grey_is_refused():
    grey, colour = Image.new("L", (4, 4), 9), Image.new("RGB", (4, 4), (9, 9, 9))
    x, _ = stacked(Table(image=[colour, grey]))
    assert torch.equal(x[0], x[1])
    with pytest.raises(ShapeError, match=r"\(3, 4, 4\), the first one \(1, 4, 4\)"):
        stacked(Table(image=[grey, colour]))


class Tables(dict):
    """What a Hugging Face DatasetDict looks like."""

    column_names = ("image",)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (Table(text=["a"], label=[0]), "columns text, label; expected the inputs in one of image, img"),
        (Table(image=PICTURES[:2], label=[0, None]), "lack a label"),
        (Tables(train=1, test=2), r"several data sets, train, test; choose one"),
    ],
)
def test_tables_that_cannot_be_used_are_refused_with_the_way_out(data, words):
    with pytest.raises(DataError, match=words):
        stacked(data)


def test_dictionaries_of_processors_and_collators_give_their_input_and_label():
    ids = torch.randint(1, 9, (10, 4))
    batch = {"labels": torch.from_numpy(C), "attention_mask": torch.ones(10, 4), "input_ids": ids}
    rows = [{name: column[i] for name, column in batch.items()} for i in range(10)]
    as_lists = Table(**{name: column.tolist() for name, column in batch.items()})
    for data in (batch, DataLoader(rows, batch_size=3), UserDict(batch), as_lists):
        x, c = stacked(data)
        assert torch.equal(x, ids)
        assert torch.equal(c, torch.from_numpy(C))
        assert Batches(data).rows == 10
    pixels = torch.rand(10, 3, 2, 2)
    x, c = stacked({"pixel_values": pixels})
    assert torch.equal(x, pixels)
    assert c is None


@pytest.mark.parametrize(("name", "usual"), [("attention_mask", 1), ("token_type_ids", 0)])
def test_what_comes_beside_token_ids_is_refused_rather_than_dropped_where_it_matters(name, usual):
    beside = torch.full((10, 4), usual)
    batch = {"input_ids": torch.ones(10, 4, dtype=torch.int64), name: beside}
    assert stacked(batch)[0].shape == (10, 4)
    beside[7, 2:] = 1 - usual
    for data in (batch, Table(**{key: column.tolist() for key, column in batch.items()})):
        with pytest.raises(DataError, match=rf"the {name} is not {usual} throughout.*attention_mask=\(input_ids != padding\)"):
            stacked(data)
