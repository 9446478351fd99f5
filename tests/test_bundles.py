import json
import os
import subprocess
import sys
import zipfile
from functools import partial
from pathlib import Path

import pytest

from bal.bundles import MANIFEST, read_bundle, seal, write_bundle
from bal.errors import StorageError
from killing import kills_while_saving

PARTS = {"tensors.bin": b"0123456789", "notes.txt": b"words"}
KINDS = pytest.mark.parametrize("name", ["folder", "file.bal"])


@KINDS
def test_what_is_written_is_what_is_read(tmp_path, name):
    write_bundle(tmp_path / "deep" / name, {"schema": 2, "name": "é"}, PARTS)
    manifest, parts = read_bundle(tmp_path / "deep" / name, schema=2)
    assert (manifest["schema"], manifest["name"]) == (2, "é")
    assert manifest["parts"]["tensors.bin"]["bytes"] == 10
    assert parts == PARTS


def test_a_zip_is_stored_and_the_same_bytes_every_time(tmp_path):
    for name in ("a.bal", "b.bal"):
        write_bundle(tmp_path / name, {"schema": 1}, PARTS)
    assert (tmp_path / "a.bal").read_bytes() == (tmp_path / "b.bal").read_bytes()
    with zipfile.ZipFile(tmp_path / "a.bal") as archive:
        assert {item.compress_type for item in archive.infolist()} == {zipfile.ZIP_STORED}


@KINDS
def test_every_flipped_bit_and_every_cut_is_noticed(tmp_path, name):
    """Fault 11: of all files of the bundle, in all their places."""
    path = tmp_path / name
    write_bundle(path, {"schema": 1, "n": 7}, PARTS)
    said = read_bundle(path, schema=1)
    for file in sorted(path.iterdir()) if path.is_dir() else [path]:
        whole = file.read_bytes()
        for place in range(len(whole)):
            file.write_bytes(whole[:place] + bytes([whole[place] ^ 0b100]) + whole[place + 1 :])
            try:
                assert read_bundle(path, schema=1) == said, "what carries no meaning, such as a date in the zip, may be any"
            except StorageError:
                continue
        for length in (0, 1, len(whole) // 2, len(whole) - 1):
            file.write_bytes(whole[:length])
            with pytest.raises(StorageError):
                read_bundle(path, schema=1)
        file.write_bytes(whole)


def test_a_missing_part_and_a_missing_manifest_are_refused(tmp_path):
    """Fault 11."""
    write_bundle(tmp_path, {"schema": 1}, PARTS)
    next(tmp_path.glob("tensors-*.bin")).rename(tmp_path / "away")
    with pytest.raises(StorageError, match="damaged, incomplete"):
        read_bundle(tmp_path, schema=1)
    with pytest.raises(StorageError, match=r"incomplete.*manifest\.json"):
        read_bundle(tmp_path / "..", schema=1)


def test_pipes_and_devices_are_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    write_bundle(tmp_path / "d", {"schema": 1}, PARTS)
    (tmp_path / "d" / MANIFEST).unlink()
    (tmp_path / "d" / MANIFEST).symlink_to("/dev/zero")
    for path in (tmp_path / "pipe", Path("/dev/zero"), tmp_path / "d"):
        with pytest.raises(StorageError, match=r"is no plain file\); check the path"):
            read_bundle(path, schema=1)


def test_a_newer_schema_is_refused(tmp_path):
    """Fault 17."""
    write_bundle(tmp_path, {"schema": 3}, PARTS)
    with pytest.raises(StorageError, match="schema 3, this bal reads up to 2; update bal"):
        read_bundle(tmp_path, schema=2)


@pytest.mark.parametrize("lie", ["../outside", "/etc/hostname", "a/b", "", ".hidden", 7, None])
def test_a_part_that_leads_out_of_the_bundle_is_refused(tmp_path, lie):
    """Faults 11 and 24: the manifest's own seal is right, its content is not."""
    (tmp_path / "outside").write_bytes(b"0123456789")
    write_bundle(tmp_path / "d", {"schema": 1}, PARTS)
    manifest = json.loads((tmp_path / "d" / MANIFEST).read_text())
    manifest["parts"]["tensors.bin"]["file"] = lie
    manifest["sha256"] = seal({name: value for name, value in manifest.items() if name != "sha256"})
    (tmp_path / "d" / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(StorageError, match="not written by bal"):
        read_bundle(tmp_path / "d", schema=1)


def test_a_compressed_member_is_refused(tmp_path):
    """Fault 9's cousin: a small file must not become gigabytes."""
    with zipfile.ZipFile(tmp_path / "x.bal", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(MANIFEST, "{}" + " " * 10_000)
    with pytest.raises(StorageError, match="is compressed"):
        read_bundle(tmp_path / "x.bal", schema=1)


def test_files_of_others_are_left_alone_and_older_parts_go(tmp_path):
    (tmp_path / "README.md").write_text("mine")
    (tmp_path / "tensors-of-mine.bin").write_text("mine")
    (tmp_path / ".tensors-0123456789abcdef.bin.host.1.x.tmp").write_text("of a save that was killed")
    write_bundle(tmp_path, {"schema": 1}, PARTS)
    write_bundle(tmp_path, {"schema": 1}, {**PARTS, "tensors.bin": b"new"})
    names = sorted(path.name for path in tmp_path.iterdir())
    assert len(names) == 5
    assert {"README.md", "tensors-of-mine.bin", MANIFEST} < set(names)
    assert read_bundle(tmp_path, schema=1)[1]["tensors.bin"] == b"new"


def test_a_place_that_cannot_be_written_is_said_and_the_old_file_kept(tmp_path):
    """Fault 13."""
    (tmp_path / "blocked").write_text("old")
    for name in ("blocked", "blocked/folder", "blocked/file.bal"):
        with pytest.raises(StorageError, match="cannot write"):
            write_bundle(tmp_path / name, {"schema": 1}, PARTS)
    assert (tmp_path / "blocked").read_text() == "old"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full on this system")  # noqa: PTH110
def test_a_full_disk_keeps_the_old_bundle(tmp_path, monkeypatch):
    """Fault 13: the manifest's temporary is a link to the device that is always full."""
    import platform

    write_bundle(tmp_path, {"schema": 1}, PARTS)
    monkeypatch.setattr("bal.storage.uuid4", lambda: type("Fixed", (), {"hex": "x"}))
    (tmp_path / f".{MANIFEST}.{platform.node()}.{os.getpid()}.x.tmp").symlink_to("/dev/full")
    with pytest.raises(StorageError, match="No space left"):
        write_bundle(tmp_path, {"schema": 1, "new": "x" * 10_000}, {**PARTS, "tensors.bin": b"new"})
    assert read_bundle(tmp_path, schema=1)[1] == PARTS


@KINDS
def test_kill_9_at_50_random_moments_leaves_the_old_or_the_new_one_whole(tmp_path, rng, name):
    """Fault 12."""
    path = tmp_path / name
    versions = [({"schema": 1, "n": n}, {"tensors.bin": bytes([n]) * 50_000}) for n in range(2)]
    save_old, save_new = (partial(write_bundle, path, *version) for version in versions)
    for _ in kills_while_saving(save_old, save_new, tmp_path if path.suffix else path, rng):
        manifest, parts = read_bundle(path, schema=1)
        assert parts == versions[manifest["n"]][1]
    assert read_bundle(path, schema=1)[0]["n"] == 0


SWITCH = """
import sys
from pathlib import Path
from bal.bundles import read_bundle, write_bundle
path, mine = Path(sys.argv[1]), bytes([int(sys.argv[2])]) * 1000
for _ in range(40):
    write_bundle(path, {"schema": 1}, {"tensors.bin": mine})
    assert len(set(read_bundle(path, schema=1)[1]["tensors.bin"])) == 1
"""


def test_two_processes_may_write_and_read_one_folder(tmp_path):
    writers = [subprocess.Popen([sys.executable, "-c", SWITCH, str(tmp_path / "d"), n]) for n in "12"]
    assert [writer.wait() for writer in writers] == [0, 0]
    assert len(list((tmp_path / "d").iterdir())) == 2
