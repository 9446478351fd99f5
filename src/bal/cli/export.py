"""bal export."""

from dataclasses import dataclass
from pathlib import Path

import tyro

from bal.cli.common import check_folder, load_inputs, load_with_classifier, print_json, print_pairs
from bal.errors import DataError


@dataclass(frozen=True, kw_only=True)
class Export:
    """Write your classifier and its BAL into one file that runs without bal: .onnx, or .pt2 of torch.export.

    The graph takes a batch of any size and the threshold; it gives label (-1 where OOD), confidence, is_ood and log_score. It is
    compared with torch first; one that disagrees is not written.

    Example: bal export detector --classifier my_model:build --data photos/held-out --out model.onnx
    """

    detector: tyro.conf.Positional[Path]
    """What `bal fit` wrote; only BAL can be exported."""
    out: Path
    """The file, named .onnx or .pt2."""
    classifier: str | None = None
    """package.module:function or .pt2 file, as for `bal fit`."""
    data: str | None = None
    """DATA to compare the graph with torch on, beside random inputs. Labels are not used."""
    json: bool = False
    """Print the outcome as JSON."""

    def __call__(self) -> None:
        """Run it."""
        if self.out.suffix not in (".onnx", ".pt2"):
            raise DataError(f"cannot export to {self.out.name}: its name must end in .onnx or .pt2")
        check_folder(self.out.absolute().parent)
        from bal.export import export_detector  # noqa: PLC0415 - torch is slow to import

        detector = load_with_classifier(self.detector, self.classifier)
        data = None if self.data is None else load_inputs(detector, self.data)
        done = export_detector(detector, self.out, data=data)
        found = {"random": done.random} if done.real is None else {"random": done.random, "real": done.real}
        if self.json:
            parity = {name: parity._asdict() for name, parity in found.items()}
            print_json({"path": str(self.out), "threshold": detector.threshold_.tolist(), "parity": parity})
            return
        lines = [
            (f"{name} inputs", f"{parity.rows} rows; log confidence off by {parity.largest:.1e} at most, labels are the same")
            for name, parity in found.items()
        ]
        print_pairs([("file", self.out), *lines])
