"""Fault 24: archives that reach out of their folder, hold links, or are not what they claim; nothing is left behind."""

import io
import stat
import tarfile
import zipfile

import pytest

from bal.data.archives import MAX_BYTES, unpack
from bal.errors import DataError, StorageError


def make_zip(path, members):
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members:
            archive.writestr(name, content)
    return path


def make_tar(path, members, mode="w:gz"):
    with tarfile.open(path, mode) as archive:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


MAKERS = {"zip": make_zip, "tar.gz": make_tar}


def everything(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


@pytest.fixture
def place(tmp_path):
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


@pytest.mark.parametrize("kind", MAKERS)
def test_members_are_written_where_they_belong(tmp_path, place, kind):
    archive = MAKERS[kind](tmp_path / f"x.{kind}", [("a/b/1.bin", b"one"), ("a/2.bin", b"two"), ("./top.txt", b"")])
    unpack(archive, place, wanted=["a/2.bin", "a/b/"])
    assert everything(place) == ["a", "a/2.bin", "a/b", "a/b/1.bin", "top.txt"]
    assert (place / "a/b/1.bin").read_bytes() == b"one"


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize(
    "name",
    ["../x", "a/../../x", "/etc/x", "..\\x", "C:\\x", "C:x", "\\\\server\\share\\x"],
    ids=lambda name: name.replace("/", "|"),
)
def test_members_that_lead_out_of_the_folder_are_refused_and_nothing_is_left(tmp_path, place, kind, name):
    archive = MAKERS[kind](tmp_path / f"x.{kind}", [("good.txt", b"good"), (name, b"evil")])
    before = everything(tmp_path)
    with pytest.raises(DataError, match="leads out of its folder"):
        unpack(archive, place)
    assert everything(tmp_path) == before


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_in_a_tar_are_refused(tmp_path, place, kind):
    with tarfile.open(tmp_path / "x.tar", "w") as archive:
        good = tarfile.TarInfo("good.txt")
        archive.addfile(good, io.BytesIO())
        info = tarfile.TarInfo("way")
        info.type, info.linkname = kind, "/etc/passwd"
        archive.addfile(info)
    with pytest.raises(DataError, match="link or a device, 'way'"):
        unpack(tmp_path / "x.tar", place)
    assert everything(place) == []


def test_a_hard_link_to_a_member_of_the_tar_is_refused_too(tmp_path, place):
    with tarfile.open(tmp_path / "x.tar", "w") as archive:
        archive.addfile(tarfile.TarInfo("good.txt"), io.BytesIO())
        info = tarfile.TarInfo("again")
        info.type, info.linkname = tarfile.LNKTYPE, "good.txt"
        archive.addfile(info)
    with pytest.raises(DataError, match="link or a device"):
        unpack(tmp_path / "x.tar", place)


def test_a_link_in_a_zip_is_refused(tmp_path, place):
    link = zipfile.ZipInfo("way")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    with pytest.raises(DataError, match="link or a device"):
        unpack(make_zip(tmp_path / "x.zip", [("good.txt", b""), (link, "/etc/passwd")]), place)
    assert everything(place) == []


@pytest.mark.parametrize("kind", MAKERS)
def test_more_bytes_than_the_limit_are_refused(tmp_path, place, kind):
    archive = MAKERS[kind](tmp_path / f"x.{kind}", [("a", bytes(600)), ("b", bytes(600))])
    with pytest.raises(DataError, match="more than 1,000 bytes"):
        unpack(archive, place, max_bytes=1000)
    assert everything(place) == []


def test_a_bomb_is_refused_by_the_size_in_its_header(tmp_path, place):
    info = tarfile.TarInfo("bomb")
    info.size = MAX_BYTES + 1
    (tmp_path / "x.tar").write_bytes(info.tobuf() + bytes(1024))
    with pytest.raises(DataError, match="more than 4,294,967,296 bytes"):
        unpack(tmp_path / "x.tar", place)


def test_too_many_members_are_refused(tmp_path, place, monkeypatch):
    monkeypatch.setattr("bal.data.archives.MAX_MEMBERS", 2)
    with pytest.raises(DataError, match="or 2 files"):
        unpack(make_zip(tmp_path / "x.zip", [(str(i), b"") for i in range(3)]), place)


@pytest.mark.parametrize("kind", MAKERS)
def test_damaged_archives_are_refused_and_nothing_is_left(tmp_path, place, kind):
    content = bytes(range(256)) * 40
    archive = MAKERS[kind](tmp_path / f"x.{kind}", [("a/1", content), ("a/2", content)])
    whole = archive.read_bytes()
    flipped = bytearray(whole)
    flipped[len(whole) // 3] ^= 0xFF
    for damaged in (b"", b"not an archive", whole[: len(whole) // 2], bytes(flipped)):
        archive.write_bytes(damaged)
        with pytest.raises(DataError, match=r"not a whole archive|does not hold"):
            unpack(archive, place, wanted=["a/1", "a/2"])
        assert everything(place) == []


@pytest.mark.parametrize("kind", MAKERS)
def test_an_archive_without_what_it_should_hold_is_refused(tmp_path, place, kind):
    archive = MAKERS[kind](tmp_path / f"x.{kind}", [("a/1", b"x")])
    with pytest.raises(DataError, match=r"does not hold a/2, b/; is it another archive"):
        unpack(archive, place, wanted=["a/1", "a/2", "b/"])
    assert everything(place) == []


def test_files_of_a_folder_that_is_there_are_replaced_and_others_kept(tmp_path, place):
    (place / "a").mkdir()
    (place / "a" / "1").write_text("old")
    (place / "a" / "mine").write_text("mine")
    unpack(make_zip(tmp_path / "x.zip", [("a/1", b"new"), ("a/deep/2", b"two")]), place, wanted=["a/1"])
    assert everything(place) == ["a", "a/1", "a/deep", "a/deep/2", "a/mine"]
    assert (place / "a" / "1").read_text() == "new"
    assert (place / "a" / "mine").read_text() == "mine"


def test_what_a_killed_run_left_is_cleared_away(tmp_path, place):
    (place / ".x.zip.unpacking").mkdir()
    (place / ".x.zip.unpacking" / "half").write_text("")
    unpack(make_zip(tmp_path / "x.zip", [("1", b"x")]), place)
    assert everything(place) == ["1"]


def test_a_file_in_the_way_is_a_storage_error(tmp_path):
    (tmp_path / "root").write_text("a file")
    with pytest.raises(StorageError, match="cannot unpack"):
        unpack(make_zip(tmp_path / "x.zip", [("1", b"x")]), tmp_path / "root")
