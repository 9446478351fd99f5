"""Errors that say what was expected, what came and what to do."""


class BalError(Exception):
    """Any error that `bal` raises on purpose."""


class ShapeError(BalError, ValueError):
    """An array has the wrong shape, number of channels or dtype."""


class DataError(BalError, ValueError):
    """The data cannot be used as given: empty, unlabelled, one class only, not a number."""


class SettingsError(BalError, ValueError):
    """A setting has a value that makes no sense."""


class HeadError(BalError, ValueError):
    """The classifier's last linear layer was not found, or is not the one that makes the logits."""


class NotFittedError(BalError, RuntimeError):
    """A detector was asked for scores before it was fitted."""


class CalibrationError(DataError):
    """The rows cannot carry the promise that is asked of them: too few, or without a score."""


class StorageError(BalError, OSError):
    """A file is damaged, belongs to something else, or cannot be written."""


class ExportError(BalError, RuntimeError):
    """A detector cannot be written as a graph, or the graph does not answer as the detector does."""


class BalWarning(UserWarning):
    """Something went on, but not as hoped: a diverged training, a skipped row."""
