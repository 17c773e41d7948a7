"""A forecast of the load, from policies that have a model of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dsp_gym.arrays import Floats


@dataclass(frozen=True, slots=True)
class Forecast:
    """Expected arrivals at J jobs in the time to come; NaN is unknown."""

    records_in_per_s: Floats  # (J,) of all sources together, highest over the horizon
    error: Floats  # (J,) mean relative error of past forecasts
    horizon_s: float
    quantile: float  # probability that the load stays below at each moment

    def document(self, job: int) -> dict[str, Any] | None:
        """Return the forecast of one job as an answer carries it.

        Args:
            job: Row of the job.

        Returns:
            A JSON-able document; None where the forecast is unknown.
        """
        # JSON has no NaN: unknown values are null.
        if not np.isfinite(self.records_in_per_s[job]):
            return None
        error = float(self.error[job])
        return {
            "records_in_per_s": float(self.records_in_per_s[job]),
            "horizon_s": self.horizon_s,
            "quantile": self.quantile,
            "error": error if np.isfinite(error) else None,
        }
