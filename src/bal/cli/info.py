"""bal info."""

from dataclasses import dataclass
from pathlib import Path

import tyro

from bal.cli.common import print_json, print_pairs
from bal.cli.fit import threshold_lines
from bal.errors import StorageError


@dataclass(frozen=True, kw_only=True)
class Info:
    """Tell what a saved detector is, after checking that it is whole; nothing in it is run.

    Example: bal info detector
    """

    detector: tyro.conf.Positional[Path]
    """What `bal fit` wrote."""
    json: bool = False
    """Print the manifest as JSON."""

    def __call__(self) -> None:
        """Run it."""
        from bal.calibration import Calibration  # noqa: PLC0415 - torch is slow to import
        from bal.detectors.files import read  # noqa: PLC0415
        from bal.evaluation.findings import told_apart  # noqa: PLC0415
        from bal.features import InputSpec  # noqa: PLC0415

        manifest, tensors = read(self.detector)
        if self.json:
            print_json(manifest)
            return
        try:  # not by load, for which some detectors need their classifier
            threshold, (_, classes) = tensors["threshold_"], tensors["sizes"].tolist()
            spec, calibration = InputSpec.from_state(tensors), Calibration.from_state(tensors)
        except (KeyError, ValueError, RuntimeError) as error:
            raise StorageError(f"{self.detector} holds no detector that can be told of ({error}); save it again") from error
        class_names = manifest.get("class_names")
        mark = manifest["classifier"] or {}
        versions = ", ".join(f"{name} {number}" for name, number in manifest["versions"].items())
        settings = ", ".join(f"{name}={value}" for name, value in manifest["settings"].items())
        print_pairs(
            [
                ("detector", f"{manifest['detector']} ({settings})"),
                ("inputs", "features" if spec is None else " x ".join(map(str, spec.shape))),
                ("classes", ", ".join(class_names or ()) or classes),
                *threshold_lines(threshold, calibration, told_apart(class_names, classes)),
                ("classifier", f"{mark.get('source') or 'not named'}, fingerprint {mark.get('fingerprint', 'none')[:16]}"),
                ("preprocessing", mark.get("preprocess") or "none"),
                ("written by", versions),
                ("schema", manifest["schema"]),
            ]
        )
