"""bal score."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import tyro

from bal.cli.common import check_folder, load_with_classifier, print_json, print_pairs
from bal.errors import DataError
from bal.settings import check_number

NAMED = 5  # shards that a message names


@dataclass(frozen=True, kw_only=True)
class Score:
    """Score images of any number as a stream: one row for each, one output file for each input shard.

    A run that was stopped goes on where it was; a rerun does what is missing or out of date. A file that is no image becomes a
    row with an error; more of them than the budget is exit code 1, after all else is done.

    Example: bal score detector --classifier my_model:build --data photos/new --out scores
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
    json: bool = False
    """Print the outcome as JSON."""

    def __call__(self) -> None:
        """Run it."""
        check_number("error_budget", self.error_budget, low=0, high=1)
        if not self.data:
            raise DataError("--data needs at least one folder, .parquet or .npz")
        check_folder(self.out)
        from bal.serving import score_stream  # noqa: PLC0415 - torch is slow to import

        detector = load_with_classifier(self.detector, self.classifier)
        outcome = score_stream(detector, self.data, self.out, suffix=f".{self.format}", rows_per_shard=self.rows_per_shard)
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
