"""Where images come from: arrays, datasets, loaders and the embedded sample."""

from bal.data.batches import Batches, Data, stack, to_input
from bal.data.sample import Sample, load_sample

__all__ = ["Batches", "Data", "Sample", "load_sample", "stack", "to_input"]
