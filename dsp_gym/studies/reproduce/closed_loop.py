"""A policy in closed loop with one simulated job under constant or stepped load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dsp_gym.arrays import Bools, Floats
from dsp_gym.backends.simulated.jobs import SimulatedJobs
from dsp_gym.control.loop import ControlLoop
from dsp_gym.job.capacity import mst
from dsp_gym.job.spec import JobSpec
from dsp_gym.loop.outcome import Outcome
from dsp_gym.loop.snapshot import RESTARTING
from dsp_gym.loop.topology import Topology
from dsp_gym.policies.config import PolicyConfig
from dsp_gym.policies.registry import make
from dsp_gym.simulation.options import SimulationOptions
from dsp_gym.simulation.state import TRACE, X

TasksAndLevels = dict[str, tuple[int, int]]
"""Parallelism and memory level by vertex, sources left out."""


@dataclass(frozen=True, slots=True)
class ClosedLoopRun:
    """The course of a run: every configuration, and when it was first observed running."""

    path: tuple[tuple[float, TasksAndLevels], ...]
    sustained: float  # processed over offered in the last ten minutes

    @property
    def steps(self) -> int:
        """Rescales."""
        return len(self.path) - 1

    @property
    def final(self) -> TasksAndLevels:
        """The configuration at the end."""
        return self.path[-1][1]

    def at(self, t_s: float) -> TasksAndLevels:
        """The running configuration at a time.

        Returns:
            (tasks, memory level) by vertex.
        """
        return [configuration for since, configuration in self.path if since <= t_s][-1]

    def steps_within(self, from_s: float, to_s: float) -> int:
        """The number of rescales that came up in a span of time.

        Returns:
            Rescales after `from_s` and up to `to_s`.
        """
        return sum(from_s < since <= to_s for since, _ in self.path)


def closed_loop(
    spec: JobSpec,
    policy: str | PolicyConfig,
    options: SimulationOptions,
    *,
    interval_s: int,
    rates_per_s: Floats,
    start: Mapping[str, int] | int | None = None,
    seed: int = 0,
) -> ClosedLoopRun:
    """Run a policy on one job for as long as there are rates.

    Args:
        spec: the job.
        policy: name or configuration.
        options: the simulation's.
        interval_s: seconds between decisions.
        rates_per_s: (seconds,) load of the job.
        start: parallelism by vertex, or of every vertex; None as the job file says.
        seed: of the simulation's noise.

    Returns:
        Every configuration of the run, and when it came up.
    """
    topology = Topology.of([spec])
    jobs = SimulatedJobs(topology, options)
    names = topology.names(0)
    parallelism = topology.tables.start_parallelism.copy()
    if start is not None:
        wanted = dict.fromkeys(names, start) if isinstance(start, int) else start
        for v, name in enumerate(names):
            parallelism[0, v] = wanted.get(name, parallelism[0, v])
    seeds = np.array([seed])
    jobs.reset(seeds, rates_per_s[None, :], parallelism=parallelism)
    loop = ControlLoop(jobs, make(policy), None, interval_s)
    loop.reset(seeds)
    scaled = [v for v, name in enumerate(names) if spec.vertex(name).kind != "source"]
    path: list[tuple[float, TasksAndLevels]] = []
    outcomes: list[Outcome] = []
    for _ in range(len(rates_per_s) // interval_s):
        step = loop.step()
        seen = step.snapshot
        running = {
            names[v]: (int(seen.parallelism[0, v]), int(seen.memory_level[0, v])) for v in scaled
        }
        if not path or running != path[-1][1]:
            path.append((float(seen.t_s[0]), running))
        if isinstance(step.outcome, Outcome):
            outcomes.append(step.outcome)
    last = outcomes[-max(1, 600 // interval_s) :]
    processed = sum(float(o.processed[0]) for o in last)
    offered = sum(float(o.arrived[0]) for o in last)
    return ClosedLoopRun(tuple(path), processed / offered)


def can_lose(spec: JobSpec, configuration: TasksAndLevels, rate_per_s: float, tasks: int) -> bool:
    """Whether some vertex could do with that many tasks less at this load.

    Returns:
        True where the job still sustains the rate with that many tasks less at one vertex.
    """
    parallelism = {name: p for name, (p, _) in configuration.items()}
    levels = {name: level for name, (_, level) in configuration.items()}
    for name, p in parallelism.items():
        if not spec.vertex(name).scalable or p <= tasks:
            continue
        if mst(spec, parallelism | {name: p - tasks}, levels).rate_per_s >= rate_per_s:
            return True
    return False


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
    """Sort outages by time; one that begins during another prolongs it.

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
    """Compute how long ago the record was offered that is read now, first in, first out.

    Returns:
        Seconds, (T,).
    """
    total = np.concatenate([[0.0], np.cumsum(offered_per_s)])
    t = np.arange(1.0, len(backlog) + 1)
    read = np.maximum(total[1:] - backlog, 0.0)
    return np.asarray(t - np.interp(read, total, np.arange(len(total), dtype=float)))
