"""What Daedalus remembers of every job."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dsp_gym.arrays import Bools, Floats, Ints
from dsp_gym.loop.per_job_state import RowMemory
from dsp_gym.numba_handles import by_address

SEEN = 32
"""Numbers of workers whose capacity is remembered; the one seen longest ago gives way."""


class DaedalusMemory(NamedTuple):
    """Memory for compiled code, (J,) where no further axis is named."""

    # The loop.
    evaluated_s: Floats
    seen_s: Floats  # time of the last snapshot
    moved_s: Floats  # time of the last (re)start
    running: Ints  # workers at the last snapshot, -1: none yet
    asked: Ints  # workers of the last decision for another number, -1: none
    # Loads, and their forecast.
    written: Ints  # loads written so far
    load: Floats  # (J, history) records/s offered, as a ring
    expected: Floats  # load of the next loop by the last forecast, records/s
    # The line of a worker's throughput over its CPU share.
    samples: Ints
    mean_cpu: Floats  # 0..1
    mean_rate: Floats  # records/s of one worker
    cpu_cpu: Floats  # sum of squared deviations of the CPU share
    cpu_rate: Floats  # sum of products of both deviations
    # Capacities of the numbers of workers that ran.
    workers: Ints  # (J, SEEN) 0: free
    capacity: Floats  # (J, SEEN) records/s, decaying average
    at_s: Floats  # (J, SEEN) time of the last measurement
    last_workers: Ints  # number of workers measured last
    last_capacity: Floats  # their capacity, records/s, not averaged
    # Growth of the backlog, records/s.
    loops: Ints
    mean_growth: Floats
    growth_growth: Floats  # sum of squared deviations
    # Expected downtimes, and the rescale whose recovery is watched.
    up_s: Floats
    down_s: Floats
    predicted_s: Floats  # recovery predicted for the last decision, NaN: beyond the forecast
    is_open: Bools  # a rescale whose recovery has not been seen
    is_up: Bools  # that rescale added workers


by_address(DaedalusMemory)


def empty_memory(history: int, up_s: float, down_s: float) -> RowMemory:
    """Make a memory with its first values.

    Args:
        history: Loads that are kept.
        up_s: Downtime of a rescale that adds workers, before any was seen, s.
        down_s: Downtime of one that takes workers away, likewise, s.

    Returns:
        The memory, to be reset before its first use.
    """
    return RowMemory(
        {
            "evaluated_s": ("job", -1e18),
            "seen_s": ("job", -1e18),
            "moved_s": ("job", -1e18),
            "running": ("job", -1),
            "asked": ("job", -1),
            "written": ("job", 0),
            "load": ("job", 0.0),
            "expected": ("job", np.nan),
            "samples": ("job", 0),
            "mean_cpu": ("job", 0.0),
            "mean_rate": ("job", 0.0),
            "cpu_cpu": ("job", 0.0),
            "cpu_rate": ("job", 0.0),
            "workers": ("job", 0),
            "capacity": ("job", 0.0),
            "at_s": ("job", -1e18),
            "last_workers": ("job", 0),
            "last_capacity": ("job", 0.0),
            "loops": ("job", 0),
            "mean_growth": ("job", 0.0),
            "growth_growth": ("job", 0.0),
            "up_s": ("job", float(up_s)),
            "down_s": ("job", float(down_s)),
            "predicted_s": ("job", np.nan),
            "is_open": ("job", False),
            "is_up": ("job", False),
        },
        depth={"load": history, "workers": SEEN, "capacity": SEEN, "at_s": SEEN},
    )
