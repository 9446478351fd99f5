"""bal info."""

from dataclasses import dataclass
from pathlib import Path

import tyro

from bal.cli.common import print_json, print_pairs
from bal.cli.fit import threshold_lines


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
        from bal.detectors import load  # noqa: PLC0415 - torch is slow to import
        from bal.detectors.files import read  # noqa: PLC0415

        manifest, _ = read(self.detector)
        if self.json:
            print_json(manifest)
            return
        detector = load(self.detector)
        mark = manifest["classifier"] or {}
        versions = ", ".join(f"{name} {number}" for name, number in manifest["versions"].items())
        settings = ", ".join(f"{name}={value}" for name, value in manifest["settings"].items())
        _, classes = detector.sizes_ or (0, 0)
        print_pairs(
            [
                ("detector", f"{manifest['detector']} ({settings})"),
                ("inputs", "features" if detector.spec_ is None else " x ".join(map(str, detector.spec_.shape))),
                ("classes", ", ".join(detector.class_names_ or ()) or classes),
                *threshold_lines(detector),
                ("classifier", f"{mark.get('source') or 'not named'}, fingerprint {mark.get('fingerprint', 'none')[:16]}"),
                ("preprocessing", mark.get("preprocess") or "none"),
                ("written by", versions),
                ("schema", manifest["schema"]),
            ]
        )
