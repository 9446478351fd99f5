"""Official files from their official addresses: resumed where they were cut, checked before they get their name."""

from functools import partial
from pathlib import Path
from typing import Any

from bal.data.archives import unpack
from bal.data.catalog import DataSet, File, all_files, find_data_set, folder_of, md5_of, missing_files
from bal.data.extras import import_extra
from bal.errors import BalError, DataError, StorageError
from bal.progress import progress_bar

TIMEOUT = (10, 60)  # seconds to connect, and between two blocks
BLOCK = 2**18


def get_data_set(name: str, *, root: Path | None = None, mirror: str = "", show_progress: bool = True) -> dict[str, bool]:
    """Fetch the official files of a data set that are not there yet; for each, whether it had to be fetched.

    ``mirror`` is the address of a folder laid out as a data root, NAME/FILE, to fetch from instead.
    """
    data_set = find_data_set(name)
    folder = folder_of(name, root)
    archive = data_set.archive
    if archive is not None and not missing_files(all_files(name), folder):
        return {archive.path: False}
    fetched = {}
    for file in [archive] if archive else all_files(name):
        url = f"{mirror.rstrip('/')}/{name}/{file.path}" if mirror else file.url
        fetched[file.path] = fetch(file, folder, url, data_set, show_progress=show_progress)
    if archive is not None:
        try:
            unpack(folder / archive.path, folder, wanted=[file.path for file in all_files(name)])
        except DataError:
            (folder / archive.path).unlink()
            raise
        (folder / archive.path).unlink()
    return fetched


def fetch(file: File, folder: Path, url: str, data_set: DataSet, *, show_progress: bool = True) -> bool:
    """Fetch one file, unless it is there and right."""
    target = folder / file.path
    if not missing_files([file], folder) and (not file.md5 or md5_of(target) == file.md5):
        return False
    if not url or file.path.endswith("/"):
        raise DataError(by_hand(file, folder, data_set, "no file at an open address holds it"))
    pooch, requests, urllib3 = (import_extra(module) for module in ("pooch", "requests", "urllib3"))
    pooch.get_logger().setLevel("WARNING")
    part = target.with_name(f"{target.name}.part")
    try:
        downloader = partial(download, part=part, show_progress=show_progress)
        pooch.retrieve(url, f"md5:{file.md5}" if file.md5 else None, file.path, folder, downloader=downloader)
    except BalError:
        raise
    except (requests.RequestException, urllib3.exceptions.HTTPError, ValueError) as error:
        kept = "; what came so far is kept, and the next try goes on from there" if part.exists() else ""
        raise DataError(by_hand(file, folder, data_set, f"{url} did not give it: {str(error).rstrip('.')}{kept}")) from error
    except OSError as error:
        raise StorageError(f"cannot write {target}: {error}; free some space or choose a folder you may write to") from error
    return True


def by_hand(file: File, folder: Path, data_set: DataSet, reason: str) -> str:
    """What to do where a file cannot be fetched."""
    checksum = f"its MD5 must be {file.md5}" if file.md5 else "no checksum of it is published"
    note = f" ({data_set.note})" if data_set.note and not file.url else ""
    return (
        f"{file.path} of {data_set.title} was not fetched, since {reason}. Get it from {data_set.address}{note} and put it at "
        f"{folder / file.path}; {checksum}"
    )


def download(url: str, output: str, pooch: Any, *, part: Path, show_progress: bool = True) -> None:
    """A downloader for pooch: what has come lies in ``part`` until it is whole, and a connection that is cut is taken up again.

    It gives up when an attempt does not come further than those before.
    """
    requests, urllib3 = import_extra("requests"), import_extra("urllib3")
    furthest, whole = size_of(part), False
    while not whole:
        try:
            whole = ask_for_the_rest(url, part, show_progress=show_progress)
        except (requests.ConnectionError, requests.Timeout, urllib3.exceptions.HTTPError):
            if size_of(part) <= furthest:
                raise
            furthest = size_of(part)
    part.replace(output)


def ask_for_the_rest(url: str, part: Path, *, show_progress: bool = True) -> bool:
    """One request for the bytes that ``part`` lacks; False if ``part`` does not belong to this file, and was removed.

    A server that does not know of ranges sends everything, and ``part`` is written anew.
    """
    have = size_of(part)
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
    with import_extra("requests").get(url, headers=headers, stream=True, timeout=TIMEOUT) as response:
        span = response.headers.get("Content-Range", "")
        if have and response.status_code == 416 and span == f"bytes */{have}":
            return True  # killed between the last byte and the renaming
        if have and (response.status_code == 416 or (response.status_code == 206 and not span.startswith(f"bytes {have}-"))):
            part.unlink()
            return False
        response.raise_for_status()
        have = have if response.status_code == 206 else 0
        length = response.headers.get("Content-Length")
        total = have + int(length) if length else None
        part.parent.mkdir(parents=True, exist_ok=True)
        with part.open("ab" if have else "wb") as file, progress_bar(part.stem, total, show=show_progress, sizes=True) as advance:
            advance(have)
            for block in response.raw.stream(BLOCK, decode_content=False):  # a .gz stays one
                file.write(block)
                advance(len(block))
    return True


def size_of(path: Path) -> int:
    """Bytes of a file, 0 where there is none."""
    return path.stat().st_size if path.exists() else 0
