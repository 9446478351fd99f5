"""One self-contained HTML page: no script, no external request, pictures inline."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from bal._version import __version__
from bal.storage import write_atomically


@dataclass(frozen=True)
class Table:
    """Rows of text under a header; ``best`` marks cells (row, column) to print bold."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    best: frozenset[tuple[int, int]] = frozenset()


@dataclass(frozen=True)
class Picture:
    """A small image with lines of text under it."""

    address: str
    lines: Sequence[str]


@dataclass(frozen=True)
class Advice:
    """What was found in a few words, the numbers with a way out, and a command."""

    title: str
    text: str
    command: str = ""


@dataclass(frozen=True)
class Section:
    """A heading, some paragraphs, and at most one each of facts, advice, a table, a figure, a gallery and a block of code."""

    title: str
    text: Sequence[str] = ()
    facts: Sequence[tuple[str, str]] = ()
    advice: Sequence[Advice] = ()
    table: Table | None = None
    svg: str = ""
    gallery: Sequence[Picture] = ()
    code: str = ""


@dataclass(frozen=True)
class Page:
    """A whole report."""

    title: str
    lead: str
    sections: Sequence[Section] = field(default_factory=list)


def write_page(page: Page, path: Path) -> None:
    """Render the page into ``path``, whole or not at all."""
    environment = Environment(
        loader=PackageLoader("bal.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    html = environment.get_template("page.html").render(page=page, version=__version__)
    write_atomically(path, html.encode())


def markdown(sections: Sequence[Section], image: str = "") -> str:
    """Sections as Markdown; the best cells are bold, a figure is a link to ``image``."""
    parts = []
    for level, section in enumerate(sections):
        parts.append(f"{'#' if not level else '##'} {section.title}")
        parts += section.text
        if section.table:
            parts.append(markdown_table(section.table))
        if section.svg and image:
            parts.append(f"![{section.title}]({image})")
    return "\n\n".join(parts) + "\n"


def markdown_table(table: Table) -> str:
    """A table as Markdown."""
    lines = [table.header, ["---"] * len(table.header)]
    for r, row in enumerate(table.rows):
        lines.append([f"**{cell}**" if (r, c) in table.best else cell for c, cell in enumerate(row)])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
