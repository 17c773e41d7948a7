"""Names of the array types the whole project uses; a docstring gives the shape."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["Bools", "Floats", "Floats32", "Ints"]

Ints = NDArray[np.int64]
"""Counts, indices, parallelism and memory levels."""

Floats = NDArray[np.float64]
"""Rates, times and shares; NaN is unknown."""

Floats32 = NDArray[np.float32]
"""Observations, weights and activations."""

Bools = NDArray[np.bool_]
"""Masks and flags."""
