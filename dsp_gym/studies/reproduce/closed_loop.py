"""A policy in closed loop with one simulated job under constant or stepped load."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dsp_gym.arrays import Floats
from dsp_gym.backends.simulated.jobs import SimulatedJobs
from dsp_gym.control.loop import ControlLoop
from dsp_gym.job.capacity import mst
from dsp_gym.job.spec import JobSpec
from dsp_gym.loop.outcome import Outcome
from dsp_gym.loop.topology import Topology
from dsp_gym.policies.config import PolicyConfig
from dsp_gym.policies.registry import make
from dsp_gym.simulation.options import SimulationOptions

__all__ = ["TasksAndLevels", "ClosedLoopRun", "can_lose", "closed_loop"]

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
