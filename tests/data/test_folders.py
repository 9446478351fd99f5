"""Fault 8: folders in which some files are broken."""

import numpy as np
import pytest
from PIL import Image

from bal.data.folders import read_image_folder
from bal.errors import BalWarning, DataError


def picture(path, level, size=(8, 8), mode="RGB"):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, level if mode == "L" else (level, 0, 0)).save(path)


def test_sub_folders_are_classes_in_sorted_order(tmp_path):
    for name, level in (("dog/1.png", 10), ("cat/2.png", 20), ("cat/deep/1.png", 30)):
        picture(tmp_path / name, level)
    found = read_image_folder(tmp_path)
    assert found.classes == ("cat", "dog")
    assert found.labels.tolist() == [0, 0, 1]
    assert found.images[:, 0, 0, 0].tolist() == [20, 30, 10]
    assert found.images.shape == (3, 3, 8, 8)
    assert [path.name for path in found.paths] == ["2.png", "1.png", "1.png"]
    assert found.left_out == {}


def test_classes_may_be_chosen_and_other_folders_stay_out(tmp_path):
    for name in ("dog/1.png", "cat/1.png", "other/1.png"):
        picture(tmp_path / name, 1)
    found = read_image_folder(tmp_path, classes=("dog", "cat"))
    assert [path.parent.name for path in found.paths] == ["dog", "cat"]
    assert found.labels.tolist() == [0, 1]
    with pytest.raises(DataError, match="has no folder cow"):
        read_image_folder(tmp_path, classes=("dog", "cow"))


def test_a_flat_folder_has_no_labels_and_neither_has_one_read_without_classes(tmp_path):
    picture(tmp_path / "flat" / "1.png", 1)
    assert read_image_folder(tmp_path / "flat").labels is None
    assert read_image_folder(tmp_path, classes=()).labels is None


@pytest.mark.parametrize(("shape", "expected"), [((3, 4, 6), (1, 3, 4, 6)), ((4, 6), (1, 4, 6)), ((1, 4, 6), (1, 1, 4, 6))])
def test_images_get_the_shape_that_is_asked_for(tmp_path, shape, expected):
    picture(tmp_path / "1.jpg", 200)
    assert read_image_folder(tmp_path, shape).images.shape == expected


@pytest.mark.parametrize("shape", [(16,), (4, 8, 8), (1, 3, 8, 8), (0, 8), (3, 8, -5), (3, 999_999_999, 999_999_999)])
def test_shapes_that_are_not_those_of_images_are_refused(tmp_path, shape):
    picture(tmp_path / "1.png", 200)
    with pytest.raises(DataError, match="image files become"):
        read_image_folder(tmp_path, shape)


def test_without_a_shape_all_must_be_of_one_size_and_colour_does_not_become_grey(tmp_path):
    picture(tmp_path / "grey" / "1.png", 9, mode="L")
    assert read_image_folder(tmp_path / "grey").images.shape == (1, 1, 8, 8)
    picture(tmp_path / "grey" / "2.png", 9)
    with pytest.raises(DataError, match=r"2\.png is \(3, 8, 8\), but the first image is \(1, 8, 8\)"):
        read_image_folder(tmp_path / "grey")
    picture(tmp_path / "colour" / "1.png", 9)
    picture(tmp_path / "colour" / "2.png", 9, mode="L")
    assert read_image_folder(tmp_path / "colour").images[1, :, 0, 0].tolist() == [9, 9, 9]
    picture(tmp_path / "colour" / "3.png", 9, size=(8, 9))
    with pytest.raises(DataError, match="give the shape"):
        read_image_folder(tmp_path / "colour")


@pytest.fixture
def broken(tmp_path):
    """197 good images and three files that are none, in two classes."""
    for i in range(197):
        picture(tmp_path / f"{i % 2}" / f"{i:03d}.png", i)
    whole = (tmp_path / "0" / "000.png").read_bytes()
    (tmp_path / "0" / "cut.png").write_bytes(whole[:40])
    (tmp_path / "1" / "empty.png").write_bytes(b"")
    (tmp_path / "1" / "notes.txt").write_text("not a picture")
    return tmp_path


def test_files_that_cannot_be_read_are_left_out_and_said(broken):
    with pytest.warns(BalWarning, match=r"3 of 200 files in .* were left out: .*cut\.png is not an image"):
        found = read_image_folder(broken, budget=0.02)
    assert len(found.images) == len(found.labels) == len(found.paths) == 197
    assert {path.rsplit("/", 1)[1] for path in found.left_out} == {"cut.png", "empty.png", "notes.txt"}
    assert all(int(path.stem) % 2 == label for path, label in zip(found.paths, found.labels, strict=True))
    assert np.array_equal(found.images[:, 0, 0, 0], [int(path.stem) for path in found.paths])


def test_past_the_budget_the_files_are_named(broken):
    with pytest.raises(DataError, match=r"3 of 200 files .* more than 1\.0%: .*cut\.png.*empty\.png.*notes\.txt.*larger budget"):
        read_image_folder(broken)


def test_hidden_files_are_passed_over_and_files_beside_classes_are_left_out(tmp_path):
    picture(tmp_path / "a" / "1.png", 1)
    (tmp_path / "a" / ".DS_Store").write_text("")
    (tmp_path / ".git").mkdir()
    picture(tmp_path / "stray.png", 1)
    with pytest.warns(BalWarning, match=r"stray\.png: lies beside"):
        found = read_image_folder(tmp_path, budget=0.5)
    assert found.classes == ("a",)
    assert len(found.images) == 1


def test_links_to_folders_are_followed_but_not_in_a_circle(tmp_path):
    picture(tmp_path / "store" / "cats" / "deep" / "1.png", 1)
    picture(tmp_path / "train" / "dog" / "1.png", 2)
    (tmp_path / "train" / "cat").symlink_to(tmp_path / "store" / "cats")
    (tmp_path / "train" / "dog" / "more").symlink_to(tmp_path / "store" / "cats" / "deep")
    (tmp_path / "train" / "dog" / "up").symlink_to(tmp_path / "train")
    (tmp_path / "train" / "top").symlink_to(tmp_path)
    (tmp_path / "train" / "dog" / "itself").symlink_to(tmp_path / "train" / "dog" / "itself")
    found = read_image_folder(tmp_path / "train")
    assert [path.relative_to(tmp_path / "train").as_posix() for path in found.paths] == [
        "cat/deep/1.png",
        "dog/1.png",
        "dog/more/1.png",
    ]
    assert found.labels.tolist() == [0, 1, 1]
    assert len(read_image_folder(tmp_path / "train", classes=()).images) == 3


def test_a_folder_that_may_not_be_read_is_told(tmp_path, monkeypatch):
    def refuse(_):
        raise PermissionError("Permission denied")

    monkeypatch.setattr("os.scandir", refuse)
    with pytest.raises(DataError, match=r"cannot be read \(Permission denied\)"):
        read_image_folder(tmp_path)


def test_folders_without_an_image_are_refused(tmp_path):
    with pytest.raises(DataError, match="there is no folder"):
        read_image_folder(tmp_path / "none")
    with pytest.raises(DataError, match="it is empty"):
        read_image_folder(tmp_path)
    (tmp_path / "x.png").write_text("x")
    with pytest.raises(DataError, match=r"no image that can be read: .*x\.png"):
        read_image_folder(tmp_path, budget=1.0)
