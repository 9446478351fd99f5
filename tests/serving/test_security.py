import os
import threading
from pathlib import Path

import pytest

from bal.errors import SettingsError
from bal.serving.refusal import Refusal
from bal.serving.security import Guard, check_address, read_token

TOKEN = "0123456789abcdef-secret"  # noqa: S105


@pytest.mark.parametrize(
    "header",
    [
        None,
        b"",
        TOKEN.encode(),
        b"Bearer",
        b"Bearer ",
        b"Basic " + TOKEN.encode(),
        b"Bearer " + TOKEN.encode()[:-1],
        b"Bearer \xff",
    ],
)
def test_everything_but_the_token_is_401(header):
    with pytest.raises(Refusal) as refused:
        Guard(TOKEN).check(header)
    assert (refused.value.status, refused.value.headers) == (401, {"WWW-Authenticate": "Bearer"})
    assert TOKEN not in refused.value.message


def test_the_token_opens_and_without_one_everybody_may():
    Guard(TOKEN).check(b"Bearer " + TOKEN.encode())
    Guard(TOKEN).check(b"bearer  " + TOKEN.encode())
    Guard(None).check(None)


def test_the_token_comes_from_the_environment_or_a_file_but_not_from_both(tmp_path, monkeypatch):
    monkeypatch.delenv("BAL_TOKEN", raising=False)
    file = tmp_path / "token"
    file.write_text(TOKEN + "\n")
    assert read_token() is None
    assert read_token(file) == TOKEN
    monkeypatch.setenv("BAL_TOKEN", TOKEN)
    assert read_token() == TOKEN
    with pytest.raises(SettingsError, match="give one of them"):
        read_token(file)


@pytest.mark.parametrize("content", [b"", b"short", b"0123456789 abcdef", b"\xff" * 30, "é".encode() * 20])
def test_a_token_that_is_weak_or_no_text_is_refused_and_not_shown(tmp_path, monkeypatch, content):
    monkeypatch.delenv("BAL_TOKEN", raising=False)
    (tmp_path / "token").write_bytes(content)
    with pytest.raises(SettingsError, match="token") as refused:
        read_token(tmp_path / "token")
    assert "0123456789" not in str(refused.value)


def test_a_token_may_come_by_a_pipe_and_a_device_without_an_end_is_refused(tmp_path, monkeypatch):
    monkeypatch.delenv("BAL_TOKEN", raising=False)
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=(tmp_path / "pipe").write_text, args=(TOKEN,))
    writer.start()
    assert read_token(tmp_path / "pipe") == TOKEN
    writer.join()
    with pytest.raises(SettingsError, match="16 to 4096 letters"):
        read_token(Path("/dev/zero"))


def test_a_file_that_is_not_there_is_said(tmp_path, monkeypatch):
    monkeypatch.delenv("BAL_TOKEN", raising=False)
    with pytest.raises(SettingsError, match="cannot be read"):
        read_token(tmp_path / "none")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.2", "example.org", ""])  # noqa: S104
def test_a_public_address_needs_a_token_or_a_word(host):
    with pytest.raises(SettingsError, match="there is no token"):
        check_address(host, token=None, allow_public=False)
    check_address(host, token=TOKEN, allow_public=False)
    check_address(host, token=None, allow_public=True)
    check_address("127.0.0.1", token=None, allow_public=False)
