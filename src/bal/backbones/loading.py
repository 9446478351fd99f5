"""A user's own classifier by name."""

import sys
from importlib import import_module
from pathlib import Path

from torch import nn

from bal.backbones.classifier import Classifier
from bal.errors import DataError


def load_classifier(name: str) -> Classifier:
    """Call the function called ``package.module:function``; it returns a trained module or a `Classifier`.

    The current folder is searched too, so that ``my_model:build`` finds ``my_model.py`` there.
    """
    module, _, function = name.partition(":")
    if not module or not function:
        raise DataError(f"the classifier must be given as package.module:function, got {name!r}; for example my_model:build")
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        build = getattr(import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise DataError(f"cannot find {name}: {error}; is the module installed, or in the current folder?") from error
    finally:
        sys.path.remove(here)
    made = build()
    if isinstance(made, Classifier):
        return made
    if not isinstance(made, nn.Module):
        raise DataError(f"{name}() must return a trained torch.nn.Module or a bal.Classifier, got {type(made).__name__}")
    return Classifier(made)
