"""A user's own classifier by name, and weights that others have trained."""

import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from pickle import UnpicklingError
from traceback import extract_tb

from torch import Tensor, nn

from bal.backbones.classifier import Classifier
from bal.backbones.exported import SUFFIX, read_program, restricted_load
from bal.errors import BalError, DataError, StorageError


def load_classifier(name: str) -> Classifier:
    """The classifier of a .pt2 file, or of the function ``package.module:function``, which returns a module or a `Classifier`.

    The current folder is searched too, so that ``my_model:build`` finds ``my_model.py`` there.
    """
    classifier = Classifier(read_program(Path(name))) if name.endswith(SUFFIX) else call_function(name)
    classifier.source = name
    return classifier


def call_function(name: str) -> Classifier:
    """What the function called ``package.module:function`` returns."""
    module, _, function = name.partition(":")
    if not module or not function:
        raise DataError(
            f"the classifier must be package.module:function or a {SUFFIX} file, got {name!r}; for example my_model:build"
        )
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        made = getattr(import_module(module), function)()
    except BalError:
        raise
    except ModuleNotFoundError as error:
        raise DataError(f"cannot find {name}: {error}; is the module installed, or in the current folder?") from error
    except Exception as error:  # whatever the code of others raises
        raise DataError(f"{name} failed with {type(error).__name__}: {error} ({place_of(error)})") from error
    finally:
        sys.path.remove(here)
    if isinstance(made, Classifier):
        return made
    if not isinstance(made, nn.Module):
        raise DataError(f"{name}() must return a trained torch.nn.Module or a bal.Classifier, got {type(made).__name__}")
    return Classifier(made)


def place_of(error: BaseException) -> str:
    """File and line where an error came up."""
    if isinstance(error, SyntaxError):
        return f"{error.filename}, line {error.lineno}"
    last = extract_tb(error.__traceback__)[-1]
    return f"{last.filename}, line {last.lineno}"


def load_weights(model: nn.Module, path: str | Path, *, key_map: Mapping[str, str] | None = None) -> None:
    """Put the tensors of a foreign state_dict into ``model``; code in the file is never run.

    ``key_map`` replaces parts of the file's names, longest first: {"module.": "", "classifier": "fc"}. Every tensor of the model
    must be there in its shape, and none may be left over; counters of batches seen by BatchNorm may be absent.
    """
    tensors = renamed(read_state_dict(Path(path)), key_map or {})
    own = model.state_dict()
    missing = [name for name in own if name not in tensors and not name.endswith("num_batches_tracked")]
    extra = [name for name in tensors if name not in own]
    other = [
        f"{name} {tuple(tensors[name].shape)} for {tuple(own[name].shape)}"
        for name in own
        if name in tensors and tensors[name].shape != own[name].shape
    ]
    problems = {"missing": missing, "left over": extra, "of another shape": other}
    if any(problems.values()):
        told = "; ".join(f"{len(names)} {what}: {', '.join(names[:3])}" for what, names in problems.items() if names)
        raise StorageError(f"{path} does not fit {type(model).__name__}: {told}. Check the architecture, or rename with key_map")
    model.load_state_dict({**own, **tensors})


def read_state_dict(path: Path) -> dict[str, Tensor]:
    """Tensors of a .pt file by name, read with torch's restricted unpickler; a state_dict inside {"state_dict": ...} is found."""
    if not path.is_file():
        raise StorageError(f"there is no file {path}; give the path of a saved state_dict")
    try:
        content = restricted_load(path)
    except (UnpicklingError, RuntimeError, EOFError, OSError, ValueError, KeyError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise StorageError(f"{path} holds more than tensors, or is damaged ({reason}); nothing of it was run") from error
    for key in ("state_dict", "model"):
        if isinstance(content, dict) and isinstance(content.get(key), dict):
            content = content[key]
    if not isinstance(content, dict) or not all(isinstance(tensor, Tensor) for tensor in content.values()):
        raise StorageError(f"{path} holds no state_dict, which is a dictionary of tensors; save model.state_dict()")
    return content


def renamed(tensors: Mapping[str, Tensor], key_map: Mapping[str, str]) -> dict[str, Tensor]:
    """The tensors under the names that the map makes of theirs."""
    result = {}
    for name, tensor in tensors.items():
        for old in sorted(key_map, key=len, reverse=True):
            name = name.replace(old, key_map[old])  # noqa: PLW2901
        result[name] = tensor
    return result
