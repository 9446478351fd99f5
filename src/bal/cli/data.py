"""bal data list, get and verify."""

from dataclasses import dataclass
from typing import Annotated, Any

import tyro
from rich.markup import escape
from rich.table import Table

from bal.cli.common import make_console, print_json
from bal.errors import DataError


@dataclass(frozen=True)
class DataList:
    """List the data sets of the paper: what they are, where they come from, and which of their files are here.

    Example: BAL_DATA=/data bal data list
    """

    json: Annotated[bool, tyro.conf.arg(prefix_name=False)] = False
    """Print the list as JSON."""

    def __call__(self) -> None:
        """Run it."""
        from bal.data.catalog import CATALOG, all_files, data_root, folder_of, missing_files  # noqa: PLC0415

        if self.json:
            print_json([described(name) for name in CATALOG])
            return
        console = make_console()
        table = Table(title=escape(f"data sets under {data_root()}"))
        for heading in ("name", "data set", "classes", "images", "files here", "licence", "official address"):
            table.add_column(heading, overflow="fold")
        for name, entry in CATALOG.items():
            files = all_files(name)
            here = f"{len(files) - len(missing_files(files, folder_of(name)))} of {len(files)}"
            shape = " x ".join(map(str, entry.shape))
            table.add_row(name, entry.title, str(entry.classes or "none"), shape, here, entry.licence, entry.address)
        console.print(table)


def described(name: str) -> dict[str, Any]:
    """One data set for machines: what it is, where its files belong, and which of them are missing there."""
    from bal.data.catalog import CATALOG, all_files, folder_of, missing_files  # noqa: PLC0415

    entry, files = CATALOG[name], all_files(name)
    return {
        "name": name,
        "title": entry.title,
        "classes": entry.classes,
        "shape": entry.shape,
        "parts": list(entry.files),
        "licence": entry.licence,
        "address": entry.address,
        "folder": str(folder_of(name)),
        "files": [file.path for file in files],
        "missing": missing_files(files, folder_of(name)),
    }


@dataclass(frozen=True)
class DataVerify:
    """Compare files with their published checksums; exit code 1 if one is missing or another file.

    Example: bal data verify mnist cifar10
    """

    names: tyro.conf.Positional[tuple[str, ...]] = ()
    """Data sets; all of them when not given."""
    json: Annotated[bool, tyro.conf.arg(prefix_name=False)] = False
    """Print the state of every file as JSON, by data set."""

    def __call__(self) -> None:
        """Run it."""
        from bal.data.catalog import CATALOG, folder_of, verify  # noqa: PLC0415

        states = {name: verify(name) for name in self.names or CATALOG}
        if self.json:
            print_json({name: {"folder": str(folder_of(name)), "files": files} for name, files in states.items()})
        else:
            console = make_console()
            for name, files in states.items():
                for path, state in files.items():
                    console.print(escape(f"{state:9s} {folder_of(name) / path}"), highlight=False)
        wrong = sum(state in ("missing", "other") for files in states.values() for state in files.values())
        if wrong:
            raise DataError(f"{wrong} files are missing or not the official ones; `bal data get NAME` fetches them")


@dataclass(frozen=True)
class DataGet:
    """Fetch the official files of data sets, check them against their published checksums and unpack them.

    What is there and right is not fetched again; a download that was cut goes on where it stopped.

    Example: BAL_DATA=/data bal data get mnist cifar10
    """

    names: tyro.conf.Positional[tuple[str, ...]]
    """Data sets, as `bal data list` names them."""
    mirror: Annotated[str, tyro.conf.arg(name="from", prefix_name=False)] = ""
    """Address of a folder that holds NAME/FILE for each, to fetch from instead of the official addresses."""

    def __call__(self) -> None:
        """Run it."""
        from bal.data.catalog import find_data_set, folder_of  # noqa: PLC0415
        from bal.data.download import get_data_set  # noqa: PLC0415

        if not self.names:
            raise DataError("bal data get needs the name of at least one data set; `bal data list` shows them")
        for name in self.names:
            find_data_set(name)  # a typo is refused before anything is fetched
        console = make_console()
        for name in self.names:
            for path, fetched in get_data_set(name, mirror=self.mirror).items():
                console.print(escape(f"{'fetched' if fetched else 'here':9s} {folder_of(name) / path}"), highlight=False)


@dataclass(frozen=True)
class DataCommand:
    """Data sets of the paper: list them, get and verify their files.

    Example: BAL_DATA=/data bal data get mnist cifar10
    """

    command: (
        Annotated[DataList, tyro.conf.subcommand("list", prefix_name=False)]
        | Annotated[DataGet, tyro.conf.subcommand("get", prefix_name=False)]
        | Annotated[DataVerify, tyro.conf.subcommand("verify", prefix_name=False)]
    )

    def __call__(self) -> None:
        """Run it."""
        self.command()
