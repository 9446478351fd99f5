"""The paper's tables as data: which detectors on which networks against which OOD sets, and what the paper printed.

A line of a table is one detector on one network against one OOD set; lines of a block are compared with each other. Numbers are
per cent, as printed.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from bal.data.catalog import shown_title
from bal.detectors import BAL, DETECTORS, ODIN, Detector, GeneralizedODIN, make_detector
from bal.discrimination import GANTraining
from bal.experiments.cells import Cell
from bal.experiments.checkpoints import CHECKPOINTS
from bal.experiments.compare import METRICS
from bal.experiments.demo import UNTRAINED
from bal.experiments.networks import FEATURE_SIZES, PresetName, find_network

Printed = Mapping[str, float]

# caps of the cpu preset
TEST_ROWS = {"ODIN": 1000, "AEC": 1000}  # these run the network again for every test image, with gradients or for every seed
LEFT_OUT = ("VOS",)  # slow to train, and below chance on frozen features
TRAIN_ROWS = {"AEC": 10_000}
ABLATION_ROWS = 10_000  # training rows of Tables 3 to 5


@dataclass(frozen=True)
class Line:
    """One line of a table: the cell behind it, the one OOD set it is about, and the paper's values, in per cent."""

    block: str
    cell: Cell
    paper: Printed = field(default_factory=dict)

    @property
    def label(self) -> str:
        """Its name in the table."""
        return self.cell.label

    @property
    def ood(self) -> str:
        """The OOD set, or the mixture of several."""
        return self.cell.oods[0]


@dataclass(frozen=True)
class TableSpec:
    """A table: its lines, the metrics the paper prints in it, and what to know when reading it."""

    name: str
    title: str
    version: int
    metrics: tuple[str, ...]
    lines: tuple[Line, ...]
    notes: tuple[str, ...] = ()

    @property
    def blocks(self) -> list[str]:
        """In the order of the paper."""
        return list(dict.fromkeys(line.block for line in self.lines))


def title_of(ood: str) -> str:
    """Readable name of a data set, or of a mixture."""
    return " + ".join(shown_title(name) for name in ood.split("+"))


def all_lines(
    block: str, network: str, ood: str, *, odin: ODIN, printed: Mapping[str, Printed], preset: PresetName
) -> list[Line]:
    """Nearly every detector of the project on one network: the paper's methods first, then BAL, then the others.

    Generalized ODIN and GCPL train their heads on frozen features on the cpu preset, so without an input step; whole copies of
    the network on the paper's.
    """
    light = preset == "cpu"
    detectors: dict[str, Detector] = {name: make_detector(name) for name in DETECTORS if name not in LEFT_OUT}
    detectors |= {"ODIN": odin, UNTRAINED: BAL(training=GANTraining(epochs=0))}
    if light:
        detectors["Generalized ODIN"] = GeneralizedODIN(epsilon=0.0)
    first = ("max-softmax", "ODIN", "Generalized ODIN", "GCPL", "AEC", "BAL", UNTRAINED)
    lines = []
    for name in sorted(detectors, key=lambda name: (first.index(name) if name in first else len(first), name)):
        on_features = light and name in ("Generalized ODIN", "GCPL")
        cell = Cell(
            network=f"{network}/features" if on_features else network,
            detector=detectors[name],
            label=name,
            oods=(ood,),
            train_rows=TRAIN_ROWS.get(name) if light else None,
            test_rows=TEST_ROWS.get(name) if light else None,
        )
        lines.append(Line(block, cell, printed.get(name, {})))
    return lines


CAPPED = (
    "cpu preset: ODIN and AEC, which run the network again, are tried on 1,000 random images of each set; AEC learns from "
    "10,000 random training images; Generalized ODIN and GCPL train their heads on the frozen features, Generalized ODIN without "
    "its input step."
)

TABLE1_METRICS = ("accuracy", "detection_error", "fpr95", "auroc", "aupr_in", "aupr_out")
TABLE1: dict[str, dict[str, tuple[float, ...]]] = {
    "mnist": {
        "max-softmax": (99.43, 4.14, 3.29, 97.66, 97.22, 97.24),
        "ODIN": (99.43, 5.01, 5.03, 97.94, 97.42, 97.64),
        "GCPL": (99.23, 4.77, 4.54, 97.96, 98.14, 97.35),
        "BAL": (99.43, 3.06, 1.11, 99.32, 99.46, 99.09),
    },
    "fashion-mnist": {
        "max-softmax": (91.51, 32.42, 59.84, 89.44, 90.80, 86.20),
        "ODIN": (91.51, 19.14, 33.27, 93.45, 94.28, 91.36),
        "GCPL": (90.93, 30.73, 56.45, 81.79, 72.40, 82.38),
        "BAL": (91.51, 7.10, 9.20, 97.82, 98.31, 96.95),
    },
}


def table1(preset: PresetName) -> TableSpec:
    """MNIST and Fashion-MNIST on ResNet18, each against the mixture of the other and Omniglot."""
    lines: list[Line] = []
    for known, ood in (("mnist", "fashion-mnist+omniglot"), ("fashion-mnist", "mnist+omniglot")):
        printed = {name: dict(zip(TABLE1_METRICS, values, strict=True)) for name, values in TABLE1[known].items()}
        block = f"{title_of(known)}, ResNet18, against {title_of(ood)}"
        lines += all_lines(block, f"resnet18-{known}", ood, odin=ODIN.paper("mnist"), printed=printed, preset=preset)
    return TableSpec(
        "table1",
        "Table 1: MNIST, Fashion-MNIST and Omniglot with ResNet18",
        1,
        TABLE1_METRICS,
        tuple(lines),
        ("The OOD side is an equal mixture of both sets.", *((CAPPED,) if preset == "cpu" else ())),
    )


TABLE2_METRICS = ("fpr95", "aupr_in", "aupr_out")
TABLE2_METHODS = ("max-softmax", "AEC", "ODIN", "Generalized ODIN", "BAL")
LSUN, TIN = "lsun-resize", "tiny-imagenet"
# for each network and OOD set: FPR95, AUPR-in and AUPR-out of the five methods
TABLE2: dict[str, dict[str, tuple[tuple[float, ...], ...]]] = {
    "densenet-cifar10": {
        "svhn": ((59.8, 57.2, 63.6, 44.2, 32.6), (91.9, 92.3, 89.1, 94.6, 99.7), (87.0, 92.5, 83.9, 88.7, 99.7)),
        LSUN: ((33.4, 27.6, 5.6, 5.2, 4.7), (96.4, 97.3, 98.9, 99.0, 99.5), (94.0, 96.3, 98.7, 98.9, 98.9)),
        TIN: ((41.1, 35.1, 10.5, 9.3, 5.0), (95.3, 96.2, 98.1, 97.9, 98.2), (92.2, 94.0, 97.8, 97.4, 98.0)),
    },
    "resnet34-cifar10": {
        "svhn": ((67.5, 57.2, 64.4, 12.7, 11.3), (92.2, 93.4, 85.8, 94.5, 95.5), (84.9, 84.5, 81.8, 93.4, 97.4)),
        LSUN: ((54.6, 34.6, 26.2, 21.3, 15.8), (92.3, 91.8, 93.7, 94.0, 93.9), (88.5, 92.1, 93.8, 93.9, 94.1)),
        TIN: ((55.3, 28.7, 28.0, 27.4, 21.6), (92.4, 93.1, 94.0, 94.3, 93.9), (88.3, 90.1, 92.9, 92.7, 93.8)),
    },
    "densenet-cifar100": {
        "svhn": ((73.3, 63.2, 60.9, 31.9, 21.5), (85.9, 89.3, 90.2, 90.7, 91.5), (78.5, 86.7, 85.2, 89.5, 92.8)),
        LSUN: ((83.3, 66.0, 58.4, 23.9, 11.3), (72.4, 87.4, 85.0, 88.1, 89.3), (65.4, 84.9, 82.0, 87.6, 88.7)),
        TIN: ((82.4, 59.7, 56.9, 22.7, 12.0), (73.0, 83.7, 84.7, 86.5, 91.5), (67.4, 82.9, 83.0, 84.3, 90.6)),
    },
    "resnet34-cifar100": {
        "svhn": ((79.7, 76.5, 76.5, 31.2, 17.3), (81.5, 82.5, 73.8, 85.3, 87.1), (74.5, 79.6, 74.2, 85.1, 89.3)),
        LSUN: ((81.2, 52.1, 54.6, 27.1, 18.7), (76.0, 80.0, 82.4, 89.0, 91.5), (70.1, 78.4, 84.1, 89.0, 88.7)),
        TIN: ((79.6, 55.3, 50.6, 29.7, 22.5), (79.2, 87.1, 86.8, 89.3, 91.6), (72.3, 85.6, 87.0, 88.0, 89.8)),
    },
    "densenet-svhn": {
        LSUN: ((22.9, 22.7, 22.1, 18.7, 16.4), (96.7, 95.4, 95.3, 97.2, 98.5), (88.0, 88.7, 89.3, 86.3, 89.3)),
        "cifar10": ((30.7, 20.1, 24.7, 20.3, 12.1), (95.4, 93.2, 92.5, 96.0, 97.3), (88.5, 84.7, 81.7, 84.2, 89.9)),
        TIN: ((21.2, 18.6, 19.9, 15.2, 11.7), (97.0, 96.1, 95.5, 97.3, 98.5), (88.9, 90.7, 90.1, 91.6, 90.6)),
    },
    "resnet34-svhn": {
        LSUN: ((25.7, 21.0, 22.2, 18.1, 13.5), (93.8, 91.3, 91.3, 96.4, 97.8), (84.6, 86.5, 85.9, 89.4, 92.1)),
        "cifar10": ((21.7, 19.5, 20.0, 16.7, 14.8), (94.8, 92.0, 91.9, 97.0, 97.6), (86.4, 87.3, 87.1, 88.2, 89.0)),
        TIN: ((21.0, 19.3, 18.0, 15.4, 14.3), (95.4, 93.4, 93.5, 96.8, 98.2), (86.9, 88.5, 88.6, 89.4, 89.4)),
    },
    "resnet20-cifar10": {"svhn": (), "cifar100": ()},  # ours: the paper has no thin ResNets
    "resnet56-cifar10": {"svhn": (), "cifar100": ()},
}


def table2(preset: PresetName) -> TableSpec:
    """CIFAR-10, CIFAR-100 and SVHN on pre-trained networks."""
    lines: list[Line] = []
    for network, oods in TABLE2.items():
        known = find_network(network).data
        odin = ODIN.paper(known)  # type: ignore[arg-type]
        for ood, columns in oods.items():
            by_method = zip(TABLE2_METHODS, zip(*columns, strict=True), strict=bool(columns))
            printed = {name: dict(zip(TABLE2_METRICS, values, strict=True)) for name, values in by_method}
            block = f"{title_of(known)}, {CHECKPOINTS[network].title}, against {title_of(ood)}"
            lines += all_lines(block, network, ood, odin=odin, printed=printed, preset=preset)
    return TableSpec(
        "table2",
        "Table 2: CIFAR-10, CIFAR-100 and SVHN with pre-trained networks",
        1,
        TABLE2_METRICS,
        tuple(lines),
        (
            "ODIN has the temperature and step of the paper's Sec. 5.3; the paper's own were searched in each group.",
            *((CAPPED,) if preset == "cpu" else ()),
        ),
    )


ABLATION = ("densenet-cifar10", TIN)


def ablation_line(label: str, detector: Detector, paper: Printed, preset: PresetName, network: str = ABLATION[0]) -> Line:
    """A line of Tables 3 to 5: CIFAR-10, DenseNet-BC, TinyImageNet."""
    rows = ABLATION_ROWS if preset == "cpu" else None
    block = f"{title_of('cifar10')}, {CHECKPOINTS[ABLATION[0]].title}, against {title_of(ABLATION[1])}"
    return Line(block, Cell(network, detector, label, (ABLATION[1],), train_rows=rows), paper)


def from_nothing(**training: Any) -> BAL:
    """BAL with the plain D of the paper, which has the boundary still to learn, where the default's starts with it."""
    return BAL(conditioning="concatenate", training=GANTraining(learning_rate_D=1e-3, **training))


CAPPED_ABLATION = "cpu preset: detectors learn from 10,000 random training images."
FROM_NOTHING = "From nothing: D is fully connected on feature and one-hot label, rate 1e-3; the rest is the default's."

TABLE3: dict[str, tuple[float, ...]] = {
    "": (95.3, 92.2, 94.1, 41.1),
    "t": (97.0, 96.0, 96.6, 17.9),
    "ts": (97.1, 96.2, 96.6, 9.3),
    "tu": (97.2, 96.3, 96.7, 8.1),
    "tsu": (98.2, 98.0, 97.0, 5.0),
}


def table3(preset: PresetName) -> TableSpec:
    """Which parts of L_d matter."""
    metrics = ("aupr_in", "aupr_out", "auroc", "fpr95")
    lines, learnt = [], []
    for terms, values in TABLE3.items():
        losses = " + ".join(f"L_{term}" for term in terms)
        label = f"BAL, {losses}" if terms else "max-softmax"
        detector = BAL(training=GANTraining(terms=tuple(terms))) if terms else make_detector("max-softmax")  # type: ignore[arg-type]
        lines.append(ablation_line(label, detector, dict(zip(metrics, values, strict=True)), preset))
        if terms:
            learnt.append(ablation_line(f"from nothing, {losses}", from_nothing(terms=tuple(terms)), {}, preset))
    lines.append(ablation_line(UNTRAINED, BAL(training=GANTraining(epochs=0)), {}, preset))
    lines += learnt
    lines.append(ablation_line("BAL.paper(), the literal reading", BAL.paper(), {}, preset))
    notes = (FROM_NOTHING, *((CAPPED_ABLATION,) if preset == "cpu" else ()))
    return TableSpec("table3", "Table 3: combinations of the losses", 2, metrics, tuple(lines), notes)


TABLE4 = {
    0.1: (94.8, 95.3, 92.1),
    0.3: (95.2, 95.3, 93.4),
    0.5: (96.7, 97.1, 96.9),
    0.7: (97.0, 98.2, 98.0),
    0.9: (96.2, 96.3, 97.1),
}


def table4(preset: PresetName) -> TableSpec:
    """The weight of the uniform loss."""
    metrics = ("auroc", "aupr_in", "aupr_out")
    lines = [
        ablation_line(
            f"lambda_c = {lambda_c}",
            BAL(training=GANTraining(lambda_c=lambda_c)),
            dict(zip(metrics, values, strict=True)),
            preset,
        )
        for lambda_c, values in TABLE4.items()
    ]
    lines += [
        ablation_line(f"from nothing, lambda_c = {lambda_c}", from_nothing(lambda_c=lambda_c), {}, preset) for lambda_c in TABLE4
    ]
    notes = (FROM_NOTHING, *((CAPPED_ABLATION,) if preset == "cpu" else ()))
    return TableSpec("table4", "Table 4: lambda_c of the uniform loss", 2, metrics, tuple(lines), notes)


TABLE5 = {"gaussian": (94.3, 96.4, 96.9, 98.1, 98.5), "uniform": (96.5, 97.0, 97.3, 98.1, 98.8)}


def table5(preset: PresetName) -> TableSpec:
    """Gaussian against uniform sampling of trivial OOD, over sizes of the feature."""
    lines = [
        ablation_line(f"{sampler}, {size}", BAL(sampler=sampler), {"auroc": value}, preset, f"densenet-cifar10-{size}")
        for sampler, values in TABLE5.items()
        for size, value in zip(FEATURE_SIZES, values, strict=True)
    ]
    lines += [
        ablation_line(
            f"from nothing, {sampler}, {size}", replace(from_nothing(), sampler=sampler), {}, preset, f"densenet-cifar10-{size}"
        )
        for sampler in TABLE5
        for size in FEATURE_SIZES
    ]
    notes = (
        FROM_NOTHING,
        "The size is that of a new penultimate layer, after a hidden one of 1,024, on the frozen features of the DenseNet-BC.",
        *((CAPPED_ABLATION,) if preset == "cpu" else ()),
    )
    return TableSpec("table5", "Table 5: uniform and Gaussian sampling over feature sizes", 2, ("auroc",), tuple(lines), notes)


TABLES: dict[str, Callable[[PresetName], TableSpec]] = {
    "table1": table1,
    "table2": table2,
    "table3": table3,
    "table4": table4,
    "table5": table5,
}


def metrics_shown(table: TableSpec) -> tuple[str, ...]:
    """The paper's metrics first, then the others of the five."""
    return (*table.metrics, *(metric for metric in METRICS if metric not in table.metrics))
