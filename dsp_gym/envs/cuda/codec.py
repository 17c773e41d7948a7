"""An agent's view of the jobs on the card, and the meaning of its actions: one codec of two.

Both call the functions of the CPU's codec; what they remember of the jobs stays on the card.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np
from numba import cuda, types

from dsp_gym.arrays import Floats, Ints
from dsp_gym.envs import action, encode_snapshot
from dsp_gym.envs.action import MEMORY_MOVES, MOVES, MoveTargets
from dsp_gym.envs.config import EnvConfig
from dsp_gym.envs.encode_snapshot import LookArrays
from dsp_gym.envs.features import (
    JOB_MEMORY_COLUMNS,
    JOB_VALUES,
    VERTEX_MEMORY_COLUMNS,
    VERTEX_VALUES,
    EncoderMemory,
    EncoderRoom,
)
from dsp_gym.envs.observation import ObservationEncoder
from dsp_gym.loop.snapshot import SnapshotArrays
from dsp_gym.loop.topology import JobFacts, Topology
from dsp_gym.simulation.cuda.device_arrays import (
    DeviceHandle,
    DeviceView,
    OnCard,
    bytes_of,
    on_card,
    with_job_axis,
)
from dsp_gym.simulation.cuda.kernels import function_of
from dsp_gym.simulation.cuda.one_job import hold, of_card, view_of_one

_facts_with = view_of_one(JobFacts, shared=JobFacts._fields[1:], given=("row",))


def _facts_of(model: OnCard, j: int) -> OnCard:
    m = model.arrays
    return _facts_with(m.t, j, m.row[j])


facts_of = of_card(_facts_of)
"""The facts of a thread's job: columns of the tables of its simulation."""


class CodecThreads(NamedTuple):
    """Functions of one thread; each takes handles, and the thread's job last."""

    pick: Callable[..., None]  # wanted, seen, codec, actions (1, parts), j
    forget: Callable[..., None]  # model, codec, environments that begin, j
    look: Callable[..., None]  # model, seen, snapshot, codec, course, environments, j


class DeviceCodec(Protocol):
    """Observations, actions and masks of J jobs on the card."""

    observation_size: int

    choices: tuple[int, ...]
    """Number of choices of each part of an action; of every second part the same."""

    outside: str
    """Error of an action outside the space."""

    handle: DeviceHandle
    """All that the codec's threads read and write beside `EnvSight`."""

    constants: tuple[object, ...]
    """Constants in their machine code."""

    @property
    def bytes(self) -> int:
        """Bytes of the arrays that every job has for itself."""

    @property
    def first(self) -> OnCard:
        """Observations (J, 1, size) with what stays the same."""

    def threads(self, rated: bool) -> CodecThreads:
        """Build the functions of a thread.

        Args:
            rated: Whether guardrails read DS2's rates.

        Returns:
            The functions.
        """


class VertexTables(NamedTuple):
    """Targets of the moves, the encoder's memory, and room for the inputs of features.

    `vertex` and `job` are other names for the memory of `vertex_values` and `job_values`.
    """

    to: Ints  # (J, 1, V, moves) parallelism after each move
    up: Ints  # (J, 1, V, moves of memory)
    memory_vertex: Floats  # (J, 1, V, columns) of the encoder
    memory_job: Floats  # (J, 1, columns)
    vertex_values: Floats  # (J, values)
    vertex: Floats  # (J, 1) records
    job_values: Floats  # (J, values)
    job: Floats  # (J, 1) records


class DeviceVertexCodec:
    """A move of parallelism and one of memory for every vertex.

    Args:
        topology: The J jobs.
        every: (n,) the first row of each distinct job.
        config: The environment's.
    """

    outside = "an action is outside its space: moves 0..6, memory moves 0..2"

    def __init__(self, topology: Topology, every: Ints, config: EnvConfig) -> None:
        self._topology, self._encoder = topology, ObservationEncoder(topology.take(every))
        self._vertices, jobs = topology.max_vertices, len(topology)
        self.observation_size = self._encoder.layout.size
        self.choices = (MOVES, MEMORY_MOVES) * self._vertices
        self._job_at = self._encoder.layout.job.start
        self.constants: tuple[object, ...] = (self._vertices, self._job_at)
        self._utilization = float(config.ds2_utilization)
        f8, vertices = np.float64, self._vertices

        def own(*shape: int, dtype: type = f8) -> OnCard:
            return on_card((jobs, *shape), dtype, 0)

        values = [on_card((jobs, len(names)), f8) for names in (VERTEX_VALUES, JOB_VALUES)]
        named: list[OnCard] = [
            DeviceView(one, (jobs, 1), [(name, f8) for name in names])
            for one, names in zip(values, (VERTEX_VALUES, JOB_VALUES), strict=True)
        ]
        self.handle = DeviceHandle(
            VertexTables(
                own(1, vertices, MOVES, dtype=np.int64),
                own(1, vertices, MEMORY_MOVES, dtype=np.int64),
                own(1, vertices, len(VERTEX_MEMORY_COLUMNS)),
                own(1, len(JOB_MEMORY_COLUMNS)),
                values[0],
                named[0],
                values[1],
                named[1],
            )
        )

    @property
    def bytes(self) -> int:
        return bytes_of(self.handle.arrays)

    @property
    def first(self) -> OnCard:
        row = self._topology.row
        return with_job_axis(self._encoder._fixed[row], np.arange(len(row)))

    def threads(self, rated: bool) -> CodecThreads:
        look, mark = function_of(encode_snapshot._look), function_of(action._mark)
        pick, vertices = function_of(action._pick), self._vertices
        room_with = view_of_one(EncoderRoom, given=("emitted",))
        utilization, job_at = self._utilization, self._job_at

        def pick_moves(wanted: OnCard, seen: OnCard, codec: OnCard, moves: OnCard, j: int) -> None:
            w, c = wanted.arrays, codec.arrays
            pick(moves, c.to[j], c.up[j], 0, 1, w.parallelism[j], w.level[j])

        def forget(model: OnCard, codec: OnCard, begun: OnCard, j: int) -> None:
            c = codec.arrays
            for v in range(vertices):
                for i in range(c.memory_vertex.shape[3]):
                    c.memory_vertex[j, 0, v, i] = np.nan
            for i in range(c.memory_job.shape[2]):
                c.memory_job[j, 0, i] = np.nan

        def look_at(
            model: OnCard,
            seen: OnCard,
            now: SnapshotArrays,
            codec: OnCard,
            course: OnCard,
            chosen: OnCard,
            j: int,
        ) -> None:
            e, c = seen.arrays, codec.arrays
            emitted = cuda.local.array(vertices, types.float64)
            look(
                chosen.arrays.rows[j],
                hold(facts_of(model, j)),
                now,
                utilization,
                0,
                1,
                hold(EncoderMemory(c.memory_vertex[j], c.memory_job[j], job_at)),
                hold(room_with(c, j, emitted)),
                LookArrays(e.rates[j], MoveTargets(c.to[j], c.up[j]), e.observation[j]),
            )
            mark(c.to[j], c.up[j], 0, 1, e.valid[j])

        # Where numba simulates a card, only functions of its own decorator have arrays of a thread.
        looked = cuda.jit(device=True)(look_at)
        return CodecThreads(of_card(pick_moves), of_card(forget), looked)
