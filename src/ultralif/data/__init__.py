"""Datasets: found or downloaded, checked, read without foreign code, and fed from the device."""

from ultralif.data import encoders, loader
from ultralif.data.dataset import Dataset, load
from ultralif.data.loader import Loader
from ultralif.data.split import Split
from ultralif.data.table import DATASETS

__all__ = ["DATASETS", "Dataset", "Loader", "Split", "encoders", "load", "loader"]
