"""Answers as JSON: one row of /v1/score, and the Open Inference Protocol (v2). A number that is not finite is null."""

from typing import Any

from numpy.typing import NDArray

from bal._version import __version__
from bal.detectors import BAL
from bal.detectors.prediction import Columns, present
from bal.serving.model import ServedModel
from bal.serving.reading import INPUT, Asked
from bal.serving.refusal import unprocessable

DATATYPES = {"i": "INT64", "f": "FP64", "b": "BOOL"}
OUTPUTS = {
    "label": "INT64",
    "confidence": "FP64",
    "p_value": "FP64",
    "score": "FP64",
    "valid": "BOOL",
    "is_ood": "BOOL",
    "threshold": "FP64",
}
FACTORS = {"p1": "FP64", "p2": "FP64"}


def values(column: NDArray[Any]) -> list[Any]:
    """Plain values, None where a number is not finite; a place on the map is a pair of them."""
    return [list(map(present, value)) if isinstance(value, list) else present(value) for value in column.tolist()]


def one_row(model: ServedModel, asked: Asked, columns: Columns, request_id: str) -> dict[str, Any]:
    """The answer of /v1/score."""
    row = {name: values(column)[0] for name, column in columns.items()}
    return {
        "label": row.pop("label"),
        "class": model.class_name(int(columns["label"][0])),
        **row,
        "warnings": asked.warnings,
        **about(model),
        "request_id": request_id,
    }


def about(model: ServedModel) -> dict[str, Any]:
    """Which detector answered."""
    return {"model": model.name, "detector": model.kind, "version": model.version, "fingerprint": model.fingerprint}


def outputs_of(model: ServedModel) -> dict[str, str]:
    """The outputs of the Open Inference Protocol with their datatypes."""
    return OUTPUTS | (FACTORS if isinstance(model.detector, BAL) else {})


def infer_response(model: ServedModel, asked: Asked, columns: Columns, request_id: str) -> dict[str, Any]:
    """The answer of /v2/models/{name}/infer."""
    columns = {name: columns[name] for name in outputs_of(model)}
    if unknown := [name for name in asked.outputs if name not in columns]:
        raise unprocessable(f"there is no output {unknown[0][:60]!r}; the outputs are {', '.join(columns)}", "wrong_output")
    chosen = asked.outputs or list(columns)
    parameters: dict[str, Any] = {
        "request_id": request_id,
        "fingerprint": model.fingerprint,
        "detector": model.kind,
        "warnings": asked.warnings,
    }
    if model.class_names is not None:
        parameters["classes"] = [model.class_name(label) for label in columns["label"].tolist()]
    return {
        "model_name": model.name,
        "model_version": model.version,
        "id": request_id if asked.id is None else asked.id,
        "parameters": parameters,
        "outputs": [
            {
                "name": name,
                "shape": [len(columns[name])],
                "datatype": DATATYPES[columns[name].dtype.kind],
                "data": values(columns[name]),
            }
            for name in chosen
        ],
    }


def metadata(model: ServedModel) -> dict[str, Any]:
    """The answer of /v2/models/{name}."""
    calibration = model.calibration
    return {
        "name": model.name,
        "versions": [model.version],
        "platform": "bal_torch",
        "inputs": [
            {"name": INPUT, "datatype": "FP32" if model.spec.floating else "INT64", "shape": [-1, *model.spec.shape]},
        ],
        "outputs": [{"name": name, "datatype": kind, "shape": [-1]} for name, kind in outputs_of(model).items()],
        "parameters": {
            **about(model),
            "classes": model.class_names,
            "threshold": model.detector.threshold_.tolist(),
            "false_alarm": None if calibration is None else calibration.false_alarm,
            "classifier": model.classifier.fingerprint(),
        },
    }


def server_metadata() -> dict[str, Any]:
    """The answer of /v2."""
    return {"name": "bal", "version": __version__, "extensions": []}
