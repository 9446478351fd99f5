import os
import platform
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from bal.errors import StorageError
from bal.storage import load_tensors, save_tensors, write_atomically

TENSORS = {"a": torch.arange(6).reshape(2, 3), "b": torch.tensor(1.5), "c": torch.zeros(0, 4, dtype=torch.uint8)}


def test_what_is_saved_is_what_is_loaded(tmp_path):
    save_tensors(tmp_path / "deep" / "file", TENSORS, {"name": "é", "n": [1, 2]})
    tensors, settings = load_tensors(tmp_path / "deep" / "file")
    assert settings == {"name": "é", "n": [1, 2]}
    assert tensors.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        assert tensors[name].dtype == tensor.dtype
        assert torch.equal(tensors[name], tensor)


def test_every_flipped_bit_and_every_cut_is_noticed(tmp_path):
    """Fault 11: safetensors alone reads a file with a flipped bit in its data."""
    path = tmp_path / "file"
    save_tensors(path, TENSORS, {"n": 1})
    whole = path.read_bytes()
    for place in range(0, len(whole), 3):
        damaged = bytearray(whole)
        damaged[place] ^= 0b100
        path.write_bytes(damaged)
        try:
            tensors, settings = load_tensors(path)
        except StorageError:
            continue
        # a bit of padding or spacing in the header may carry no meaning; what was read must then be right
        assert settings == {"n": 1}
        assert all(torch.equal(tensors[name], tensor) for name, tensor in TENSORS.items())
    for length in (0, 4, 8, 50, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(StorageError, match="damaged"):
            load_tensors(path)


def test_a_missing_or_foreign_file_is_refused(tmp_path):
    from safetensors.torch import save_file

    with pytest.raises(StorageError, match="no file"):
        load_tensors(tmp_path / "none")
    save_file({"a": torch.zeros(1)}, tmp_path / "foreign")
    (tmp_path / "mine.py").write_text("x = 1  # not to be deleted")
    for name in ("foreign", "mine.py"):
        with pytest.raises(StorageError, match=r"not written by bal .* check the path") as refused:
            load_tensors(tmp_path / name)
        assert "delete" not in str(refused.value)


def test_a_folder_that_cannot_be_written_keeps_the_old_file(tmp_path):
    """Fault 13: a file stands where the folder should be, which no user, not even root, can write into."""
    (tmp_path / "blocked").write_text("old")
    with pytest.raises(StorageError, match="cannot write"):
        write_atomically(tmp_path / "blocked" / "file", b"new")
    assert (tmp_path / "blocked").read_text() == "old"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full on this system")  # noqa: PTH110
def test_a_full_disk_keeps_the_old_file(tmp_path, monkeypatch):
    """Fault 13: the temporary file is a link to the device that is always full."""
    path = tmp_path / "file"
    path.write_bytes(b"old")
    monkeypatch.setattr("bal.storage.uuid4", lambda: type("Fixed", (), {"hex": "x"}))
    (tmp_path / f".file.{platform.node()}.{os.getpid()}.x.tmp").symlink_to("/dev/full")
    with pytest.raises(StorageError, match=r"No space left.*old file, if any, is kept"):
        write_atomically(path, b"new" * 10_000)
    assert path.read_bytes() == b"old"


@pytest.mark.parametrize("name", [".", "/", "folder", "loop", "pipe", "nu\0ll"])
def test_what_is_no_file_to_replace_is_refused(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    os.mkfifo("pipe")
    with pytest.raises(StorageError, match="cannot write"):
        write_atomically(Path(name), b"new")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "loop", "pipe"]


@pytest.mark.parametrize("name", ["a**b", "[a", "a?"])
def test_any_name_is_a_name_and_strangers_beside_it_stay(tmp_path, name):
    strangers = [f".{name}.{platform.node()}.{middle}.tmp" for middle in ("notapid", "x.y", f"{'9' * 30}.0")]
    for stranger in strangers:
        (tmp_path / stranger).write_text("")
    (tmp_path / f".{name}.{platform.node()}.999999999.0.tmp").write_text("of a process that is gone")
    write_atomically(tmp_path / name, b"new")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([name, *strangers])


def test_a_link_stays_and_the_file_it_leads_to_is_replaced(tmp_path):
    (tmp_path / "far").mkdir()
    (tmp_path / "link").symlink_to("far/file")
    for content in (b"first", b"second"):
        write_atomically(tmp_path / "link", content)
        assert (tmp_path / "far" / "file").read_bytes() == content
    assert (tmp_path / "link").is_symlink()
    assert [path.name for path in (tmp_path / "far").iterdir()] == ["file"]


MANY = """
import sys
from pathlib import Path
from bal.storage import write_atomically
for n in range(150):
    write_atomically(Path(sys.argv[1]), sys.argv[2].encode() * 1000)
"""


def test_two_processes_may_write_the_same_file(tmp_path):
    path = tmp_path / "file"
    writers = [subprocess.Popen([sys.executable, "-c", MANY, str(path), name]) for name in "ab"]
    assert [writer.wait() for writer in writers] == [0, 0]
    assert path.read_text() in ("a" * 1000, "b" * 1000)


WRITER = """
import sys
from pathlib import Path
from bal.storage import write_atomically
n = 0
while True:
    n += 1
    write_atomically(Path(sys.argv[1]), (b"%07d" % n) * 20000)
"""


def test_kill_9_while_writing_leaves_a_whole_file_and_stale_temporaries_go(tmp_path):
    """Fault 12."""
    path = tmp_path / "file"
    write_atomically(path, b"0000000" * 20000)
    for trial in range(6):
        with subprocess.Popen([sys.executable, "-c", WRITER, str(path)]) as process:
            before = path.stat().st_mtime_ns
            while path.stat().st_mtime_ns == before:
                time.sleep(0.001)
            time.sleep(0.003 * trial)
            process.send_signal(signal.SIGKILL)
        content = path.read_bytes()
        assert content == content[:7] * 20000
    write_atomically(path, b"last")
    assert [file.name for file in tmp_path.iterdir()] == ["file"]
