"""One documented way from an image file to an array, the same in fit, score and serve.

Transparent pixels are laid on black; palettes, CMYK and other modes become RGB; 16-bit grey is scaled to 8 bits, never clipped;
grey of 32 bits or of real numbers, which has no known range, is refused; the rotation in EXIF is applied. Sizes are checked
before a pixel is decoded. Resizing is bicubic with antialiasing (Pillow).
"""

import struct
import warnings
import zlib
from io import BytesIO

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from bal.errors import DataError

UNREADABLE = (  # whatever decoders raise when a file is broken
    OSError,
    SyntaxError,
    ValueError,
    EOFError,
    LookupError,
    TypeError,
    ArithmeticError,
    RuntimeError,
    AssertionError,
    MemoryError,
    struct.error,
    zlib.error,
)
SIXTEEN_BITS = ("PNG", "PPM")  # formats whose pixels are of 16 bits where Pillow has 32 (mode I), which depends on its version
MAX_PIXELS = 50_000_000  # a larger image is refused before it is decoded


class TooLargeError(DataError):
    """An image has more pixels than anyone would want to decode."""


def decode(content: bytes, *, channels: int | None, name: str = "the image", max_pixels: int = MAX_PIXELS) -> NDArray[np.uint8]:
    """An image file as (channels, height, width) uint8; channels is 1 for grey, 3 for RGB, or None for what the file has."""

    def check(width: int, height: int) -> None:
        if width * height > max_pixels:
            raise TooLargeError(f"{name} has {width} x {height} pixels, more than {max_pixels:,}; make it smaller")

    try:
        if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
            check(*webp_size(content))  # to open one is already to make room for every pixel
        with quiet_open(content) as image:
            check(*image.size)
            image.load()
            return to_array(image, channels, name)
    except Image.DecompressionBombError as error:
        raise TooLargeError(f"{name} has too many pixels ({error}); make it smaller") from error
    except UNREADABLE as error:
        if isinstance(error, DataError):
            raise
        reason = str(error) or type(error).__name__
        if isinstance(error, UnidentifiedImageError):
            reason = "no format is known that begins so"
        raise DataError(f"{name} is not an image that can be read ({reason})") from error


def webp_size(content: bytes) -> tuple[int, int]:
    """Width and height by the first chunk of a WebP file: one lossy or lossless picture, or the canvas of several."""
    kind, head = content[12:16], content[20:30]

    def number(start: int, length: int) -> int:
        return int.from_bytes(head[start : start + length], "little")

    if kind == b"VP8 ":
        return number(6, 2) & 0x3FFF, number(8, 2) & 0x3FFF
    if kind == b"VP8L":
        return 1 + (number(1, 4) & 0x3FFF), 1 + (number(1, 4) >> 14 & 0x3FFF)
    if kind == b"VP8X":
        return 1 + number(4, 3), 1 + number(7, 3)
    raise ValueError("a WebP file that does not begin with a picture")


def quiet_open(content: bytes) -> Image.Image:
    """Open without Pillow's warning about large images, which are refused here at a lower limit."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        return Image.open(BytesIO(content))


def to_array(image: Image.Image, channels: int | None, name: str = "the image") -> NDArray[np.uint8]:
    """A decoded image, the right way up, in grey or RGB, (channels, height, width)."""
    if image.mode == "F" or (image.mode == "I" and image.format not in SIXTEEN_BITS):
        kind = "real numbers" if image.mode == "F" else "32-bit numbers"
        raise DataError(f"{name} has {kind} as pixels, of which no range is known; convert it to 8 or 16 bits first")
    image = ImageOps.exif_transpose(image)
    if channels is None:
        channels = 1 if Image.getmodebase(image.mode) == "L" else 3
    if image.mode.startswith("I"):
        image = Image.fromarray(np.round(np.asarray(image) / 257).astype(np.uint8))  # 65535 / 255 = 257
    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        rgba = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", rgba.size, (0, 0, 0, 255)), rgba)
    array = np.asarray(image.convert("L" if channels == 1 else "RGB"))
    return array[None] if channels == 1 else np.ascontiguousarray(array.transpose(2, 0, 1))


def resize(image: NDArray[np.uint8], size: int | tuple[int, int]) -> NDArray[np.uint8]:
    """(channels, height, width) to that height and width, bicubic; an image of that size is left as it is."""
    height, width = (size, size) if isinstance(size, int) else size
    if image.shape[1:] == (height, width):
        return image
    pieces = [np.asarray(Image.fromarray(channel).resize((width, height), Image.Resampling.BICUBIC)) for channel in image]
    return np.stack(pieces)


def fit(image: NDArray[np.uint8], size: tuple[int, int], *, crop: bool) -> NDArray[np.uint8]:
    """The image at that height and width: the middle of it with ``crop``, where it is large enough, or else resized."""
    top, left = (image.shape[1] - size[0]) // 2, (image.shape[2] - size[1]) // 2
    if crop and min(top, left) >= 0:
        image = image[:, top : top + size[0], left : left + size[1]]
    return resize(image, size)
