"""Classifier and BAL in one graph, for machines without `bal`: ONNX, or a .pt2 of ``torch.export``.

The graph takes a batch of any size and the threshold, and answers what :meth:`bal.BAL.predict` answers. Before a file appears,
the graph that would be in it is run beside torch; one that disagrees is refused.
"""

import copy
import json
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bal._version import __version__
from bal.backbones import Classifier
from bal.backbones.classifier import call, capture, eval_mode, get_head
from bal.data import Batches, Data
from bal.data.extras import import_extra
from bal.detectors import BAL, Detector, Prediction, detector_name
from bal.detectors.files import mark_of
from bal.detectors.prediction import OOD
from bal.detectors.softmax import log_max_softmax
from bal.errors import BalError, DataError, ExportError, NotFittedError
from bal.features import InputSpec, extract, finite_rows
from bal.seeding import make_generator
from bal.storage import write_atomically

SUFFIXES = (".onnx", ".pt2")
INPUTS = ("input", "threshold")
OUTPUTS = ("label", "confidence", "is_ood", "log_score")
TOLERANCE = 1e-4  # of the log confidence
FAR = -5.0  # below it the tolerance grows with the log confidence: float32 holds no more digits, torch itself is as far off
RANDOM_BATCHES = (1, 3, 17)
REAL_BATCHES, REAL_ROWS = 8, 64  # at most so many batches of the data, of so many rows
METADATA = "bal.json"

Rows: TypeAlias = NDArray[Any]
Graph: TypeAlias = Callable[[Tensor, Tensor], tuple[Rows, Rows, Rows, Rows]]


class Parity(NamedTuple):
    """Rows compared, and the largest difference in log confidence: as it is above -5, as a share of it below."""

    rows: int
    largest: float
    relative: float


@dataclass(frozen=True)
class Export:
    """What was written, and how well it agrees with torch on random inputs and on those given."""

    path: Path
    random: Parity
    real: Parity | None


class Guarded(nn.Module):
    """Classifier and BAL as one function of a batch (N, ...) and the threshold, a scalar or (classes,), float64.

    Gives label (N,) int64, -1 where OOD; confidence p1 * p2 (N,) float64; is_ood (N,) bool; log(p1 * p2) (N,) float64. A row that
    is not finite, or whose features or score are not, is OOD with confidence 0 whatever the threshold; so is every row if the
    threshold is NaN.
    """

    def __init__(self, classifier: Classifier, detector: BAL) -> None:
        super().__init__()
        self.model = copy.deepcopy(classifier.model).cpu()  # the user's own is neither moved nor traced
        self.preprocess = copy.deepcopy(classifier.preprocess)
        self.preprocess = None if self.preprocess is None else self.preprocess.cpu()
        self.head = get_head(self.model, classifier.head_name)
        own = copy.copy(detector)
        own.D_, own.normalisation_ = copy.deepcopy(detector.D_), copy.deepcopy(detector.normalisation_)
        self.D, self.normalisation = own.D_, own.normalisation_  # registered, so that their weights are in the file
        self.p2_logit = own.p2_logit
        self.requires_grad_(False)

    def forward(self, x: Tensor, threshold: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Label, confidence, is_ood and log score."""
        valid = finite_rows(x) if x.is_floating_point() else torch.ones(x.shape[0], dtype=torch.bool)  # ONNX asks no integers
        f, logits = self.read(torch.where(spread(valid, x), x, torch.zeros_like(x)))
        valid = valid & finite_rows(f) & finite_rows(logits)
        f, logits = (torch.where(valid.unsqueeze(1), rows, torch.zeros_like(rows)) for rows in (f, logits))
        c_hat = logits.argmax(1)
        score = log_max_softmax(logits) + log_sigmoid(self.p2_logit(f, logits))
        valid = valid & torch.isfinite(score)
        accepted = valid & (score >= (threshold[c_hat] if threshold.ndim else threshold))
        return (
            torch.where(accepted, c_hat, OOD),
            torch.where(valid, score.exp(), 0.0),
            ~accepted,
            torch.where(valid, score, -torch.inf),
        )

    def read(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Features (N, m) and logits (N, classes), float32, as :class:`bal.Classifier` reads them."""
        x = x.clone()
        if x.is_floating_point():
            x = x.to(next(self.model.parameters()).dtype)
        with capture(self.head) as seen:
            call(self.model, x if self.preprocess is None else self.preprocess(x))
        f, logits = seen[0]
        if f.ndim != 2:
            raise ExportError(
                f"the head must see one feature for each input, (N, m), got {tuple(f.shape)}; it cannot be exported"
            )
        if logits.dtype in (torch.float16, torch.bfloat16):
            bias = None if self.head.bias is None else self.head.bias.float()
            logits = nn.functional.linear(f.float(), self.head.weight.float(), bias)
        return f.float(), logits.float()


def log_sigmoid(logit: Tensor) -> Tensor:
    """min(l, 0) - log(1 + exp(-|l|)): ONNX has log(sigmoid(l)) for torch's own, which is -inf already at -40.

    >>> [round(value, 4) for value in log_sigmoid(torch.tensor([-800.0, 0.0], dtype=torch.float64)).tolist()]
    [-800.0, -0.6931]
    """
    return logit.clamp(max=0.0) - torch.log1p(torch.exp(-logit.abs()))


def spread(rows: Tensor, like: Tensor) -> Tensor:
    """(N,) as (N, 1, ...) with as many axes as ``like``."""
    return rows.reshape(-1, *[1] * (like.ndim - 1))


def export_detector(detector: Detector, path: str | Path, *, data: Data | None = None) -> Export:
    """Write the classifier and its BAL into one .onnx or .pt2 file, whole or not at all.

    The graph is compared with torch on random inputs, and on the first rows of ``data`` where given: log confidences must agree
    to 1e-4 (beyond -5: to 2e-5 of their size) and labels must be the same at several thresholds, else :class:`ExportError`.
    """
    path = Path(path)
    if path.suffix not in SUFFIXES:
        raise DataError(f"cannot export to {path.name}: its name must end in {' or '.join(SUFFIXES)}")
    bal, classifier = exportable(detector)
    real = None if data is None else [x for x, _ in islice(Batches(data, REAL_ROWS), REAL_BATCHES)]
    spec = bal.spec_ or (InputSpec.of(real[0]) if real else None)
    if spec is None:
        raise DataError("the detector was fitted on features, so the shape of inputs is not known; give data of that shape")
    make = onnx_file if path.suffix == ".onnx" else pt2_file
    content, graph = make(trace(Guarded(classifier, bal), spec, bal.threshold_), describe(bal, classifier, spec))
    export = Export(path, compare(bal, graph, random_inputs(spec)), None if real is None else compare(bal, graph, real))
    write_atomically(path, content)
    return export


def exportable(detector: Detector) -> tuple[BAL, Classifier]:
    """The detector and its classifier, if they can be one graph."""
    if not isinstance(detector, BAL):
        raise ExportError(
            f"only BAL can be exported, not {detector_name(detector)}; fit a BAL, or serve this one with bal itself"
        )
    if detector.sizes_ is None:
        raise NotFittedError("this BAL is not fitted; call fit(classifier, train) first")
    if detector.classifier_ is None:
        raise NotFittedError("this BAL has no classifier to export with it; load it with bal.load(path, classifier)")
    return detector, detector.classifier_


def trace(module: Guarded, spec: InputSpec, threshold: Tensor) -> torch.export.ExportedProgram:
    """The program for batches of any size."""
    example = random_inputs(spec)[1], threshold
    shapes: tuple[dict[int, Any], ...] = ({0: torch.export.Dim("batch")}, {})
    try:
        with quiet(), eval_mode(module), torch.no_grad():
            return torch.export.export(module, example, dynamic_shapes=shapes, strict=False)
    except BalError:
        raise
    except Exception as error:  # tracing runs the user's code: anything may come out of it
        raise ExportError(
            f"the classifier cannot be traced for batches of any size: {first_line(error)}. Leave out steps that depend on values"
        ) from error


def onnx_file(program: torch.export.ExportedProgram, metadata: dict[str, str]) -> tuple[bytes, Graph]:
    """The bytes of an ONNX file, and the graph in them as onnxruntime runs it."""
    onnx, runtime, _ = (import_extra(name, extra="export") for name in ("onnx", "onnxruntime", "onnxscript"))
    try:
        with quiet():
            made = torch.onnx.export(program, dynamo=True, input_names=INPUTS, output_names=OUTPUTS, verbose=False)
            proto = made.model_proto  # type: ignore[union-attr]
        onnx.helper.set_model_props(proto, metadata)
        content: bytes = proto.SerializeToString()
        options = runtime.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = torch.get_num_threads(), 3
        session = runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # of three libraries, which have no common error
        raise ExportError(f"the classifier cannot be written as ONNX: {first_line(error)}. A .pt2 file may do") from error

    def run(x: Tensor, threshold: Tensor) -> Any:
        return session.run(list(OUTPUTS), dict(zip(INPUTS, (x.numpy(), threshold.numpy()), strict=True)))

    return content, run


def pt2_file(program: torch.export.ExportedProgram, metadata: dict[str, str]) -> tuple[bytes, Graph]:
    """The bytes of a .pt2 file, and the program that is loaded from them."""
    file = BytesIO()
    with quiet():
        torch.export.save(program, file, extra_files={METADATA: json.dumps(metadata)})
        content = file.getvalue()
        module = torch.export.load(BytesIO(content)).module()

    def run(x: Tensor, threshold: Tensor) -> Any:
        with torch.no_grad():
            return tuple(output.numpy() for output in module(x, threshold))

    return content, run


def describe(detector: BAL, classifier: Classifier, spec: InputSpec) -> dict[str, str]:
    """What the file says of itself, in words and JSON. The threshold is the one to give if there is no reason for another."""
    calibration = detector.calibration_
    return {
        "bal.version": __version__,
        "bal.detector": detector_name(detector),
        "bal.threshold": json.dumps(detector.threshold_.tolist()),
        "bal.false_alarm": json.dumps(None if calibration is None else calibration.false_alarm),
        "bal.class_names": json.dumps(detector.class_names_),
        "bal.input_shape": json.dumps(spec.shape),
        "bal.input_range": json.dumps([spec.low, spec.high] if spec.low <= spec.high else None),
        "bal.fingerprint": str(mark_of(classifier)["fingerprint"]),
    }


def random_inputs(spec: InputSpec) -> list[Tensor]:
    """Batches of several sizes, over the range of the fit and round it, with rows of NaN and Inf; always the same.

    Of whole numbers such as token ids only 0 and 1 are sure to be known to the network.
    """
    g = make_generator(0)
    if not spec.floating:
        return [torch.randint(2, (rows, *spec.shape), generator=g) for rows in RANDOM_BATCHES]
    low, high = (spec.low, spec.high) if spec.low < spec.high else (-1.0, 1.0)
    batches = []
    for rows in RANDOM_BATCHES:
        x = torch.rand(rows, *spec.shape, generator=g)
        x[::2] = 0.5 + 0.5 * torch.randn(x[::2].shape, generator=g)
        batches.append(low + (high - low) * x)
    flat = batches[-1].reshape(RANDOM_BATCHES[-1], -1)
    flat[1, 0], flat[2, -1], flat[3] = torch.nan, torch.inf, -torch.inf
    return batches


def compare(detector: BAL, graph: Graph, batches: list[Tensor]) -> Parity:
    """Run the graph and torch side by side, at the threshold of the detector, with everything accepted, and half way between."""
    found = Parity(0, 0.0, 0.0)
    for x in batches:
        features = extract(detector.classifier_, x, spec=detector.spec_, show_progress=False)  # type: ignore[arg-type]
        score = detector.score(features)
        middle = float(np.median(score[np.isfinite(score)])) if np.isfinite(score).any() else -np.inf
        for threshold in (None, -np.inf, middle):
            given = detector.threshold_ if threshold is None else torch.full_like(detector.threshold_, threshold)
            expected = detector.predict(features, threshold=threshold)
            off = agree(expected, graph(x.contiguous(), given), given)
            found = Parity(found.rows, max(found.largest, off.largest), max(found.relative, off.relative))
        found = found._replace(rows=found.rows + len(x))
    return found


def agree(expected: Prediction, came: tuple[Rows, Rows, Rows, Rows], threshold: Tensor) -> Parity:
    """How far the answers are apart; those that differ are refused.

    A row closer to its threshold than the tolerance may fall on either side.
    """
    label, confidence, is_ood, score = came
    finite = np.isfinite(expected.score)
    if (np.isfinite(score) != finite).any() or not is_ood[~finite].all():
        raise ExportError("the graph and torch do not agree on which rows are invalid; no file was written")
    true = expected.score[finite]
    off, far = np.abs(score[finite] - true), true < FAR
    if (off > tolerance(true)).any():
        worst = (off / tolerance(true)).argmax()
        raise ExportError(
            f"the log confidence of the graph is {off[worst]:.2g} off that of torch, {true[worst]:.4g}, "
            f"more than {tolerance(true)[worst]:.2g}; no file was written"
        )
    near = np.zeros_like(finite)
    near[finite] = np.abs(true[:, None] - threshold.numpy().reshape(1, -1)).min(1) <= tolerance(true)
    if (label != expected.label)[~near].any() or ((label == OOD) != is_ood).any():
        raise ExportError("the graph and torch do not give the same labels; no file was written")
    if not np.allclose(confidence, expected.confidence, rtol=0, atol=TOLERANCE):
        raise ExportError("the graph and torch do not give the same confidence; no file was written")
    return Parity(len(label), float(off[~far].max(initial=0.0)), float((off / np.maximum(-true, 1.0))[far].max(initial=0.0)))


def tolerance(score: NDArray[np.float64]) -> NDArray[np.float64]:
    """How far the graph may be off at each log confidence."""
    return TOLERANCE * np.maximum(1.0, score / FAR)


def first_line(error: Exception) -> str:
    """The gist of a long message."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


@contextmanager
def quiet() -> Iterator[None]:
    """Without what torch says of deprecations inside it and of packages that it would like to see."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    try:
        logger.setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
