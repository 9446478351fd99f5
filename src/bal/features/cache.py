"""Features on disk, found again by the content they were made from."""

import hashlib
from pathlib import Path
from typing import TypeAlias

from torch import Tensor

from bal.backbones import Classifier
from bal.errors import StorageError
from bal.storage import load_tensors, save_tensors, tensor_bytes


class StreamDigest:
    """SHA-256 of rows seen so far, whatever the batch size."""

    def __init__(self) -> None:
        self._x = hashlib.sha256()
        self._c = hashlib.sha256()
        self._empty = True

    def update(self, x: Tensor, c: Tensor | None) -> None:
        """Add a batch."""
        if self._empty:
            self._x.update(f"{x.dtype}{tuple(x.shape[1:])}".encode())
            self._empty = False
        self._x.update(tensor_bytes(x))
        if c is not None:
            self._c.update(tensor_bytes(c))

    def hexdigest(self) -> str:
        """The digest of inputs and labels together."""
        return hashlib.sha256(self._x.digest() + self._c.digest()).hexdigest()


class FeatureCache:
    """A folder of extracted features, one file for each (model, preprocessing, data)."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def path(self, classifier: Classifier, content: StreamDigest) -> Path:
        """Where the features of this content by this classifier are, or would be."""
        structure = f"{classifier.model!r}{classifier.preprocess!r}"  # strides and activations are not in the weights
        key = hashlib.sha256(f"{classifier.fingerprint()}{structure}{content.hexdigest()}".encode()).hexdigest()
        return self.folder / f"features-{key[:32]}.safetensors"

    def get(self, classifier: Classifier, content: StreamDigest) -> dict[str, Tensor] | None:
        """Stored tensors, or None; a damaged file counts as absent and is replaced by the next ``put``."""
        path = self.path(classifier, content)
        if not path.exists():
            return None
        try:
            return load_tensors(path)[0]
        except StorageError:
            return None

    def put(self, classifier: Classifier, content: StreamDigest, tensors: dict[str, Tensor]) -> None:
        """Store the tensors of one extraction."""
        save_tensors(self.path(classifier, content), tensors)


Cache: TypeAlias = FeatureCache | str | Path  # a cache, or the folder of one
