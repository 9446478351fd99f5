"""bal compare."""

import sys
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from bal.cli.common import (
    check_folder,
    check_seeds,
    make_console,
    named_sources,
    print_json,
    print_plainly,
    print_ranking,
    with_known_labels,
)
from bal.errors import DataError


@dataclass(frozen=True, kw_only=True)
class Compare:
    """Rank detectors on your classifier and your data, with one pass of features; write a report.

    Without --classifier, the embedded sample and the demo's classifier are used.

    DATA is an .npz file, a .parquet file or a folder of them, a folder of images, or a name of `bal data list` such as svhn:test.
    Images of folders and Parquet are resized to the shape of the training images.

    Example: bal compare --classifier my_model:build --train train.npz --test test.npz --ood digits=mnist.npz letters=omniglot
    """

    classifier: str | None = None
    """package.module:function that returns your trained network, or a .pt2 file of torch.export."""
    train: str | None = None
    """DATA with labels: ID data to fit on."""
    test: str | None = None
    """DATA with labels: ID data to measure on."""
    ood: tuple[str, ...] = ()
    """name=DATA for each OOD set; labels are not needed."""
    detectors: tuple[str, ...] = ()
    """Names of detectors; all of them when not given."""
    id_name: str | None = None
    """Name of the ID data in tables; that of the test data when not given."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """Detectors that draw random numbers are fitted once for each."""
    out: Path = Path("runs/compare")
    """Where results.json, report.html and cached features go."""
    json: bool = False
    """Print the outcome as JSON; progress is told on standard error."""

    def __call__(self) -> None:
        """Run it."""
        check_seeds(self.seeds)
        check_folder(self.out)
        from bal.detectors import DETECTORS, detector_name, make_detector  # noqa: PLC0415
        from bal.experiments import advice, compare, extract_once, ranking, write_rows  # noqa: PLC0415
        from bal.features import FeatureCache  # noqa: PLC0415
        from bal.report import write_comparison_report  # noqa: PLC0415

        console = make_console(stderr=self.json)
        classifier, train, test, oods, id_name = self.load(console)  # first: it may register detectors of its own
        chosen = {detector_name(detector): detector for detector in map(make_detector, self.detectors or DETECTORS)}
        comparison = extract_once(
            classifier, train=train, test=test, oods=oods, id_name=id_name, cache=FeatureCache(self.out / "cache")
        )
        failures: dict[str, str] = {}
        measured = compare(comparison, chosen, seeds=self.seeds, say=partial(print_plainly, console), failures=failures)
        if not measured:
            raise DataError("; ".join(f"{name}: {reason}" for name, reason in failures.items()))
        write_rows(measured, self.out / "results.json")
        settings = {"command": " ".join(["bal", *sys.argv[1:]]), "not measured": failures}
        write_comparison_report(measured, settings, self.out / "report.html")
        standings = ranking([m.row for m in measured])
        if self.json:
            paths = {"results": str(self.out / "results.json"), "report": str(self.out / "report.html")}
            print_json(
                {
                    "ranking": [asdict(standing) for standing in standings],
                    "advice": advice(standings),
                    "not measured": failures,
                    **paths,
                }
            )
            return
        print_ranking(console, standings, self.out)
        for line in advice(standings):
            console.print(escape(line), highlight=False)

    def load(self, console: Console) -> tuple[Any, Any, Any, dict[str, Any], str]:
        """Classifier, ID training and test data, OOD sets and the name of the ID data."""
        from bal.backbones.loading import load_classifier  # noqa: PLC0415
        from bal.data import load_sample  # noqa: PLC0415
        from bal.data.files import class_names_of, load_data, read_data  # noqa: PLC0415

        if self.classifier is None:
            if self.train or self.test or self.ood:
                raise DataError("--train, --test and --ood need --classifier package.module:function, or a .pt2 file")
            from bal.experiments import DemoSettings, demo_classifier  # noqa: PLC0415

            sample = load_sample()
            console.print("no --classifier given: the embedded sample and the demo's classifier", highlight=False)
            network = demo_classifier(DemoSettings(), sample, 0, self.out, show_progress=True)
            return network, sample.train, sample.test, {sample.ood_name: sample.ood[0]}, sample.id_name
        if self.train is None or self.test is None or not self.ood:
            raise DataError("--classifier needs --train DATA, --test DATA and --ood NAME=DATA, such as FILE.npz")
        sources = named_sources(self.ood)
        network = load_classifier(self.classifier)
        train = load_data(self.train, split="train")
        shape = (train[0] if isinstance(train, tuple) else train).shape[1:]
        oods = {name: load_data(source, shape) for name, source in sources.items()}
        test = with_known_labels(read_data(self.test, shape), self.test, class_names_of(self.train) or ()).data
        return network, train, test, oods, self.id_name or Path(self.test).stem
