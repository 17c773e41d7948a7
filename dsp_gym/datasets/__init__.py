"""Datasets: reading what `dsp-gym dataset build` wrote, and simulated decisions to build from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dsp_gym.datasets.reader import Dataset

__all__ = ["read"]


def read(name: str | Path) -> Dataset:
    """Open a dataset by its name; see `Dataset.open`.

    Returns:
        The revision that is published now.
    """
    from dsp_gym.datasets.reader import Dataset

    return Dataset.open(name)
