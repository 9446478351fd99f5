import io
import os
import pickle
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from bal.data.folders import read_image_folder
from bal.data.shards import BLOCK, find_shards, npz_blocks
from bal.errors import DataError

SHAPE = (1, 4, 4)


def read(sources, rows=3, shape=SHAPE):
    return [(shard, list(shard.blocks(shape))) for shard in find_shards(sources, rows=rows)]


def names(shards):
    return [name for _, blocks in shards for block in blocks for name in block.names]


@pytest.fixture
def folder(tmp_path, rng):
    for place, count in (("photos", 2), ("photos/b", 4), ("photos/a", 1)):
        (tmp_path / place).mkdir(exist_ok=True)
        for i in range(count):
            Image.fromarray(rng.integers(0, 256, (9, 7), np.uint8)).save(tmp_path / place / f"{i}.png")
    (tmp_path / "photos" / ".hidden").write_text("")
    (tmp_path / "photos" / ".git").mkdir()
    (tmp_path / "photos" / ".git" / "x").write_text("")
    return tmp_path / "photos"


def test_a_folder_of_images_has_shards_of_so_many_files_of_each_folder(folder):
    shards = read([folder])
    assert [(shard.name, shard.rows) for shard, _ in shards] == [
        ("photos/00000", 2),
        ("photos/a/00000", 1),
        ("photos/b/00000", 3),
        ("photos/b/00001", 1),
    ]
    assert names(shards)[:4] == ["photos/0.png", "photos/1.png", "photos/a/0.png", "photos/b/0.png"]
    assert {block.inputs.shape[1:] for _, blocks in shards for block in blocks} == {SHAPE}


def test_links_to_folders_are_followed_as_a_fit_does_but_not_in_a_circle(folder, tmp_path):
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "c").symlink_to(folder)
    (folder / "b" / "up").symlink_to(tmp_path / "linked")
    (folder / "b" / "itself").symlink_to(folder / "b" / "itself")
    found = names(read([tmp_path / "linked"]))
    fitted = [f"linked/{path.relative_to(tmp_path / 'linked')}" for path in read_image_folder(tmp_path / "linked", SHAPE).paths]
    assert len(fitted) == 7
    assert sorted(found) == sorted([*fitted, "linked/c/b/itself"]), "what is no file is a row with an error"


def test_names_that_are_no_text_are_told_by_their_bytes(tmp_path, rng):
    """They go into tables, which are UTF-8."""
    place = Path(os.fsdecode(bytes(tmp_path / "a") + b"\xff"))
    place.mkdir()
    os.mkfifo(place / os.fsdecode(b"\xff.png"))
    np.savez(place.with_name(place.name + ".npz"), x=rng.random((1, 16)))
    (_, (images,)), (_, (numbers,)) = read([place, place.with_name(place.name + ".npz")])
    assert images.names + numbers.names == [r"a\xff/\xff.png", r"a\xff.npz:0"]
    assert images.errors == [rf"{tmp_path}/a\xff/\xff.png is gone or is no plain file"]


def test_names_do_not_depend_on_how_the_folder_is_spelled(folder, monkeypatch):
    monkeypatch.chdir(folder)
    assert names(read(["."])) == names(read([folder])) == names(read(["../photos/"]))


def test_a_file_that_cannot_be_read_is_an_error_of_its_row(folder):
    """Fault 8: cut, empty, no image, gone."""
    (folder / "0.png").write_bytes((folder / "0.png").read_bytes()[:40])
    (folder / "1.png").write_bytes(b"")
    (folder / "2.txt").write_text("words")
    (_, (block,)), *_ = read([folder])
    assert len(block.inputs) == 0
    assert all(name in error for name, error in zip(block.names, block.errors, strict=True))
    (folder / "3.png").symlink_to(folder / "nowhere")
    os.mkfifo(folder / "4.png")
    with (folder / "5.png").open("wb") as huge:
        huge.truncate(1 << 40)
    shards = read([folder], rows=9)
    assert all(shards[0][1][0].errors)
    assert [error for block in shards[1][1] for error in block.errors] == [None]


def test_the_identity_of_a_shard_changes_with_its_files_alone(folder):
    before = {shard.name: shard.identity for shard, _ in read([folder])}
    os.utime(folder / "b" / "0.png", ns=(1, 1))
    after = {shard.name: shard.identity for shard, _ in read([folder])}
    assert {name for name in before if before[name] != after[name]} == {"photos/b/00000"}


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_an_npz_is_read_a_few_rows_at_a_time(tmp_path, rng, save):
    x = rng.random((BLOCK * 2 + 5, 2, 3), np.float32)
    save(tmp_path / "x.npz", labels=np.zeros(3), images=x)
    shards = read([tmp_path / "x.npz"], rows=BLOCK + 3)
    assert [(shard.name, shard.rows) for shard, _ in shards] == [("x.npz/00000", BLOCK + 3), ("x.npz/00001", BLOCK + 2)]
    assert [len(block.names) for _, blocks in shards for block in blocks] == [BLOCK, 3, BLOCK, 2]
    assert np.array_equal(np.concatenate([block.inputs for _, blocks in shards for block in blocks]), x)
    assert names(shards)[-1] == f"x.npz:{len(x) - 1}"
    skipped = [list(s.blocks(SHAPE)) for i, s in enumerate(find_shards([tmp_path / "x.npz"], rows=100)) if i == 2]
    assert np.array_equal(skipped[0][0].inputs, x[200:300]), "shards may be left out"


def test_an_npz_of_objects_is_refused(tmp_path):
    """Fault 10: numpy would unpickle them."""
    np.savez(tmp_path / "x.npz", images=np.array([{}, []], object))
    with pytest.raises(DataError, match="not rows of numbers"):
        read([tmp_path / "x.npz"])


def test_an_npz_that_is_cut_or_holds_no_inputs_is_refused(tmp_path, rng):
    np.savez(tmp_path / "x.npz", a=np.zeros(3))
    with pytest.raises(DataError, match=r"none of images, x, inputs, data"):
        read([tmp_path / "x.npz"])
    np.savez(tmp_path / "y.npz", x=rng.random((500, 4)))
    content = (tmp_path / "y.npz").read_bytes()
    (tmp_path / "y.npz").write_bytes(content[:-200])
    with pytest.raises(DataError, match=r"not an \.npz"):
        read([tmp_path / "y.npz"])
    flipped = bytearray(content)
    flipped[5000] ^= 1
    (tmp_path / "y.npz").write_bytes(flipped)
    with pytest.raises(DataError, match=r"damaged.*CRC"):
        read([tmp_path / "y.npz"], rows=1000)


def test_damage_on_the_way_to_a_later_shard_is_told():
    """A rerun passes over what is done; in an archive that means to read it."""

    class Damaged(io.BytesIO):
        def seek(self, *_):
            raise zlib.error("invalid block type")

    where = {"start": 0, "row_shape": (4,), "dtype": np.dtype("f4"), "first": 8, "count": 2}
    with pytest.raises(DataError, match=r"x\.npz is damaged \(invalid block type\)"):
        list(npz_blocks(SHAPE, stream=Damaged(), name="x.npz", **where))


LIES = [("(9999999999999, 3)", "more bytes than it has"), ("(9999999999999, 0)", "not rows of numbers"), ("(9", "EOF")]


@pytest.mark.parametrize(("shape", "words"), LIES)
@pytest.mark.parametrize("archive_lies", [False, True])
def test_an_npz_whose_header_promises_what_is_not_there_is_refused_at_once(tmp_path, shape, words, archive_lies):
    """Fault 9's cousin: two billion shards of nothing, even if the archive promises the bytes for them."""
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}}}".encode()
    member = zipfile.ZipInfo("x.npy")
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr(member, b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
        if archive_lies:
            member.file_size = 1 << 62  # in the directory at the end
    with pytest.raises(DataError, match=words):
        read([tmp_path / "x.npz"], rows=4096)


def test_a_file_that_cannot_be_opened_is_a_shard_that_says_so_and_the_others_are_read(tmp_path, rng):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    (tmp_path / "p").mkdir()
    cells = arrow.array(rng.random((3, 16)).tolist(), arrow.list_(arrow.float64()))
    for name in "ab":
        parquet.write_table(arrow.table({"image": cells}), tmp_path / "p" / f"{name}.parquet")
    (tmp_path / "p" / "a.parquet").write_bytes((tmp_path / "p" / "b.parquet").read_bytes()[:-9])
    (tmp_path / "cut.npz").write_text("PK")
    shards = list(find_shards([tmp_path / "p", tmp_path / "cut.npz"], rows=3))
    assert [(shard.name, shard.rows) for shard in shards] == [
        ("p/a.parquet/00000", 0),
        ("p/b.parquet/00000", 3),
        ("cut.npz/00000", 0),
    ]
    for shard, words in ((shards[0], r"a\.parquet is not a Parquet file"), (shards[2], r"cut\.npz is not an \.npz")):
        again = next(pickle.loads(pickle.dumps(shard.again))())  # noqa: S301
        assert (again.name, again.identity) == (shard.name, shard.identity)
        with pytest.raises(DataError, match=words):
            list(again.blocks(SHAPE))


@pytest.mark.parametrize("kind", ["bytes", "numbers"])
def test_parquet_is_read_by_row_groups(tmp_path, rng, kind):
    """Fault 8: a cell that is no image is an error of its row."""
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")

    def png(image):
        sink = io.BytesIO()
        Image.fromarray(image).save(sink, "png")
        return sink.getvalue()

    images = rng.integers(0, 256, (7, 4, 4), np.uint8)
    cells = [{"bytes": png(image)} for image in images] if kind == "bytes" else [image.ravel().tolist() for image in images]
    if kind == "bytes":
        cells[4], cells[5] = {"bytes": b"no image"}, {"bytes": None}
    (tmp_path / "p").mkdir()
    table = arrow.table({"image": cells if kind == "bytes" else arrow.array(cells, arrow.list_(arrow.uint8()))})
    for name in ("a", "b"):
        parquet.write_table(table, tmp_path / "p" / f"{name}.parquet", row_group_size=3)
    shards = read([tmp_path / "p"])
    expected = [(f"p/{n}.parquet/{g:05d}", r) for n in "ab" for g, r in enumerate((3, 3, 1))]
    assert [(shard.name, shard.rows) for shard, _ in shards] == expected
    assert names(shards)[:7] == [f"p/a.parquet:{i}" for i in range(7)]
    errors = [error is not None for _, blocks in shards[:3] for block in blocks for error in block.errors]
    assert errors == [kind == "bytes" and i in (4, 5) for i in range(7)]
    good = np.concatenate([block.inputs for _, blocks in shards[:3] for block in blocks])
    assert np.array_equal(good[:, 0], images[~np.array(errors)])


def test_row_groups_without_rows_are_passed_over_and_the_others_keep_their_numbers(tmp_path, rng):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    table = arrow.table({"image": arrow.array(rng.random((3, 16)).tolist(), arrow.list_(arrow.float64()))})
    with parquet.ParquetWriter(tmp_path / "x.parquet", table.schema) as file:
        for rows in (0, 3, 0, 2):
            file.write_table(table.slice(0, rows))
    shards = read([tmp_path / "x.parquet"])
    assert [(shard.name, shard.rows) for shard, _ in shards] == [("x.parquet/00001", 3), ("x.parquet/00003", 2)]
    assert names(shards) == [f"x.parquet:{row}" for row in range(5)]
    assert [next(shard.again()).name for shard, _ in shards] == [shard.name for shard, _ in shards]


def test_what_is_not_there_and_names_that_clash_are_refused(tmp_path):
    with pytest.raises(DataError, match="no file or folder"):
        read([tmp_path / "none"])
    with pytest.raises(DataError, match="same name"):
        read([tmp_path / "a" / "x.npz", tmp_path / "b" / "x.npz"])
    (tmp_path / "bad.parquet").write_text("")
    pytest.importorskip("pyarrow")
    with pytest.raises(DataError, match="not a Parquet file"):
        read([tmp_path / "bad.parquet"])


def test_vectors_cannot_be_read_from_image_files(folder):
    with pytest.raises(DataError, match="image files become"):
        read([folder], shape=(7,))


def test_another_process_finds_a_shard_again(folder, tmp_path, rng):
    """As a worker of a cluster does: what is sent names the place, and reads nothing before the shard."""
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    np.savez(tmp_path / "x.npz", x=rng.random((8, 1, 4, 4), np.float32))
    cells = arrow.array(rng.random((8, 16)).tolist(), arrow.list_(arrow.float64()))
    parquet.write_table(arrow.table({"image": cells}), tmp_path / "p.parquet", row_group_size=3)
    for shard in find_shards([folder, tmp_path / "x.npz", tmp_path / "p.parquet"], rows=3):
        blocks = list(shard.blocks(SHAPE))
        found = pickle.loads(pickle.dumps(shard.again))()  # noqa: S301
        again = next(found)
        assert (again.name, again.rows, again.identity) == (shard.name, shard.rows, shard.identity)
        for one, other in zip(blocks, again.blocks(SHAPE), strict=True):
            assert one.names == other.names
            assert np.array_equal(one.inputs, other.inputs)
