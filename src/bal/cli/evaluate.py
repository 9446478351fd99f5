"""bal evaluate."""

from dataclasses import asdict, dataclass
from pathlib import Path

import tyro
from rich.markup import escape
from rich.table import Table

from bal.cli.common import (
    load_inputs,
    load_with_classifier,
    make_console,
    named_sources,
    print_json,
    print_pairs,
    read_inputs,
    with_bar,
)
from bal.errors import DataError


@dataclass(frozen=True, kw_only=True)
class Evaluate:
    """Measure a saved detector: how well it ranks ID above OOD, and what it accepts at its threshold.

    DATA is an .npz file, a .parquet file or a folder of them, a folder of images, or a name of `bal data list` such as svhn:test.

    Example: bal evaluate detector --classifier my_model:build --test photos/test --ood textures=dtd/images noise.npz
    """

    detector: tyro.conf.Positional[Path]
    """What `bal fit` wrote."""
    test: str
    """DATA: ID data that nothing was fitted or calibrated on; with labels, accuracy is told too."""
    ood: tuple[str, ...]
    """NAME=DATA for each OOD set; labels are not used."""
    classifier: str | None = None
    """package.module:function or .pt2 file, as for `bal fit`."""
    json: bool = False
    """Print the outcome as JSON."""

    def __call__(self) -> None:
        """Run it."""
        sources = named_sources(self.ood)
        if not sources:
            raise DataError("--ood needs at least one NAME=DATA")
        from bal.evaluation import assess  # noqa: PLC0415 - torch is slow to import

        detector = load_with_classifier(self.detector, self.classifier)
        test = read_inputs(detector, self.test)
        oods = ((name, with_bar(detector, load_inputs(detector, source))) for name, source in sources.items())
        found = assess(detector, with_bar(detector, test.data), test.labels, oods)
        if self.json:
            print_json(asdict(found))
            return
        accuracy = "not known, the test data has no labels" if found.accuracy is None else f"{found.accuracy:.2%}"
        pairs = {"detector": found.detector, "ID rows": found.rows, "accuracy": accuracy, "ID rejected": f"{found.rejected:.2%}"}
        print_pairs(pairs.items())
        table = Table(title="OOD sets, in per cent")
        for heading in ("OOD set", "rows", "accepted ↓", "FPR95 ↓", "detection error ↓", "AUROC ↑", "AUPR-in ↑", "AUPR-out ↑"):
            table.add_column(heading, justify="left" if heading == "OOD set" else "right")
        for name, ood in found.oods.items():
            shares = (ood.accepted, *asdict(ood.metrics).values())
            table.add_row(escape(name), str(ood.rows), *(f"{100 * share:.2f}" for share in shares))
        make_console().print(table)
