"""Fault 7: one documented conversion of every kind of image file; faults 8 and 9: broken and enormous ones."""

import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from bal.data.images import TooLargeError, decode, fit, resize, to_array, webp_size
from bal.errors import DataError


def encoded(image, kind="PNG", **options):
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def test_grey_and_colour_by_hand():
    image = Image.fromarray(np.array([[[255, 0, 0], [0, 0, 255]]], np.uint8))
    assert decode(encoded(image), channels=3)[:, 0].T.tolist() == [[255, 0, 0], [0, 0, 255]]
    assert decode(encoded(image), channels=1).tolist() == [[[76, 29]]]  # 0.299 R, 0.587 G, 0.114 B


LEVELS = np.array([[0, 257, 32896, 65535]], np.uint16)
SIXTEEN_BITS = {
    "PNG": encoded(Image.fromarray(LEVELS)),
    "TIFF": encoded(Image.fromarray(LEVELS), "TIFF"),
    "big-endian TIFF": encoded(Image.frombytes("I;16B", (4, 1), LEVELS.astype(">u2").tobytes()), "TIFF"),
    "PGM": b"P5 4 1 65535\n" + LEVELS.astype(">u2").tobytes(),
}


@pytest.mark.parametrize("kind", SIXTEEN_BITS)
def test_sixteen_bits_are_scaled_and_not_clipped_in_every_format(kind):
    assert decode(SIXTEEN_BITS[kind], channels=1).tolist() == [[[0, 1, 128, 255]]]


def test_sixteen_bits_may_come_as_mode_i():
    """As PNG files do from older versions of Pillow."""
    image = Image.fromarray(LEVELS.astype(np.int32))
    image.format = "PNG"
    assert to_array(image, 1).tolist() == [[[0, 1, 128, 255]]]


@pytest.mark.parametrize(
    ("values", "words"),
    [([0.5, 1], "real numbers"), ([np.nan, 1], "real numbers"), ([0, 200], "32-bit numbers"), ([-1, 70000], "32-bit numbers")],
)
def test_pixels_without_a_known_range_are_refused_and_not_made_black(values, words):
    image = Image.fromarray(np.array([values], np.float32 if words == "real numbers" else np.int32))
    with pytest.raises(DataError, match=rf"scan has {words} as pixels.*convert it to 8 or 16 bits first"):
        decode(encoded(image, "TIFF"), channels=1, name="scan")
    with pytest.raises(DataError, match=words):
        to_array(image, None)


def test_palettes_cmyk_and_bilevel_become_what_they_look_like():
    red = Image.new("RGB", (2, 2), (255, 0, 0))
    assert decode(encoded(red.convert("P")), channels=3)[:, 0, 0].tolist() == [255, 0, 0]
    assert decode(encoded(red.convert("CMYK"), "TIFF"), channels=3)[:, 0, 0].tolist() == [255, 0, 0]
    assert decode(encoded(Image.new("1", (2, 2), 1)), channels=1)[0, 0, 0] == 255


def test_transparent_pixels_are_black():
    image = Image.new("RGBA", (1, 1), (200, 100, 50, 0))
    assert decode(encoded(image), channels=3).ravel().tolist() == [0, 0, 0]
    half = Image.new("RGBA", (1, 1), (200, 100, 50, 128))
    assert decode(encoded(half), channels=3).ravel().tolist() == pytest.approx([100, 50, 25], abs=1)


def test_the_rotation_in_exif_is_applied():
    image = Image.new("L", (4, 2))
    image.putpixel((0, 0), 255)
    exif = Image.Exif()
    exif[0x0112] = 6  # rotate by 90 degrees to the right
    upright = decode(encoded(image.convert("RGB"), "PNG", exif=exif), channels=1)
    assert upright.shape == (1, 4, 2)
    assert upright[0, 0, 1] == 255


@pytest.mark.parametrize("content", [b"", b"text", encoded(Image.new("L", (40, 40), 9))[:60]])
def test_what_is_no_whole_image_is_refused_by_name(content):
    with pytest.raises(DataError, match=r"cat\.png is not an image"):
        decode(content, channels=1, name="cat.png")


@pytest.mark.parametrize("error", [RuntimeError("no frame"), NotImplementedError(), AssertionError(), MemoryError()])
def test_whatever_a_decoder_raises_is_told_as_a_broken_file(monkeypatch, error):
    def fail(_):
        raise error

    monkeypatch.setattr("bal.data.images.quiet_open", fail)
    with pytest.raises(DataError, match=rf"cat\.avif is not an image that can be read \({str(error) or type(error).__name__}\)"):
        decode(b"", channels=1, name="cat.avif")


def test_a_pixel_bomb_is_refused_before_it_is_decoded():
    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", 13000, 13000, 8, 0, 0, 0, 0)
    bomb = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(100))) + chunk(b"IEND", b"")
    with pytest.raises(TooLargeError, match="13000 x 13000"):
        decode(bomb, channels=1)


@pytest.mark.parametrize(
    "options", [{}, {"lossless": True}, {"save_all": True, "append_images": [Image.new("RGB", (301, 17), "red")]}]
)
def test_a_webp_bomb_is_refused_before_pillow_sees_it(options, monkeypatch):
    """To open a WebP file is to make room for all that it claims."""
    file = encoded(Image.new("RGB", (301, 17)), "WEBP", **options)
    assert webp_size(file) == Image.open(io.BytesIO(file)).size == (301, 17)
    monkeypatch.setattr("bal.data.images.quiet_open", lambda _: pytest.fail("it was opened"))
    with pytest.raises(TooLargeError, match="301 x 17"):
        decode(file, channels=3, max_pixels=5116)
    with pytest.raises(DataError, match="does not begin with a picture"):
        decode(file[:12] + b"EXIF" + file[16:], channels=3)


def test_resizing_keeps_the_mean_and_leaves_images_of_that_size_alone():
    image = np.random.default_rng(0).integers(0, 256, (3, 64, 64), np.uint8)
    small = resize(image, 32)
    assert small.shape == (3, 32, 32)
    assert abs(small.mean() - image.mean()) < 2
    assert resize(image, 64) is image


def test_without_a_number_of_channels_an_image_has_those_of_its_file():
    assert decode(encoded(Image.new("L", (2, 3))), channels=None).shape == (1, 3, 2)
    assert decode(encoded(Image.new("P", (2, 3))), channels=None).shape == (3, 3, 2)
    assert decode(encoded(Image.fromarray(np.zeros((3, 2), np.uint16))), channels=None).shape == (1, 3, 2)


def test_fitting_takes_the_middle_or_resizes():
    image = np.arange(6 * 8, dtype=np.uint8).reshape(1, 6, 8)
    assert np.array_equal(fit(image, (2, 4), crop=True), image[:, 2:4, 2:6])
    assert np.array_equal(fit(image, (2, 4), crop=False), resize(image, (2, 4)))
    assert fit(image, (7, 4), crop=True).shape == (1, 7, 4), "too small to crop: resized"


def test_the_limit_of_pixels_can_be_lower():
    image = encoded(Image.new("L", (20, 10)))
    assert decode(image, channels=1, max_pixels=200).shape == (1, 10, 20)
    with pytest.raises(TooLargeError, match="more than 199"):
        decode(image, channels=1, max_pixels=199)
