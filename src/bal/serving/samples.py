"""Pictures to try on the page, for detectors of small grey images: clothes and digits of the embedded sample."""

import base64
import io

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from bal.data.folders import Shape
from bal.data.sample import Labelled, load_sample

SIDE = 28
FIRST = 1000  # test images before this one are what the documents calibrate with


def sample_pictures(shape: Shape) -> list[dict[str, str]]:
    """Their kind, name and address; none for detectors of other inputs."""
    if shape != (1, SIDE, SIDE):
        return []
    sample = load_sample()
    clothes = [(sample.id_name, sample.classes[c], image) for c, image in one_of_each(sample.test).items()]
    digits = [(sample.ood_name, f"digit {c}", image) for c, image in one_of_each(sample.ood).items()]
    return [{"kind": kind, "name": name, "address": address(image)} for kind, name, image in clothes + digits]


def one_of_each(labelled: Labelled) -> dict[int, NDArray[np.uint8]]:
    """The first image of every class after those that are left out, in the order of the classes."""
    images, labels = (part[FIRST:] for part in labelled)
    classes, first = np.unique(labels, return_index=True)
    return {int(c): images[i] for c, i in zip(classes, first, strict=True)}


def address(image: NDArray[np.uint8]) -> str:
    """A grey image as a data address of a PNG."""
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "PNG")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()
