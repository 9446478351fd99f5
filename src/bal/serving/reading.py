"""From the bytes of a body to inputs: an image file, or tensors as JSON of the Open Inference Protocol.

These run in threads of their own. Whatever is wrong with the bytes becomes a refusal that says what was expected.
"""

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from bal.data.folders import decode_as
from bal.data.images import TooLargeError
from bal.errors import DataError, ShapeError
from bal.serving.limits import Limits
from bal.serving.model import ServedModel
from bal.serving.refusal import Refusal, too_large, unprocessable

FLOATING = {"FP32": np.float32, "FP64": np.float64, "UINT8": np.uint8, "UINT16": np.uint16}
WHOLE = {"INT64": np.int64, "INT32": np.int32}
INPUT = "input"


@dataclass(frozen=True)
class Asked:
    """What a request asks for: inputs (N, ...), what is odd about them, its own id, the outputs it wants (none: all)."""

    inputs: NDArray[Any]
    warnings: list[str]
    id: str | None = None
    outputs: list[str] = field(default_factory=list)


def read_image(body: bytes, model: ServedModel, limits: Limits) -> Asked:
    """A PNG, JPEG or WebP file, read as `bal score` reads the files of a folder."""
    if not model.takes_images:
        raise unprocessable(
            f"this detector takes inputs of shape {model.spec.shape}, which no image file becomes; "
            f"use /v2/models/{model.name}/infer"
        )
    if image_kind(body) is None:
        raise Refusal(415, "not_an_image", "the body must be the bytes of a PNG, JPEG or WebP file and nothing else")
    try:
        image = decode_as(model.spec.shape, lambda: body, "the image", max_pixels=limits.max_pixels)
    except TooLargeError as error:
        raise too_large(str(error)) from error
    except DataError as error:
        raise unprocessable(f"{error}; send a whole PNG, JPEG or WebP file", "unreadable_image") from error
    return checked(image[None], model)


def image_kind(content: bytes) -> str | None:
    """The format that a file's first bytes tell; of all that Pillow reads, these three are let in.

    >>> image_kind(b"RIFF....WEBPVP8 "), image_kind(b"GIF89a")
    ('WebP', None)
    """
    if content.startswith(b"\x89PNG\r\n\x1a\n"):
        return "PNG"
    if content.startswith(b"\xff\xd8\xff"):
        return "JPEG"
    return "WebP" if content[:4] == b"RIFF" and content[8:12] == b"WEBP" else None


def read_tensors(body: bytes, model: ServedModel, limits: Limits) -> Asked:
    """An inference request of the Open Inference Protocol with one input."""
    request = parse_json(body)
    inputs = request.get("inputs")
    if not isinstance(inputs, list) or len(inputs) != 1 or not isinstance(inputs[0], dict):
        raise unprocessable(f'"inputs" must be a list of one tensor {{"name": "{INPUT}", "shape", "datatype", "data"}}')
    asked = checked(read_tensor(inputs[0], model, limits), model)
    return Asked(asked.inputs, asked.warnings, read_id(request), read_outputs(request))


def parse_json(body: bytes) -> dict[str, Any]:
    """One JSON object; bare NaN and Infinity are no JSON."""
    try:
        value = json.loads(body.decode(), parse_constant=refuse_constant)
    except (ValueError, RecursionError) as error:
        reason = str(error) if isinstance(error, json.JSONDecodeError) else type(error).__name__
        raise Refusal(400, "not_json", f"the body must be JSON in UTF-8 ({reason})") from error
    if not isinstance(value, dict):
        raise unprocessable('the body must be a JSON object {"inputs": [...]}')
    return value


def refuse_constant(name: str) -> NoReturn:
    """NaN, Infinity and -Infinity."""
    raise Refusal(400, "not_json", f"{name} is no JSON; a number that is not finite cannot be sent")


def read_id(request: dict[str, Any]) -> str | None:
    """The client's own name for the request."""
    name = request.get("id")
    if name is not None and (not isinstance(name, str) or len(name) > 256):
        raise unprocessable('"id" must be a string of at most 256 characters')
    return name


def read_outputs(request: dict[str, Any]) -> list[str]:
    """Names of the outputs that are wanted; whether they exist is seen later."""
    outputs = request.get("outputs") or []
    if not isinstance(outputs, list) or not all(isinstance(o, dict) and isinstance(o.get("name"), str) for o in outputs):
        raise unprocessable('"outputs" must be a list of {"name": ...}, or be left out for all of them')
    return [output["name"] for output in outputs]


def read_tensor(tensor: dict[str, Any], model: ServedModel, limits: Limits) -> NDArray[Any]:
    """The numbers of a tensor, after its shape and datatype are known to fit the model."""
    shape, datatype = tensor.get("shape"), tensor.get("datatype")
    kinds = FLOATING if model.spec.floating else WHOLE
    if not isinstance(datatype, str) or datatype not in kinds:
        raise unprocessable(f'"datatype" must be one of {", ".join(kinds)}, got {shown(datatype)}', "wrong_datatype")
    if not isinstance(shape, list) or not all(type(n) is int for n in shape) or tuple(shape[1:]) != model.spec.shape:
        raise unprocessable(f'"shape" must be [N, {", ".join(map(str, model.spec.shape))}], got {shown(shape)}', "wrong_shape")
    if shape[0] > limits.max_batch:
        raise too_large(f"a request may have {limits.max_batch} rows, got {shown(shape[0])}; send several")
    if shape[0] < 1:
        raise unprocessable(f'"shape" must begin with 1 row or more, got {shown(shape[0])}', "wrong_shape")
    return to_numbers(tensor.get("data"), math.prod(shape), np.dtype(kinds[datatype])).reshape(shape)


def to_numbers(data: Any, count: int, kind: np.dtype[Any]) -> NDArray[Any]:
    """So many numbers, flat or nested, as a flat array; those that the kind cannot hold are refused.

    A real number too large for float32 becomes infinite, and its row invalid.
    """
    try:
        values = np.asarray(data)
    except (ValueError, TypeError, OverflowError, RecursionError, MemoryError) as error:
        raise unprocessable('"data" must be a list of numbers, or lists of them of equal length', "wrong_data") from error
    if not isinstance(data, list) or values.dtype.kind not in "iuf" or holds_booleans(data, values.ndim):
        raise unprocessable('"data" must be a list of numbers, without null, true or strings', "wrong_data")
    if values.size != count:
        raise unprocessable(f'"data" must have {count} numbers, as "shape" says, got {values.size}', "wrong_data")
    if kind.kind != "f":
        span = np.iinfo(kind)
        if values.dtype.kind == "f" or values.min() < span.min or values.max() > span.max:
            raise unprocessable(f'"data" must be whole numbers from {span.min} to {span.max}', "wrong_data")
    with np.errstate(over="ignore"):
        return values.astype(kind).ravel()


def holds_booleans(data: list[Any], depth: int) -> bool:
    """Whether true or false is among the values of nested lists; numpy takes them for 1 and 0 where there are numbers too.

    >>> holds_booleans([[1, 2], [True, 3]], 2), holds_booleans([1, 0], 1)
    (True, False)
    """
    values: Iterable[Any] = data
    for _ in range(depth - 1):
        values = chain.from_iterable(values)
    return bool in set(map(type, values))


def checked(inputs: NDArray[Any], model: ServedModel) -> Asked:
    """Inputs that the model takes."""
    try:
        return Asked(inputs, model.check(inputs))
    except ShapeError as error:
        raise unprocessable(str(error), "wrong_shape") from error


def shown(value: Any) -> str:
    """The beginning of a value that came, for a message."""
    text = repr(value)
    return text if len(text) <= 60 else text[:60] + "..."
