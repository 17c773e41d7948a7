"""The choices of a plan: configurations, their capacity, and their lateness at a load.

Where no window fires, the frontier contains all of it. Results that a firing window releases at
once are late where they come faster than the vertices behind can take them, and block the window
meanwhile: neither is part of the maximal sustainable throughput. Such jobs are therefore simulated,
every candidate under a few steady loads, without noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from baselines.clairvoyant.frontier import IN_TIME, Frontier, frontier, released_every_s, thinned
from dsp_gym.arrays import Bools, Floats, Ints
from dsp_gym.backends.simulated.jobs import SimulatedJobs
from dsp_gym.job.capacity import mst_per_s
from dsp_gym.job.sizing import cost_per_s
from dsp_gym.loop.topology import Topology
from dsp_gym.simulation.options import MechanismSwitches, SimulationOptions

_LOADS = np.array([0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.97])
"""Shares of the maximal sustainable throughput at which a configuration is tried."""

_SLOWER = (1.0, 4.0, math.inf)
"""Time to work off a firing, as multiples of the latency bound; one frontier for each."""

_KEEPS_UP = 0.995
"""Least share of arrivals that has to be processed; the rest may lie in windows."""


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """N configurations of one job."""

    parallelism: Ints  # (N, V)
    level: Ints  # (N, V)
    cost_per_s: Floats  # (N,) money
    capacity_per_s: Floats  # (N,) job load it keeps up with
    load_per_s: Floats  # (N, G) loads with a known lateness, rising
    late: Floats  # (N, G) share of the seconds that are late there

    def __len__(self) -> int:
        return len(self.cost_per_s)

    def late_share(self, load_per_s: Floats) -> Floats:
        """Interpolate how often firings alone make a second late.

        Returns:
            (K, N) share of the seconds of each step, 0..1.
        """
        if not self.late.any():
            return np.zeros((len(load_per_s), len(self)))
        columns = [
            np.interp(load_per_s, load, late)
            for load, late in zip(self.load_per_s, self.late, strict=True)
        ]
        return np.stack(columns, axis=1)

    def with_one_more(self, other: Candidates, row: int) -> Candidates:
        """Add one row of others.

        Returns:
            N + 1 configurations.
        """
        return Candidates(
            *(
                np.concatenate([getattr(self, name), getattr(other, name)[row : row + 1]])
                for name in Candidates.__slots__
            )
        )


def candidates(jobs: Topology, k: int, most: int) -> tuple[Candidates, float]:
    """Choose the configurations to plan with.

    Args:
        jobs: The batch.
        k: Row of the job in its tables.
        most: Largest number of configurations.

    Returns:
        The configurations, and the share by which a load may cost more for those left out.
    """
    if not released_every_s(jobs.tables, k).any():
        kept, gap = thinned(frontier(jobs.tables, k), most)
        return described(jobs, k, kept.parallelism, kept.level), gap
    in_time_s = 1.0 + IN_TIME * float(jobs.tables.slo_s[k])
    full = [frontier(jobs.tables, k, in_time_s * slower) for slower in _SLOWER]
    parallelism, level = _distinct(full)
    gap = 0.0
    if len(parallelism) > most:
        few = [thinned(one, max(2, most // len(full))) for one in full]
        parallelism, level = _distinct([kept for kept, _ in few])
        gap = max(share for _, share in few)
    return described(jobs, k, parallelism, level), gap


def _distinct(frontiers: list[Frontier]) -> tuple[Ints, Ints]:
    """Return parallelism and level of every configuration, each once."""
    parallelism = np.concatenate([one.parallelism for one in frontiers])
    level = np.concatenate([one.level for one in frontiers])
    _, first = np.unique(np.hstack([parallelism, level]), axis=0, return_index=True)
    kept = np.sort(first)
    return parallelism[kept], level[kept]


def described(jobs: Topology, k: int, parallelism: Ints, level: Ints) -> Candidates:
    """Compute cost, capacity and lateness of configurations of one job.

    Returns:
        The N configurations, in the given order.
    """
    tables, size = jobs.tables, len(parallelism)
    rates = np.array([mst_per_s(tables, k, p, x) for p, x in zip(parallelism, level, strict=True)])
    costs = cost_per_s(tables, np.full(size, k), parallelism, level)
    loads = rates[:, None] * _LOADS
    late = np.zeros((size, len(_LOADS)))
    if released_every_s(tables, k).any():
        late, keeps_up = _tried(jobs, k, parallelism, level, loads)
        # Capacity is the load before the first at which it does not keep up.
        last = np.where(keeps_up.all(axis=1), len(_LOADS), keeps_up.argmin(axis=1))
        carried = np.take_along_axis(loads, np.maximum(last - 1, 0)[:, None], axis=1)[:, 0]
        rates = np.where(last == len(_LOADS), rates, carried)
    return Candidates(parallelism, level, costs, rates, loads, late)


def _tried(
    jobs: Topology, k: int, parallelism: Ints, level: Ints, loads: Floats
) -> tuple[Floats, Bools]:
    """Simulate steady loads: share of late seconds, and whether it keeps up, (N, G) each."""
    size, count = loads.shape
    spec = jobs.specs[k]
    topology = Topology.of([spec], [0] * (size * count))
    options = SimulationOptions(mechanisms=MechanismSwitches(service_noise=False))
    simulated = SimulatedJobs(topology, options)
    columns = slice(0, topology.max_vertices)
    # A minute and two firings to settle, then three firings to measure.
    cycle_s = math.ceil(float(released_every_s(jobs.tables, k).max()))
    simulated.reset(
        np.zeros(size * count, np.int64),
        loads.reshape(-1, 1),
        parallelism=np.repeat(parallelism[:, columns], count, axis=0),
        memory_level=np.repeat(level[:, columns], count, axis=0),
    )
    simulated.advance(60 + 2 * cycle_s)
    outcome = simulated.advance(max(60, 3 * cycle_s))
    late = outcome.slo_s / outcome.seconds
    keeps_up = outcome.processed >= _KEEPS_UP * outcome.arrived
    return late.reshape(size, count), keeps_up.reshape(size, count)
