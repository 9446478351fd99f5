"""bal report."""

import shlex
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import tyro

from bal.cli.common import check_folder, load_with_classifier, named_sources, print_json, print_pairs, read_inputs


@dataclass(frozen=True, kw_only=True)
class Report:
    """Write a page about a saved detector: what it accepts and rejects, by class, with pictures, and what to do about it.

    One HTML file that needs nothing else. Without labels it has no accuracies, without OOD data no misses.

    DATA is an .npz file, a .parquet file or a folder of them, a folder of images, or a name of `bal data list` such as svhn:test.

    Example: bal report detector --classifier my_model:build --test photos/test --ood textures=dtd/images --out report.html
    """

    detector: tyro.conf.Positional[Path]
    """What `bal fit` wrote."""
    test: str
    """DATA: ID data that nothing was fitted or calibrated on, best with labels."""
    ood: tuple[str, ...] = ()
    """NAME=DATA for each OOD set; labels are not used."""
    classifier: str | None = None
    """package.module:function or .pt2 file, as for `bal fit`."""
    out: Path = Path("report.html")
    """Where the page goes."""
    json: bool = False
    """Print the numbers and the advice as JSON."""

    def __call__(self) -> None:
        """Run it."""
        sources = named_sources(self.ood)
        check_folder(self.out.absolute().parent)
        from bal.evaluation import examine  # noqa: PLC0415 - torch is slow to import
        from bal.report import Commands, advise, write_detector_report  # noqa: PLC0415

        detector = load_with_classifier(self.detector, self.classifier)
        oods = ((name, read_inputs(detector, source, labelled=False)) for name, source in sources.items())
        examined = examine(detector, read_inputs(detector, self.test), oods)
        commands = Commands(str(self.detector), self.classifier or "", self.test)
        command = shlex.join(["bal", *sys.argv[1:]])
        write_detector_report(examined, self.out, commands=commands, settings={"command": command, "ood": sources})
        advice = advise(examined.found, commands)
        if self.json:
            print_json({"report": str(self.out), **asdict(examined.found), "advice": [asdict(item) for item in advice]})
            return
        known = examined.found.known
        print_pairs([("report", self.out), ("ID rows", f"{known.accepted:,} accepted, {known.rejected:,} rejected")])
        print_pairs(("advice", f"{item.title} {item.text} {item.command}".rstrip()) for item in advice)
