"""How much a measurement scatters: between samples of one run, and between runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dsp_gym.calibration.observations import SteadyPart

__all__ = ["Noise", "noise"]


@dataclass(frozen=True, slots=True)
class Noise:
    """Relative scatter."""

    noise_cv: float | None  # of a rate over 5 s, median over runs
    repeat_cv: float | None  # of a rate over a whole run
    repeats_from: str  # "repeats", or "halves" of runs where none was repeated


def noise(seen: Sequence[SteadyPart]) -> Noise:
    """Measures the scatter of the rate between samples, and between repeats of saturated runs.

    Where no configuration was run twice, the two halves of each run stand in for repeats: their
    log ratio has twice the variance of one half, which has twice that of the run.

    Returns:
        Coefficients of variation; None without enough of either.
    """
    spreads = [o.spread for o in seen if np.isfinite(o.spread)]
    within = float(np.median(spreads)) if spreads else None
    groups: dict[tuple[object, ...], list[float]] = {}
    for o in seen:
        if o.saturated:
            key = (
                tuple(sorted(o.parallelism.items())),
                tuple(sorted(o.level.items())),
                o.base_mib,
            )
            groups.setdefault(key, []).append(float(np.log(o.rate_per_s)))
    repeated = [np.std(rates, ddof=1) for rates in groups.values() if len(rates) > 1]
    if repeated:
        return Noise(within, float(np.median(repeated)), "repeats")
    drifts = [abs(o.drift) for o in seen if o.saturated and np.isfinite(o.drift)]
    # 0.6745: median of |N(0, 1)|.
    between = float(np.median(drifts)) / 0.6745 / 2.0 if drifts else None
    return Noise(within, between, "halves")
