"""Replays recorded outages and slots on a simulated job.

A recorded run says when the job was down and with how many slots it came back. Here the simulated
job is stopped and brought back at those seconds, whatever a policy would have done and however
long its own rescale would have taken; everything between is the simulation. After a restart from a
checkpoint the source reads again what came after it, which is added to its log.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dsp_gym.arrays import Bools, Floats
from dsp_gym.backends.simulated.jobs import SimulatedJobs
from dsp_gym.job.spec import JobSpec
from dsp_gym.loop.snapshot import RESTARTING
from dsp_gym.loop.topology import Topology
from dsp_gym.simulation.options import SimulationOptions
from dsp_gym.simulation.state import TRACE, X

__all__ = ["ReplayedOutage", "Replayed", "age_s", "merge_outages", "replay"]


@dataclass(frozen=True, slots=True)
class ReplayedOutage:
    """The job is down and comes back with that number of slots."""

    t_s: int
    outage_s: int
    slots: int
    reread_s: float = 0.0  # seconds of load read again after the restart


@dataclass(frozen=True, slots=True)
class Replayed:
    """Every second of a replayed run."""

    offered_per_s: Floats
    consumed_per_s: Floats  # records read again count again
    backlog: Floats
    age_s: Floats  # of the newest record consumed: NaN while down
    down: Bools


def replay(
    spec: JobSpec,
    offered_per_s: Floats,
    slots: int,
    outages: Sequence[ReplayedOutage],
    seed: int = 0,
) -> Replayed:
    """A simulated run with the outages given.

    Args:
        spec: the job; with slot sharing, every vertex but the source takes all slots.
        offered_per_s: (T,) records/s of each second.
        slots: slots at the start.
        outages: in order of time, not overlapping (see `merged`).
        seed: of the service noise.

    Returns:
        Offered and consumed records, backlog and age of every second.
    """
    topology = Topology.of([spec])
    jobs = SimulatedJobs(topology, SimulationOptions(trace=True))
    width = topology.tables.start_parallelism.shape[1]
    jobs.reset(np.array([seed]), offered_per_s[None, :], parallelism=np.full((1, width), slots))
    length = len(offered_per_s)
    down = np.zeros(length, bool)
    now = 0
    reread = np.zeros(length)
    for outage in outages:
        if outage.t_s >= length:
            break
        if outage.t_s > now:
            jobs.advance(outage.t_s - now)
        seconds = min(outage.outage_s, length - outage.t_s)
        state = jobs.state
        state.status[0] = RESTARTING
        state.outage_begun[0] = outage.t_s
        state.phase_left_s[0] = seconds
        low, high = topology.tables.min_parallelism[0], topology.tables.max_parallelism[0]
        state.next_parallelism[0] = np.clip(outage.slots, low, high)
        jobs.advance(seconds)
        now = outage.t_s + seconds
        down[outage.t_s : now] = True
        again = outage.reread_s * float(offered_per_s[outage.t_s])
        state.vertex[0, 0, X.pending] += again
        if now < length:
            reread[now] += again
    if now < length:
        jobs.advance(length - now)
    trace = jobs.trace[0, :length]
    consumed = np.where(down, 0.0, trace[:, TRACE.processed])
    age = age_s(offered_per_s, trace[:, TRACE.pending])
    return Replayed(
        offered_per_s, consumed, trace[:, TRACE.pending], np.where(down, np.nan, age), down
    )


def merge_outages(outages: Sequence[ReplayedOutage]) -> list[ReplayedOutage]:
    """Sorts outages by time; one that begins during another prolongs it.

    Returns:
        Outages that do not overlap.
    """
    found: list[ReplayedOutage] = []
    for outage in sorted(outages, key=lambda o: o.t_s):
        last = found[-1] if found else None
        if last is None or outage.t_s >= last.t_s + last.outage_s:
            found.append(outage)
            continue
        end = max(last.t_s + last.outage_s, outage.t_s + outage.outage_s)
        found[-1] = ReplayedOutage(
            last.t_s, end - last.t_s, outage.slots, max(last.reread_s, outage.reread_s)
        )
    return found


def age_s(offered_per_s: Floats, backlog: Floats) -> Floats:
    """Computes how long ago the record was offered that is read now, first in, first out.

    Returns:
        Seconds, (T,).
    """
    total = np.concatenate([[0.0], np.cumsum(offered_per_s)])
    t = np.arange(1.0, len(backlog) + 1)
    read = np.maximum(total[1:] - backlog, 0.0)
    return np.asarray(t - np.interp(read, total, np.arange(len(total), dtype=float)))
