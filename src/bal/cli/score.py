"""bal score."""

from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import tyro

from bal.cli.common import Engine, check_folder, load_with_classifier, make_cluster, print_json, print_pairs
from bal.errors import DataError
from bal.settings import check_number

NAMED = 5  # shards that a message names


@dataclass(frozen=True, kw_only=True)
class Score:
    """Score images of any number as a stream: one row for each, one output file for each input shard.

    A run that was stopped goes on where it was; a rerun does what is missing or out of date. A file that is no image becomes a
    row with an error; more of them than the budget is exit code 1, after all else is done.

    Example: bal score detector --classifier my_model:build --data photos/new --out scores

    On a Ray cluster: bal score detector --classifier my_model:build --data photos/new --out scores --engine ray --workers 8
    """

    detector: tyro.conf.Positional[Path]
    """What `bal fit` wrote."""
    data: tuple[str, ...]
    """Folders of images, .parquet files or folders of them, .npz files."""
    out: Path
    """Folder for the output files."""
    classifier: str | None = None
    """package.module:function or .pt2 file, as for `bal fit`."""
    format: Literal["parquet", "csv", "jsonl"] = "parquet"
    """Of the output files."""
    rows_per_shard: int = 4096
    """How many files of a folder, or rows of an .npz, go into one output file; Parquet goes by its row groups."""
    error_budget: float = 0.01
    """Share of the inputs that may be unreadable before the exit code is 1."""
    engine: Engine = "local"
    """Where to run: this process, or the workers of a Ray cluster, which takes seconds to start."""
    workers: int | None = None
    """With --engine ray: workers of one CPU each; as many as there are CPUs if not given."""
    address: str | None = None
    """With --engine ray: of a running cluster; else that of RAY_ADDRESS, else one is started on this machine."""
    json: bool = False
    """Print the outcome as JSON."""

    def __call__(self) -> None:
        """Run it."""
        check_number("error_budget", self.error_budget, low=0, high=1)
        if not self.data:
            raise DataError("--data needs at least one folder, .parquet or .npz")
        cluster = make_cluster(self.engine, self.workers, self.address)
        from bal.serving import score_on_ray, score_stream  # noqa: PLC0415 - torch is slow to import
        from bal.serving.batch import check_outside  # noqa: PLC0415

        check_outside(self.out, self.data)
        check_folder(self.out)
        load, suffix = partial(load_with_classifier, self.detector, self.classifier), f".{self.format}"
        if cluster is None:
            outcome = score_stream(load(), self.data, self.out, suffix=suffix, rows_per_shard=self.rows_per_shard)
        else:
            outcome = score_on_ray(load, self.data, self.out, cluster, suffix=suffix, rows_per_shard=self.rows_per_shard)
        if self.json:
            print_json({**asdict(outcome), "out": str(self.out)})
        else:
            lines = {"rows": outcome.rows, "rejected": outcome.rejected, "errors": outcome.errors}
            shards = f"{outcome.shards}, of which {outcome.found} were there"
            print_pairs([*lines.items(), ("shards", shards), ("out", self.out)])
        if outcome.failed:
            told = "; ".join(list(outcome.failed.values())[:NAMED])
            raise DataError(
                f"{len(outcome.failed)} of {outcome.shards} shards could not be read: {told}. Mend them and run again"
            )
        if outcome.errors > self.error_budget * outcome.rows:
            raise DataError(
                f"{outcome.errors} of {outcome.rows} inputs could not be read, more than {self.error_budget:.1%}; "
                "the column error says why. Mend them and run again, or allow a larger --error-budget"
            )
