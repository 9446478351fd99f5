"""What a detector answers, and that answer as a table: in memory, Parquet, CSV or JSON Lines.

One rule for all files: a number that is not finite (the score of an invalid row, a p-value without calibration) is missing, which
is null in Parquet and JSON and an empty cell in CSV. A bare NaN or Infinity is no JSON.
"""

import csv
import io
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bal.data.extras import import_extra
from bal.errors import DataError
from bal.storage import write_atomically

OOD = -1

Columns: TypeAlias = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Prediction:
    """One entry for each input.

    label: (N,) int64, the class or -1 for OOD; confidence: (N,) float64 in [0, 1]; p_value: (N,) float64 in (0, 1], the conformal
    p-value of being ID, NaN where the detector is not calibrated; score: (N,) float64, -inf for invalid rows; valid: (N,) bool,
    False where the input or its features are not finite. An invalid row is never accepted, and has the least p-value there is.
    """

    label: NDArray[np.int64]
    confidence: NDArray[np.float64]
    p_value: NDArray[np.float64]
    score: NDArray[np.float64]
    valid: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.label)

    def columns(self) -> dict[str, NDArray[Any]]:
        """The fields by name, in their order."""
        return {item.name: getattr(self, item.name) for item in fields(self)}

    def to_structured(self) -> NDArray[np.void]:
        """(N,) structured array with the fields as columns; ``pandas.DataFrame`` takes it as it is."""
        columns = self.columns()
        table = np.empty(len(self), [(name, column.dtype) for name, column in columns.items()])
        for name, column in columns.items():
            table[name] = column
        return table

    def write(self, path: str | Path) -> None:
        """Write .parquet, .csv or .jsonl, whole or not at all."""
        write_table(self.columns(), Path(path))


def present(value: Any) -> Any:
    """The value, or None for a number that is not finite."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def records(columns: Columns) -> Iterator[tuple[Any, ...]]:
    """Rows of plain Python values, None where a number is missing."""
    return zip(*(map(present, column.tolist()) for column in columns.values()), strict=True)


def to_json_lines(columns: Columns) -> bytes:
    """One JSON object a line."""
    names = list(columns)
    lines = (json.dumps(dict(zip(names, row, strict=True)), allow_nan=False) + "\n" for row in records(columns))
    return "".join(lines).encode()


def to_csv(columns: Columns) -> bytes:
    """Comma-separated, with a header; numbers in full precision."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(records(columns))
    return text.getvalue().encode()


def to_parquet(columns: Columns) -> bytes:
    """A Parquet file; needs pyarrow, of the extra ``data``."""
    arrow, parquet = import_extra("pyarrow"), import_extra("pyarrow.parquet")
    table = {
        name: arrow.array(column.tolist(), arrow.string())
        if column.dtype == object
        else arrow.array(column, mask=~np.isfinite(column) if column.dtype == np.float64 else None)
        for name, column in columns.items()
    }
    sink = io.BytesIO()
    parquet.write_table(arrow.table(table), sink)
    return sink.getvalue()


WRITERS = {".parquet": to_parquet, ".csv": to_csv, ".jsonl": to_json_lines}


def write_table(columns: Columns, path: Path) -> None:
    """Write columns of numbers, booleans or words (dtype object) as .parquet, .csv or .jsonl, whole or not at all."""
    if path.suffix not in WRITERS:
        raise DataError(f"cannot write {path.name}: its name must end in {', '.join(WRITERS)}")
    write_atomically(path, WRITERS[path.suffix](columns))
