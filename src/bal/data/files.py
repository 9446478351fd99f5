"""Data sets as files: .npz archives of arrays."""

import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from bal.errors import DataError

INPUT_NAMES = ("images", "x", "inputs", "data")
LABEL_NAMES = ("labels", "y", "targets")


def load_npz(path: str | Path) -> Any:
    """(inputs, labels) of an .npz file, or inputs alone; arrays are called images or x, labels or y. Nothing is unpickled."""
    path = Path(path)
    if not path.is_file():
        raise DataError(f"there is no file {path}; give the path of an .npz file with arrays 'images' and 'labels'")
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, AttributeError) as error:
        raise DataError(f"{path} is not an .npz file of plain arrays ({error}); write it with numpy.savez_compressed") from error
    inputs = next((arrays[name] for name in INPUT_NAMES if name in arrays), None)
    labels = next((arrays[name] for name in LABEL_NAMES if name in arrays), None)
    if inputs is None:
        raise DataError(f"{path} holds {sorted(arrays)}; expected an array called one of {', '.join(INPUT_NAMES)}")
    return inputs if labels is None else (inputs, labels)
