"""Features of labelled data on a Ray cluster, for a fit: workers read and run the classifier, this process gets the features."""

import io
import json
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bal.backbones import Classifier
from bal.data.files import is_parquet
from bal.data.folders import Shape, check_left_out
from bal.data.labels import STRAY, row_labels, shard_paths
from bal.data.shards import find_shards
from bal.errors import BalError, ShapeError, StorageError
from bal.features import Features, InputSpec, extract
from bal.progress import progress_bar
from bal.serving.batch import ROWS_PER_SHARD
from bal.serving.cluster import Cluster, Task, Work, run

Part = dict[str, NDArray[Any]]  # f, logits, words (JSON: names, errors, spec) of a shard


def extract_on_ray(
    load: Callable[[], Classifier],
    source: str | Path,
    cluster: Cluster,
    *,
    shape: Shape = (),
    spec: InputSpec | None = None,
    show_progress: bool = True,
) -> Features:
    """:func:`bal.features.extract` of DATA on a cluster: the same rows in the same order. Every worker calls ``load`` once.

    DATA is a folder of images, which needs the ``shape`` that they are resized to, a .parquet file or a folder of them, or an
    .npz file, on storage that all machines share. Files that cannot be read are left out, as many as on one machine.
    """
    classifier, paths = load(), shard_paths(source)
    tasks = [Task.of(shard) for shard in find_shards(paths, rows=ROWS_PER_SHARD)]
    parts: dict[int, Part] = {}
    start = partial(start_extraction, load, classifier.fingerprint(), shape, spec)
    bar = progress_bar("features", sum(task.rows for task in tasks), show=show_progress)
    with bar as advance, closing(run(start, tasks, cluster)) as came:
        for number, answer in came:
            if isinstance(answer, BalError):
                raise answer
            with np.load(io.BytesIO(answer), allow_pickle=False) as archive:
                parts[number] = dict(archive)
            advance(tasks[number].rows)
    return assembled([parts[number] for number in range(len(tasks))], paths, classifier)


def start_extraction(load: Callable[[], Classifier], mark: str, shape: Shape, spec: InputSpec | None) -> Work:
    """Load the classifier in a worker; ``mark`` is the fingerprint of the one that the job was planned with."""
    classifier = load()
    if classifier.fingerprint() != mark:
        raise StorageError("its weights are not those that the job began with; put the classifier on storage that all share")
    return partial(extract_task, classifier, shape, spec)


def extract_task(classifier: Classifier, shape: Shape, spec: InputSpec | None, task: Task) -> bytes:
    """The features of a shard, with names, and errors instead of rows that cannot be read."""
    names: list[str] = []
    errors: list[str | None] = []
    found: list[Features] = []
    with task.shard() as shard:
        for block in shard.blocks(shape):
            names, errors = names + block.names, errors + block.errors
            if len(block.inputs):
                found.append(extract(classifier, block.inputs, spec=spec, show_progress=False))
    specs = [(part.spec.shape, part.spec.floating, part.spec.low, part.spec.high) for part in found if part.spec is not None]
    sink = io.BytesIO()
    np.savez(
        sink,
        f=np.concatenate([np.empty((0, classifier.dim), np.float32), *(part.f.numpy() for part in found)]),
        logits=np.concatenate([np.empty((0, classifier.classes), np.float32), *(part.logits.numpy() for part in found)]),
        words=np.frombuffer(json.dumps({"names": names, "errors": errors, "specs": specs}).encode(), np.uint8),
    )
    return sink.getvalue()


def assembled(parts: list[Part], paths: list[Path], classifier: Classifier) -> Features:
    """The features of all shards, in the order in which one machine reads them."""
    words = [json.loads(part["words"].tobytes()) for part in parts]
    names = [name for told in words for name in told["names"]]
    errors = [error for told in words for error in told["errors"]]
    labels = row_labels(paths, names)
    if labels is not None and len(labels) != len(names):
        raise ShapeError(f"{len(names)} inputs came with {len(labels)} labels; give one label for each input")
    left_out = {name: error for name, error in zip(names, errors, strict=True) if error is not None}
    kept = np.array([error is None for error in errors], bool)
    images = paths[0].is_dir() and not is_parquet(paths[0])
    if labels is not None and images:
        strays = kept & (labels == STRAY)
        left_out |= {names[row]: "lies beside the folders of the classes" for row in np.flatnonzero(strays)}
    check_left_out(left_out, len(names), ", ".join(map(str, paths)))
    rows = [row for row in np.flatnonzero(kept) if names[row] not in left_out]
    if images:
        rows.sort(key=lambda row: Path(names[row]).parts)
    place = torch.from_numpy((np.cumsum(kept) - 1)[rows])  # of a row among those that were read
    f, logits = (torch.from_numpy(np.concatenate([part[name] for part in parts]))[place] for name in ("f", "logits"))
    chosen = None if labels is None else torch.from_numpy(labels[rows])
    return Features(f, logits, chosen, joined([spec for told in words for spec in told["specs"]]), classifier.head_tensors())


def joined(specs: list[tuple[list[int], bool, float, float]]) -> InputSpec:
    """The spec of all blocks, which must be of one kind."""
    first, *others = [InputSpec(tuple(shape), floating, low, high) for shape, floating, low, high in specs]
    for other in others:
        if (other.shape, other.floating) != (first.shape, first.floating):
            raise ShapeError(f"inputs must be alike, got {first.shape} and {other.shape}; give all of them one shape and dtype")
        first = first.widened(other)
    return first
