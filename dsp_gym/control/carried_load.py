"""Which of two configurations of a job carries more."""

from __future__ import annotations

from dsp_gym.loop.configuration import Configured
from dsp_gym.loop.plausible import plausible
from dsp_gym.loop.snapshot import MetricsSnapshot
from dsp_gym.loop.topology import Topology
from dsp_gym.sizing.prior import Prior
from dsp_gym.sizing.service import ServiceModel

_WORTH = 0.05
"""Least difference between two configurations that a model tells apart, share of the load."""


class CarriedLoad:
    """Compares configurations of one job by the load that they carry.

    Where one has less of something and more of nothing it carries less. Where it has more of one
    thing and less of another, such as tasks and memory, a service model tells: it starts from the
    job file, and learns from the snapshots.
    """

    def __init__(self) -> None:
        self._model = ServiceModel()
        self._jobs: Topology | None = None

    def warm_up(self, seen: MetricsSnapshot) -> None:
        """Learn from a snapshot on a model of its own: compiled code is loaded before it counts."""
        other = CarriedLoad()
        other.observe(seen)
        other._model.capacity_per_s(seen.topology, seen.parallelism, seen.memory_level)

    def observe(self, seen: MetricsSnapshot) -> None:
        """Learn from a snapshot, (1, V)."""
        if self._jobs is not seen.topology:
            self._jobs = seen.topology
            self._model.reset(seen.topology, Prior.of_files(seen.topology))
        self._model.observe(plausible(seen))

    def is_less(self, one: Configured, other: Configured) -> bool:
        """Find out whether a configuration carries less than another, (1, V) each.

        Returns:
            False also where nothing is known of a vertex.
        """
        jobs = self._jobs
        if jobs is None:
            return False
        tasks = (one.parallelism - other.parallelism)[jobs.mask]
        with_state = jobs.mask & (jobs.tables.stateful[jobs.row] == 1)
        memory = (one.memory_level - other.memory_level)[with_state]
        less, more = (
            (tasks < 0).any() or (memory < 0).any(),
            (tasks > 0).any() or (memory > 0).any(),
        )
        if not (less and more):
            return bool(less)
        carried, before = (
            self._model.capacity_per_s(jobs, each.parallelism, each.memory_level)[0]
            for each in (one, other)
        )
        return bool(carried < (1.0 - _WORTH) * before)  # not where it is NaN
