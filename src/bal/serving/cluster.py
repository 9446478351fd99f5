"""Shards on a Ray cluster (extra ``cluster``): a pool of workers that hold the model, for scores and for features.

A worker takes one shard at a time, finds it again on storage that all machines share, and writes its output itself; this process
sees counts or features, never an image. Ray starts a killed worker again and gives it its shard again: an output is replaced as a
whole, so there are no rows twice. What kills every worker is given up.
"""

import json
import logging
import os
import warnings
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from bal import errors
from bal.data.extras import import_extra
from bal.data.shards import Shard
from bal.detectors import Detector
from bal.errors import BalError, BalWarning, DataError, StorageError
from bal.progress import progress_bar
from bal.serving.batch import ROWS_PER_SHARD, Outcome, find_done, identity, plan, score_to
from bal.settings import check_number

TRIES = 3  # of a shard whose workers die
STARTS = 10  # of workers beyond the first ones, without one shard done between them
OBJECT_STORE = 1 << 28  # bytes of a cluster of this machine, for answers on their way

QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_BACKEND_LOG_LEVEL": "fatal"}


@dataclass(frozen=True)
class Cluster:
    """Where to run: ``workers`` of one CPU each, as many as there are CPUs if None.

    ``address`` is that of a running cluster, such as 10.0.0.1:6379 or auto; without it RAY_ADDRESS, without that one is started
    on this machine, for this job. A process that is connected already keeps its cluster.
    """

    workers: int | None = None
    address: str | None = None

    def __post_init__(self) -> None:
        if self.workers is not None:
            check_number("workers", self.workers, low=1, whole=True)


@dataclass(frozen=True)
class Task:
    """A shard in a form that can be sent, and where its rows go, if anywhere."""

    name: str
    rows: int
    identity: str
    again: Callable[[], Iterator[Shard]]
    path: Path | None = None

    @classmethod
    def of(cls, shard: Shard, path: Path | None = None) -> "Task":
        """The task of a shard."""
        return cls(shard.name, shard.rows, shard.identity, shard.again, path)

    @contextmanager
    def shard(self) -> Iterator[Shard]:
        """The shard, found again where the work is done."""
        shards = iter(self.again())
        shard = next(shards, None)
        try:
            if shard is None or (shard.name, shard.identity) != (self.name, self.identity):
                raise DataError(f"{self.name} is not what it was when the job began; run it again, on storage that all share")
            yield shard
        finally:
            shards.close()  # type: ignore[attr-defined]


Work: TypeAlias = Callable[[Task], bytes]
Answer: TypeAlias = bytes | BalError


def score_on_ray(
    load: Callable[[], Detector],
    sources: Sequence[str | Path],
    out: str | Path,
    cluster: Cluster,
    *,
    suffix: str = ".parquet",
    rows_per_shard: int = ROWS_PER_SHARD,
    show_progress: bool = True,
) -> Outcome:
    """:func:`bal.serving.score_stream` on a cluster: the same files and outcome. ``load`` is called by every worker once.

    It must give the detector that it gives here, so the detector's files, the classifier and the inputs are on storage that all
    machines share, under the same paths; ``out`` too. When all outputs are there, Ray is not started.
    """
    detector = load()
    job = plan(detector, sources, out, suffix=suffix, rows_per_shard=rows_per_shard)
    outcome, tasks, answers = Outcome(), [], {}
    with progress_bar("scoring", job.rows, show=show_progress) as advance:
        for shard, path in job:
            there = find_done(shard, path)
            if there is None:
                tasks.append(Task.of(shard, path))
            else:
                outcome.add(shard.name, there, found=True)
                advance(shard.rows)
        with closing(run(partial(start_scoring, load, job.mark), tasks, cluster)) as came:
            for number, answer in came:
                answers[number] = told(answer)
                advance(tasks[number].rows)
    for number, task in enumerate(tasks):
        outcome.add(task.name, answers[number])
    return outcome


def told(answer: Answer) -> Any:
    """What a shard came to, or why it failed; what would stop a local job stops this one."""
    if isinstance(answer, DataError):
        return str(answer)
    if isinstance(answer, BalError):
        raise answer
    came = json.loads(answer)
    return tuple(came) if isinstance(came, list) else came


def start_scoring(load: Callable[[], Detector], mark: str) -> Work:
    """Load the detector in a worker; ``mark`` is the identity of the one that the job was planned with."""
    detector = load()
    if identity(detector) != mark:
        raise StorageError("it is not the one that the job began with; put detector and classifier on storage that all share")
    return partial(score_task, detector)


def score_task(detector: Detector, task: Task) -> bytes:
    """Score a shard into its output."""
    with task.shard() as shard:
        return json.dumps(score_to(task.path or Path(), detector, shard, lambda steps=1, note="": None)).encode()


def run(start: Callable[[], Work], tasks: Sequence[Task], cluster: Cluster) -> Generator[tuple[int, Answer], None, None]:
    """The number of each task with its answer, as they come. ``start`` makes, in each worker, the function that does a task."""
    if not tasks:
        return
    with connected(cluster) as ray:
        free = int(ray.cluster_resources().get("CPU", 1))
        size = min(cluster.workers or free, len(tasks))
        if size > free:
            raise DataError(f"{size} workers need a CPU each, but the cluster has {free}; ask for fewer workers")
        journal = ray.remote(num_cpus=0)(Journal).remote(STARTS + size)
        numbers = ray.data.from_items([{"number": number} for number in range(len(tasks))], override_num_blocks=len(tasks))
        pool = ray.data.ActorPoolStrategy(size=size, max_tasks_in_flight_per_actor=1)
        arguments = (str(Path.cwd()), start, list(tasks), journal)
        for row in numbers.map(Worker, fn_constructor_args=arguments, compute=pool, num_cpus=1).iter_rows():
            note = json.loads(row["note"])
            for words in note["warnings"]:
                warnings.warn(words, BalWarning, stacklevel=2)
            kind = getattr(errors, note["error"] or "", BalError)
            yield int(row["number"]), kind(note["words"]) if note["error"] else row["answer"]


@contextmanager
def connected(cluster: Cluster) -> Iterator[Any]:
    """Ray, connected and quiet; what was started here ends with the block."""
    ray = import_extra("ray", extra="cluster")
    context = import_extra("ray.data", extra="cluster").DataContext.get_current()
    context.enable_progress_bars = context.print_on_execution_start = False
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    if ray.is_initialized():
        yield ray
        return
    connect(ray, cluster)
    try:
        yield ray
    finally:
        ray.shutdown()


def connect(ray: Any, cluster: Cluster) -> None:
    """Join the cluster that is named, or start one of this machine; no dashboard, no statistics of use."""
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    address = cluster.address or os.environ.get("RAY_ADDRESS") or "local"
    own = {"num_cpus": cluster.workers, "include_dashboard": False, "object_store_memory": OBJECT_STORE}
    settings = own if address == "local" else {}
    try:
        ray.init(address, log_to_driver=False, logging_level=logging.ERROR, **settings)
    except (OSError, RuntimeError, ValueError) as error:
        raise DataError(
            f"cannot join the Ray cluster {address} ({error}); start one with: ray start --head, or leave --address out"
        ) from error


class Journal:
    """An actor that counts what was begun, so that what kills its workers is not tried for ever."""

    def __init__(self, starts: int) -> None:
        self.left, self.starts, self.tries = starts, starts, Counter[int]()

    def start(self) -> bool:
        """Whether one more worker may start."""
        self.left -= 1
        return self.left >= 0

    def begin(self, number: int) -> bool:
        """Whether a task may be tried once more."""
        self.tries[number] += 1
        return self.tries[number] <= TRIES

    def end(self) -> None:
        """A task is done, so workers live."""
        self.left = self.starts


class Worker:
    """An actor of the pool: it loads once, in the folder of the command, then does tasks by their number."""

    def __init__(self, folder: str, start: Callable[[], Work], tasks: Sequence[Task], journal: Any) -> None:
        self.tasks, self.journal, self.trouble = tasks, journal, ""
        if not self.ask("start"):
            self.trouble = "workers die as they start; do the machines have the memory for it?"
            return
        try:
            os.chdir(folder)
            self.work = start()
        except (BalError, OSError) as error:
            self.trouble = str(error)

    def ask(self, what: str, *arguments: Any) -> Any:
        """The answer of the journal."""
        return import_extra("ray", extra="cluster").get(getattr(self.journal, what).remote(*arguments))

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        """A row with the answer; errors and warnings go in words, for the sender to raise."""
        answer, kind, words, number = b"", "", "", int(row["number"])
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            try:
                answer = self.do(number)
            except BalError as error:
                kind, words = type(error).__name__, str(error)
        said = sorted({str(warning.message) for warning in heard if issubclass(warning.category, BalWarning)})
        return {"number": number, "answer": answer, "note": json.dumps({"error": kind, "words": words, "warnings": said})}

    def do(self, number: int) -> bytes:
        """Do a task, unless it has killed too many workers."""
        if self.trouble:
            raise StorageError(f"a worker of the cluster cannot load the model: {self.trouble}")
        if not self.ask("begin", number):
            raise DataError(f"{self.tasks[number].name} was given up, since {TRIES} workers died of it; is there memory for it?")
        answer = self.work(self.tasks[number])
        self.ask("end")
        return answer
