"""What a fit to a series and profiles saw, and its error on what it left out.

The series fixes the capacity of all slots, which nothing is left to test; the profiles fix how it
falls with fewer. So the error is that of the profiles' regression on numbers of cores left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from dsp_gym.calibration.evidence import (
    SeenRate,
    error_of,
    folds,
    predictions_left_out,
    ranges_of,
)
from dsp_gym.calibration.series_fit import SeriesFit, profile_row, saturated_profiles
from dsp_gym.calibration.series_tables import Profile
from dsp_gym.job.evidence import Evidence
from dsp_gym.job.spec import JobSpec

__all__ = ["evidence_of"]


def evidence_of(
    fit: SeriesFit, profiles: Sequence[Profile], spec: JobSpec, command: str
) -> Evidence:
    """The ranges of the series and of saturated profiles, and the error with cores left out.

    Args:
        fit: the fit.
        profiles: the profiling runs.
        spec: the job file made from it: slots are shared, one core each.
        command: what made it.

    Returns:
        The section `fitted` of the job file.
    """
    used = saturated_profiles(profiles)
    names = [vertex.name for vertex in spec.vertices]

    def seen_at(slots: int, rate_per_s: float) -> SeenRate:
        return SeenRate(dict.fromkeys(names, slots), {}, rate_per_s)

    profiled = [seen_at(max(1, round(p.cores)), p.throughput_per_s) for p in used]

    def predict_from(rows: Sequence[int]) -> Callable[[int], float]:
        x = np.array([profile_row(used[i]) for i in rows])
        y = np.log([used[i].throughput_per_s for i in rows])
        found = np.linalg.lstsq(x, y, rcond=None)[0]
        return lambda i: math.exp(float(np.dot(profile_row(used[i]), found)))

    error = error_of(
        predictions_left_out(spec, profiled, predict_from, folds(profiled, 3)),
        "cores of saturated profiles: each number, and all above or below one",
    )
    whole = seen_at(fit.slots, fit.capacity_per_s)
    return ranges_of(spec, [whole, *profiled], command).model_copy(update={"error": error})
