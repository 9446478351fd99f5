"""Randomness from one explicit generator; the global one is left as found."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


def make_generator(seed: int) -> torch.Generator:
    """A CPU generator; random numbers are drawn there and moved, so every device sees the same."""
    return torch.Generator().manual_seed(seed)


@contextmanager
def seeded(generator: torch.Generator) -> Iterator[None]:
    """Let what draws from torch's global generator, such as the start of layers and dropout, draw from ``generator`` instead.

    The global generator of the CPU is seeded inside this block and put back after it.
    """
    seed = int(torch.randint(2**62, (), generator=generator))
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # the CPU's alone; torch.manual_seed would reseed every GPU
        yield
