"""From bytes to inputs, and what is refused on the way (faults 4, 5, 7, 9)."""

import json
import struct

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from torch import nn

from asking import encoded, png, tensor
from bal.data.folders import read_image_folder
from bal.data.parquet import read_parquet
from bal.data.shards import find_shards
from bal.detectors import make_detector
from bal.serving.limits import Limits
from bal.serving.model import ServedModel
from bal.serving.reading import read_image, read_tensors
from bal.serving.refusal import Refusal

LIMITS = Limits(max_batch=4, queue=8, max_pixels=1000)
ROWS = np.full((2, 1, 4, 4), 0.5)


@pytest.fixture
def model(energy):
    return ServedModel(energy, "tiny")


def refusal(read, body, model):
    with pytest.raises(Refusal) as refused:
        read(body, model, LIMITS)
    return refused.value.status, refused.value.code


GREY = np.random.default_rng(0).integers(0, 256, (6, 9), np.uint8)
EXIF = Image.Exif()
EXIF[0x0112] = 6
KINDS = {
    "grey": encoded(GREY),
    "16-bit": encoded(GREY.astype(np.uint16) * 257),
    "palette": encoded(Image.fromarray(GREY).convert("P")),
    "transparent": encoded(Image.fromarray(np.dstack([GREY, GREY, GREY, GREY]))),
    "rotated": encoded(Image.fromarray(GREY).convert("RGB"), "JPEG", exif=EXIF),
    "CMYK": encoded(Image.fromarray(GREY).convert("CMYK"), "JPEG"),
    "webp": encoded(Image.fromarray(GREY).convert("RGB"), "WEBP"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_image_is_the_same_array_in_fit_score_and_serve(model, tmp_path, kind):
    """Fault 7: a folder as `bal fit` reads it, the same as `bal score` streams it, a table in Parquet, the body of a request."""
    shape = model.spec.shape
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "x").write_bytes(KINDS[kind])
    pq.write_table(pa.table({"image": [KINDS[kind]]}), tmp_path / "x.parquet")
    fitted = read_image_folder(tmp_path / "photos", shape).images
    shards = find_shards([tmp_path / "photos", tmp_path / "x.parquet"], rows=8)
    scored = [block.inputs for shard in shards for block in shard.blocks(shape)]
    served = read_image(KINDS[kind], model, LIMITS).inputs
    assert (served.shape, served.dtype) == ((1, *shape), np.uint8)
    assert len(scored) == 2
    for inputs in (fitted, *scored, read_parquet(tmp_path / "x.parquet", shape)):
        assert inputs.dtype == np.uint8
        assert np.array_equal(inputs, served)


@pytest.mark.parametrize("body", [png(13000, 13000), png(100, 11), png(40, 26)])
def test_a_pixel_bomb_is_413_before_it_is_decoded(model, body):
    """Fault 9."""
    assert refusal(read_image, body, model) == (413, "too_large")


def test_a_webp_bomb_is_413_too(model):
    """Fault 9: 16383 x 16383 in the head of a few bytes."""
    small = bytearray(encoded(Image.new("RGB", (4, 4)), "WEBP", lossless=True))
    place = small.index(b"VP8L") + 9
    small[place : place + 4] = struct.pack("<I", 16382 | (16382 << 14))
    assert refusal(read_image, bytes(small), model) == (413, "too_large")


@pytest.mark.parametrize(
    ("body", "answer"),
    [
        (b"text", (415, "not_an_image")),
        (encoded(GREY, "GIF"), (415, "not_an_image")),
        (encoded(GREY, "TIFF"), (415, "not_an_image")),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", (415, "not_an_image")),
        (encoded(GREY)[:40], (422, "unreadable_image")),
        (b"\x89PNG\r\n\x1a\n", (422, "unreadable_image")),
        (b"\xff\xd8\xff", (422, "unreadable_image")),
        (b"RIFF\0\0\0\0WEBP", (422, "unreadable_image")),
    ],
)
def test_what_is_no_whole_png_jpeg_or_webp_is_refused(model, body, answer):
    assert refusal(read_image, body, model) == answer


def test_a_detector_of_rows_that_are_no_images_says_which_route_to_use(blobs):
    network = nn.Sequential(nn.Linear(8, 3))
    with torch.no_grad():
        network[0].weight.copy_(torch.eye(3, 8))
        network[0].bias.zero_()
    flat = make_detector("energy").fit(network, (blobs.f, blobs.labels), show_progress=False)
    with pytest.raises(Refusal, match="use /v2/models/flat/infer"):
        read_image(encoded(GREY), ServedModel(flat, "flat"), LIMITS)


def test_tensors_come_flat_or_nested_and_in_several_kinds(model):
    asked = read_tensors(tensor(ROWS, id="mine", outputs=[{"name": "label"}]), model, LIMITS)
    assert (asked.inputs.shape, asked.inputs.dtype, asked.id, asked.outputs) == ((2, 1, 4, 4), np.float32, "mine", ["label"])
    nested = {"inputs": [{"name": "input", "shape": [2, 1, 4, 4], "datatype": "FP64", "data": ROWS.tolist()}]}
    assert np.array_equal(read_tensors(json.dumps(nested).encode(), model, LIMITS).inputs, ROWS)
    pixels = read_tensors(tensor(np.full((1, 1, 4, 4), 200), "UINT8"), model, LIMITS)
    assert pixels.inputs.dtype == np.uint8
    assert "range from" in read_tensors(tensor(255 * ROWS), model, LIMITS).warnings[0]


def test_a_number_too_large_for_float32_is_infinite_and_so_its_row_invalid(model):
    """Fault 2."""
    rows = ROWS.tolist()
    rows[0][0][0][0] = 1e300
    body = {"inputs": [{"name": "input", "shape": [2, 1, 4, 4], "datatype": "FP32", "data": rows}]}
    asked = read_tensors(json.dumps(body).encode().replace(b"0.5]", b"1e999]", 1), model, LIMITS)
    assert model.run([asked.inputs])[0]["valid"].tolist() == [False, True]


def body_with(**changes):
    whole = {"name": "input", "shape": [2, 1, 4, 4], "datatype": "FP32", "data": ROWS.ravel().tolist()}
    return json.dumps({"inputs": [{**whole, **changes}]}).encode()


@pytest.mark.parametrize(
    ("body", "answer"),
    [
        (b"", (400, "not_json")),
        (b"{", (400, "not_json")),
        (b"\xff\xfe", (400, "not_json")),
        (b"[" * 100_000, (400, "not_json")),
        (b'{"inputs": [{"data": [NaN]}]}', (400, "not_json")),
        (b'{"inputs": -Infinity}', (400, "not_json")),
        (b"9" * 5000, (400, "not_json")),
        (b"[]", (422, "unprocessable")),
        (b"{}", (422, "unprocessable")),
        (b'{"inputs": [1]}', (422, "unprocessable")),
        (b'{"inputs": [{}, {}]}', (422, "unprocessable")),
        (body_with(datatype="BYTES"), (422, "wrong_datatype")),
        (body_with(datatype="INT64"), (422, "wrong_datatype")),
        (body_with(datatype=["FP32"]), (422, "wrong_datatype")),
        (body_with(shape=[2, 3, 4, 4]), (422, "wrong_shape")),
        (body_with(shape=[1, 4, 4]), (422, "wrong_shape")),
        (body_with(shape=[]), (422, "wrong_shape")),
        (body_with(shape="2"), (422, "wrong_shape")),
        (body_with(shape=[2.0, 1, 4, 4]), (422, "wrong_shape")),
        (body_with(shape=[True, 1, 4, 4]), (422, "wrong_shape")),
        (body_with(shape=[0, 1, 4, 4]), (422, "wrong_shape")),
        (body_with(shape=[-1, 1, 4, 4]), (422, "wrong_shape")),
        (body_with(shape=[5, 1, 4, 4]), (413, "too_large")),
        (body_with(shape=[10**18, 1, 4, 4]), (413, "too_large")),
        (body_with(shape=[1, 1, 4, 4]), (422, "wrong_data")),
        (body_with(data=None), (422, "wrong_data")),
        (body_with(data=[]), (422, "wrong_data")),
        (body_with(data=3), (422, "wrong_data")),
        (body_with(data="0.5"), (422, "wrong_data")),
        (body_with(data=["0.5"] * 32), (422, "wrong_data")),
        (body_with(data=[None] * 32), (422, "wrong_data")),
        (body_with(data=[True] * 32), (422, "wrong_data")),
        (body_with(data=[True, *[2] * 31]), (422, "wrong_data")),
        (body_with(data=[*[[0.5] * 16], [*[0.5] * 15, False]]), (422, "wrong_data")),
        (body_with(data=[[0.5], [0.5, 0.5]]), (422, "wrong_data")),
        (body_with(data=[{}] * 32), (422, "wrong_data")),
        (body_with(data=[10**30] * 32), (422, "wrong_data")),
        (body_with(datatype="UINT8"), (422, "wrong_data")),
        (body_with(datatype="UINT8", data=[256] * 32), (422, "wrong_data")),
        (body_with(datatype="UINT8", data=[-1] * 32), (422, "wrong_data")),
        (body_with()[:-1] + b', "id": 3}', (422, "unprocessable")),
        (body_with()[:-1] + b', "outputs": ["label"]}', (422, "unprocessable")),
        (body_with()[:-1] + b', "outputs": {"name": "label"}}', (422, "unprocessable")),
    ],
)
def test_a_request_that_is_not_as_it_should_be_is_told_what_was_expected(model, body, answer):
    """Faults 4 and 5."""
    assert refusal(read_tensors, body, model) == answer


def test_the_message_names_the_shape_expected_and_the_one_that_came(model):
    with pytest.raises(Refusal, match=r'"shape" must be \[N, 1, 4, 4\], got \[2, 3, 4, 4\]'):
        read_tensors(body_with(shape=[2, 3, 4, 4]), model, LIMITS)
