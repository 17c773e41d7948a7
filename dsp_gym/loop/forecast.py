"""A forecast of the load, from policies that have a model of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dsp_gym.arrays import Floats

__all__ = ["Forecast"]


@dataclass(frozen=True, slots=True)
class Forecast:
    """How much may arrive at J jobs in the time to come; NaN is unknown."""

    records_in_per_s: Floats  # (J,) of all sources together: the highest over the horizon
    error: Floats  # (J,) mean relative error of past forecasts, against what then arrived
    horizon_s: float
    quantile: float  # that the load stays below at each moment of the horizon

    def document(self, job: int) -> dict[str, Any] | None:
        """The forecast of one job as an answer carries it.

        Args:
            job: row.

        Returns:
            A JSON-able document; None where nothing is known.
        """
        if not np.isfinite(self.records_in_per_s[job]):
            return None
        error = float(self.error[job])
        return {
            "records_in_per_s": float(self.records_in_per_s[job]),
            "horizon_s": self.horizon_s,
            "quantile": self.quantile,
            "error": error if np.isfinite(error) else None,
        }
