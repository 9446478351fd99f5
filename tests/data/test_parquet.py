import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from bal.data.parquet import read_parquet
from bal.errors import BalWarning, DataError

PIXELS = np.random.default_rng(0).integers(0, 256, (4, 3, 5, 6), np.uint8)
LABELS = [2, 0, 1, 1]


def png(pixels):
    buffer = io.BytesIO()
    Image.fromarray(pixels.transpose(1, 2, 0)).save(buffer, "PNG")
    return buffer.getvalue()


def write(path, image, label=None, names=("image", "label")):
    columns = {names[0]: image} | ({} if label is None else {names[1]: label})
    pq.write_table(pa.table(columns), path)
    return path


FORMS = {
    "structs": pa.array([{"bytes": png(x), "path": f"{i}.png"} for i, x in enumerate(PIXELS)]),
    "bytes": pa.array([png(x) for x in PIXELS]),
    "large bytes": pa.array([png(x) for x in PIXELS], pa.large_binary()),
    "nested lists": pa.array(PIXELS.tolist(), pa.list_(pa.list_(pa.list_(pa.uint8())))),
    "flat lists": pa.array(PIXELS.reshape(4, -1).tolist(), pa.list_(pa.uint8())),
    "fixed lists": pa.FixedSizeListArray.from_arrays(pa.array(PIXELS.ravel()), 90),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_images_gives_the_same_pixels(tmp_path, form):
    images, labels = read_parquet(write(tmp_path / "x.parquet", FORMS[form], LABELS), (3, 5, 6))
    assert np.array_equal(images, PIXELS)
    assert images.dtype == np.uint8
    assert labels.tolist() == LABELS
    assert labels.dtype == np.int64


@pytest.mark.parametrize("form", ["structs", "bytes", "nested lists"])
def test_the_shape_need_not_be_given_where_the_file_tells_it(tmp_path, form):
    assert np.array_equal(read_parquet(write(tmp_path / "x.parquet", FORMS[form])), PIXELS)


def test_other_names_of_columns_and_floats_are_read(tmp_path):
    values = pa.array(np.eye(4, dtype=np.float32)[None].tolist(), pa.list_(pa.list_(pa.float32())))
    images, labels = read_parquet(write(tmp_path / "x.parquet", values, [1], names=("img", "fine_label")))
    assert images.dtype == np.float32
    assert images.shape == (1, 4, 4)
    assert labels.tolist() == [1]


def test_a_folder_is_read_in_the_order_of_its_names(tmp_path):
    for part, rows in (("train-00001-of-00002", [2, 3]), ("train-00000-of-00002", [0, 1])):
        write(tmp_path / f"{part}.parquet", FORMS["bytes"].take(pa.array(rows)), [LABELS[i] for i in rows])
    images, labels = read_parquet(tmp_path)
    assert np.array_equal(images, PIXELS)
    assert labels.tolist() == LABELS


@pytest.mark.parametrize("rest", ["-00000-of-00001", "_0000", ".0", "0", ""])
def test_training_and_test_files_in_one_folder_are_not_mixed(tmp_path, rest):
    write(tmp_path / f"train{rest}.parquet", FORMS["bytes"], LABELS)
    write(tmp_path / f"test{rest}.parquet", FORMS["bytes"].slice(0, 1), [7])
    with pytest.raises(DataError, match=r"several parts, test, train; choose one, as in .*:test"):
        read_parquet(tmp_path)
    assert read_parquet(tmp_path, split="test")[1].tolist() == [7]
    with pytest.raises(DataError, match=r"valid-\*\.parquet or valid\.parquet; found test, train"):
        read_parquet(tmp_path, split="valid")


def test_names_that_only_begin_like_a_part_are_those_of_one_data_set(tmp_path):
    for name in ("trains", "testimony", "value"):
        write(tmp_path / f"{name}.parquet", FORMS["bytes"], LABELS)
    assert len(read_parquet(tmp_path)[1]) == 12


def test_rows_that_cannot_be_read_are_left_out_with_their_labels_up_to_the_budget(tmp_path):
    image = pa.array([png(PIXELS[0]), None, b"not a picture", png(PIXELS[3])])
    path = write(tmp_path / "x.parquet", image, LABELS)
    with pytest.raises(DataError, match=r"2 of 4 files .*row 1 of .*no bytes.*row 2 of .* is not an image"):
        read_parquet(path)
    with pytest.warns(BalWarning, match="2 of 4"):
        images, labels = read_parquet(path, budget=0.5)
    assert np.array_equal(images, PIXELS[[0, 3]])
    assert labels.tolist() == [LABELS[0], LABELS[3]]


@pytest.mark.parametrize(
    ("image", "label", "words"),
    [
        (FORMS["flat lists"], LABELS, "flat lists of 90 numbers; give their shape"),
        (pa.array([[[1, 2], [3]], [[1, 2], [3, 4]]]), None, "several lengths"),
        (pa.array([[1, 2], None]), None, "several lengths"),
        (pa.array([[[1, None]]]), None, "1 missing"),
        (pa.array([[["a"]]]), None, "expected numbers"),
        (pa.array([1, 2]), None, "of type int64; expected bytes"),
        (FORMS["bytes"], ["a", "b", "c", "d"], "expected a class index"),
        (FORMS["bytes"], [0, 1, None, 1], "1 missing"),
    ],
)
def test_what_cannot_be_used_is_refused_with_the_reason(tmp_path, image, label, words):
    with pytest.raises(DataError, match=words):
        read_parquet(write(tmp_path / "x.parquet", image, label))


def test_a_shape_that_does_not_fit_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"has 90 numbers, expected \(3, 32, 32\)"):
        read_parquet(write(tmp_path / "x.parquet", FORMS["flat lists"]), (3, 32, 32))


def test_broken_missing_and_foreign_files_are_refused(tmp_path):
    whole = write(tmp_path / "whole.parquet", FORMS["bytes"]).read_bytes()
    for content in (b"", b"text", whole[: len(whole) // 2], whole[:-6] + b"\xff\xff" + whole[-4:]):
        (tmp_path / "x.parquet").write_bytes(content)
        with pytest.raises(DataError, match="not a Parquet file that can be read"):
            read_parquet(tmp_path / "x.parquet")
    with pytest.raises(DataError, match=r"there is no Parquet file .*none\.parquet"):
        read_parquet(tmp_path / "none.parquet")
    with pytest.raises(DataError, match="has the columns picture; expected the images in one of image"):
        read_parquet(write(tmp_path / "y.parquet", FORMS["bytes"], names=("picture",)))
    (tmp_path / "mixed").mkdir()
    write(tmp_path / "mixed" / "a.parquet", FORMS["bytes"], LABELS)
    write(tmp_path / "mixed" / "b.parquet", FORMS["bytes"])
    with pytest.raises(DataError, match="differ in their columns"):
        read_parquet(tmp_path / "mixed")
