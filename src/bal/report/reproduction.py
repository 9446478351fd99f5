"""Tables and figures of the paper with our numbers beside its own: as JSON, Markdown, SVG and one page."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bal.experiments.compare import LOWER_IS_BETTER
from bal.experiments.pictures import Arrays
from bal.experiments.reproduce import Finding
from bal.experiments.tables import TableSpec, metrics_shown
from bal.report.comparison import HEADINGS, settings_text
from bal.report.page import Page, Section, Table, write_page
from bal.report.paper_figures import CAPTIONS, DRAWINGS, fig6_text
from bal.storage import write_atomically

ALL_HEADINGS = {"accuracy": "accuracy ↑", **HEADINGS}
PAPER_METHODS = ("max-softmax", "ODIN", "Generalized ODIN", "GCPL", "AEC")
SUMMARY_METRICS = ("fpr95", "auroc")


def block_table(findings: Sequence[Finding], metrics: Sequence[str]) -> Table:
    """The lines of one block; under a line that the paper has too: its numbers, and ours minus them."""
    rows: list[list[str]] = []
    places: dict[int, Finding] = {}
    for finding in findings:
        if finding.measured:
            places[len(rows)] = finding
            rows.append([name_of(finding), *(number(finding, metric) for metric in metrics)])
        else:
            rows.append([finding.line.label, *("not measured here" for _ in metrics)])
        if finding.line.paper:
            rows.append(["· paper", *(f"{finding.line.paper[m]:g}" if m in finding.line.paper else "" for m in metrics)])
        if finding.line.paper and finding.measured:
            differences = [finding.difference(metric) for metric in metrics]
            rows.append(["· difference", *("" if d is None else f"{d:+.2f}" for d in differences)])
    return Table(["method", *(ALL_HEADINGS[m] for m in metrics)], rows, best_cells(places, metrics))


def name_of(finding: Finding) -> str:
    """The label, with what went wrong in training where something did."""
    stopped = f" ({finding.unhealthy} of {finding.seeds} runs stopped as unhealthy)" if finding.unhealthy else ""
    return finding.line.label + stopped


def number(finding: Finding, metric: str) -> str:
    """Mean, and the deviation over seeds where there is more than one."""
    spread = f" ± {finding.std[metric]:.2f}" if finding.seeds > 1 else ""
    return f"{finding.mean[metric]:.2f}{spread}"


def best_cells(places: Mapping[int, Finding], metrics: Sequence[str]) -> frozenset[tuple[int, int]]:
    """The best mean of every detection metric, ties included."""
    best: set[tuple[int, int]] = set()
    for column, metric in enumerate(metrics, start=1):
        values = {row: round(finding.mean[metric], 2) for row, finding in places.items()}
        if values and metric != "accuracy":
            winner = min(values.values()) if metric in LOWER_IS_BETTER else max(values.values())
            best |= {(row, column) for row, value in values.items() if value == winner}
    return frozenset(best)


def summary_table(table: TableSpec, findings: Sequence[Finding]) -> Table:
    """One line for each block: FPR95 / AUROC of the paper's methods, of BAL, of the best other detector, and the paper's BAL."""
    columns = ["BAL before training", *PAPER_METHODS]
    rows = []
    for block in table.blocks:
        own = {f.line.label: f for f in findings if f.line.block == block}
        others = [f for label, f in own.items() if label not in ("BAL", *columns) and f.measured]
        best = max(others, key=lambda f: f.mean["auroc"], default=None)
        paper = own["BAL"].line.paper
        printed = " / ".join(f"{paper[m]:g}" if m in paper else "-" for m in SUMMARY_METRICS) if paper else ""
        strongest = f"{short(best)} {best.line.label}" if best else "-"
        rows.append([block, short(own["BAL"]), printed, strongest, *(short(own.get(label)) for label in columns)])
    return Table(["FPR95 ↓ / AUROC ↑", "BAL", "the paper's BAL", "best other", *columns], rows)


def short(finding: Finding | None) -> str:
    """FPR95 / AUROC, or a dash."""
    return " / ".join(f"{finding.mean[m]:.1f}" for m in SUMMARY_METRICS) if finding and finding.measured else "-"


def table_sections(table: TableSpec, findings: Sequence[Finding]) -> list[Section]:
    """A section with what to know, one that sums up where there are many blocks, and one for each block."""
    seeds = max((f.seeds for f in findings), default=0)
    text = [
        f"Per cent; mean ± standard deviation over {seeds} seeds, none where nothing is random. ID is the positive class, counts "
        "of both sides are equal. The best mean of each column is marked; the difference is ours minus the paper's.",
        *table.notes,
        *sorted({f"Not measured here: {f.line.block}. {f.reason}." for f in findings if f.reason}),
    ]
    sections = [Section(table.title, text, table=summary_table(table, findings) if len(table.blocks) > 1 else None)]
    for block in table.blocks:
        own = [f for f in findings if f.line.block == block]
        if any(f.measured for f in own):
            sections.append(Section(block, table=block_table(own, metrics_shown(table))))
    return sections


def figure_section(name: str, arrays: Arrays) -> Section:
    """A figure with a few words."""
    return Section(CAPTIONS[name], [fig6_text(arrays)] if name == "fig6" else [], svg=DRAWINGS[name](arrays))


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


def table_json(table: TableSpec, findings: Sequence[Finding], settings: Mapping[str, Any]) -> str:
    """The numbers of a table for machines."""
    lines = [
        {
            "block": f.line.block,
            "label": f.line.label,
            "network": f.line.cell.network,
            "ood": f.line.ood,
            **{key: value for key, value in asdict(f).items() if key != "line"},
            "paper": dict(f.line.paper),
        }
        for f in findings
    ]
    content = {"table": table.name, "version": table.version, "settings": json.loads(settings_text(settings)), "lines": lines}
    return json.dumps(content, indent=1) + "\n"


def write_table(table: TableSpec, findings: Sequence[Finding], settings: Mapping[str, Any], folder: Path) -> list[Section]:
    """``table1.json`` and ``table1.md``; returns the sections for a page."""
    sections = table_sections(table, findings)
    write_atomically(folder / f"{table.name}.json", table_json(table, findings, settings).encode())
    write_atomically(folder / f"{table.name}.md", markdown(sections).encode())
    return sections


def write_figure(name: str, arrays: Arrays, folder: Path) -> list[Section]:
    """``fig1.svg`` and ``fig1.md``; returns the section for a page."""
    section = figure_section(name, arrays)
    write_atomically(folder / f"{name}.svg", section.svg.encode())
    write_atomically(folder / f"{name}.md", markdown([section], f"{name}.svg").encode())
    return [section]


def write_reproduction(sections: Sequence[Section], settings: Mapping[str, Any], path: Path) -> None:
    """One page of all tables and figures."""
    lead = (
        "The experiments of 'Out-of-distribution Detection with Boundary Aware Learning' (Pei et al., ECCV 2022), run again: our "
        "numbers, the paper's, and the difference."
    )
    sections = [*sections, Section("Exact settings", code=settings_text(settings))]
    write_page(Page("bal reproduce", lead, sections), path)
