import csv
import json
import sys

import numpy as np
import pytest

from bal.detectors import Prediction
from bal.errors import DataError, StorageError

NAN, INF = np.nan, np.inf


@pytest.fixture
def answer():
    """A row that is accepted, one that is not, and one that is invalid."""
    return Prediction(
        label=np.array([2, -1, -1]),
        confidence=np.array([0.1 + 0.2, 1e-300, 0.0]),
        p_value=np.array([0.5, 0.05, 0.05]),
        score=np.array([-1.2, -690.0, -INF]),
        valid=np.array([True, True, False]),
    )


@pytest.fixture
def uncalibrated(answer):
    return Prediction(answer.label, answer.confidence, np.full(3, NAN), answer.score, answer.valid)


def test_the_structured_array_has_one_row_for_each_input(answer):
    table = answer.to_structured()
    assert table.dtype.names == ("label", "confidence", "p_value", "score", "valid")
    assert table.shape == (len(answer),) == (3,)
    assert table[0].tolist() == (2, 0.1 + 0.2, 0.5, -1.2, True)
    for name in table.dtype.names:
        assert table[name].dtype == getattr(answer, name).dtype
        assert np.array_equal(table[name], getattr(answer, name))


def test_json_lines_have_null_and_never_a_bare_nan_or_infinity(uncalibrated, tmp_path):
    """Fault 4."""

    def refuse(constant):
        raise AssertionError(f"{constant} is no JSON")

    uncalibrated.write(tmp_path / "a.jsonl")
    rows = [json.loads(line, parse_constant=refuse) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert rows[0] == {"label": 2, "confidence": 0.1 + 0.2, "p_value": None, "score": -1.2, "valid": True}
    assert rows[2] == {"label": -1, "confidence": 0.0, "p_value": None, "score": None, "valid": False}


def test_csv_has_empty_cells_and_numbers_in_full_precision(answer, uncalibrated, tmp_path):
    answer.write(tmp_path / "a.csv")
    with (tmp_path / "a.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert float(rows[0]["confidence"]) == 0.1 + 0.2
    assert rows[1] == {"label": "-1", "confidence": "1e-300", "p_value": "0.05", "score": "-690.0", "valid": "True"}
    assert (rows[2]["score"], rows[2]["valid"]) == ("", "False")
    uncalibrated.write(tmp_path / "b.csv")
    assert "nan" not in (tmp_path / "b.csv").read_text().lower()


def test_parquet_keeps_types_and_has_nulls(answer, uncalibrated, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet", reason="Parquet needs pyarrow, of the extra data")
    answer.write(tmp_path / "a.parquet")
    table = parquet.read_table(tmp_path / "a.parquet")
    assert [str(field.type) for field in table.schema] == ["int64", "double", "double", "double", "bool"]
    assert table.to_pylist()[0] == {"label": 2, "confidence": 0.1 + 0.2, "p_value": 0.5, "score": -1.2, "valid": True}
    assert table["score"].to_pylist() == [-1.2, -690.0, None]
    uncalibrated.write(tmp_path / "b.parquet")
    assert parquet.read_table(tmp_path / "b.parquet")["p_value"].null_count == 3


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".jsonl"])
def test_no_rows_are_a_table_too(suffix, answer, tmp_path):
    empty = Prediction(**{name: column[:0] for name, column in answer.columns().items()})
    empty.write(tmp_path / f"a{suffix}")
    assert (tmp_path / f"a{suffix}").exists()
    assert empty.to_structured().shape == (0,)


def test_another_suffix_is_refused_and_so_is_a_place_that_cannot_be_written(answer, tmp_path):
    with pytest.raises(DataError, match=r"cannot write a\.xlsx: its name must end in \.parquet, \.csv, \.jsonl"):
        answer.write(tmp_path / "a.xlsx")
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot write"):
        answer.write(tmp_path / "file" / "a.csv")


def test_parquet_without_pyarrow_names_the_extra(answer, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(DataError, match=r"bal-ood\[data\]"):
        answer.write(tmp_path / "a.parquet")
