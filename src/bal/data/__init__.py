"""Where images come from: arrays, datasets, loaders, files, folders, the catalog and the embedded sample."""

from bal.data.batches import Batches, Data, stack, to_input
from bal.data.files import load_data
from bal.data.folders import read_image_folder
from bal.data.parquet import read_parquet
from bal.data.sample import Sample, load_sample

__all__ = ["Batches", "Data", "Sample", "load_data", "load_sample", "read_image_folder", "read_parquet", "stack", "to_input"]
