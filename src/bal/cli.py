"""The command line. torch is imported inside commands, so that help is quick."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bal._version import __version__
from bal.errors import BalError, DataError
from bal.settings import check_number, check_seed

if TYPE_CHECKING:
    from bal.experiments import Standing


@dataclass(frozen=True, kw_only=True)
class Demo:
    """Train a small classifier on Fashion-MNIST, fit BAL and its rivals, compare them on MNIST, write a report.

    Everything it needs ships with the package; about 6 minutes on 2 cores.

    Example: bal demo --seeds 0 1 2 --out runs/demo
    """

    seeds: tuple[int, ...] = (0, 1, 2)
    """One classifier and one of each detector are trained for each."""
    out: Path = Path("runs/demo")
    """Where results.json, report.html and the training logs go."""

    def __call__(self) -> None:
        """Run it."""
        check_seeds(self.seeds)
        check_folder(self.out)
        from bal.experiments import DemoSettings, ranking, run_demo  # noqa: PLC0415 - torch is slow to import
        from bal.report import write_demo_report  # noqa: PLC0415

        console = make_console()
        settings = DemoSettings(seeds=self.seeds)
        runs = run_demo(settings, self.out, say=partial(print_plainly, console))
        write_demo_report(runs, settings, self.out / "report.html")
        print_ranking(console, ranking([m.row for run in runs for m in run.measured]), self.out)


@dataclass(frozen=True, kw_only=True)
class Compare:
    """Rank detectors on your classifier and your data, with one pass of features; write a report.

    Without --classifier, the embedded sample and the demo's classifier are used.

    DATA is an .npz file, a .parquet file or a folder of them, a folder of images, or a name of `bal data list` such as svhn:test.
    Images of folders and Parquet are resized to the shape of the training images.

    Example: bal compare --classifier my_model:build --train train.npz --test test.npz --ood digits=mnist.npz letters=omniglot
    """

    classifier: str | None = None
    """package.module:function that returns your trained network."""
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

    def __call__(self) -> None:
        """Run it."""
        check_seeds(self.seeds)
        check_folder(self.out)
        from bal.detectors import DETECTORS, detector_name, make_detector  # noqa: PLC0415
        from bal.experiments import advice, compare, extract_once, ranking, write_rows  # noqa: PLC0415
        from bal.features import FeatureCache  # noqa: PLC0415
        from bal.report import write_comparison_report  # noqa: PLC0415

        console = make_console()
        classifier, train, test, oods, id_name = self.load(console)  # first: it may register detectors of its own
        chosen = {detector_name(detector): detector for detector in map(make_detector, self.detectors or DETECTORS)}
        comparison = extract_once(
            classifier, train=train, test=test, oods=oods, id_name=id_name, cache=FeatureCache(self.out / "cache")
        )
        measured = compare(comparison, chosen, seeds=self.seeds, say=partial(print_plainly, console))
        write_rows(measured, self.out / "results.json")
        write_comparison_report(measured, {"command": " ".join(["bal", *sys.argv[1:]])}, self.out / "report.html")
        standings = ranking([m.row for m in measured])
        print_ranking(console, standings, self.out)
        for line in advice(standings):
            console.print(escape(line), highlight=False)

    def load(self, console: Console) -> tuple[Any, Any, Any, dict[str, Any], str]:
        """Classifier, ID training and test data, OOD sets and the name of the ID data."""
        from bal.backbones.loading import load_classifier  # noqa: PLC0415
        from bal.data import load_sample  # noqa: PLC0415
        from bal.data.files import load_data  # noqa: PLC0415

        if self.classifier is None:
            if self.train or self.test or self.ood:
                raise DataError("--train, --test and --ood need --classifier package.module:function, which returns your network")
            from bal.experiments import DemoSettings, demo_classifier  # noqa: PLC0415

            sample = load_sample()
            console.print("no --classifier given: the embedded sample and the demo's classifier", highlight=False)
            network = demo_classifier(DemoSettings(), sample, 0, self.out, show_progress=True)
            return network, sample.train, sample.test, {sample.ood_name: sample.ood[0]}, sample.id_name
        if self.train is None or self.test is None or not self.ood:
            raise DataError("--classifier needs --train DATA, --test DATA and --ood NAME=DATA, such as FILE.npz")
        sources: dict[str, str] = {}
        for item in self.ood:
            name, separator, source = item.partition("=")
            if not separator:
                name, source = Path(item).stem, item
            if name in sources:
                raise DataError(f"two OOD sets are called {name!r}; give each a name of its own: --ood NAME=DATA")
            sources[name] = source
        network = load_classifier(self.classifier)
        train = load_data(self.train, split="train")
        shape = (train[0] if isinstance(train, tuple) else train).shape[1:]
        oods = {name: load_data(source, shape) for name, source in sources.items()}
        return network, train, load_data(self.test, shape), oods, self.id_name or Path(self.test).stem


Experiment = Literal["table1", "table2", "table3", "table4", "table5", "fig1", "fig2", "fig4", "fig5", "fig6", "all"]


@dataclass(frozen=True, kw_only=True)
class Reproduce:
    """Run tables and figures of the paper again on real data, and print our numbers beside the paper's.

    Data sets are read from BAL_DATA, pre-trained weights from BAL_WEIGHTS; what is not there is said and left blank. What was
    measured before is not measured again, so a run that was stopped goes on where it was.

    Example: BAL_DATA=/data BAL_WEIGHTS=/weights bal reproduce table1 --preset cpu --seeds 5
    """

    experiments: tyro.conf.Positional[tuple[Experiment, ...]]
    """Tables and figures, or all."""
    preset: Literal["cpu", "paper"] = "cpu"
    """cpu ends within an hour or two on 2 cores; paper trains ResNet18 for 300 epochs and caps nothing."""
    seeds: int = 3
    """How many seeds each detector that draws random numbers is trained with."""
    out: Path = Path("runs/reproduce")
    """Where networks, features, cells and the page go."""
    results: Path | None = None
    """Where tables (JSON, Markdown) and figures (SVG) go; OUT/results when not given."""

    def __call__(self) -> None:
        """Run it."""
        check_number("seeds", self.seeds, low=1, whole=True)
        check_folder(self.out)
        from bal.experiments.networks import Store  # noqa: PLC0415
        from bal.experiments.pictures import PICTURES, picture  # noqa: PLC0415
        from bal.experiments.reproduce import reproduce_table  # noqa: PLC0415
        from bal.experiments.tables import TABLES  # noqa: PLC0415
        from bal.report.reproduction import write_figure, write_reproduction, write_table  # noqa: PLC0415

        console = make_console()
        say = partial(print_plainly, console)
        names = [*TABLES, *PICTURES] if "all" in self.experiments else list(dict.fromkeys(self.experiments))
        results = self.results or self.out / "results"
        settings = {"command": " ".join(["bal", *sys.argv[1:]]), "preset": self.preset, "seeds": self.seeds}
        store = Store(self.out, self.preset)
        sections: list[Any] = []
        for name in names:
            if name in TABLES:
                table = TABLES[name](self.preset)
                findings = reproduce_table(table, store, seeds=range(self.seeds), say=say)
                sections += write_table(table, findings, settings, results)
                say(f"{table.title}: {sum(f.measured for f in findings)} of {len(findings)} lines measured")
            else:
                try:
                    sections += write_figure(name, picture(name, store), results)
                    say(f"{name}: {results / name}.svg")
                except DataError as error:
                    say(f"{name}: not drawn: {error}")
        page = self.out / f"{'all' if 'all' in self.experiments else '-'.join(names)}.html"
        write_reproduction(sections, settings, page)
        say(f"results: {results}\npage:    {page}")


@dataclass(frozen=True)
class DataList:
    """List the data sets of the paper: what they are, where they come from, and which of their files are here.

    Example: BAL_DATA=/data bal data list
    """

    def __call__(self) -> None:
        """Run it."""
        from bal.data.catalog import CATALOG, all_files, data_root, folder_of, missing_files  # noqa: PLC0415

        console = make_console()
        table = Table(title=escape(f"data sets under {data_root()}"))
        for heading in ("name", "data set", "classes", "images", "files here", "licence", "official address"):
            table.add_column(heading, overflow="fold")
        for name, entry in CATALOG.items():
            files = all_files(name)
            here = f"{len(files) - len(missing_files(files, folder_of(name)))} of {len(files)}"
            shape = " x ".join(map(str, entry.shape))
            table.add_row(name, entry.title, str(entry.classes or "none"), shape, here, entry.licence, entry.address)
        console.print(table)


@dataclass(frozen=True)
class DataVerify:
    """Compare files with their published checksums; exit code 1 if one is missing or another file.

    Example: bal data verify mnist cifar10
    """

    names: tyro.conf.Positional[tuple[str, ...]] = ()
    """Data sets; all of them when not given."""

    def __call__(self) -> None:
        """Run it."""
        from bal.data.catalog import CATALOG, folder_of, verify  # noqa: PLC0415

        console = make_console()
        wrong = 0
        for name in self.names or CATALOG:
            for path, state in verify(name).items():
                console.print(escape(f"{state:9s} {folder_of(name) / path}"), highlight=False)
                wrong += state in ("missing", "other")
        if wrong:
            raise DataError(f"{wrong} files are missing or not the official ones; `bal data get NAME` fetches them")


@dataclass(frozen=True)
class DataGet:
    """Fetch the official files of data sets, check them against their published checksums and unpack them.

    What is there and right is not fetched again; a download that was cut goes on where it stopped.

    Example: BAL_DATA=/data bal data get mnist cifar10
    """

    names: tyro.conf.Positional[tuple[str, ...]]
    """Data sets, as `bal data list` names them."""
    mirror: Annotated[str, tyro.conf.arg(name="from", prefix_name=False)] = ""
    """Address of a folder that holds NAME/FILE for each, to fetch from instead of the official addresses."""

    def __call__(self) -> None:
        """Run it."""
        from bal.data.catalog import find_data_set, folder_of  # noqa: PLC0415
        from bal.data.download import get_data_set  # noqa: PLC0415

        if not self.names:
            raise DataError("bal data get needs the name of at least one data set; `bal data list` shows them")
        for name in self.names:
            find_data_set(name)  # a typo is refused before anything is fetched
        console = make_console()
        for name in self.names:
            for path, fetched in get_data_set(name, mirror=self.mirror).items():
                console.print(escape(f"{'fetched' if fetched else 'here':9s} {folder_of(name) / path}"), highlight=False)


@dataclass(frozen=True)
class DataCommand:
    """Data sets of the paper: list them, get and verify their files."""

    command: (
        Annotated[DataList, tyro.conf.subcommand("list", prefix_name=False)]
        | Annotated[DataGet, tyro.conf.subcommand("get", prefix_name=False)]
        | Annotated[DataVerify, tyro.conf.subcommand("verify", prefix_name=False)]
    )

    def __call__(self) -> None:
        """Run it."""
        self.command()


@dataclass(frozen=True)
class Version:
    """Print the version."""

    def __call__(self) -> None:
        """Run it."""
        Console().print(f"bal {__version__}", highlight=False)


def check_seeds(seeds: Sequence[int]) -> None:
    """Refuse seeds that cannot be used, before anything is trained."""
    if not seeds:
        raise DataError("--seeds needs at least one whole number, for example --seeds 0 1 2")
    for seed in seeds:
        check_seed(seed)
    if len(set(seeds)) != len(seeds):
        raise DataError(f"--seeds must differ from each other, got {' '.join(map(str, seeds))}")


def check_folder(folder: Path) -> None:
    """Refuse a folder that cannot be written to, before anything is trained."""
    from bal.storage import write_atomically  # noqa: PLC0415

    probe = folder / ".bal"
    write_atomically(probe, b"")
    probe.unlink()


def make_console() -> Console:
    """Standard output; a log has room for a wide table."""
    console = Console()
    if not console.is_terminal:
        console.width = 140
    return console


def print_plainly(console: Console, line: str) -> None:
    """A line as it is, without markup."""
    console.print(escape(line), highlight=False)


def print_ranking(console: Console, standings: "Sequence[Standing]", out: Path) -> None:
    """The table of all detectors and where the files are."""
    from bal.report import ranking_table  # noqa: PLC0415

    content = ranking_table(standings)
    table = Table(title="mean ± standard deviation over seeds, in per cent")
    for index, name in enumerate(content.header):
        table.add_column(name, justify="right" if index else "left")
    for r, row in enumerate(content.rows):
        table.add_row(*(f"[bold]{escape(cell)}[/bold]" if (r, c) in content.best else escape(cell) for c, cell in enumerate(row)))
    console.print(table)
    console.print(escape(f"results: {out / 'results.json'}\nreport:  {out / 'report.html'}"), highlight=False)


Command = (
    Annotated[Demo, tyro.conf.subcommand("demo")]
    | Annotated[Compare, tyro.conf.subcommand("compare")]
    | Annotated[Reproduce, tyro.conf.subcommand("reproduce")]
    | Annotated[DataCommand, tyro.conf.subcommand("data")]
    | Annotated[Version, tyro.conf.subcommand("version")]
)  # fmt: skip


def main() -> None:
    """Entry point: 0 when all went well, 1 on an error that says what to do, 2 on wrong arguments."""
    command = tyro.cli(Command, prog="bal", description="Teach a trained classifier to say: I don't know this.")
    try:
        command()
    except BalError as error:
        Console(stderr=True).print(f"[red]error:[/red] {escape(str(error))}", highlight=False)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
