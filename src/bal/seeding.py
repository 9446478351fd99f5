"""Randomness from one explicit generator; the global one is left as found."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


def make_generator(seed: int) -> torch.Generator:
    """A CPU generator; random numbers are drawn there and moved, so every device sees the same."""
    return torch.Generator().manual_seed(seed)


@contextmanager
def seeded_construction(generator: torch.Generator) -> Iterator[None]:
    """Build a module whose initial weights come from ``generator``.

    torch's layers initialise themselves from the global generator; it is seeded inside this block and put back afterwards.
    """
    seed = int(torch.randint(2**62, (), generator=generator))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield
