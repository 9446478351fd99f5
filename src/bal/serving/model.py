"""A detector as a server sees it: checks of inputs, batches of several requests, answers as columns."""

import copy
import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bal.data.batches import to_input
from bal.data.folders import check_image_shape
from bal.detectors import BAL, Detector, FeatureDetector, detector_name
from bal.detectors.base import Scored
from bal.detectors.prediction import Columns
from bal.detectors.softmax import log_max_softmax
from bal.errors import DataError, SettingsError
from bal.features import Features, extract
from bal.serving.batch import identity
from bal.serving.map import make_map

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class ServedModel:
    """``run`` is called by one thread, and by others on replicas; everything else only reads.

    The detector is a copy that does not look at the range of inputs: :meth:`check` does, for each request by itself.
    """

    def __init__(self, detector: Detector, name: str = "detector") -> None:
        if detector.spec_ is None or detector.classifier_ is None:
            raise SettingsError(
                "this detector cannot read inputs: fit it with a classifier, and load it with bal.load(path, classifier)"
            )
        if not NAME.fullmatch(name):
            raise SettingsError(
                f"the name of a model must be letters, digits, '.', '_' and '-', at most 64, got {name!r}; see --name"
            )
        self.name, self.kind, self.spec = name, detector_name(detector), detector.spec_
        self.fingerprint = identity(detector)
        self.classifier = detector.classifier_
        self.calibration, self.class_names = detector.calibration_, detector.class_names_
        self.ranks = detector.ranks_.numpy()
        self.map = make_map(detector)
        self.detector = copy.copy(detector)
        self.detector.spec_ = replace(self.spec, low=math.inf, high=-math.inf)

    def replica(self) -> "ServedModel":
        """The same model for another thread: a network takes one pass at a time."""
        other = copy.copy(self)
        other.classifier = self.classifier.replica()
        other.detector = self.detector.replica(other.classifier)
        return other

    @property
    def version(self) -> str:
        """Short for the fingerprint, which all that answers depend on goes into."""
        return self.fingerprint[:12]

    @property
    def takes_images(self) -> bool:
        """Whether an image file can become an input."""
        try:
            check_image_shape(self.spec.shape)
        except DataError:
            return False
        return self.spec.floating and len(self.spec.shape) == 3

    def class_name(self, label: int) -> str | None:
        """What a class is called; None for OOD, and where names are not known."""
        return None if label < 0 or self.class_names is None else self.class_names[label]

    def check(self, inputs: NDArray[Any]) -> list[str]:
        """Refuse inputs (N, ...) of another shape or kind; say what is odd about their scale."""
        x = to_input(inputs)
        self.spec.check_kind(x)
        try:
            self.spec.check_range(x, strict=True)
        except DataError as error:
            return [str(error)]
        return []

    def run(self, requests: list[NDArray[Any]]) -> list[Columns]:
        """One pass for the inputs of several requests; the columns of each."""
        columns = self.columns(torch.cat([to_input(inputs) for inputs in requests]))
        ends = np.cumsum([len(inputs) for inputs in requests])
        return [
            {name: column[end - len(inputs) : end] for name, column in columns.items()}
            for inputs, end in zip(requests, ends, strict=True)
        ]

    def columns(self, x: torch.Tensor) -> dict[str, NDArray[Any]]:
        """What `bal score` writes of each row, is_ood, the threshold it was held against, p1 and p2 of BAL.

        And for the page the class predicted whatever was decided, and the place on the map.
        """
        data: Any = x
        if isinstance(self.detector, FeatureDetector):
            data = extract(self.classifier, x, spec=self.detector.spec_, show_progress=False)
        rows = self.detector.scored(data)
        answer = self.detector.decide(rows).columns()
        answer |= {"is_ood": answer["label"] < 0, "threshold": self.detector.thresholds(rows.predicted)}
        answer |= factors(data, rows) if isinstance(self.detector, BAL) else {}
        answer["predicted"] = rows.predicted
        return answer | ({} if self.map is None else {"map": self.map.place(data)})

    def warm_up(self) -> None:
        """Try one row, so that a model that cannot work is found before the first request."""
        kind = np.float32 if self.spec.floating else np.int64
        self.run([np.zeros((1, *self.spec.shape), kind)])


def factors(features: Features, rows: Scored) -> dict[str, NDArray[np.float64]]:
    """The two factors of BAL's confidence, whose logs make its score; NaN for rows that are not valid."""
    log_p1 = log_max_softmax(features.logits).numpy()
    logs = {"p1": log_p1, "p2": rows.score - log_p1}
    return {name: np.exp(np.where(rows.valid, log_p, np.nan)) for name, log_p in logs.items()}
