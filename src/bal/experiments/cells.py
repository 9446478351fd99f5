"""Cells: one detector with one seed on one network, measured against OOD sets and kept as a small JSON file.

A cell that is on disk is never computed again, so a run that was killed goes on with the missing ones. What names a cell is
all that its numbers depend on: the network's recipe, the detector's settings and seed, and the rows it learns and is tried on.
"""

import hashlib
import json
import platform
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np
import torch

from bal._version import __version__
from bal.backbones import Classifier
from bal.data.catalog import shown_title
from bal.detectors import Detector
from bal.detectors.rows import some_rows
from bal.errors import DataError
from bal.evaluation import evaluate
from bal.experiments.compare import Comparison, Measured, Part, Row, Say, fit, measure, time_of_a_pass, with_seed
from bal.experiments.networks import Network, PresetName, Store, find_network
from bal.storage import write_atomically

CELL_VERSION = 1  # raised when the same settings would give other numbers


@dataclass(frozen=True)
class Cell:
    """What is measured. ``oods`` are names of data sets; "a+b" mixes equal numbers of both.

    train_rows and test_rows cap the rows that a slow detector learns from and is tried on, by a fixed random choice.
    """

    network: str
    detector: Detector
    label: str
    oods: tuple[str, ...]
    train_rows: int | None = None
    test_rows: int | None = None

    def seeded(self, seeds: Iterable[int]) -> list["Cell"]:
        """A cell for each seed; one alone where nothing is random."""
        own = seeds if hasattr(self.detector, "seed") else (0,)
        return [replace(self, detector=with_seed(self.detector, seed)) for seed in own]

    @property
    def seed(self) -> int:
        """The detector's seed; 0 where it has none."""
        return getattr(self.detector, "seed", 0)

    def identity(self, preset: PresetName) -> dict[str, Any]:
        """All that the numbers depend on, apart from the OOD sets, which are measured one by one."""
        return {
            "version": CELL_VERSION,
            "network": find_network(self.network).recipe(preset),
            "detector": type(self.detector).__name__,
            "settings": json.loads(json.dumps(asdict(self.detector), default=str)),  # type: ignore[call-overload]
            "train_rows": self.train_rows,
            "test_rows": self.test_rows,
        }

    def file_name(self, preset: PresetName) -> str:
        """Readable first, unique at the end."""
        key = hashlib.sha256(json.dumps(self.identity(preset), sort_keys=True).encode()).hexdigest()[:16]
        return f"{self.network.replace('/', '-')}-{type(self.detector).__name__}-{self.seed}-{key}.json"


@dataclass(frozen=True)
class Outcome:
    """A cell that was measured: a row for each OOD set, how the training ended where there was one, and on what machine."""

    rows: Mapping[str, Row]
    status: str
    fingerprint: str
    environment: Mapping[str, Any]


def read_outcome(store: Store, cell: Cell) -> Outcome | None:
    """What is known of a cell; None before it was measured, or where its file is not readable."""
    path = store.folder / "cells" / cell.file_name(store.preset)
    try:
        content = json.loads(path.read_text())
        rows = {ood: Row(**row) for ood, row in content["rows"].items()}
        return Outcome(rows, content["status"], content["fingerprint"], content["environment"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write_outcome(store: Store, cell: Cell, outcome: Outcome) -> None:
    """Keep it, whole or not at all."""
    content = {"cell": {**cell.identity(store.preset), "name": cell.network, "label": cell.label}, **asdict(outcome)}
    path = store.folder / "cells" / cell.file_name(store.preset)
    write_atomically(path, (json.dumps(content, indent=1) + "\n").encode())


def merged(cells: Iterable[Cell], preset: PresetName) -> list[Cell]:
    """Cells that differ in their OOD sets alone become one, which fits its detector once; those of a network stand together."""
    found: dict[str, Cell] = {}
    for cell in cells:
        name = cell.file_name(preset)
        oods = (*found[name].oods, *cell.oods) if name in found else cell.oods
        found[name] = replace(cell, oods=tuple(dict.fromkeys(oods)))
    order = list(dict.fromkeys(cell.network for cell in found.values()))
    return sorted(found.values(), key=lambda cell: order.index(cell.network))


def run_cells(cells: Sequence[Cell], store: Store, *, say: Say) -> dict[str, str]:
    """Measure what is missing; returns why the others cannot be, by network or OOD set."""
    todo = []
    for cell in merged(cells, store.preset):
        done = read_outcome(store, cell)
        oods = tuple(ood for ood in cell.oods if done is None or ood not in done.rows)
        if oods:
            todo.append(replace(cell, oods=oods))
    reasons: dict[str, str] = {}
    for name, group in groupby(todo, key=lambda cell: cell.network):
        own = list(group)
        try:
            say(f"{name}: the network and its features")
            bench = Bench.open(name, {ood for cell in own for ood in cell.oods}, store, reasons)
        except DataError as error:
            if not {part for cell in own for ood in cell.oods for part in ood.split("+")} <= reasons.keys():
                reasons[name] = str(error)
            say(f"{name}: not measured: {error}")
            continue
        for cell in own:
            oods = tuple(ood for ood in cell.oods if set(ood.split("+")) <= set(bench.comparison.oods))
            if oods:
                outcome = bench.measure(replace(cell, oods=oods))
                known = read_outcome(store, cell)
                earlier = known.rows if known and known.fingerprint == outcome.fingerprint else {}  # of these weights, no others
                write_outcome(store, cell, replace(outcome, rows={**earlier, **outcome.rows}))
                numbers = ", ".join(f"{ood} {row.fpr95:.1%} / {row.auroc:.1%}" for ood, row in outcome.rows.items())
                say(f"  {name}, {cell.label}, seed {cell.seed}: FPR95 / AUROC {numbers}")
    return reasons


@dataclass(frozen=True)
class Bench:
    """A network with its data, extracted once for all its cells."""

    comparison: Comparison
    fingerprint: str
    preset: PresetName
    show_progress: bool

    @classmethod
    def open(cls, name: str, oods: Iterable[str], store: Store, reasons: dict[str, str]) -> "Bench":
        """Load or train the network and extract all features; an OOD set that is not there goes to ``reasons``."""
        network = find_network(name)
        classifier = network.classifier(store)
        parts = {}
        for ood in sorted({part for mixture in oods for part in mixture.split("+")}):
            try:
                parts[ood] = part_of(network, classifier, store, ood, "test")
            except DataError as error:
                reasons[ood] = str(error)
        if not parts:
            raise DataError("none of its OOD sets is here: " + "; ".join(reasons[ood] for ood in sorted(reasons)))
        test = part_of(network, classifier, store, network.data, "test")
        comparison = Comparison(
            classifier=classifier,
            train=part_of(network, classifier, store, network.data, "train"),
            test=test,
            oods=parts,
            id_name=shown_title(network.data),
            pass_seconds=time_of_a_pass(classifier, test.data, rows=256),
        )
        return cls(comparison, classifier.fingerprint(), store.preset, store.show_progress)

    def measure(self, cell: Cell) -> Outcome:
        """Fit the cell's detector and measure it on every OOD set and mixture."""
        started = time.perf_counter()
        parts = {part for ood in cell.oods for part in ood.split("+")}
        comparison = replace(
            self.comparison,
            train=some_of(self.comparison.train, cell.train_rows),
            test=some_of(self.comparison.test, cell.test_rows),
            oods={name: some_of(part, cell.test_rows) for name, part in self.comparison.oods.items() if name in parts},
        )
        detector = with_seed(cell.detector, cell.seed)
        fit_seconds = fit(detector, comparison, (), show_progress=self.show_progress)
        measured = {m.row.ood: m for m in measure(cell.label, detector, comparison, cell.seed, fit_seconds)}
        rows = {ood: mixed([measured[part] for part in ood.split("+")], ood).row for ood in cell.oods}
        if comparison.classifier.fingerprint() != self.fingerprint:
            raise DataError(f"{cell.label} changed the classifier's weights; none may, please report it")
        status = detector.result_.status if hasattr(detector, "result_") else "finished"
        return Outcome(rows, status, self.fingerprint, environment(time.perf_counter() - started))


def part_of(network: Network, classifier: Classifier, store: Store, name: str, split: Any) -> Part:
    """A data set as this network takes it, with its features; labels only where they are the network's own."""
    x, c = network.inputs(store, name, split)
    data = (x, c) if name == network.data else x
    return Part(data, store.extract(classifier, data))


def some_of(part: Part, rows: int | None) -> Part:
    """At most that many rows, always the same random choice."""
    if rows is None or rows >= len(part.features):
        return part
    which = some_rows(len(part.features), rows)
    data: Any = part.data
    return Part(tuple(column[which] for column in data) if isinstance(data, tuple) else data[which], part.features.rows(which))


def mixed(measured: Sequence[Measured], name: str) -> Measured:
    """The measurement against equal numbers of several OOD sets."""
    if len(measured) == 1:
        return measured[0]
    n = min(len(m.ood_scores) for m in measured)
    ood_scores = np.concatenate([m.ood_scores[some_rows(len(m.ood_scores), n).numpy()] for m in measured])
    metrics = asdict(evaluate(measured[0].id_scores, ood_scores, seed=0))
    return replace(measured[0], row=replace(measured[0].row, ood=name, **metrics), ood_scores=ood_scores)


def environment(seconds: float) -> dict[str, Any]:
    """Versions, threads and time of a measurement."""
    versions = {"bal": __version__, "torch": torch.__version__, "numpy": np.__version__, "python": platform.python_version()}
    return {**versions, "threads": torch.get_num_threads(), "seconds": round(seconds, 1)}
