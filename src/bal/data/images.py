"""One documented way from an image file to an array, the same in fit, score and serve.

Transparent pixels are laid on black; palettes, CMYK and other modes become RGB; 16-bit grey is scaled to 8 bits, never clipped;
the rotation in EXIF is applied. Sizes are checked before a pixel is decoded. Resizing is bicubic with antialiasing (Pillow).
"""

import warnings
from io import BytesIO

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from bal.errors import DataError

MAX_PIXELS = 50_000_000  # a larger image is refused before it is decoded


class TooLargeError(DataError):
    """An image has more pixels than anyone would want to decode."""


def decode(content: bytes, *, channels: int, name: str = "the image") -> NDArray[np.uint8]:
    """An image file as (channels, height, width) uint8; channels is 1 for grey or 3 for RGB."""
    try:
        with quiet_open(content) as image:
            if image.width * image.height > MAX_PIXELS:
                raise TooLargeError(
                    f"{name} has {image.width} x {image.height} pixels, more than {MAX_PIXELS:,}; make it smaller"
                )
            image.load()
            return to_array(ImageOps.exif_transpose(image), channels)
    except Image.DecompressionBombError as error:
        raise TooLargeError(f"{name} has too many pixels ({error}); make it smaller") from error
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{name} is not an image that can be read ({error})") from error


def quiet_open(content: bytes) -> Image.Image:
    """Open without Pillow's warning about large images, which are refused here at a lower limit."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        return Image.open(BytesIO(content))


def to_array(image: Image.Image, channels: int) -> NDArray[np.uint8]:
    """A decoded image in grey or RGB, (channels, height, width)."""
    if image.mode.startswith("I;16") or image.mode in ("I", "F"):
        values = np.asarray(image, np.float64)
        image = Image.fromarray(np.clip(np.round(values / 257), 0, 255).astype(np.uint8))  # 65535 / 255 = 257
    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        rgba = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", rgba.size, (0, 0, 0, 255)), rgba)
    array = np.asarray(image.convert("L" if channels == 1 else "RGB"))
    return array[None] if channels == 1 else np.ascontiguousarray(array.transpose(2, 0, 1))


def resize(image: NDArray[np.uint8], size: int) -> NDArray[np.uint8]:
    """(channels, height, width) to (channels, size, size), bicubic; an image of that size is left as it is."""
    if image.shape[1:] == (size, size):
        return image
    pieces = [np.asarray(Image.fromarray(channel).resize((size, size), Image.Resampling.BICUBIC)) for channel in image]
    return np.stack(pieces)
