"""Expected lateness of a load: under noise, while a job is down, and until it has caught up.

Loads and capacities have one unit, records/s or multiples of a reference. A second is late when
records wait longer than a bound, or the job is down.
"""

from __future__ import annotations

import math

from dsp_gym.compiling import njit
from dsp_gym.loop.backlog import work_off_s

IN_TIME = 0.8
"""Share of the latency bound that waiting records may take; the rest is for hops and queues."""

COLD_SPEED = 0.5
"""Share of its capacity that a job has until its caches are warm; see `dsp_gym.sizing.warming`."""

_SHORT_S = 90.0
"""Loss up to which it has that share, s. Dearer misses lose more capacity, and leave less of it."""

LONGEST_S = 3600.0
"""Longest time to catch up that counts, s: before, a new decision is taken."""

_LEAST_SPARE = 0.02
"""Least share of its capacity that a job is assumed to spare for its backlog."""


@njit(cache=True, nogil=True)
def late_share(load: float, capacity: float, noise: float) -> float:
    """Return the share of the next minute's seconds that are late, in a fixed configuration.

    The load varies about its level as a Gaussian. A level above the capacity leaves a backlog to
    later minutes, which the share includes: above 1, up to 6.

    Args:
        load: Level of the load.
        capacity: Load that the configuration carries.
        noise: Standard deviation of the load, as a share of its level.

    Returns:
        At least 0.
    """
    # The bounds keep the spread positive for loads near zero.
    spread = noise * max(load, 0.05 * capacity, 1e-300)
    # P(load > capacity) of a Gaussian: the complementary error function over sqrt(2).
    share = 0.5 * math.erfc((capacity - load) / (spread * math.sqrt(2.0)))
    # Above the capacity a backlog is left to later minutes: each per cent counts 8 % more, up to
    # six times the share.
    over = max(0.0, load / max(capacity, 1e-300) - 1.0)
    return share * (1.0 + min(5.0, 8.0 * over))


@njit(cache=True, nogil=True)
def cold_speed(lost_s: float) -> float:
    """Return the share of its capacity that a job has until its caches are warm.

    Args:
        lost_s: Capacity that they keep from it until then, in seconds of it.

    Returns:
        0 to `COLD_SPEED`.
    """
    return float(COLD_SPEED * min(1.0, _SHORT_S / max(lost_s, 1e-300)))


@njit(cache=True, nogil=True)
def catch_up_s(
    load: float, capacity: float, backlog: float, in_time_s: float, lost_s: float
) -> float:
    """Return the seconds until a backlog is so small that its last record is in time.

    Args:
        load: Level of the load.
        capacity: Load that the configuration carries once its caches are warm.
        backlog: Waiting records, in seconds of the unit of `load`.
        in_time_s: Seconds that a record may wait.
        lost_s: Capacity that cold caches still keep from the job, in seconds of it.

    Returns:
        0 to 3,600 s.
    """
    # A backlog of in_time_s x capacity drains in time; only what is above is late.
    above = backlog - in_time_s * capacity
    if above <= 0.0:
        return 0.0
    speed = cold_speed(lost_s)
    spare = speed * capacity - load
    if spare * lost_s >= above * (1.0 - speed):  # done before the caches are warm
        return min(LONGEST_S, work_off_s(above, spare))
    # Warm later: the loss of the cold phase is worked off at full speed, like backlog.
    spare = max(capacity - load, _LEAST_SPARE * capacity)
    return min(LONGEST_S, work_off_s(above + lost_s * capacity, spare))


@njit(cache=True, nogil=True)
def rescale_late_s(
    load: float,
    capacity: float,
    backlog: float,
    outage_s: float,
    in_time_s: float,
    lost_s: float,
) -> float:
    """Return the late seconds of a rescale: the outage, and catching up after it.

    Args:
        load: Level of the load.
        capacity: Load that the new configuration carries.
        backlog: Waiting records before, in seconds of the unit of `load`.
        outage_s: Seconds without processing.
        in_time_s: Seconds that a record may wait.
        lost_s: Capacity that cold caches keep from the job afterwards, in seconds of it.

    Returns:
        Seconds.
    """
    # During the outage the load adds to the backlog.
    return outage_s + catch_up_s(load, capacity, backlog + load * outage_s, in_time_s, lost_s)
