"""Several processes that train one BAL, as torchrun starts them; a single process is the case of one rank.

They work together inside :func:`process_group` only: a program that uses torch.distributed for itself may fit on any rank.

Every rank holds all features and draws the same random numbers, so all agree on each global batch. A rank computes on its own
share of the rows; gradients and records are averaged, so that weights and decisions are the same everywhere.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor, distributed

from bal.errors import DataError

_taking_part = ContextVar("taking_part", default=False)


def rank() -> int:
    """The number of this process, from 0."""
    return distributed.get_rank() if joined() else 0


def ranks() -> int:
    """How many processes there are."""
    return distributed.get_world_size() if joined() else 1


def joined() -> bool:
    """Whether this process is inside :func:`process_group` and there is a group."""
    return _taking_part.get() and initialised()


def initialised() -> bool:
    """Whether there is a group at all, which may be the user's own."""
    return distributed.is_available() and distributed.is_initialized()


def share(rows: int) -> slice:
    """The rows of a global batch that are this rank's: every ranks()-th one. ``rows`` is a multiple of ranks()."""
    return slice(rank(), rows, ranks())


def mean_over_ranks(tensors: Sequence[Tensor]) -> list[Tensor]:
    """The mean of each tensor over all ranks, in one message."""
    if ranks() == 1:
        return list(tensors)
    flat = torch.cat([tensor.flatten() for tensor in tensors])
    distributed.all_reduce(flat)
    flat /= ranks()
    parts = flat.split([tensor.numel() for tensor in tensors])
    return [part.reshape(tensor.shape) for part, tensor in zip(parts, tensors, strict=True)]


def check_alike(digest: str) -> None:
    """Refuse to go on unless every rank has the same ``digest``, in hexadecimal, of its data and weights."""
    if ranks() == 1:
        return
    number = int(digest[:15], 16)
    extremes = torch.tensor([number, -number])
    distributed.all_reduce(extremes, distributed.ReduceOp.MAX)
    if extremes.sum() != 0:  # the largest of all is not the smallest
        raise DataError(
            "the ranks do not start alike; give all of them the same data, settings and seed, and one cache of features"
        )


@contextmanager
def process_group() -> Iterator[None]:
    """Train together with the other processes of the group that torchrun describes in the environment; without it, alone.

    A group that is there already is used and left as it is: all of its ranks must come here. Else gloo for what is on the CPU,
    nccl for what is on a GPU.
    """
    own = int(os.environ.get("WORLD_SIZE", "1")) > 1 and not initialised()
    if own:
        distributed.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")
    before = _taking_part.set(True)
    try:
        yield
    finally:
        _taking_part.reset(before)
        if own:
            distributed.destroy_process_group()
