"""Capacity actions and their observation over a batch of jobs, with all their memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from dsp_gym.arrays import Bools, Floats, Floats32, Ints
from dsp_gym.compiling import njit
from dsp_gym.envs.capacity import action
from dsp_gym.envs.capacity.action import CHOICES, CapacityTargets, aim
from dsp_gym.envs.capacity.features import CAPACITY_FEATURES, CapacityInputs, describe
from dsp_gym.envs.capacity.load_history import CourseMemory, LoadCourse, follow
from dsp_gym.envs.config import CapacityConfig
from dsp_gym.loop.decision import ScalingDecision
from dsp_gym.loop.per_job_state import Kept, Parts
from dsp_gym.loop.protocols import Mask
from dsp_gym.loop.snapshot import MetricsSnapshot, SnapshotArrays
from dsp_gym.loop.topology import JobFacts, Topology
from dsp_gym.numba_handles import Handle, direct
from dsp_gym.sizing.arrivals import Arrivals
from dsp_gym.sizing.prior import Prior
from dsp_gym.sizing.service import Believed, ServiceModel


class Looked(NamedTuple):
    """The results that a codec keeps with a snapshot of all jobs."""

    to: CapacityTargets
    observation: Floats32  # (J, features); rows not asked for hold zeros


class CapacityCodec(Kept):
    """Hold, or the cheapest configuration for a multiple of the present load.

    Args:
        topology: The jobs; their rows may change between episodes.
        config: Configuration of the service model.
    """

    def __init__(self, topology: Topology, config: CapacityConfig) -> None:
        self.observation_size = len(CAPACITY_FEATURES)
        self.choices: tuple[int, ...] = (CHOICES,)
        self._topology = topology
        filed = config.prior == "job-file"
        self._prior = Prior.of_files(topology) if filed else Prior.none(topology)
        self._arrivals, self._course = Arrivals(), LoadCourse()
        self._model = ServiceModel(config.sizing)
        self._kept = Parts(arrivals=self._arrivals, model=self._model, course=self._course)
        self._to = CapacityTargets.room(len(topology), topology.max_vertices)
        self._every = np.arange(len(topology))
        self.reset()

    def reset(self, mask: Mask | None = None) -> None:
        self._model.reset(self._topology, self._prior, mask)
        self._arrivals.reset(self._topology, mask)
        self._course.reset(self._topology, mask)

    def look(
        self, snapshot: MetricsSnapshot, late_price: Floats, rows: Ints | None = None
    ) -> Floats32:
        # Arrivals since the last snapshot, of which `_look` gives each job its own.
        arrived = self._arrivals.observe(snapshot)
        if rows is None:
            # Rows that have just begun have an empty window, which teaches the model nothing.
            self._model.observe(snapshot)
            self._to = CapacityTargets.room(len(snapshot), snapshot.topology.max_vertices)
        else:
            self._to = self._to.copied()
        out = np.zeros((len(snapshot), self.observation_size), np.float32)
        _look(
            self._every if rows is None else np.ascontiguousarray(rows, np.int64),
            snapshot.topology.handle,
            snapshot.arrays,
            arrived,
            late_price,
            self._model.believed,
            self._course.followed,
            self._to,
            out,
        )
        # The key names the codec: an environment and a policy in it look at the same snapshot.
        snapshot.keep(("capacity", id(self)), Looked(self._to, out))
        return out if rows is None else out[rows]

    def looked(self, snapshot: MetricsSnapshot) -> Looked | None:
        """Return the results of this codec on a snapshot.

        Returns:
            None where it has not looked at the snapshot.
        """
        kept = snapshot.kept(("capacity", id(self)))
        return kept if isinstance(kept, Looked) else None

    def targets(self, snapshot: MetricsSnapshot) -> CapacityTargets:
        """Return the targets on a snapshot that was looked at; else on the last one.

        Returns:
            Targets of all J jobs. Do not write into the arrays.
        """
        kept = self.looked(snapshot)
        return self._to if kept is None else kept.to

    def present_per_s(self) -> Floats:
        """Return the load that multiples refer to.

        Returns:
            (J,) records/s; NaN: none was seen yet.
        """
        return self._course.present_per_s()

    def masks(self, snapshot: MetricsSnapshot) -> Bools:
        return self.targets(snapshot).valid.copy()

    def decode(self, snapshot: MetricsSnapshot, actions: Ints) -> ScalingDecision:
        return action.decode(actions, self.targets(snapshot), *_running(snapshot))

    def encode(self, snapshot: MetricsSnapshot, decision: ScalingDecision) -> Ints:
        found = np.empty((len(snapshot), 1), np.int64)
        action.nearest(
            snapshot.topology.handle,
            snapshot.arrays,
            self._model.believed,
            self.targets(snapshot),
            np.ascontiguousarray(decision.parallelism, np.int64),
            np.ascontiguousarray(decision.memory_level, np.int64),
            found[:, 0],
        )
        return found

    def save(self) -> dict[str, Any]:
        return {"state": self.state(), "targets": self._to.copied()._asdict()}

    def load(self, saved: Mapping[str, Any]) -> None:
        self.restore(saved["state"])
        parts = saved["targets"]
        self._to = CapacityTargets(*(np.array(parts[n]) for n in CapacityTargets._fields))


def _running(snapshot: MetricsSnapshot) -> tuple[Ints, Ints]:
    """Return the running configuration, (J, V) each."""
    return snapshot.arrays.parallelism, snapshot.arrays.memory_level


@direct
@njit(cache=True, nogil=True)
def _look(
    rows: Ints,
    facts: Handle[JobFacts],
    shown: SnapshotArrays,
    arrived: Floats,
    late_price: Floats,
    model: Handle[Believed],
    course: Handle[CourseMemory],
    to: CapacityTargets,
    out: Floats32,
) -> None:
    """Take in the given rows of a snapshot, fill in their targets, and describe them."""
    t, known, load = facts.arrays, model.arrays, course.arrays
    seen = CapacityInputs(shown, known, load, to)
    for place in range(rows.shape[0]):
        j = rows[place]
        follow(t, shown, arrived[j], load, j)
        aim(t, shown, known, load, j, to)
        describe(t, seen, late_price[j], j, out[j])
