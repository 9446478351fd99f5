"""Who may ask: a bearer token from the environment or a file, and which addresses need one."""

import hashlib
import hmac
import ipaddress
import os
from pathlib import Path

from bal.errors import SettingsError
from bal.serving.refusal import Refusal

TOKEN_VARIABLE = "BAL_TOKEN"  # noqa: S105 - the name of it
SHORTEST = 16  # characters
LONGEST = 4096


def read_token(file: Path | None = None) -> str | None:
    """The token of a file, or of the environment variable BAL_TOKEN; None where there is neither."""
    given = os.environ.get(TOKEN_VARIABLE)
    if file is None:
        return None if given is None else checked_token(given, f"the variable {TOKEN_VARIABLE}")
    if given is not None:
        raise SettingsError(f"there is a token in {file} and one in {TOKEN_VARIABLE}; give one of them")
    try:
        with file.open("rb") as stream:  # it may be a pipe, or a device without an end
            return checked_token(stream.read(2 * LONGEST).decode(), str(file))
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"the token cannot be read from {file} ({error})") from error


def checked_token(token: str, source: str) -> str:
    """A token that a header can carry and nobody guesses."""
    token = token.strip()
    if not SHORTEST <= len(token) <= LONGEST or not token.isascii() or not token.isprintable() or " " in token:
        raise SettingsError(
            f"the token in {source} must be {SHORTEST} to {LONGEST} letters, digits and signs without spaces; "
            "make one with: python -c 'import secrets; print(secrets.token_urlsafe())'"
        )
    return token


class Guard:
    """Compares tokens in constant time, whatever their length."""

    def __init__(self, token: str | None) -> None:
        self._expected = None if token is None else fingerprint(token.encode())

    def check(self, authorization: bytes | None) -> None:
        """Let a request through, by its header; without a token all are."""
        if self._expected is None:
            return
        kind, _, given = (authorization or b"").partition(b" ")
        right = hmac.compare_digest(fingerprint(given.strip()), self._expected)
        if not right or kind.lower() != b"bearer":
            raise Refusal(
                401,
                "unauthorized",
                "this server wants the header 'Authorization: Bearer TOKEN' with its token",
                {"WWW-Authenticate": "Bearer"},
            )


def fingerprint(token: bytes) -> bytes:
    """A digest, so that the time of a comparison does not tell the length."""
    return hashlib.sha256(token).digest()


def check_address(host: str, *, token: str | None, allow_public: bool) -> None:
    """Refuse to listen beyond this machine without a token, unless told to."""
    if token is None and not allow_public and not is_loopback(host):
        raise SettingsError(
            f"{host} can be reached from other machines and there is no token; set {TOKEN_VARIABLE} or --token-file, "
            "listen on 127.0.0.1, or say --allow-public if something in front of the server checks who asks"
        )


def is_loopback(host: str) -> bool:
    """Whether an address is of this machine alone; a name other than localhost may be anybody's.

    >>> [is_loopback(host) for host in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "example.org")]
    [True, True, True, False, False]
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
