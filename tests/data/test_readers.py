"""Readers on tiny files written here in each official format, and on broken ones."""

import gzip
import io
import zipfile

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat
from scipy.sparse import csc_matrix

from bal.data.readers import read_cifar, read_idx, read_idx_pair, read_omniglot, read_svhn, read_tiny_imagenet
from bal.errors import DataError


def header(*sizes):
    return bytes([0, 0, 8, len(sizes)]) + b"".join(size.to_bytes(4, "big") for size in sizes)


def idx(array):
    return header(*array.shape) + array.astype(np.uint8).tobytes()


def png(array):
    buffer = io.BytesIO()
    Image.fromarray(array).save(buffer, "PNG")
    return buffer.getvalue()


def test_idx_files_are_read_with_and_without_gzip(tmp_path):
    images = np.arange(2 * 3 * 4).reshape(2, 3, 4)
    (tmp_path / "raw").write_bytes(idx(images))
    (tmp_path / "packed.gz").write_bytes(gzip.compress(idx(images)))
    assert np.array_equal(read_idx(tmp_path / "raw"), images)
    assert np.array_equal(read_idx(tmp_path / "packed.gz"), images)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "begins with nothing"),
        (b"\x00\x00\x0d\x01" + bytes(8), "begins with 00000d01"),
        (idx(np.zeros((2, 3)))[:-1], "cut or too long"),
        (idx(np.zeros((2, 3))) + b"x", "cut or too long"),
        (b"\x00\x00\x08\x03\x00\x00", "cut or too long"),
        (header(2**31, 2**31, 4), "cut or too long"),
        (header(*[1] * 100) + b"x", "100 dimensions that no array has"),
        (header(0, *[2**32 - 1] * 4), "5 dimensions that no array has"),
    ],
    ids=[
        "empty",
        "another type",
        "cut",
        "too long",
        "cut in the header",
        "2^64 bytes",
        "100 dimensions",
        "too large though empty",
    ],
)
def test_broken_idx_files_are_refused_with_the_reason(tmp_path, content, words):
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(DataError, match=words):
        read_idx(tmp_path / "file")


def test_broken_gzip_and_missing_files_are_refused(tmp_path):
    (tmp_path / "x.gz").write_bytes(gzip.compress(bytes(1000))[:-20])
    with pytest.raises(DataError, match="damaged"):
        read_idx(tmp_path / "x.gz")
    with pytest.raises(DataError, match="there is no file"):
        read_idx(tmp_path / "none")


def test_images_and_labels_must_belong_together(tmp_path):
    (tmp_path / "x").write_bytes(idx(np.zeros((2, 3, 3))))
    (tmp_path / "y").write_bytes(idx(np.zeros(3)))
    with pytest.raises(DataError, match="N images and N labels"):
        read_idx_pair(tmp_path / "x", tmp_path / "y")


@pytest.mark.parametrize(("label_bytes", "classes"), [(1, 10), (2, 100)])
def test_cifar_records_are_label_then_planes(tmp_path, label_bytes, classes):
    pixels = np.random.default_rng(0).integers(0, 256, (4, 3, 32, 32), np.uint8)
    labels = np.array([3, 1, 9, 0], np.uint8)
    rows = np.hstack([np.full((4, label_bytes - 1), 19, np.uint8), labels[:, None], pixels.reshape(4, -1)])
    for part in range(2):
        (tmp_path / f"{part}.bin").write_bytes(rows[2 * part : 2 * part + 2].tobytes())
    images, read = read_cifar([tmp_path / "0.bin", tmp_path / "1.bin"], label_bytes=label_bytes, classes=classes)
    assert np.array_equal(images, pixels)
    assert read.tolist() == [3, 1, 9, 0]


@pytest.mark.parametrize(
    ("label_bytes", "classes", "content", "words"),
    [
        (1, 10, b"", "not a multiple of 3073"),
        (1, 10, bytes(3072), "not a multiple of 3073"),
        (1, 10, b"\x0b" + bytes(3072), "label 11, expected 0 to 9"),
        (2, 100, b"", "not a multiple of 3074"),
        (2, 100, bytes(3073), "3073 bytes, not a multiple of 3074"),
        (2, 100, b"\x13\x64" + bytes(3072), "label 100, expected 0 to 99"),
    ],
)
def test_broken_cifar_files_are_refused(tmp_path, label_bytes, classes, content, words):
    (tmp_path / "x.bin").write_bytes(content)
    with pytest.raises(DataError, match=words):
        read_cifar([tmp_path / "x.bin"], label_bytes=label_bytes, classes=classes)


def test_svhn_calls_the_digit_zero_ten(tmp_path):
    x = np.random.default_rng(0).integers(0, 256, (32, 32, 3, 5), np.uint8)
    savemat(tmp_path / "x.mat", {"X": x, "y": np.array([[1], [10], [9], [10], [5]], np.uint8)})
    images, labels = read_svhn(tmp_path / "x.mat")
    assert images.shape == (5, 3, 32, 32)
    assert np.array_equal(images[2], x[:, :, :, 2].transpose(2, 0, 1))
    assert labels.tolist() == [1, 0, 9, 0, 5]


def matlab(**arrays):
    buffer = io.BytesIO()
    savemat(buffer, arrays)
    return buffer.getvalue()


DIGITS = np.zeros((32, 32, 3, 2), np.uint8)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "a MATLAB file with X and y"),
        (b"not a matlab file" * 100, "a MATLAB file with X and y"),
        (matlab(X=DIGITS, y=np.ones((2, 1)))[:2000], "a MATLAB file with X and y"),
        (matlab(Z=np.zeros(3)), "a MATLAB file with X and y"),
        (matlab(X=DIGITS, y=csc_matrix(np.ones((2, 1)))), "a MATLAB file with X and y"),
        (matlab(X=DIGITS[:8, :8], y=np.ones((2, 1))), r"holds X \(8, 8, 3, 2\) uint8 .* expected \(32, 32, 3, N\) uint8"),
        (matlab(X=DIGITS, y=np.ones((3, 1))), r"and y \(3,\) .* expected .* N numbers"),
        (matlab(X=DIGITS.astype(float), y=np.ones((2, 1))), "float64 and y .* expected .* uint8"),
        (matlab(X=DIGITS, y=np.array(["1", "2"], object)), "object; expected .* N numbers"),
    ],
    ids=["empty", "text", "cut", "another", "sparse", "size", "labels", "floats", "words"],
)
def test_broken_svhn_files_are_refused_with_the_reason(tmp_path, content, words):
    (tmp_path / "x.mat").write_bytes(content)
    with pytest.raises(DataError, match=rf"x\.mat .*{words}"):
        read_svhn(tmp_path / "x.mat")


def test_omniglot_is_white_ink_on_black_with_a_label_for_each_character(tmp_path):
    drawing = np.full((105, 105), 255, np.uint8)
    drawing[40:60, 10:90] = 0  # black ink on white
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        for name in ("b/Greek/character02/2.png", "b/Greek/character01/1.png", "b/Latin/character01/3.png"):
            archive.writestr(name, png(drawing))
    images, labels = read_omniglot(tmp_path / "x.zip")
    assert images.shape == (3, 28, 28)
    assert images[0, 13, 14] == 255
    assert images[0, 2, 2] == 0
    assert labels.tolist() == [0, 1, 2]


def test_broken_omniglot_archives_are_refused(tmp_path):
    with pytest.raises(DataError, match="there is no file"):
        read_omniglot(tmp_path / "none.zip")
    (tmp_path / "x.zip").write_bytes(b"PK\x03\x04 cut")
    with pytest.raises(DataError, match="not a whole zip"):
        read_omniglot(tmp_path / "x.zip")
    with zipfile.ZipFile(tmp_path / "empty.zip", "w") as archive:
        archive.writestr("readme.txt", "")
    with pytest.raises(DataError, match="no drawings"):
        read_omniglot(tmp_path / "empty.zip")
    with zipfile.ZipFile(tmp_path / "broken.zip", "w") as archive:
        archive.writestr("a/b/c.png", b"not a picture")
    with pytest.raises(DataError, match="not an image"):
        read_omniglot(tmp_path / "broken.zip")


def marked(content, place, value):
    """A zip whose only member has other bytes at one place of both its headers; that in the directory lies 2 further."""
    content = bytearray(content)
    for start, shift in ((content.index(b"PK\x03\x04"), 0), (content.index(b"PK\x01\x02"), 2)):
        content[start + place + shift] = value
    return bytes(content)


@pytest.mark.parametrize(("place", "value", "words"), [(6, 1, "encrypted"), (8, 99, "compression method is not supported")])
def test_an_omniglot_archive_that_is_locked_or_packed_otherwise_is_refused(tmp_path, place, value, words):
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr("a/b/c.png", png(np.zeros((9, 9), np.uint8)))
    (tmp_path / "x.zip").write_bytes(marked((tmp_path / "x.zip").read_bytes(), place, value))
    with pytest.raises(DataError, match=rf"x\.zip is not a whole zip archive that can be read .*{words}"):
        read_omniglot(tmp_path / "x.zip")


def test_tiny_imagenet_validation_images_get_the_labels_of_the_annotations(tmp_path):
    folder = tmp_path / "val" / "images"
    folder.mkdir(parents=True)
    for name, level in (("val_0.JPEG", 30), ("val_1.JPEG", 200)):
        Image.fromarray(np.full((64, 64, 3), level, np.uint8)).save(folder / name)
    (tmp_path / "wnids.txt").write_text("n01\nn02\n")
    (tmp_path / "val" / "val_annotations.txt").write_text(
        "val_0.JPEG\tn02\t0\t0\t9\t9\nval_1.JPEG\tn01\t0\t0\t9\t9\nval_2.JPEG\tn01\t0\t0\t1\t1\n"
    )
    images, labels = read_tiny_imagenet(tmp_path)
    assert images.shape == (2, 3, 32, 32), "a part of the set is used as it is"
    assert labels.tolist() == [1, 0]
    assert abs(int(images[0].mean()) - 30) < 3
    with pytest.raises(DataError, match="unpacked tiny-imagenet-200"):
        read_tiny_imagenet(tmp_path / "elsewhere")


@pytest.fixture
def tiny_imagenet(tmp_path):
    """One image; call it to write other annotations or other classes."""
    folder = tmp_path / "tiny-imagenet-200"
    (folder / "val" / "images").mkdir(parents=True)
    Image.fromarray(np.full((64, 64, 3), 90, np.uint8)).save(folder / "val" / "images" / "val_0.JPEG")

    def write(annotations=b"val_0.JPEG\tn01\t0\t0\t9\t9\n", wnids=b"n01\n"):
        (folder / "val" / "val_annotations.txt").write_bytes(annotations)
        (folder / "wnids.txt").write_bytes(wnids)
        return folder

    write()
    return write


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"wnids": b"n02\n"}, r"gives val_0\.JPEG the class 'n01', which is not in .*wnids\.txt"),
        ({"annotations": b"\nval_0.JPEG n01\n"}, r"line 2 of .* is 'val_0\.JPEG n01', expected an image, a tab and its class"),
        ({"annotations": b"val_0.JPEG\tn01\n\xff\xfe"}, r"val_annotations\.txt is not text in UTF-8"),
        ({"wnids": b"\xff\xfen\x000\x00"}, r"wnids\.txt is not text in UTF-8"),
        ({"annotations": b"\tn01\n"}, "line 1 of .* names '', which leads out of its folder"),
    ],
    ids=["unknown class", "no tab", "no text", "classes no text", "no name"],
)
def test_broken_tiny_imagenet_lists_are_refused_with_the_reason(tiny_imagenet, files, words):
    with pytest.raises(DataError, match=words):
        read_tiny_imagenet(tiny_imagenet(**files))


@pytest.mark.parametrize("name", ["../../../secret.png", "..", "..\\secret.png", "a/val_0.JPEG", "/{root}/secret.png"])
def test_tiny_imagenet_reads_nothing_outside_its_folder(tiny_imagenet, tmp_path, name):
    Image.new("RGB", (64, 64)).save(tmp_path / "secret.png")
    line = f"{name.format(root=str(tmp_path).lstrip('/'))}\tn01\t0\t0\t9\t9\n"
    with pytest.raises(DataError, match=r"line 1 of .* leads out of its folder; refused"):
        read_tiny_imagenet(tiny_imagenet(line.encode()))


def test_a_cut_image_of_tiny_imagenet_is_refused_by_name(tiny_imagenet):
    image = tiny_imagenet() / "val" / "images" / "val_0.JPEG"
    image.write_bytes(image.read_bytes()[:-200])
    with pytest.raises(DataError, match=r"val_0\.JPEG is not an image that can be read"):
        read_tiny_imagenet(tiny_imagenet())
