"""A twin of the job that the fallback drives: the job as if the fallback had always decided.

The twin is DS2's linear model of the job under the observed load: true rates per task do not
change, demand is the offered load. The fallback is asked about the twin as it is about the job, so
that its own hysteresis and rests hold; the twin pays its outages, and its backlog makes it late.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dsp_gym.arrays import Bools, Floats, Ints
from dsp_gym.compiling import njit
from dsp_gym.job.tables import SOURCE
from dsp_gym.loop.backlog import work_off_s
from dsp_gym.loop.per_job_state import Per
from dsp_gym.loop.rates import RATES, ds2_rates
from dsp_gym.loop.snapshot import (
    JOB,
    RUNNING,
    VERTEX,
    MetricsSnapshot,
    SnapshotArrays,
    snapshot_of_arrays,
)
from dsp_gym.loop.topology import JobFacts
from dsp_gym.numba_handles import Handle, direct
from dsp_gym.sizing.recovery import caught_up_s

LEAST_SPARE = 0.5
"""Least spare capacity of a twin that catches up, share of the load: at full load none does."""

SETTLED_S = 240.0
"""Age at which a configuration is judged, s: until then its policy may answer the metrics."""


class FallbackRuns(NamedTuple):
    """The twin of J jobs of V vertices: the fallback's configuration, and how it fares."""

    started: Bools  # (J,)
    counted_s: Floats  # (J,) time of the last count
    since_s: Floats  # (J,) when the twin last became RUNNING
    offered_per_s: Floats  # (J,) records at the sources, as last known; NaN: never
    backlog: Floats  # (J,) records
    handed: Bools  # (J,) the fallback has taken over: the twin is the job
    until_s: Floats  # (J,) end of the time in which the fallback decides
    needed: Floats  # (J, V) tasks that the offered load keeps busy, as last known; NaN: unknown
    parallelism: Ints  # (J, V) of the fallback
    level: Ints  # (J, V) of the fallback


FALLEN: dict[str, tuple[Per, bool | int | float]] = {
    "started": ("job", False),
    "counted_s": ("job", 0.0),
    "since_s": ("job", -1e18),
    "offered_per_s": ("job", float("nan")),
    "backlog": ("job", 0.0),
    "handed": ("job", False),
    "until_s": ("job", -1e18),
    "needed": ("vertex", float("nan")),
    "parallelism": ("vertex", 0),
    "level": ("vertex", -1),
}
"""Fields of `FallbackRuns`, and their first values."""


@njit(cache=True, nogil=True, borrows=True)
def follow(seen: SnapshotArrays, own: FallbackRuns, j: int) -> None:
    """Restart the twin of job j from the job's running configuration."""
    own.started[j] = True
    own.counted_s[j] = seen.job[JOB.t_s, j]
    own.since_s[j] = seen.job[JOB.running_since_s, j]
    own.backlog[j] = 0.0
    own.offered_per_s[j] = np.nan
    for v in range(seen.parallelism.shape[1]):
        own.needed[j, v] = np.nan
        own.parallelism[j, v] = seen.parallelism[j, v]
        own.level[j, v] = seen.memory_level[j, v]


@njit(cache=True, nogil=True, borrows=True)
def money_per_s(t: JobFacts, j: int, p: Ints, level: Ints) -> float:
    """Return the cost of a configuration of job j, sources left out (`dsp_gym.job.cost`).

    Returns:
        Money per second.
    """
    k = t.row[j]
    cores = mib = 0.0
    for v in range(p.shape[1]):
        if t.kind[k, v] > SOURCE:
            cores += p[j, v]
            mib += p[j, v] * t.subtask_mib[k, level[j, v] + 1]
    return float((cores * t.core_hour[k] + mib / 1024.0 * t.gib_hour[k]) / 3600.0)


@njit(cache=True, nogil=True, borrows=True)
def _is_measured(seen: SnapshotArrays, j: int) -> bool:
    """Return whether the rates of job j are measured over a whole window."""
    return bool(seen.status[j] == RUNNING and seen.job[JOB.window_fill, j] >= 1.0 - 1e-9)


@njit(cache=True, nogil=True, borrows=True)
def _spare(own: FallbackRuns, parallelism: Ints, j: int) -> float:
    """Return the capacity of job j with the given tasks (J, V) over the load; NaN: unknown."""
    spare = np.nan
    for v in range(own.needed.shape[1]):
        # DS2's model is linear: a vertex with p tasks carries p / needed of the offered load; the
        # least of them is the job's.
        if own.needed[j, v] > 0.0:
            carried = parallelism[j, v] / own.needed[j, v]
            spare = carried if np.isnan(spare) else min(spare, carried)
    return spare


@njit(cache=True, nogil=True, borrows=True)
def differs(t: JobFacts, seen: SnapshotArrays, own: FallbackRuns, j: int) -> bool:
    """Return whether job j runs another configuration than its twin."""
    other = False
    for v in range(t.n[t.row[j]]):
        other = other or seen.parallelism[j, v] != own.parallelism[j, v]
        other = other or seen.memory_level[j, v] != own.level[j, v]
    return other


@njit(cache=True, nogil=True, borrows=True)
def catch_up_s(t: JobFacts, seen: SnapshotArrays, own: FallbackRuns, j: int) -> float:
    """Estimate how long the twin would work off the lateness of job j behind it.

    Returns:
        Seconds; 0 where the job is not late or runs the twin's configuration, or little is known.
    """
    if own.handed[j] or not own.started[j] or not differs(t, seen, own, j):
        return 0.0
    offered, spare = own.offered_per_s[j], _spare(own, own.parallelism, j)
    behind_s = seen.job[JOB.latency_p95_s, j]
    if seen.status[j] != RUNNING or not behind_s > t.slo_s[t.row[j]] or not offered * spare > 0.0:
        return 0.0
    # The twin is late by its own backlog; only the rest is the policy's.
    behind_s -= own.backlog[j] / (offered * spare)
    return float(work_off_s(max(0.0, behind_s), max(spare - 1.0, LEAST_SPARE)))


@njit(cache=True, nogil=True, borrows=True)
def gets_by(t: JobFacts, seen: SnapshotArrays, own: FallbackRuns, j: int, rescale_s: float) -> bool:
    """Return whether job j catches up no later than after a rescale to its twin.

    A rescale is an outage of `rescale_s`, and the arrivals of that time have to be caught up with,
    too.

    Returns:
        True until its running configuration has settled; False where the need is unknown then.
    """
    age_s = seen.job[JOB.t_s, j] - seen.job[JOB.running_since_s, j]
    if not _is_measured(seen, j) or age_s < SETTLED_S:
        return True
    spare, late_s = _spare(own, seen.parallelism, j), seen.job[JOB.latency_p95_s, j]
    if not late_s > t.slo_s[t.row[j]]:
        return bool(spare >= 1.0)
    # In seconds of the load, which is 1.
    twin = max(_spare(own, own.parallelism, j) - 1.0, LEAST_SPARE)
    return bool(work_off_s(late_s, spare - 1.0) <= caught_up_s(late_s, 1.0, twin, rescale_s))


@njit(cache=True, nogil=True, borrows=True)
def flow(
    t: JobFacts, seen: SnapshotArrays, rates: Floats, own: FallbackRuns, j: int, seconds: float
) -> float:
    """Let the twin of job j run for that long.

    `rates` is the block of DS2's model, (len(RATES), J, V).

    Returns:
        Seconds in which the twin is late.
    """
    k = t.row[j]
    # Keep the last known needs: the twin goes on while the job is down or not measured.
    if _is_measured(seen, j):
        offered = 0.0
        for v in range(t.n[k]):
            demand, rate = rates[RATES.demand, j, v], rates[RATES.true_rate_per_task, j, v]
            if t.kind[k, v] == SOURCE:
                offered += 0.0 if np.isnan(demand) else demand
            elif demand >= 0.0 and rate > 0.0:
                own.needed[j, v] = demand / rate
        if offered > 0.0:
            own.offered_per_s[j] = offered
    offered, spare = own.offered_per_s[j], _spare(own, own.parallelism, j)
    if np.isnan(offered + spare):
        return 0.0
    # A fluid queue: it grows by the load that exceeds the capacity, and drains by the spare. It is
    # late where its newest record waits longer than the latency objective: that record leaves at
    # the whole capacity, so that this is not the time until the job has caught up.
    own.backlog[j] = max(0.0, own.backlog[j] + offered * (1.0 - spare) * seconds)
    return seconds if own.backlog[j] > t.slo_s[k] * offered * spare else 0.0


@direct
@njit(cache=True, nogil=True)
def _imagine(
    facts: Handle[JobFacts],
    seen: SnapshotArrays,
    rates: Floats,
    fallen: Handle[FallbackRuns],
    room: SnapshotArrays,
) -> None:
    """Turn `room`, a copy of the snapshot, into a snapshot of the twins.

    j is a job, k its job file, v a vertex of p tasks; `carried` is the share of the offered load
    that the twin processes.
    """
    t, own = facts.arrays, fallen.arrays
    busy_gauges = (VERTEX.busy_ms_per_s, VERTEX.busy_max_ms_per_s, VERTEX.busy_now_ms_per_s)
    for j in range(seen.status.shape[0]):
        k, same = t.row[j], True
        for v in range(t.n[k]):
            p, level = own.parallelism[j, v], own.level[j, v]
            same = same and p == seen.parallelism[j, v] and level == seen.memory_level[j, v]
            room.parallelism[j, v], room.memory_level[j, v] = p, level
        if same:
            continue
        t_s, window_s = seen.job[JOB.t_s, j], seen.job[JOB.window_s, j]
        room.job[JOB.running_since_s, j] = own.since_s[j]
        spare = _spare(own, own.parallelism, j)
        if not _is_measured(seen, j) or np.isnan(spare + own.offered_per_s[j]):
            room.job[JOB.window_fill, j] = 0.0  # the twin's metrics are unknown
            continue
        age = max(0.0, t_s - own.since_s[j])
        room.job[JOB.window_fill, j] = min(1.0, age / window_s)
        offered, carried = own.offered_per_s[j], min(1.0, spare)
        room.job[JOB.latency_p95_s, j] = own.backlog[j] / (offered * spare)
        for v in range(t.n[k]):
            out, demand = room.vertex[:, j, v], rates[RATES.demand, j, v]
            rate = rates[RATES.true_rate_per_task, j, v] * own.parallelism[j, v]
            arriving, busy = out[VERTEX.records_in_per_s], out[VERTEX.busy_ms_per_s]
            # Scale the measurements: records by the twin's throughput over the job's, busy time by
            # its load per task over the job's.
            if not (arriving > 0.0 and busy > 0.0 and demand >= 0.0):
                continue
            share = demand * carried / arriving
            out[VERTEX.records_in_per_s] *= share
            out[VERTEX.records_out_per_s] *= share
            back = 0.0
            if t.kind[k, v] == SOURCE:
                out[VERTEX.pending_growth_per_s] = demand * (1.0 - carried)
                out[VERTEX.pending_records] = own.backlog[j] * demand / offered
                back = 1000.0 * (1.0 - carried)
                rate = arriving / busy * 1000.0  # its tasks cannot be changed
            factor = min(1.0, demand * carried / rate) * 1000.0 / busy
            for gauge in busy_gauges:
                out[gauge] = min(1000.0, out[gauge] * factor)
            busy = out[VERTEX.busy_ms_per_s]
            out[VERTEX.busy_accumulated_ms_per_s] = busy * own.parallelism[j, v]
            out[VERTEX.backpressured_ms_per_s] = min(back, 1000.0 - busy)
            out[VERTEX.idle_ms_per_s] = 1000.0 - busy - out[VERTEX.backpressured_ms_per_s]


@direct
@njit(cache=True, nogil=True)
def _suit(
    facts: Handle[JobFacts],
    seen: SnapshotArrays,
    fallen: Handle[FallbackRuns],
    cost_share: float,
    suits: Bools,
) -> None:
    t, own = facts.arrays, fallen.arrays
    for j in range(suits.shape[0]):
        twin = money_per_s(t, j, own.parallelism, own.level)
        cost = money_per_s(t, j, seen.parallelism, seen.memory_level)
        carries = _spare(own, seen.parallelism, j) >= 1.0
        dear = cost_share < np.inf and cost > (1.0 + cost_share) * twin
        # A twin that does not carry the load is cheap, and no configuration to begin with.
        suits[j] = carries and not (dear and _spare(own, own.parallelism, j) >= 1.0)


def suits(snapshot: MetricsSnapshot, fallen: Handle[FallbackRuns], cost_share: float) -> Bools:
    """Return whether the fallback may go on from the running configuration of a job.

    Args:
        snapshot: J jobs.
        fallen: Their twins.
        cost_share: Most that it may cost above the twin's, share of the twin's cost.

    Returns:
        (J,) flags: it carries the offered load, and costs little more than the twin's unless the
        twin does not carry that load; False where the need is unknown.
    """
    found = np.zeros(len(snapshot), np.bool_)
    _suit(snapshot.topology.handle, snapshot.arrays, fallen, cost_share, found)
    return found


def imagined(snapshot: MetricsSnapshot, fallen: Handle[FallbackRuns]) -> MetricsSnapshot:
    """Compute the snapshot that a collector would take of the twins.

    Args:
        snapshot: J jobs.
        fallen: Their twins.

    Returns:
        A snapshot of J jobs; the given values where a twin runs its job's configuration.
    """
    seen, rates = snapshot.arrays, ds2_rates(snapshot)
    room = SnapshotArrays(
        seen.status.copy(),
        seen.parallelism.copy(),
        seen.memory_level.copy(),
        seen.job.copy(),
        seen.vertex.copy(),
    )
    _imagine(snapshot.topology.handle, seen, rates.block, fallen, room)
    return snapshot_of_arrays(snapshot.topology, room)
