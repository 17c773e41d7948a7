"""Recovery after a rescale: how long it would take, and how long it took.

A job has recovered once it has worked off what it fell behind by: the records since the last
checkpoint, those of the downtime, and the backlog before. This is `dsp_gym.sizing.recovery` for a
load that changes meanwhile, as the paper has it: step by step of the forecast.
"""

from __future__ import annotations

import numpy as np

from baselines.daedalus.memory import DaedalusMemory
from dsp_gym.arrays import Floats
from dsp_gym.compiling import njit
from dsp_gym.loop.backlog import work_off_s


@njit(cache=True, nogil=True, borrows=True)
def recovery_s(
    capacity: float, waiting: float, downtime_s: float, ahead: Floats, step_s: float
) -> float:
    """Predict how long a job takes to recover from a rescale, downtime included.

    Args:
        capacity: Records/s of the new number of workers.
        waiting: Records to work off when the job goes down: backlog, and records that are read
            again since the last checkpoint.
        downtime_s: Seconds in which nothing is read.
        ahead: (steps,) forecast of the load, records/s.
        step_s: Seconds of one step.

    Returns:
        Seconds; infinity where it takes longer than the forecast reaches.
    """
    for s in range(ahead.shape[0]):
        begin = s * step_s
        down = min(max(downtime_s - begin, 0.0), step_s)
        waiting += ahead[s] * down
        spare = max(0.0, capacity - ahead[s])
        if spare > 0.0 and waiting <= spare * (step_s - down):
            return float(begin + down + work_off_s(waiting, spare))
        waiting -= spare * (step_s - down)
    return np.inf


@njit(cache=True, nogil=True, borrows=True)
def is_usual(m: DaedalusMemory, j: int, growth: float) -> bool:
    """Return whether job j falls behind as it usually does, within one standard deviation.

    Args:
        m: Memory.
        j: Row of the job.
        growth: Records/s by which it reads less than is offered.

    Returns:
        False for what the repository calls an anomaly: the job has not recovered.
    """
    if m.loops[j] == 0:
        return True
    deviation = np.sqrt(m.growth_growth[j] / m.loops[j])
    return bool(abs(growth - m.mean_growth[j]) <= deviation)


@njit(cache=True, nogil=True, borrows=True)
def add_growth(m: DaedalusMemory, j: int, growth: float) -> None:
    """Add the growth of the backlog in one loop, records/s, to those of job j (Welford)."""
    m.loops[j] += 1
    off = growth - m.mean_growth[j]
    m.mean_growth[j] += off / m.loops[j]
    m.growth_growth[j] += off * (growth - m.mean_growth[j])


@njit(cache=True, nogil=True, borrows=True)
def adapt(m: DaedalusMemory, j: int, observed_s: float, step_s: float) -> None:
    """Move the expected downtime of job j by one step towards the observed recovery.

    Args:
        m: Memory, changed in place: the rescale is no longer open.
        j: Row of the job.
        observed_s: Seconds from going down to being recovered.
        step_s: Seconds of one step.
    """
    step = step_s if observed_s > m.predicted_s[j] else -step_s
    if m.is_up[j]:
        m.up_s[j] = max(0.0, m.up_s[j] + step)
    else:
        m.down_s[j] = max(0.0, m.down_s[j] + step)
    m.is_open[j] = False
