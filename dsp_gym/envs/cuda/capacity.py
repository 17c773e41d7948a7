"""Capacity actions on the card: the functions of `dsp_gym.envs.capacity`, a job per thread."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import cuda, types

from dsp_gym.arrays import Floats, Ints
from dsp_gym.envs.capacity import action, codec
from dsp_gym.envs.capacity.action import KAPPAS, AimRoom, CapacityTargets
from dsp_gym.envs.capacity.codec import CapacityCodec, CapacityMemory, Looked, LookedAt, LookRoom
from dsp_gym.envs.capacity.load_history import CourseMemory, CourseRows, Means, PeaksAndTroughs
from dsp_gym.envs.config import EnvConfig
from dsp_gym.envs.cuda.codec import CodecThreads, facts_of
from dsp_gym.envs.cuda.tables import SLO
from dsp_gym.loop.rates import traverse
from dsp_gym.loop.snapshot import SnapshotArrays
from dsp_gym.loop.topology import Topology
from dsp_gym.simulation.cuda.device_arrays import (
    DeviceHandle,
    OnCard,
    bytes_of,
    on_card,
    one_per_job,
    shared,
)
from dsp_gym.simulation.cuda.kernels import function_of
from dsp_gym.simulation.cuda.one_job import copy_of_one, hold, of_card, view_of_one
from dsp_gym.sizing import service
from dsp_gym.sizing.arrivals import Counted
from dsp_gym.sizing.caches import Caches
from dsp_gym.sizing.filter import Believed, Doubt, Shares, Times

_SAME_FOR_ALL = ("records_per_s", "contention", "slots", "slot_sharing", "rules")
"""Fields of `Believed` that all jobs share: the prior, and the rules of learning."""


class Aimed(NamedTuple):
    """`CapacityTargets` without its masks, which stand among what an agent is shown."""

    parallelism: Ints  # (J, 1, kappas, V)
    level: Ints  # (J, 1, kappas, V)
    cost: Floats  # (J, 1, kappas)
    obstacle: Ints  # (J, 1)


class CapacityTables(NamedTuple):
    """All that capacity actions remember; each memory (J, 1, ...), but what all jobs share."""

    memory: CapacityMemory
    first: CapacityMemory  # (1, ...) values of a job that begins, before its job file is read
    to: Aimed


class DeviceCapacityCodec:
    """Hold, or the cheapest configuration for a multiple of the present load.

    Args:
        topology: The J jobs.
        config: The environment's.
    """

    outside = "an action is outside its space: 0 holds, 1 to 10 re-target"

    def __init__(self, topology: Topology, config: EnvConfig) -> None:
        self._jobs, self._vertices = len(topology), topology.max_vertices
        # The CPU's codec of one job has the memories' shapes and first values, and the prior.
        one = CapacityCodec(topology.take(np.zeros(1, np.int64)), config.capacity)
        first, jobs, count = one.memory, self._jobs, len(KAPPAS)
        self.observation_size, self.choices = one.observation_size, one.choices
        self._first, rules = first, first.known.rules
        self._places = first.known.times.mean.shape[2]
        self.constants: tuple[object, ...] = (self._vertices, self._places, rules.is_filed)
        knowledge = shared(first.known)
        known = knowledge._replace(
            seen=one_per_job(first.known.seen, jobs),
            times=one_per_job(first.known.times, jobs),
            doubt=one_per_job(first.known.doubt, jobs),
            caches=one_per_job(first.known.caches, jobs),
        )
        own = one_per_job(first.counted, jobs), one_per_job(first.course, jobs)
        self.handle = DeviceHandle(
            CapacityTables(
                CapacityMemory(*own, known),
                CapacityMemory(shared(first.counted), shared(first.course), knowledge),
                Aimed(
                    on_card((jobs, 1, count, self._vertices), np.int64, 0),
                    on_card((jobs, 1, count, self._vertices), np.int64, 0),
                    on_card((jobs, 1, count), np.float64, 0),
                    on_card((jobs, 1), np.int64, 0),
                ),
            )
        )

    @property
    def bytes(self) -> int:
        tables = CapacityTables(*self.handle.arrays)
        counted, course, known = tables.memory
        learned = known.seen, known.times, known.doubt, known.caches
        return bytes_of(counted, course, *learned, tables.to)

    @property
    def first(self) -> OnCard:
        return on_card((self._jobs, 1, self.observation_size), np.float32, 0)

    def threads(self, rated: bool) -> CodecThreads:
        targets_of = view_of_one(CapacityTargets, given=("valid",))
        return CodecThreads(
            _picking(targets_of, self._vertices),
            self._forgetting(),
            self._looking(targets_of, rated),
        )

    def _forgetting(self) -> OnCard:
        """Build the function that forgets a job, and reads its job file."""
        first, is_filed = self._first, self._first.known.rules.is_filed
        start, known_of = function_of(service.start), _knowledge_of()
        counted, rows = copy_of_one(first.counted), copy_of_one(first.course.course)
        means, extremes = copy_of_one(first.course.means), copy_of_one(first.course.extremes)
        seen, times, doubt, caches = (
            copy_of_one(one)
            for one in (
                first.known.seen,
                first.known.times,
                first.known.doubt,
                first.known.caches,
            )
        )

        def forget(model: OnCard, codec: OnCard, begun: OnCard, j: int) -> None:
            mine, given = codec.arrays.memory, codec.arrays.first
            counted(mine.counted, given.counted, j)
            rows(mine.course.course, given.course.course, j)
            means(mine.course.means, given.course.means, j)
            extremes(mine.course.extremes, given.course.extremes, j)
            seen(mine.known.seen, given.known.seen, j)
            times(mine.known.times, given.known.times, j)
            doubt(mine.known.doubt, given.known.doubt, j)
            caches(mine.known.caches, given.known.caches, j)
            if is_filed:
                jobs, files = hold(facts_of(model, j)), hold(model.arrays.t)
                start(begun.arrays.rows[j], jobs, files, hold(known_of(mine.known, j)), 0, 1)

        return of_card(forget)

    def _looking(self, targets_of: OnCard, rated: bool) -> OnCard:
        """Build the function that learns from a snapshot, aims and describes."""
        look, rate = function_of(codec._look), function_of(traverse)
        known_of, counted_of = _knowledge_of(), view_of_one(Counted)
        course_of = view_of_one(
            CourseMemory,
            nested={
                "course": view_of_one(CourseRows),
                "means": view_of_one(Means),
                "extremes": view_of_one(PeaksAndTroughs),
            },
        )
        vertices, places, count = self._vertices, self._places, len(KAPPAS)

        def look_at(
            model: OnCard,
            seen: OnCard,
            now: SnapshotArrays,
            codec: OnCard,
            course: OnCard,
            chosen: OnCard,
            j: int,
        ) -> None:
            e, c, mine = seen.arrays, codec.arrays, codec.arrays.memory
            jobs = hold(facts_of(model, j))
            if rated:
                emitted = cuda.local.array(vertices, types.float64)
                rate(jobs.arrays, now, True, 0, 1, e.rates[j], emitted)
            arrived = cuda.local.array(1, types.float64)
            arrived[0] = np.nan
            room = LookRoom(
                cuda.local.array(places, types.float64),
                AimRoom(
                    cuda.local.array(count, types.float64),
                    cuda.local.array(count, types.boolean),
                    cuda.local.array(count, types.float64),
                ),
                arrived,
            )
            look(
                LookedAt(chosen.arrays.rows[j], course.arrays.weights[j, SLO], True),
                jobs,
                hold(model.arrays.t),
                now,
                hold(
                    CapacityMemory(
                        counted_of(mine.counted, j),
                        course_of(mine.course, j),
                        known_of(mine.known, j),
                    )
                ),
                0,
                1,
                room,
                Looked(targets_of(c.to, j, e.valid[j]), e.observation[j]),
            )

        return cuda.jit(device=True)(look_at)  # which has arrays of a thread


def _picking(targets_of: OnCard, vertices: int) -> OnCard:
    """Build the function that reads an action."""
    pick = function_of(action._pick)

    def pick_capacity(wanted: OnCard, seen: OnCard, codec: OnCard, chosen: OnCard, j: int) -> None:
        w, e = wanted.arrays, seen.arrays
        for v in range(vertices):  # holding, unless a valid choice re-targets
            w.parallelism[j, 0, v] = e.parallelism[j, 0, v]
            w.level[j, 0, v] = e.memory_level[j, 0, v]
        to = targets_of(codec.arrays.to, j, e.valid[j])
        pick(chosen, to, 0, 1, w.parallelism[j], w.level[j])

    return of_card(pick_capacity)


def _knowledge_of() -> OnCard:
    """Build the function that makes the knowledge of a thread's job."""
    nested = {"seen": Shares, "times": Times, "doubt": Doubt, "caches": Caches}
    return view_of_one(
        Believed,
        shared=_SAME_FOR_ALL,
        nested={name: view_of_one(table) for name, table in nested.items()},
    )
