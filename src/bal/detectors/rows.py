"""The rows that a detector learns from: which are usable, and what makes them unusable altogether."""

import warnings

import torch
from torch import Tensor

from bal.errors import BalWarning, DataError
from bal.features import Features
from bal.seeding import make_generator


def some_rows(total: int, wanted: int) -> Tensor:
    """At most ``wanted`` row numbers, always the same random choice."""
    return torch.randperm(total, generator=make_generator(0))[:wanted]


def learnable_rows(features: Features) -> Features:
    """The finite rows; features without labels, without finite rows or without a boundary between classes are refused."""
    if features.labels is None:
        raise DataError("fitting needs labels; give (x, labels), or a Dataset or DataLoader of such pairs")
    valid = features.rows(features.valid)
    check_labels(valid.known_labels, features.logits.shape[1])
    warn_of_lost_rows(len(features) - len(valid), len(features))
    accuracy = valid.accuracy()
    if accuracy < 1 / features.logits.shape[1]:
        warnings.warn(
            f"the classifier gets {accuracy:.1%} of these labels right, less than by chance; are they its class indices?",
            BalWarning,
            stacklevel=5,
        )
    return valid


def warn_of_lost_rows(lost: int, rows: int) -> None:
    """Say that rows are left out of the fit."""
    if lost:
        warnings.warn(f"{lost} of {rows} rows are not finite and are left out of the fit", BalWarning, stacklevel=4)


def check_labels(labels: Tensor, classes: int) -> None:
    """Refuse fewer than two classes, labels that are not the classifier's, and classes with fewer than two rows."""
    if not len(labels):
        raise DataError("no row is finite; check the inputs and the classifier for NaN and Inf")
    if classes < 2:
        raise DataError(f"the classifier has {classes} output; a detector needs at least 2 classes to tell apart")
    if int(labels.min()) < 0 or int(labels.max()) >= classes:
        raise DataError(
            f"labels must be 0 to {classes - 1}, the classifier's outputs, got {int(labels.min())} to {int(labels.max())}"
        )
    counts = labels.bincount(minlength=classes)
    scarce = {int(c): int(counts[c]) for c in torch.nonzero(counts < 2)}
    if scarce:
        raise DataError(
            f"every class needs at least 2 usable rows to have a boundary; too few for {{class: rows}} {scarce}. "
            "Add examples, or use a classifier without these outputs"
        )
