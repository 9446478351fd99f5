"""Progress bars on standard error; silent where nobody watches."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

T = TypeVar("T")


class Advance(Protocol):
    """Moves a bar on by some steps, with a few words about how it goes."""

    def __call__(self, steps: int = 1, note: str = "") -> None:
        """Move on."""


@contextmanager
def progress_bar(description: str, total: int | None, *, show: bool = True, sizes: bool = False) -> Iterator[Advance]:
    """A bar with count, time gone and time left; ``sizes`` counts bytes."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        DownloadColumn() if sizes else MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=console, disable=not (show and console.is_terminal)) as bar:
        task = bar.add_task(description, total=total, note="")

        def advance(steps: int = 1, note: str = "") -> None:
            if note:
                bar.update(task, advance=steps, note=note)
            else:
                bar.update(task, advance=steps)

        yield advance


def track(items: Iterable[T], description: str, total: int | None, *, show: bool = True) -> Iterator[T]:
    """Pass the items on and count them on a bar."""
    with progress_bar(description, total, show=show) as advance:
        for item in items:
            yield item
            advance()
