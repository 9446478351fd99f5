"""A training on disk: weights, both optimisers, the generator of random numbers and the history, in one file."""

from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from bal.errors import StorageError
from bal.storage import load_tensors, save_tensors

if TYPE_CHECKING:
    from bal.discrimination.training import Algorithm1


def save_checkpoint(path: Path, training: "Algorithm1") -> None:
    """Write the whole state; a kill leaves the previous checkpoint."""
    tensors = training.weights()
    for name, optimiser in (("optimiser_D", training.optimiser_D), ("optimiser_G", training.optimiser_G)):
        for index, state in optimiser.state_dict()["state"].items():
            tensors |= {f"{name}.{index}.{key}": value for key, value in state.items()}
    tensors["generator"] = training.generator.get_state()
    settings = {
        "run": training.run_id,
        "step": training.step,
        "first_losses": training.first_losses,
        "history": training.history,
    }
    save_tensors(path, tensors, settings)


def load_checkpoint(path: Path, training: "Algorithm1") -> None:
    """Put a saved state back; a checkpoint of other data, settings or seed is refused."""
    tensors, settings = load_tensors(path)
    if settings.get("run") != training.run_id:
        raise StorageError(
            f"the checkpoint {path} belongs to another run (other features, settings or seed); delete it or name another file"
        )
    training.load_weights(tensors)
    restore_optimiser(training.optimiser_D, "optimiser_D", tensors)
    restore_optimiser(training.optimiser_G, "optimiser_G", tensors)
    training.generator.set_state(tensors["generator"])
    training.step, training.first_losses = settings["step"], settings["first_losses"]
    training.history[:] = settings["history"]


def restore_optimiser(optimiser: torch.optim.Optimizer, name: str, tensors: dict[str, Tensor]) -> None:
    """Rebuild the optimiser's state from tensors called name.index.key."""
    state: dict[int, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        if key.startswith(f"{name}."):
            _, index, field = key.split(".")
            state.setdefault(int(index), {})[field] = tensor
    optimiser.load_state_dict({**optimiser.state_dict(), "state": state})
