"""Score inputs of any size in bounded memory: one output file for each input shard, whole or absent.

The name of an output ends in a key of all that its rows depend on: the detector, and the state of its input. So a rerun does what
is missing, incomplete or out of date and nothing else, and a kill at any moment costs the shard at work.
"""

import csv
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bal.data.extras import import_extra
from bal.data.folders import Shape
from bal.data.shards import Block, Shard, find_shards
from bal.data.shards import digest as digest_of
from bal.detectors import Detector, detector_name
from bal.detectors.prediction import OOD, WRITERS, write_table
from bal.errors import BalError, DataError, SettingsError
from bal.progress import Advance, progress_bar
from bal.settings import check_choice, check_number
from bal.storage import digest

ROWS_PER_SHARD = 4096
COLUMNS = ("input", "label", "class", "confidence", "p_value", "score", "valid", "error")
Counts: TypeAlias = tuple[int, int, int]  # rows, rows that are OOD though readable, errors
OURS = re.compile(r"(.+)\.[0-9a-f]{12}\.(?:parquet|csv|jsonl)")


@dataclass
class Outcome:
    """What a job came to: all its rows, those that could not be read, shards found done, shards that failed and why."""

    rows: int = 0
    errors: int = 0
    rejected: int = 0
    shards: int = 0
    found: int = 0
    failed: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, came: Counts | str, *, found: bool = False) -> None:
        """Count a shard: its rows, those that are OOD and those with an error, or why it failed."""
        self.shards += 1
        self.found += found
        if isinstance(came, str):
            self.failed[name] = came
        else:
            self.rows, self.rejected, self.errors = self.rows + came[0], self.rejected + came[1], self.errors + came[2]


@dataclass(frozen=True)
class Job:
    """Shards and where the rows of each go; ``mark`` stands for the detector, ``rows`` is their number in all."""

    sources: Sequence[str | Path]
    out: Path
    suffix: str
    rows_per_shard: int
    mark: str
    rows: int = 0

    def __iter__(self) -> Iterator[tuple[Shard, Path]]:
        for shard in find_shards(self.sources, rows=self.rows_per_shard):
            yield shard, output(self.out, shard, self.mark, self.suffix)


def score_stream(
    detector: Detector,
    sources: Sequence[str | Path],
    out: str | Path,
    *,
    suffix: str = ".parquet",
    rows_per_shard: int = ROWS_PER_SHARD,
    show_progress: bool = True,
) -> Outcome:
    """Predict every input of folders, .parquet and .npz files into the folder ``out``, one row for each.

    An input that cannot be read becomes a row with an error and the label -1. A shard that cannot be read, such as a cut Parquet
    file or rows of another shape, is told in the outcome and tried again by the next run.
    """
    job, outcome = plan(detector, sources, out, suffix=suffix, rows_per_shard=rows_per_shard), Outcome()
    with progress_bar("scoring", job.rows, show=show_progress) as advance:
        for shard, path in job:
            there = find_done(shard, path)
            if there is not None:
                advance(shard.rows)
            outcome.add(shard.name, there or score_to(path, detector, shard, advance), found=there is not None)
    return outcome


def plan(detector: Detector, sources: Sequence[str | Path], out: str | Path, *, suffix: str, rows_per_shard: int) -> Job:
    """The job, after all that can be refused before an hour's work; outputs that are out of date are removed."""
    check_choice("suffix", suffix, tuple(WRITERS))
    if suffix == ".parquet":
        import_extra("pyarrow.parquet")
    check_number("rows_per_shard", rows_per_shard, low=1, whole=True)
    if detector.spec_ is None or detector.classifier_ is None:
        raise SettingsError(
            "this detector cannot read inputs: fit it with a classifier, and load it with bal.load(path, classifier)"
        )
    out = Path(out)
    check_outside(out, sources)
    job = Job(sources, out, suffix, rows_per_shard, identity(detector))
    outputs = {shard.name: (path, shard.rows) for shard, path in job}
    if not outputs:
        raise DataError(f"there is nothing to score in {', '.join(map(str, sources))}")
    unread = {name.rpartition("/")[0] for name, (_, rows) in outputs.items() if not rows}
    remove_outdated(out, {name: path for name, (path, _) in outputs.items()}, unread)
    return replace(job, rows=sum(rows for _, rows in outputs.values()))


def check_outside(out: Path, sources: Sequence[str | Path]) -> None:
    """Refuse outputs among the inputs; before anything is created, since a new folder there would count as a class."""
    if inside := [source for source in sources if out.resolve().is_relative_to(Path(source).resolve())]:
        raise DataError(f"{out} lies inside the inputs {inside[0]}, so its files would be scored too; choose one beside them")


def find_done(shard: Shard, path: Path) -> Counts | None:
    """What the output of a shard holds, if it is there and complete."""
    counted = tally(path)
    return counted if counted is not None and counted[0] == shard.rows else None


def score_to(path: Path, detector: Detector, shard: Shard, advance: Advance) -> Counts | str:
    """Score one shard into its output; what it holds, or why the shard cannot be read."""
    try:
        columns = score_shard(detector, shard, detector.spec_.shape if detector.spec_ else (), advance)
    except (BalError, OSError) as error:
        return str(error)
    write_table(columns, path)
    return count(columns["label"].tolist(), columns["error"].tolist())


def score_shard(detector: Detector, shard: Shard, shape: Shape, advance: Advance) -> dict[str, NDArray[Any]]:
    """The table of one shard."""
    parts = []
    for block in shard.blocks(shape):
        parts.append(score_block(detector, block))
        advance(len(block.names))
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    if len(columns["input"]) != shard.rows:
        raise DataError(f"{shard.name} changed while it was read; run the job again")
    return columns


def score_block(detector: Detector, block: Block) -> dict[str, NDArray[Any]]:
    """The rows of a block; those that could not be read are OOD, not valid, and have no score and no p-value."""
    readable = np.array([error is None for error in block.errors])
    missing = {"label": OOD, "confidence": 0.0, "p_value": np.nan, "score": -np.inf, "valid": False}
    columns: dict[str, NDArray[Any]] = {"input": words(block.names)}
    columns |= {name: np.full(len(readable), value) for name, value in missing.items()}
    if readable.any():
        for name, column in detector.predict(block.inputs).columns().items():
            columns[name][readable] = column
    if detector.class_names_ is not None:
        names = dict(enumerate(detector.class_names_))
        columns["class"] = words([names.get(label) for label in columns["label"].tolist()])
    columns["error"] = words(block.errors)
    return {name: columns[name] for name in COLUMNS if name in columns}


def words(values: Sequence[str | None]) -> NDArray[Any]:
    """A column of words, some of them missing."""
    column = np.empty(len(values), object)
    column[:] = values
    return column


def identity(detector: Detector) -> str:
    """What answers depend on beside the inputs; the classifier's part of it was checked when the detector was loaded."""
    settings = {
        "detector": detector_name(detector),
        "settings": asdict(detector),  # type: ignore[call-overload]
        "names": detector.class_names_,
        "classifier": None if detector.classifier_ is None else detector.classifier_.fingerprint(),
    }
    return digest(detector.state(), settings)


def output(out: Path, shard: Shard, mark: str, suffix: str) -> Path:
    """Where the rows of a shard go."""
    return out / f"{shard.name}.{digest_of(mark, shard.identity)[:12]}{suffix}"


def remove_outdated(out: Path, plan: dict[str, Path], unread: set[str]) -> None:
    """Remove outputs of another detector or format, and of changed or ``unread`` files; those of other inputs stop the job."""
    for path in sorted(out.rglob("*")) if out.is_dir() else []:
        match = OURS.fullmatch(path.relative_to(out).as_posix())
        if match is None or path.name.startswith("."):
            continue
        if match[1] not in plan and match[1].rpartition("/")[0] not in unread:
            raise DataError(
                f"{out} holds the scores of {match[1]}, which is not among these inputs; name all inputs of a folder in one "
                "command, choose another folder, or delete what is out of date"
            )
        if path != plan.get(match[1]):
            path.unlink()


def tally(path: Path) -> Counts | None:
    """How many rows an output has, how many of them are OOD and how many errors; None if it is not there or not whole."""
    if not path.is_file():
        return None
    try:
        return count(*READERS[path.suffix](path))
    except (OSError, ValueError, KeyError, TypeError, csv.Error, BalError):
        return None


def count(labels: Sequence[int], errors: Sequence[str | None]) -> Counts:
    """Rows, rows that are OOD though readable, errors."""
    wrong = [bool(error) for error in errors]
    return len(labels), sum(label == OOD and not bad for label, bad in zip(labels, wrong, strict=True)), sum(wrong)


def read_json_lines(path: Path) -> tuple[list[int], list[str | None]]:
    """Labels and errors of an output."""
    with path.open() as file:
        return unzipped((row["label"], row["error"]) for row in map(json.loads, file))


def read_csv(path: Path) -> tuple[list[int], list[str | None]]:
    """Labels and errors of an output."""
    with path.open(newline="") as file:
        labels, errors = unzipped((int(row["label"]), row["error"]) for row in csv.DictReader(file))
    if None in errors:  # the last column of a row that was cut
        raise ValueError(f"{path} has a row without all its columns")
    return labels, errors


def read_parquet(path: Path) -> tuple[list[int], list[str | None]]:
    """Labels and errors of an output."""
    arrow, parquet = import_extra("pyarrow"), import_extra("pyarrow.parquet")
    try:
        table = parquet.ParquetFile(path).read(columns=["label", "error"], use_threads=False)
    except arrow.ArrowException as error:
        raise ValueError(str(error)) from error
    return table.column("label").to_pylist(), table.column("error").to_pylist()


def unzipped(rows: Iterator[tuple[int, str | None]]) -> tuple[list[int], list[str | None]]:
    """Two columns of some rows."""
    labels, errors = [], []
    for label, error in rows:
        labels.append(label)
        errors.append(error)
    return labels, errors


READERS = {".parquet": read_parquet, ".csv": read_csv, ".jsonl": read_json_lines}
