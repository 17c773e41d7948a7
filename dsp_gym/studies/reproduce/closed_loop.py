"""A policy in closed loop with one simulated job, and a simulated job with given outages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dsp_gym.arrays import Bools, Floats
from dsp_gym.backends.simulated.jobs import SimulatedJobs
from dsp_gym.control.loop import ControlLoop
from dsp_gym.job.capacity import mst
from dsp_gym.job.spec import JobSpec
from dsp_gym.loop.decision import GuardedDecision
from dsp_gym.loop.outcome import Outcome
from dsp_gym.loop.snapshot import RESTARTING, RUNNING
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
    tasks: float  # mean, sources left out
    latency_s: float  # mean of the intervals' 95th percentiles

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
    names, seeds = topology.names(0), np.array([seed])
    wanted = dict.fromkeys(names, start) if isinstance(start, int) else start or {}
    own = topology.tables.start_parallelism[0].tolist()
    parallelism = [[wanted.get(name, p) for name, p in zip(names, own, strict=True)]]
    jobs.reset(seeds, rates_per_s[None, :], parallelism=np.array(parallelism))
    loop = ControlLoop(jobs, make(policy), None, interval_s)
    loop.reset(seeds)
    scaled = [v for v, name in enumerate(names) if spec.vertex(name).kind != "source"]
    steps = [loop.step() for _ in range(len(rates_per_s) // interval_s)]
    path: list[tuple[float, TasksAndLevels]] = []
    for step in steps:
        seen = step.snapshot
        running = {
            names[v]: (int(seen.parallelism[0, v]), int(seen.memory_level[0, v])) for v in scaled
        }
        if not path or running != path[-1][1]:
            path.append((float(seen.t_s[0]), running))
    last = Outcome.joined([step.outcome for step in steps[-max(1, 600 // interval_s) :]])
    tasks = float(np.mean([step.snapshot.parallelism[0, scaled].sum() for step in steps]))
    latency_s = float(np.nanmean([step.outcome.latency_p95_s[0] for step in steps]))
    sustained = float(last.processed[0] / last.arrived[0])
    return ClosedLoopRun(tuple(path), sustained, tasks, latency_s)


def apart(configuration: TasksAndLevels) -> tuple[dict[str, int], dict[str, int]]:
    """Take a configuration apart.

    Returns:
        Parallelism and memory level by vertex.
    """
    tasks = {name: p for name, (p, _) in configuration.items()}
    return tasks, {name: level for name, (_, level) in configuration.items()}


def can_lose(spec: JobSpec, configuration: TasksAndLevels, rate_per_s: float, tasks: int) -> bool:
    """Whether some vertex could do with that many tasks less at this load.

    Returns:
        True where the job still sustains the rate with that many tasks less at one vertex.
    """
    parallelism, levels = apart(configuration)
    return any(
        mst(spec, parallelism | {name: p - tasks}, levels).rate_per_s >= rate_per_s
        for name, p in parallelism.items()
        if spec.vertex(name).scalable and p > tasks
    )


@dataclass(frozen=True, slots=True)
class ReplayedOutage:
    """The job is down and comes back with that number of slots."""

    t_s: int
    outage_s: int
    slots: int | None = None  # None: those that ran
    reread_s: float = 0.0  # seconds of load read again after the restart


class InterruptedJobs(SimulatedJobs):
    """One simulated job with outages at given seconds, and records read again after restarts.

    Args:
        spec: the job.
        options: the simulation's.
        outages: in order of time, not overlapping (see `merge_outages`).
        rescale_reread_s: seconds of load read again after a rescale.
    """

    def __init__(
        self,
        spec: JobSpec,
        options: SimulationOptions,
        outages: Sequence[ReplayedOutage],
        rescale_reread_s: float = 0.0,
    ) -> None:
        super().__init__(Topology.of([spec]), options)
        self._outages, self._rescale_reread_s, self._now_s = list(outages), rescale_reread_s, 0

    def apply(self, guarded: GuardedDecision) -> None:
        """Ask for a configuration."""
        was_up = self.state.status[0] == RUNNING
        super().apply(guarded)
        if was_up and self.state.status[0] != RUNNING:
            self._read_again(self._rescale_reread_s)

    def advance(self, seconds: int, seen: Floats | None = None) -> Outcome:
        """Let the job run, and stop it when it must.

        Args:
            seconds: how many.
            seen: stays as it is: nobody asks for the sinks of an interrupted job.

        Returns:
            The outcome of the whole interval, outages included.
        """
        end, parts = self._now_s + seconds, []
        while self._now_s < end:
            until = min(end, self._outages[0].t_s) if self._outages else end
            if until > self._now_s:
                parts.append(super().advance(until - self._now_s))
                self._now_s = until
            if self._outages and self._outages[0].t_s <= self._now_s:
                self._stop(self._outages.pop(0))
        return Outcome.joined(parts)

    def _stop(self, outage: ReplayedOutage) -> None:
        state, tables = self.state, self.topology.tables
        if state.status[0] == RESTARTING:
            return
        slots = state.parallelism[0] if outage.slots is None else outage.slots
        if state.status[0] == RUNNING or outage.slots is not None:
            state.next_parallelism[0] = np.clip(
                slots, tables.min_parallelism[0], tables.max_parallelism[0]
            )
        state.status[0], state.outage_begun[0] = RESTARTING, self._now_s
        state.phase_left_s[0] = outage.outage_s
        self._read_again(outage.reread_s)

    def _read_again(self, seconds: float) -> None:
        rate_per_s = self.rates[0, min(self._now_s, self.rates.shape[1] - 1)]
        self.state.vertex[0, 0, X.pending] += seconds * float(rate_per_s)


@dataclass(frozen=True, slots=True)
class Replayed:
    """Every second of a replayed run."""

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
        outages: in order of time, not overlapping (see `merge_outages`).
        seed: of the service noise.

    Returns:
        Offered and consumed records, backlog and age of every second.
    """
    length = len(offered_per_s)
    jobs = InterruptedJobs(spec, SimulationOptions(trace=True), outages)
    parallelism = np.full_like(jobs.topology.tables.start_parallelism, slots)
    jobs.reset(np.array([seed]), offered_per_s[None, :], parallelism=parallelism)
    jobs.advance(length)
    down = np.zeros(length, bool)
    for outage in outages:
        down[outage.t_s : outage.t_s + outage.outage_s] = True
    processed, backlog = (jobs.trace[0, :length, at] for at in (TRACE.processed, TRACE.pending))
    return Replayed(
        np.where(down, 0.0, processed),
        backlog,
        np.where(down, np.nan, age_s(offered_per_s, backlog)),
        down,
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
        else:
            end = max(last.t_s + last.outage_s, outage.t_s + outage.outage_s)
            reread_s = max(last.reread_s, outage.reread_s)
            found[-1] = ReplayedOutage(last.t_s, end - last.t_s, outage.slots, reread_s)
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
