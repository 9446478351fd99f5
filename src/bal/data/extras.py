"""Packages that only some readers need are imported where they are used."""

from importlib import import_module
from typing import Any

from bal.errors import DataError


def import_extra(module: str, *, extra: str = "data") -> Any:
    """The module, or an error that says which extra brings it.

    >>> import_extra("math").sqrt(4)
    2.0
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise DataError(
            f"this needs {module.partition('.')[0]}, which is not installed; pip install 'bal-ood[{extra}]'"
        ) from error
