"""The catalog: entries that hang together, files found under the data root, and the real data where it is there."""

import gzip
import io
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat

from bal.data.catalog import CATALOG, all_files, data_root, folder_of, load_data_set, missing_files, verify
from bal.errors import DataError


@pytest.mark.parametrize("name", CATALOG)
def test_every_entry_says_what_a_user_needs(name):
    entry = CATALOG[name]
    assert entry.title
    assert entry.licence
    assert entry.address.startswith("http")
    assert entry.classes != 1
    channels = entry.shape[0] if len(entry.shape) == 3 else 1
    assert len(entry.mean) == len(entry.std)
    assert len(entry.mean) in (0, channels)
    for file in [*all_files(name), *([entry.archive] if entry.archive else [])]:
        assert len(file.md5) in (0, 32)
        assert not file.url or (file.url.startswith("http") and file.path in file.url and file.md5), "what is fetched is checked"


def test_the_root_is_bal_data_or_the_users_cache(monkeypatch):
    monkeypatch.setenv("BAL_DATA", "/somewhere")
    assert data_root() == Path("/somewhere")
    monkeypatch.delenv("BAL_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    assert data_root() == Path("/cache/bal/data")


def write_mnist(folder):
    folder.mkdir()
    for part, rows in (("train", 4), ("t10k", 2)):
        images = bytes([0, 0, 8, 3]) + b"".join(n.to_bytes(4, "big") for n in (rows, 28, 28)) + bytes(rows * 784)
        labels = bytes([0, 0, 8, 1]) + rows.to_bytes(4, "big") + bytes(range(rows))
        (folder / f"{part}-images-idx3-ubyte.gz").write_bytes(gzip.compress(images))
        (folder / f"{part}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(labels))


def test_files_under_the_root_are_used_as_they_are(tmp_path):
    write_mnist(tmp_path / "mnist")
    images, labels = load_data_set("mnist", "train", root=tmp_path)
    assert images.shape == (4, 28, 28)
    assert labels.tolist() == [0, 1, 2, 3]
    assert load_data_set("mnist", "test", root=tmp_path)[0].shape == (2, 28, 28)
    assert set(verify("mnist", root=tmp_path).values()) == {"other"}, "tiny files are not the official ones"


def cifar(labels, coarse=()):
    """Records whose pixels are all their label."""
    return b"".join(bytes([*coarse, label]) + bytes([label]) * 3072 for label in labels)


def write_cifar10(folder):
    (folder / "cifar-10-batches-bin").mkdir(parents=True)
    for name, labels in {**{f"data_batch_{i}": [i] for i in range(1, 6)}, "test_batch": [9, 0]}.items():
        (folder / "cifar-10-batches-bin" / f"{name}.bin").write_bytes(cifar(labels))


def write_cifar100(folder):
    (folder / "cifar-100-binary").mkdir(parents=True)
    for split, labels in (("train", [99, 3]), ("test", [7])):
        (folder / "cifar-100-binary" / f"{split}.bin").write_bytes(cifar(labels, coarse=(19,)))


def write_svhn(folder):
    folder.mkdir()
    for split, labels in (("train", [10, 3]), ("test", [7])):
        pixels = np.broadcast_to(np.array(labels, np.uint8), (32, 32, 3, len(labels)))
        savemat(folder / f"{split}_32x32.mat", {"X": pixels, "y": np.array(labels, np.uint8)[:, None]})


def write_omniglot(folder):
    folder.mkdir()
    for part, inks in (("background", [0, 1]), ("evaluation", [1])):
        with zipfile.ZipFile(folder / f"images_{part}.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            for i, paper in enumerate(inks):
                drawing = io.BytesIO()
                Image.new("1", (105, 105), paper).save(drawing, "PNG")
                archive.writestr(f"images_{part}/Greek/character{i + 1:02d}/{i:04d}_01.png", drawing.getvalue())


def write_tiny_imagenet(folder):
    folder = folder / "tiny-imagenet-200"
    (folder / "val" / "images").mkdir(parents=True)
    (folder / "wnids.txt").write_text("n02124075\nn04067472\n")
    for i, level in enumerate((40, 200)):
        Image.new("RGB", (64, 64), (level,) * 3).save(folder / "val" / "images" / f"val_{i}.JPEG")
    (folder / "val" / "val_annotations.txt").write_text(
        "val_0.JPEG\tn04067472\t0\t32\t44\t62\nval_1.JPEG\tn02124075\t52\t55\t57\t59\n"
    )


@pytest.mark.parametrize(
    ("write", "name", "split", "levels", "expected"),
    [
        (write_cifar10, "cifar10", "train", [1, 2, 3, 4, 5], [1, 2, 3, 4, 5]),
        (write_cifar10, "cifar10", "test", [9, 0], [9, 0]),
        (write_cifar100, "cifar100", "train", [99, 3], [99, 3]),
        (write_cifar100, "cifar100", "test", [7], [7]),
        (write_svhn, "svhn", "train", [10, 3], [0, 3]),
        (write_svhn, "svhn", "test", [7], [7]),
        (write_omniglot, "omniglot", "train", [255, 0], [0, 1]),
        (write_omniglot, "omniglot", "test", [0], [0]),
        (write_tiny_imagenet, "tiny-imagenet", "test", [40, 200], [1, 0]),
    ],
)
def test_tiny_files_in_the_official_formats_are_read(tmp_path, write, name, split, levels, expected):
    write(tmp_path / name)
    images, labels = load_data_set(name, split, root=tmp_path)
    assert images.shape == (len(levels), *CATALOG[name].shape)
    assert images.dtype == np.uint8
    assert np.abs(images.reshape(len(levels), -1).astype(int) - np.array(levels)[:, None]).max() <= 1, "JPEG may be 1 off"
    assert labels.tolist() == expected
    assert labels.dtype == np.int64


def test_missing_files_are_named_with_checksum_address_and_place(tmp_path):
    with pytest.raises(DataError, match=r"has no train-images.*MD5 f68b3c2d.*from http.*put it there, or set BAL_DATA"):
        load_data_set("mnist", "train", root=tmp_path)
    with pytest.raises(DataError, match=r"unpacked from cifar-10-binary\.tar\.gz, MD5 c32a1d4a"):
        load_data_set("cifar10", "test", root=tmp_path)
    assert set(verify("mnist", root=tmp_path).values()) == {"missing"}


def test_unknown_names_and_parts_are_refused(tmp_path):
    with pytest.raises(DataError, match="did you mean 'cifar10'"):
        load_data_set("cifar-10", "train", root=tmp_path)
    with pytest.raises(DataError, match="has no part 'train'"):
        load_data_set("tiny-imagenet", "train", root=tmp_path)


def write_pictures(folder, count, size=(64, 64)):
    folder.mkdir(parents=True)
    for i in range(count):
        Image.fromarray(np.full((*size, 3), 20 * i, np.uint8)).save(folder / f"{i:02d}.png")


def test_dogs_and_cats_are_parted_in_each_class_and_the_others_lie_beside_them(tmp_path):
    for name, count in (("cats", 10), ("dogs", 5), ("other", 3)):
        write_pictures(tmp_path / "dogs-vs-cats" / name, count)
    images, labels = load_data_set("dogs-vs-cats", "test", root=tmp_path)
    assert labels.tolist() == [0, 0, 1]
    assert images[:, 0, 0, 0].tolist() == [80, 180, 80], "the fifth and the tenth cat, the fifth dog"
    assert images.shape == (3, 3, 32, 32)
    assert load_data_set("dogs-vs-cats", "train", root=tmp_path)[1].tolist() == [0] * 8 + [1] * 4
    assert load_data_set("dogs-vs-cats-other", "test", root=tmp_path)[1].tolist() == [-1] * 3


@pytest.mark.parametrize(
    ("name", "below"),
    [
        ("lsun", "test/scene"),
        ("lsun-resize", "LSUN_resize/LSUN_resize"),
        ("tiny-imagenet-resize", "Imagenet_resize/Imagenet_resize"),
    ],
)
def test_unlabelled_images_are_found_however_deep(tmp_path, name, below):
    write_pictures(tmp_path / name / below, 3, size=(48, 64))
    images, labels = load_data_set(name, "test", root=tmp_path)
    assert images.shape == (3, 3, 32, 32)
    assert labels.tolist() == [-1] * 3
    assert set(verify(name, root=tmp_path).values()) == {"unpacked"}


@pytest.mark.parametrize(("name", "below"), [("lsun-crop", "LSUN/test"), ("tiny-imagenet-crop", "Imagenet/test")])
def test_crops_are_cropped_and_not_resized(tmp_path, name, below):
    folder = tmp_path / name / below
    folder.mkdir(parents=True)
    framed = np.zeros((36, 36, 3), np.uint8)
    framed[2:34, 2:34] = np.random.default_rng(0).integers(1, 256, (32, 32, 3))
    Image.fromarray(framed).save(folder / "0.png")
    assert np.array_equal(load_data_set(name, "test", root=tmp_path)[0][0], framed[2:34, 2:34].transpose(2, 0, 1))


def test_a_folder_without_files_is_missing(tmp_path):
    (tmp_path / "lsun" / "test").mkdir(parents=True)
    with pytest.raises(DataError, match=r"has no test/\. Get test/ from https://www\.yf\.io"):
        load_data_set("lsun", "test", root=tmp_path)


real_data = pytest.mark.skipif(not os.environ.get("BAL_DATA"), reason="BAL_DATA does not name a folder of the real data sets")
PARTS = [(name, split) for name, entry in CATALOG.items() for split in entry.files]


@real_data
@pytest.mark.parametrize(("name", "split"), PARTS)
def test_the_real_data_is_read(name, split):
    if missing_files(CATALOG[name].files[split], folder_of(name)):
        pytest.skip(f"BAL_DATA has no {name}")
    images, labels = load_data_set(name, split)
    assert images.dtype == np.uint8
    assert len(images) == len(labels)
    assert labels.min() >= (0 if CATALOG[name].classes else -1)
    assert labels.max() < CATALOG[name].classes
    assert 0 < images.mean() < 255


@real_data
@pytest.mark.parametrize("name", ["mnist", "fashion-mnist", "cifar10"])
def test_mean_and_deviation_are_those_of_the_real_training_pixels(name):
    images, _ = load_data_set(name, "train")
    pixels = images.reshape(len(images), len(CATALOG[name].mean), -1) / 255
    np.testing.assert_allclose(pixels.mean((0, 2)), CATALOG[name].mean, atol=2e-4)
    np.testing.assert_allclose(pixels.std((0, 2)), CATALOG[name].std, atol=2e-4)


@real_data
@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_the_real_files_are_the_official_ones(name):
    assert set(verify(name).values()) == {"official"}
