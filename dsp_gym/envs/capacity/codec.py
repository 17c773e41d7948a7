"""Capacity actions and their observation over a batch of jobs, with all their memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from dsp_gym.arrays import Bools, Floats, Floats32, Ints
from dsp_gym.compiling import njit
from dsp_gym.envs.capacity import action
from dsp_gym.envs.capacity.action import CHOICES, AimRoom, CapacityTargets, aim
from dsp_gym.envs.capacity.features import CAPACITY_FEATURES, CapacityInputs, describe
from dsp_gym.envs.capacity.load_history import CourseMemory, LoadCourse, follow
from dsp_gym.envs.config import CapacityConfig
from dsp_gym.job.tables import JobTables
from dsp_gym.loop.decision import ScalingDecision
from dsp_gym.loop.per_job_state import Kept, Parts
from dsp_gym.loop.protocols import Mask
from dsp_gym.loop.snapshot import MetricsSnapshot, SnapshotArrays
from dsp_gym.loop.topology import JobFacts, Topology
from dsp_gym.numba_handles import Handle, direct, handle
from dsp_gym.simulation.rows import over_rows
from dsp_gym.sizing.arrivals import Arrivals, Counted, arrived
from dsp_gym.sizing.filter import learn
from dsp_gym.sizing.prior import Prior
from dsp_gym.sizing.service import Believed, ServiceModel


class Looked(NamedTuple):
    """The results that a codec keeps with a snapshot of all jobs."""

    to: CapacityTargets
    observation: Floats32  # (J, features); rows not asked for hold zeros


class CapacityMemory(NamedTuple):
    """What a codec remembers of its jobs."""

    counted: Counted
    course: CourseMemory
    known: Believed


class LookedAt(NamedTuple):
    """The jobs of a look at a snapshot."""

    chosen: Bools  # (J,) others stay as they are
    late_price: Floats  # (J,) price of a late minute
    learns: bool  # whether they teach the model: not where they have just begun


class LookRoom(NamedTuple):
    """Scratch of a look at jobs, one per thread but for the rates."""

    gain: Floats
    aim: AimRoom
    rates: Floats  # (J,) NaN; filled with the arrivals since the last snapshot


class CapacityCodec(Kept):
    """Hold, or the cheapest configuration for a multiple of the present load.

    Args:
        topology: The jobs; their rows may change between episodes.
        config: Configuration of the service model.
        threads: Number of threads the jobs are split over.
    """

    def __init__(self, topology: Topology, config: CapacityConfig, threads: int = 1) -> None:
        self.observation_size = len(CAPACITY_FEATURES)
        self.choices: tuple[int, ...] = (CHOICES,)
        self._topology = topology
        filed = config.prior == "job-file"
        self._prior = Prior.of_files(topology) if filed else Prior.none(topology)
        self._arrivals, self._course = Arrivals(), LoadCourse()
        self._model = ServiceModel(config.sizing)
        self._kept = Parts(arrivals=self._arrivals, model=self._model, course=self._course)
        self._to = CapacityTargets.room(len(topology), topology.max_vertices)
        self._threads = threads
        self._parts: tuple[Handle[Any], ...] = ()
        self.reset()

    def reset(self, mask: Mask | None = None) -> None:
        self._model.reset(self._topology, self._prior, mask)
        self._arrivals.reset(self._topology, mask)
        self._course.reset(self._topology, mask)

    def look(
        self, snapshot: MetricsSnapshot, late_price: Floats, rows: Ints | None = None
    ) -> Floats32:
        jobs = len(snapshot)
        if rows is None:
            chosen = np.ones(jobs, np.bool_)
            self._to = CapacityTargets.room(jobs, snapshot.topology.max_vertices)
        else:
            chosen = np.zeros(jobs, np.bool_)
            chosen[rows] = True
            self._to = self._to.copied()
        out = np.zeros((jobs, self.observation_size), np.float32)
        facts, tables = snapshot.topology.handle, self._model.tables
        memory = self._held()
        rates, made = np.full(jobs, np.nan), Looked(self._to, out)
        at = LookedAt(chosen, late_price, rows is None)

        def work(low: int, high: int) -> None:
            room = LookRoom(self._model.room_to_learn(), AimRoom.of(), rates)
            _look(at, facts, tables, snapshot.arrays, memory, low, high, room, made)

        over_rows(work, jobs, self._threads)
        # The key names the codec: an environment and a policy in it look at the same snapshot.
        snapshot.keep(("capacity", id(self)), made)
        return out if rows is None else out[rows]

    @property
    def memory(self) -> CapacityMemory:
        """All that is remembered."""
        return self._held().arrays

    def _held(self) -> Handle[CapacityMemory]:
        """Return the memory as one argument of compiled code."""
        parts = self._arrivals.counted, self._course.followed, self._model.believed
        # A part has another handle as soon as its arrays are replaced.
        if parts != self._parts:
            counted, course, known = parts
            whole = CapacityMemory(counted.arrays, course.arrays, known.arrays)
            self._parts, self._memory = parts, handle(whole)
        return self._memory

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
    at: LookedAt,
    facts: Handle[JobFacts],
    tables: Handle[JobTables],
    shown: SnapshotArrays,
    memory: Handle[CapacityMemory],
    low: int,
    high: int,
    room: LookRoom,
    made: Looked,
) -> None:
    """Take in the chosen ones of jobs low..high-1, fill in their targets, and describe them."""
    t, own = facts.arrays, memory.arrays
    known, load = own.known, own.course
    to, out = made
    seen = CapacityInputs(shown, known, load, to)
    for j in range(low, high):
        if not at.chosen[j]:
            continue
        arrived(t, shown, own.counted, j, j + 1, room.rates)
        if at.learns:
            learn(t, tables.arrays, shown, known, j, j + 1, room.gain)
        follow(t, shown, room.rates[j], load, j)
        aim(t, shown, known, load, j, to, room.aim)
        describe(t, seen, at.late_price[j], j, out[j])
