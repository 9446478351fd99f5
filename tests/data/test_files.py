import os
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from bal.data.catalog import CATALOG, DataSet, File, load_data_set
from bal.data.files import class_names_of, load_data, load_npz, read_data
from bal.data.labels import npz_labels
from bal.data.shards import find_shards
from bal.errors import BalWarning, DataError
from bomb import Bomb


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


def test_a_pickle_that_does_something_is_not_run_by_any_reader(tmp_path):
    """Fault 10: in an array, an archive of arrays, as a plain file, and where CIFAR's other version has its pickles."""
    bomb = Bomb(tmp_path / "ran")
    np.save(tmp_path / "x.npy", np.array([bomb], object), allow_pickle=True)
    np.savez(tmp_path / "x.npz", images=np.array([bomb], object), labels=np.zeros(1, np.int64))
    plain = pickle.dumps(bomb)
    (tmp_path / "plain.npz").write_bytes(plain)
    for name in ("x.npy", "x.npz", "plain.npz"):
        with pytest.raises(DataError, match=rf"{name} is not an \.npz file of plain arrays"):
            load_data(tmp_path / name)
        with pytest.raises(DataError, match=rf"{name} is not an \.npz file of plain arrays"):
            [list(shard.blocks(())) for shard in find_shards([tmp_path / name], rows=8)]
    batch = tmp_path / "cifar10" / "cifar-10-batches-bin" / "test_batch.bin"
    batch.parent.mkdir(parents=True)
    for content, words in ((plain, "not a multiple of 3073"), (plain.ljust(3073, b"."), "has the label 128")):
        batch.write_bytes(content)
        with pytest.raises(DataError, match=words):
            load_data_set("cifar10", "test", root=tmp_path)
    assert not (tmp_path / "ran").exists()
    np.load(tmp_path / "x.npy", allow_pickle=True)
    assert (tmp_path / "ran").exists(), "the same file does its work where pickles are allowed"


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut", b"not a zip"])
def test_what_is_no_archive_is_refused(tmp_path, content):
    (tmp_path / "x.npz").write_bytes(content)
    with pytest.raises(DataError, match=r"is not an \.npz file"):
        load_npz(tmp_path / "x.npz")


@pytest.mark.parametrize("shape", ["(9999999999999, 3)", "(3, 3", "(3, 3, "])
def test_an_array_whose_header_lies_is_refused(tmp_path, shape):
    """Fault 9's cousin: numpy sets memory aside for what the header promises, and reads a cut one as Python 2 would."""
    write_header(tmp_path / "x.npz", "images", f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}}}")
    with pytest.raises(DataError, match=r"x\.npz (needs more memory than there is|is not an \.npz)"):
        load_npz(tmp_path / "x.npz")
    write_header(tmp_path / "x.npz", "labels", f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}}}")
    with pytest.raises(DataError, match=r"labels of .* cannot be read"):
        npz_labels(tmp_path / "x.npz")


def write_header(path, name, header):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}.npy", b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode())


def test_other_names_are_listed(tmp_path):
    np.savez(tmp_path / "x.npz", pictures=np.zeros(2))
    with pytest.raises(DataError, match=r"holds \['pictures'\]; expected"):
        load_npz(tmp_path / "x.npz")


def test_a_single_array_is_refused_with_the_way_out(tmp_path):
    np.save(tmp_path / "plain.npy", np.zeros((2, 3, 4, 4), np.uint8))
    with pytest.raises(DataError, match=r"plain\.npy is one array without a name .*savez_compressed\('data\.npz', images="):
        load_data(tmp_path / "plain.npy")


def test_npz_files_are_loaded_as_before(tmp_path):
    np.savez(tmp_path / "x.npz", images=np.arange(3), labels=np.arange(3))
    assert [part.tolist() for part in load_data(tmp_path / "x.npz")] == [[0, 1, 2]] * 2
    with pytest.raises(DataError, match=r"there is no file none\.npz"):
        load_data("none.npz")


def test_folders_of_images_are_loaded_at_the_shape_asked_for(tmp_path):
    for name in ("a/1.png", "b/1.png"):
        (tmp_path / name).parent.mkdir()
        Image.new("RGB", (6, 6)).save(tmp_path / name)
    images, labels = load_data(str(tmp_path), (1, 4, 4))
    assert images.shape == (2, 1, 4, 4)
    assert labels.tolist() == [0, 1]
    assert load_data(tmp_path / "a").shape == (1, 3, 6, 6), "a flat folder has no labels"


def test_a_class_whose_name_is_no_text_is_called_by_its_bytes(tmp_path):
    """Its name goes into tables and pages, which are UTF-8; a file that cannot be read is named the same way."""
    bad = Path(os.fsdecode(bytes(tmp_path / "a") + b"\xff"))
    for folder in (bad, tmp_path / "b"):
        folder.mkdir()
        for i in range(100):
            png(folder / f"{i}.png", i)
    (bad / "cut.png").write_bytes(b"no picture")
    assert class_names_of(tmp_path) == (r"a\xff", "b")
    with pytest.warns(BalWarning, match=r"1 of 201 files .*a\\xff/cut\.png is not an image"):
        found = read_data(tmp_path)
    assert list(found.left_out) == [rf"{tmp_path}/a\xff/cut.png"]
    assert np.bincount(found.labels).tolist() == [100, 100]


def test_parquet_files_folders_and_parts_of_folders_are_loaded(tmp_path):
    for part, value in (("train", 1), ("test", 2)):
        pq.write_table(pa.table({"image": [[[value]]], "label": [value]}), tmp_path / f"{part}-0.parquet")
    assert load_data(tmp_path / "test-0.parquet")[1].tolist() == [2]
    assert load_data(f"{tmp_path}:train")[1].tolist() == [1]
    with pytest.raises(DataError, match="several parts"):
        load_data(tmp_path)


@pytest.fixture
def toy(monkeypatch, tmp_path):
    """A data set in the catalog whose images are its part's name."""
    files = {"train": (File("x"),), "test": (File("x"),)}
    entry = DataSet("Toy", "https://toy.example", "MIT", 2, (), files, lambda _, split: (np.array([split]), np.array([0])))
    monkeypatch.setitem(CATALOG, "toy", entry)
    monkeypatch.setenv("BAL_DATA", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy" / "x").write_text("")
    return entry


def test_names_of_the_catalog_are_loaded_part_by_part(toy):
    assert load_data("toy:train")[0].tolist() == ["train"]
    assert load_data("toy")[0].tolist() == ["test"]
    assert load_data("toy", split="train")[0].tolist() == ["train"]
    with pytest.raises(DataError, match="has no part 'valid'"):
        load_data("toy:valid")
    with pytest.raises(DataError, match="no image that can be read"):
        load_data("./toy")


def test_a_data_set_without_labels_is_images_alone(toy, monkeypatch):
    monkeypatch.setitem(CATALOG, "toy", DataSet(**{**vars(toy), "classes": 0}))
    assert load_data("toy").tolist() == ["test"]


def test_a_name_that_is_nearly_one_of_the_catalog_gets_a_hint():
    with pytest.raises(DataError, match="no file, folder or data set 'cifar-10'; did you mean 'cifar10'"):
        load_data("cifar-10:test")


def test_what_could_not_be_read_is_told_beside_the_data(tmp_path):
    pictures = [png(tmp_path / f"{i}.png", i) for i in range(100)]
    (tmp_path / "broken.png").write_bytes(b"no picture")
    with pytest.warns(BalWarning, match="1 of 101 files"):
        found = read_data(tmp_path)
    assert len(found.inputs) == 100
    assert found.labels is None
    assert list(found.left_out) == [str(tmp_path / "broken.png")]
    rows = [{"image": {"bytes": path.read_bytes()}, "label": 1} for path in [*pictures, tmp_path / "broken.png"]]
    (tmp_path / "table").mkdir()
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "table" / "a.parquet")
    with pytest.warns(BalWarning, match="1 of 101 files"):
        table = read_data(tmp_path / "table")
    assert (len(table.inputs), len(table.labels), len(table.left_out)) == (100, 100, 1)
    assert table.data[0] is table.inputs


def png(path, value):
    Image.fromarray(np.full((2, 2), value, np.uint8)).save(path)
    return path
