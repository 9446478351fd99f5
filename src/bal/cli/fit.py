"""bal fit and bal calibrate."""

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import tyro

from bal.cli.common import (
    Engine,
    check_folder,
    load_inputs,
    load_with_classifier,
    make_cluster,
    print_json,
    print_pairs,
    with_bar,
)
from bal.errors import BalError, DataError
from bal.settings import check_seed

if TYPE_CHECKING:
    from torch import Tensor

    from bal.backbones import Classifier
    from bal.calibration import Calibration
    from bal.detectors import Detector
    from bal.serving import Cluster


@dataclass(frozen=True, kw_only=True)
class Fit:
    """Learn the boundary of your classifier's known classes, calibrate it on held-out data, and save the detector.

    DATA is an .npz file, a .parquet file or a folder of them, a folder of images with one folder for each class, or a name of
    `bal data list` such as cifar10:train.

    Example: bal fit --classifier my_model:build --train photos/train --shape 3 224 224 --calibrate photos/held-out --out detector

    With several processes: torchrun --nproc-per-node 2 --no-python bal fit ...

    With the features from a Ray cluster: bal fit ... --engine ray --workers 8
    """

    classifier: str
    """package.module:function that returns your trained network, or a .pt2 file of torch.export."""
    train: str
    """DATA with labels: ID data to fit on."""
    out: Path
    """Where the detector goes: a directory, or one file if the name ends in .bal."""
    detector: str = "BAL"
    """Name of the detector; `bal compare` ranks them on your data."""
    calibrate: str | None = None
    """DATA to choose the threshold by: ID data that neither the classifier nor the detector has seen. Labels are not used."""
    false_alarm: float = 0.05
    """With --calibrate: how much of new ID data may be rejected."""
    per_class: bool = False
    """With --calibrate: a threshold of its own for each predicted class."""
    shape: tuple[int, ...] = ()
    """Channels, height and width that image files are resized to; needed when their sizes differ."""
    seed: int | None = None
    """Of every random number, for detectors that draw any."""
    set: tuple[str, ...] = ()
    """NAME=VALUE for other settings of the detector than its default ones, such as members=3 training.epochs=16."""
    cache: Path | None = None
    """Folder that keeps features, so that the next fit on the same data and network need not run the network."""
    engine: Engine = "local"
    """Where the features are extracted: this process, or the workers of a Ray cluster, which takes seconds to start."""
    workers: int | None = None
    """With --engine ray: workers of one CPU each; as many as there are CPUs if not given."""
    address: str | None = None
    """With --engine ray: of a running cluster; else that of RAY_ADDRESS, else one is started on this machine."""
    json: bool = False
    """Print the outcome as JSON."""

    def __call__(self) -> None:
        """Run it."""
        if self.seed is not None:
            check_seed(self.seed)
        if self.per_class and self.calibrate is None:
            raise DataError("--per-class needs --calibrate DATA, which the thresholds are chosen by")
        cluster = make_cluster(self.engine, self.workers, self.address)
        if cluster is not None and self.cache is not None:
            raise DataError("--cache is for features that are extracted here; leave it out, or --engine ray")
        check_folder(self.out.absolute().parent)
        from bal.backbones import load_classifier  # noqa: PLC0415 - torch is slow to import
        from bal.calibration import check_alpha  # noqa: PLC0415
        from bal.data import load_data  # noqa: PLC0415
        from bal.data.files import class_names_of  # noqa: PLC0415
        from bal.detectors import make_detector  # noqa: PLC0415
        from bal.features import FeatureCache  # noqa: PLC0415
        from bal.parallel import process_group, rank  # noqa: PLC0415

        check_alpha(self.false_alarm)
        network = load_classifier(self.classifier)  # first: it may register detectors of its own
        detector = changed(make_detector(self.detector), self.set)
        if self.seed is not None:
            if not hasattr(detector, "seed"):
                raise DataError(f"{self.detector} draws no random numbers, so it has no --seed; leave it out")
            detector = changed(detector, [f"seed={self.seed}"])
        if cluster is not None:
            self.fit_on_ray(detector, network, cluster)
        else:
            with process_group():
                data = load_data(self.train, self.shape or None, split="train")
                cache = None if self.cache is None else FeatureCache(self.cache)
                detector.fit(network, data, cache=cache, show_progress=rank() == 0)
                if rank() > 0:  # all ranks have the same weights, the first saves them
                    return
            self.calibrated(detector, lambda held_out: with_bar(detector, load_inputs(detector, held_out)))
        detector.save(self.out, class_names_of(self.train))
        tell(detector, self.out, json=self.json)

    def fit_on_ray(self, detector: "Detector", network: "Classifier", cluster: "Cluster") -> None:
        """Fit and calibrate on features that the workers of a cluster extract."""
        from bal.backbones import load_classifier  # noqa: PLC0415
        from bal.detectors import FeatureDetector  # noqa: PLC0415
        from bal.serving import extract_on_ray  # noqa: PLC0415
        from bal.serving.cluster import connected  # noqa: PLC0415

        if not isinstance(detector, FeatureDetector):
            raise DataError(f"{self.detector} learns from the inputs themselves, not from features; leave --engine ray out")
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise DataError("torchrun and --engine ray do not go together; choose one of them")
        load = partial(load_classifier, self.classifier)
        with connected(cluster):  # once for both
            detector.fit(network, extract_on_ray(load, self.train, cluster, shape=self.shape))
            spec = detector.spec_
            shape = () if spec is None else spec.shape
            self.calibrated(detector, lambda held_out: extract_on_ray(load, held_out, cluster, shape=shape, spec=spec))

    def calibrated(self, detector: "Detector", read: Callable[[str], Any]) -> None:
        """Calibrate the detector if that is asked for; where it fails, what was learnt is saved all the same."""
        from bal.data.files import class_names_of  # noqa: PLC0415

        if self.calibrate is None:
            return
        try:
            detector.calibrate(read(self.calibrate), false_alarm=self.false_alarm, per_class=self.per_class)
        except BalError as error:
            detector.save(self.out, class_names_of(self.train))
            again = f"bal calibrate {self.out} --classifier {self.classifier} --data {self.calibrate}"
            raise DataError(f"{error}. The detector is saved without a calibration; go on with: {again}") from error


def changed(detector: "Detector", changes: Sequence[str]) -> "Detector":
    """A new detector with settings changed by NAME=VALUE; training.epochs is one within another, values are JSON or text."""
    from bal.detectors.files import from_settings  # noqa: PLC0415

    settings: dict[str, Any] = asdict(detector)  # type: ignore[call-overload]
    for change in changes:
        name, separator, value = change.partition("=")
        *outer, last = name.split(".")
        place: Any = settings
        for part in outer:
            place = place.get(part) if isinstance(place, dict) else None
        if not separator or not isinstance(place, dict) or last not in place:
            raise DataError(f"--set takes NAME=VALUE, got {change!r}; names are {', '.join(names_of(settings))}")
        try:
            place[last] = json.loads(value)
        except ValueError:
            place[last] = value
    try:
        return cast("Detector", from_settings(type(detector), settings))
    except TypeError as error:
        raise DataError(f"--set {' '.join(changes)} does not fit ({error})") from error


def names_of(settings: dict[str, Any]) -> list[str]:
    """All names of settings, those of settings within them after a dot."""
    found = []
    for name, value in settings.items():
        found += [f"{name}.{inner}" for inner in names_of(value)] if isinstance(value, dict) else [name]
    return found


@dataclass(frozen=True, kw_only=True)
class Calibrate:
    """Choose the threshold of a saved detector by held-out ID data, and save it again.

    New data like it is rejected with a probability of --false-alarm at most; nothing is promised about OOD data.

    Example: bal calibrate detector --classifier my_model:build --data photos/held-out --false-alarm 0.05
    """

    detector: tyro.conf.Positional[Path]
    """What `bal fit` wrote."""
    data: str
    """DATA: ID data that neither the classifier nor the detector has seen. Labels are not used."""
    classifier: str | None = None
    """package.module:function or .pt2 file, as for `bal fit`."""
    false_alarm: float = 0.05
    """How much of new ID data may be rejected."""
    per_class: bool = False
    """A threshold of its own for each predicted class."""
    json: bool = False
    """Print the outcome as JSON."""

    def __call__(self) -> None:
        """Run it."""
        detector = load_with_classifier(self.detector, self.classifier)
        data = with_bar(detector, load_inputs(detector, self.data))
        detector.calibrate(data, false_alarm=self.false_alarm, per_class=self.per_class).save(self.detector)
        tell(detector, self.detector, json=self.json)


def tell(detector: "Detector", path: Path, *, json: bool) -> None:
    """Say what was saved, and what to expect of its thresholds."""
    from bal.detectors import detector_name  # noqa: PLC0415
    from bal.evaluation.findings import class_names  # noqa: PLC0415

    alarms = [] if detector.calibration_ is None else detector.calibration_.false_alarms()
    if json:
        said: dict[str, Any] = {"path": str(path), "detector": detector_name(detector), "class_names": detector.class_names_}
        print_json({**said, "threshold": detector.threshold_.tolist(), "false_alarms": [alarm._asdict() for alarm in alarms]})
        return
    lines = threshold_lines(detector.threshold_, detector.calibration_, class_names(detector))
    print_pairs([("detector", f"{path} ({detector_name(detector)})"), *lines])


def threshold_lines(threshold: "Tensor", calibration: "Calibration | None", names: Sequence[str]) -> list[tuple[str, object]]:
    """The thresholds in words; ``names`` are those of the classes."""
    if calibration is None:
        return [("threshold", f"{threshold.item():g}, which keeps 95 % of the training rows; not calibrated")]
    lines: list[tuple[str, object]] = [("false alarms", f"at most {calibration.false_alarm:g} of new ID data, on average")]
    for c, (value, alarm) in enumerate(zip(threshold.reshape(-1).tolist(), calibration.false_alarms(), strict=True)):
        name = names[c] if calibration.per_class else "threshold"
        told = f"by {alarm.rows} rows; this calibration: {alarm.low:.3f} to {alarm.high:.3f} with 95 % confidence"
        lines.append((name, f"{value:g}, {told}"))
    return lines
