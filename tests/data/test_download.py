"""Downloads from a server on this machine that is cut, deaf to ranges, wrong or not there; never a half file under its name."""

import hashlib
import io
import re
import tarfile
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
from PIL import Image

from bal.data import download
from bal.data.catalog import CATALOG, DataSet, File, load_data_set
from bal.data.download import fetch, get_data_set
from bal.errors import DataError, StorageError

CONTENT = np.random.default_rng(0).bytes(100_000)
SET = DataSet("Toy", "https://toy.example", "MIT", 2, (1,), {}, lambda *_: None, note="a toy")


def md5(content):
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


class Server(ThreadingHTTPServer):
    """Serves ``files``; ``cuts`` are the bytes after which the next answers break off; ``ranges`` whether Range is heard."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files, self.cuts, self.ranges, self.asked = {}, [], True, []

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        wanted = self.headers.get("Range")
        self.server.asked.append((self.path, wanted))
        content = self.server.files.get(self.path)
        if content is None:
            return self.send_error(404)
        start = int(re.fullmatch(r"bytes=(\d+)-", wanted)[1]) if wanted and self.server.ranges else 0
        if start >= len(content):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(content)}")
            self.send_header("Content-Length", "0")
            return self.end_headers()
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        end = start + self.server.cuts.pop(0) if self.server.cuts else len(content)
        self.wfile.write(content[start:end])
        self.close_connection = end < len(content)
        return None

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        server.files["/toy/x.bin"] = CONTENT
        yield server
        server.shutdown()
        thread.join()


def get(server, folder, *, checksum=None):
    return fetch(File("x.bin", checksum or md5(CONTENT)), folder, f"{server.url}/toy/x.bin", SET, show_progress=False)


def names(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


def test_a_file_is_fetched_once(server, tmp_path):
    assert get(server, tmp_path / "new" / "folder") is True
    assert (tmp_path / "new" / "folder" / "x.bin").read_bytes() == CONTENT
    assert names(tmp_path / "new" / "folder") == ["x.bin"]
    assert get(server, tmp_path / "new" / "folder") is False
    assert server.asked == [("/toy/x.bin", None)]


def test_a_connection_that_is_cut_is_taken_up_where_it_stopped(server, tmp_path):
    server.cuts = [30_000, 50_000]
    get(server, tmp_path)
    assert [wanted for _, wanted in server.asked] == [None, "bytes=30000-", "bytes=80000-"]
    assert (tmp_path / "x.bin").read_bytes() == CONTENT
    assert names(tmp_path) == ["x.bin"]


def test_an_earlier_run_is_taken_up_and_the_file_has_no_name_until_it_is_whole(server, tmp_path):
    server.cuts = [30_000, 0]
    with pytest.raises(DataError, match="what came so far is kept, and the next try goes on from there"):
        get(server, tmp_path)
    assert names(tmp_path) == ["x.bin.part"]
    assert (tmp_path / "x.bin.part").read_bytes() == CONTENT[:30_000]
    server.asked.clear()
    get(server, tmp_path)
    assert server.asked == [("/toy/x.bin", "bytes=30000-")]
    assert names(tmp_path) == ["x.bin"]
    assert (tmp_path / "x.bin").read_bytes() == CONTENT


def test_a_server_that_ignores_ranges_sends_all_and_all_is_written_anew(server, tmp_path):
    server.ranges = False
    (tmp_path / "x.bin.part").write_bytes(CONTENT[:30_000])
    get(server, tmp_path)
    assert server.asked == [("/toy/x.bin", "bytes=30000-")]
    assert (tmp_path / "x.bin").read_bytes() == CONTENT


def test_a_server_that_always_cuts_at_the_same_place_is_given_up(server, tmp_path):
    server.ranges, server.cuts = False, [30_000] * 9
    with pytest.raises(DataError, match="did not give it"):
        get(server, tmp_path)
    assert len(server.asked) == 2
    assert names(tmp_path) == ["x.bin.part"]


def test_a_part_that_is_whole_is_only_checked_and_one_that_is_too_long_is_dropped(server, tmp_path):
    (tmp_path / "x.bin.part").write_bytes(CONTENT)
    get(server, tmp_path)
    assert [wanted for _, wanted in server.asked] == ["bytes=100000-"]
    (tmp_path / "x.bin").unlink()
    (tmp_path / "x.bin.part").write_bytes(CONTENT + b"more")
    get(server, tmp_path)
    assert (tmp_path / "x.bin").read_bytes() == CONTENT


def test_another_file_is_refused_by_its_checksum_and_removed(server, tmp_path):
    with pytest.raises(
        DataError, match=r"(?s)x\.bin of Toy was not fetched.*does not match.*put it at .*x\.bin; its MD5 must be 0000"
    ):
        get(server, tmp_path, checksum="0" * 32)
    assert names(tmp_path) == []


def test_a_part_of_another_file_is_found_out_and_the_next_try_starts_anew(server, tmp_path):
    (tmp_path / "x.bin.part").write_bytes(bytes(30_000))
    with pytest.raises(DataError, match="does not match"):
        get(server, tmp_path)
    assert names(tmp_path) == []
    get(server, tmp_path)
    assert (tmp_path / "x.bin").read_bytes() == CONTENT


def test_a_wrong_file_that_is_there_stays_until_a_right_one_has_come(server, tmp_path):
    (tmp_path / "x.bin").write_bytes(b"old")
    with pytest.raises(DataError):
        get(server, tmp_path, checksum="0" * 32)
    assert (tmp_path / "x.bin").read_bytes() == b"old"
    get(server, tmp_path)
    assert (tmp_path / "x.bin").read_bytes() == CONTENT


def test_a_file_that_the_server_does_not_have_is_asked_for_by_name_place_and_checksum(server, tmp_path):
    server.files.clear()
    with pytest.raises(
        DataError, match=rf"(?s)404.*https://toy\.example \(a toy\).*put it at {tmp_path}/x\.bin; its MD5 must be"
    ):
        get(server, tmp_path)
    assert names(tmp_path) == []


def test_without_a_network_the_file_is_asked_for_by_name_place_and_checksum(tmp_path):
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as closed:
        port = closed.server_port
    with pytest.raises(DataError, match=rf"(?s)was not fetched.*put it at {tmp_path}/x\.bin; its MD5 must be {md5(CONTENT)}"):
        fetch(File("x.bin", md5(CONTENT)), tmp_path, f"http://127.0.0.1:{port}/x.bin", SET, show_progress=False)
    assert names(tmp_path) == []


def test_a_folder_that_cannot_be_written_is_a_storage_error(server, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot write"):
        get(server, tmp_path / "file")


def test_what_has_no_open_address_is_asked_for(tmp_path):
    with pytest.raises(DataError, match=r"cats/ of Dogs vs\. Cats was not fetched.*kaggle.*no checksum of it is published"):
        get_data_set("dogs-vs-cats", root=tmp_path)


def tar(members):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


@pytest.fixture
def toy(server, monkeypatch):
    """A data set in an archive, in the catalog; call it to put an archive with other members on the server."""

    def serve(members):
        content = tar(members)
        server.files["/toy/toy.tar.gz"] = content
        archive = File("toy.tar.gz", md5(content), f"{server.url}/toy/toy.tar.gz")
        entry = DataSet("Toy", "https://toy.example", "MIT", 2, (1,), {"test": (File("toy/1.bin"),)}, SET.read, archive=archive)
        monkeypatch.setitem(CATALOG, "toy", entry)

    serve({"toy/1.bin": b"one", "toy/2.bin": b"two"})
    return serve


def test_an_archive_is_unpacked_and_removed_and_not_fetched_again(server, toy, tmp_path):
    assert get_data_set("toy", root=tmp_path, show_progress=False) == {"toy.tar.gz": True}
    assert names(tmp_path / "toy") == ["toy", "toy/1.bin", "toy/2.bin"]
    assert get_data_set("toy", root=tmp_path, show_progress=False) == {"toy.tar.gz": False}
    assert len(server.asked) == 1


def test_an_archive_that_was_put_there_by_hand_is_unpacked_without_a_network(server, toy, tmp_path):
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy" / "toy.tar.gz").write_bytes(server.files["/toy/toy.tar.gz"])
    assert get_data_set("toy", root=tmp_path) == {"toy.tar.gz": False}
    assert server.asked == []
    assert names(tmp_path / "toy") == ["toy", "toy/1.bin", "toy/2.bin"]


@pytest.mark.parametrize(
    ("members", "words"),
    [({"toy/1.bin": b"one", "../../evil": b"x"}, "leads out of its folder"), ({"toy/2.bin": b"two"}, "does not hold toy/1.bin")],
)
def test_an_archive_that_must_not_be_unpacked_leaves_nothing_behind(toy, tmp_path, members, words):
    toy(members)
    with pytest.raises(DataError, match=words):
        get_data_set("toy", root=tmp_path / "root", show_progress=False)
    assert names(tmp_path) == ["root", "root/toy"]


def test_a_mirror_is_laid_out_like_a_data_root(server, toy, tmp_path, monkeypatch):
    monkeypatch.setattr(download, "TIMEOUT", (1, 1))
    server.files["/data/toy/toy.tar.gz"] = server.files.pop("/toy/toy.tar.gz")
    get_data_set("toy", root=tmp_path, mirror=f"{server.url}/data/", show_progress=False)
    assert server.asked == [("/data/toy/toy.tar.gz", None)]


def test_an_archive_of_odins_authors_is_fetched_unpacked_and_read(server, tmp_path, monkeypatch):
    """A tiny one laid out as theirs, whose checksum stands in the catalog for that of the real one."""
    pictures = {}
    for i in range(3):
        pictures[f"LSUN_resize/LSUN_resize/{i}.jpg"] = picture = io.BytesIO()
        Image.new("RGB", (32, 32), (80 * i,) * 3).save(picture, "JPEG")
    content = tar({name: picture.getvalue() for name, picture in pictures.items()})
    entry = CATALOG["lsun-resize"]
    monkeypatch.setitem(CATALOG, "lsun-resize", replace(entry, archive=replace(entry.archive, md5=md5(content))))
    server.files["/lsun-resize/LSUN_resize.tar.gz"] = content
    got = get_data_set("lsun-resize", root=tmp_path, mirror=server.url, show_progress=False)
    assert got == {"LSUN_resize.tar.gz": True}
    images, labels = load_data_set("lsun-resize", "test", root=tmp_path)
    assert images.shape == (3, 3, 32, 32)
    assert images.mean((1, 2, 3)).tolist() == pytest.approx([0, 80, 160], abs=1)
    assert labels.tolist() == [-1] * 3
