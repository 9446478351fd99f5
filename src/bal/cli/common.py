"""What several commands share. torch is imported inside commands, so that help is quick."""

import json
import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bal.errors import DataError, StorageError
from bal.settings import check_seed

if TYPE_CHECKING:
    from bal.data.files import Loaded
    from bal.detectors import Detector
    from bal.experiments import Standing
    from bal.serving import Cluster

Engine: TypeAlias = Literal["local", "ray"]


def check_seeds(seeds: Sequence[int]) -> None:
    """Refuse seeds that cannot be used, before anything is trained."""
    if not seeds:
        raise DataError("--seeds needs at least one whole number, for example --seeds 0 1 2")
    for seed in seeds:
        check_seed(seed)
    if len(set(seeds)) != len(seeds):
        raise DataError(f"--seeds must differ from each other, got {' '.join(map(str, seeds))}")


def check_folder(folder: Path) -> None:
    """Refuse a folder that cannot be written to, before anything is trained."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise StorageError(f"cannot write to {folder}: {error.strerror or error}; choose a folder you may write to") from error


def make_cluster(engine: Engine, workers: int | None, address: str | None) -> "Cluster | None":
    """The Ray cluster of a command, None for the local engine."""
    if engine == "local":
        if workers is not None or address is not None:
            raise DataError("--workers and --address are those of a Ray cluster; add --engine ray, or leave them out")
        return None
    from bal.serving import Cluster  # noqa: PLC0415

    return Cluster(workers, address)


def make_console(*, stderr: bool = False) -> Console:
    """Standard output, or standard error; a log has room for a wide table."""
    console = Console(stderr=stderr)
    if not console.is_terminal:
        console.width = 140
    return console


def print_plainly(console: Console, line: str) -> None:
    """A line as it is, without markup."""
    console.print(escape(line), highlight=False)


def print_ranking(console: Console, standings: "Sequence[Standing]", out: Path) -> None:
    """The table of all detectors and where the files are."""
    from bal.report import ranking_table  # noqa: PLC0415

    content = ranking_table(standings)
    table = Table(title="mean ± standard deviation over seeds, in per cent")
    for index, name in enumerate(content.header):
        table.add_column(name, justify="right" if index else "left")
    for r, row in enumerate(content.rows):
        table.add_row(*(f"[bold]{escape(cell)}[/bold]" if (r, c) in content.best else escape(cell) for c, cell in enumerate(row)))
    console.print(table)
    console.print(escape(f"results: {out / 'results.json'}\nreport:  {out / 'report.html'}"), highlight=False)


def print_pairs(pairs: Iterable[tuple[str, object]]) -> None:
    """Names and values, one pair a line."""
    console = make_console()
    for name, value in pairs:
        console.print(escape(f"{name:14s} {value}"), highlight=False, soft_wrap=True)


def print_json(value: Any) -> None:
    """One JSON value on standard output; a number that is not finite is null."""
    sys.stdout.write(json.dumps(without_nan(value), indent=1, allow_nan=False) + "\n")


def without_nan(value: Any) -> Any:
    """The value with null for NaN and Infinity, which are no JSON."""
    if isinstance(value, dict):
        return {name: without_nan(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_nan(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def named_sources(items: Sequence[str]) -> dict[str, str]:
    """DATA by name, of NAME=DATA or of DATA alone, whose name is that of its file."""
    sources: dict[str, str] = {}
    for item in items:
        name, separator, source = item.partition("=")
        if not separator or "/" in name:  # a path may have a = of its own
            name, source = Path(item).stem, item
        if not name or not source:
            raise DataError(f"--ood takes NAME=DATA, got {item!r}; for example --ood textures=dtd/images")
        if name in sources:
            raise DataError(f"two OOD sets are called {name!r}; give each a name of its own: --ood NAME=DATA")
        sources[name] = source
    return sources


def load_with_classifier(path: Path, classifier: str | None) -> "Detector":
    """The detector with the classifier to read inputs by; a detector's file names one, but only a person may have it run."""
    from bal.backbones import load_classifier  # noqa: PLC0415
    from bal.detectors import load  # noqa: PLC0415
    from bal.detectors.files import read  # noqa: PLC0415

    if classifier is None:
        mark = read(path)[0].get("classifier") or {}
        known = mark.get("source") or "package.module:function"
        raise DataError(f"{path} reads inputs by a classifier; name it: --classifier {known}")
    return load(path, load_classifier(classifier))


def load_inputs(detector: "Detector", source: str) -> Any:
    """DATA in the shape that the detector was fitted on, without labels."""
    return read_inputs(detector, source, labelled=False).data


def read_inputs(detector: "Detector", source: str, *, labelled: bool = True) -> "Loaded":
    """DATA in that shape with what could not be read, and labels that are numbers of the detector's classes."""
    from bal.data.files import read_data  # noqa: PLC0415

    loaded = read_data(source, None if detector.spec_ is None else detector.spec_.shape)
    return with_known_labels(loaded, source, detector.class_names_ or ()) if labelled else replace(loaded, labels=None)


def with_known_labels(loaded: "Loaded", source: str, known: Sequence[str]) -> "Loaded":
    """Labels by the names of folders as numbers of the known classes, where both have names."""
    import numpy as np  # noqa: PLC0415

    from bal.data.files import class_names_of  # noqa: PLC0415

    came = class_names_of(source) or ()
    if loaded.labels is None or not came or not known:
        return loaded
    foreign = sorted(set(came) - set(known))
    if foreign:
        raise DataError(
            f"{source} has folders that are no known classes: {', '.join(foreign[:5])}; known are {', '.join(known[:10])}. "
            "Rename them, or take them out"
        )
    return replace(loaded, labels=np.array([known.index(name) for name in came])[loaded.labels])


def with_bar(detector: "Detector", data: Any) -> Any:
    """The features of the data, extracted under a progress bar; the data itself for a detector that needs it."""
    from bal.detectors import FeatureDetector  # noqa: PLC0415
    from bal.features import extract  # noqa: PLC0415

    if not isinstance(detector, FeatureDetector) or detector.classifier_ is None:
        return data
    return extract(detector.classifier_, data, spec=detector.spec_)
