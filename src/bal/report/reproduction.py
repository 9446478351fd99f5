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
from bal.report.page import Page, Section, Table, markdown, write_page
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


def average_table(findings: Sequence[Finding]) -> Table:
    """Each detector that was measured in every measured block: mean FPR95 and AUROC over the blocks, the best AUROC first.

    The last columns say in how many blocks BAL is ahead of it.
    """
    measured = [f for f in findings if f.measured]
    blocks = {f.line.block for f in measured}
    found = {label: {f.line.block: f for f in measured if f.line.label == label} for label in {f.line.label for f in measured}}
    found = {label: own for label, own in found.items() if own.keys() == blocks}
    rows = []
    for label in sorted(found, key=lambda label: -over_blocks(found[label], "auroc")):
        ahead = [sum(better(found["BAL"][block], found[label][block], m) for block in blocks) for m in SUMMARY_METRICS]
        counts = ["", ""] if label == "BAL" else [f"{count} of {len(blocks)}" for count in ahead]
        rows.append([label, *(f"{over_blocks(found[label], m):.2f}" for m in SUMMARY_METRICS), *counts])
    return Table(["method", "FPR95 ↓", "AUROC ↑", "BAL ahead by FPR95", "BAL ahead by AUROC"], rows)


def over_blocks(findings: Mapping[str, Finding], metric: str) -> float:
    """The mean of the blocks' means."""
    return sum(f.mean[metric] for f in findings.values()) / len(findings)


def better(finding: Finding, other: Finding, metric: str) -> bool:
    """Whether the mean of the first is strictly better."""
    difference = finding.mean[metric] - other.mean[metric]
    return difference < 0 if metric in LOWER_IS_BETTER else difference > 0


def average_section(findings: Sequence[Finding]) -> Section:
    """All blocks of Tables 1 and 2 in one number for each detector."""
    blocks = list(dict.fromkeys(f.line.block for f in findings if f.measured))
    text = (
        f"Per cent, the mean over these {len(blocks)} comparisons of Tables 1 and 2, each weighing the same: {'; '.join(blocks)}."
    )
    return Section("All comparisons together", [text], table=average_table(findings))


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


def write_average(findings: Sequence[Finding], folder: Path) -> Section:
    """``average.md`` over the lines of several tables; returns the section for a page."""
    section = average_section(findings)
    write_atomically(folder / "average.md", markdown([section]).encode())
    return section


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
