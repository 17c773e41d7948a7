"""What a thread does for its job: the functions of the simulation, called with a batch of one.

Nothing is computed here. `advance`, `ask`, `observe` and the others are those of
`dsp_gym.simulation`, compiled for the card; these functions give them their arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numba import cuda, types

from dsp_gym.arrays import Floats, Ints
from dsp_gym.simulation import kernel, measure, rescaling, stride
from dsp_gym.simulation.cuda.device_arrays import OnCard
from dsp_gym.simulation.cuda.kernels import function_of, stand_in
from dsp_gym.simulation.cuda.one_job import hold, view_of_one
from dsp_gym.simulation.kernel import Room
from dsp_gym.simulation.sampling import NOISE_SAMPLES
from dsp_gym.simulation.state import SEEN, TRACE, Model, SimulationState, X


class Loads(NamedTuple):
    """The loads of a batch, and what `advance` fills in beside the state."""

    rates: Floats  # (loads, 1, T) records/s in each second
    load: Ints  # (J,) row of a job's load
    outcome: Floats  # (J, 1, len(OUTCOME))
    no_trace: Floats  # (1, 0, len(TRACE))
    not_seen: Floats  # (1, 0, len(SEEN))


class WantedConfigurations(NamedTuple):
    """The configurations asked for, and what became of it."""

    parallelism: Ints  # (J, 1, V)
    level: Ints  # (J, 1, V)
    answer: Ints  # (J, 1)


class Threads(NamedTuple):
    """Functions of one thread, each of handles and the thread's job."""

    advance: Callable[..., None]  # model, state, loads, seconds, j
    ask: Callable[..., None]  # model, state, wanted, loads, j
    observe: Callable[..., None]  # model, state, view, table of the snapshot, j
    restart: Callable[..., None]  # model, state, j


_SHARED = ("t", "fixed", "par")
"""Fields of the model that all jobs share."""

NO_TRACE = np.zeros((1, 0, len(TRACE)))
NOT_SEEN = np.zeros((1, 0, len(SEEN)))


def threads(vertices: int) -> Threads:
    """Build the functions of a thread for jobs of at most so many vertices.

    Args:
        vertices: V. A constant in the machine code: arrays in a thread's own memory have no other.

    Returns:
        The functions.
    """
    # Threads of a warp take the same branch or wait for each other: a quiet stride of one job is
    # no gain while its neighbour takes its seconds one by one, and its code costs registers.
    stand_in(stride.quiet_stride, _never_quiet)
    ask, packing = function_of(rescaling.ask), (2 * vertices, 3)
    observe, start = function_of(measure.observe), function_of(rescaling.start)
    model_of, state_of = view_of_one(Model, shared=_SHARED), view_of_one(SimulationState)

    def ask_one(model: OnCard, state: OnCard, wanted: OnCard, loads: OnCard, j: int) -> None:
        runs = cuda.local.array(packing, types.float64)
        w, given = wanted.arrays, loads.arrays
        ask(
            hold(model_of(model.arrays, j)),
            hold(state_of(state.arrays, j)),
            w.parallelism[j],
            w.level[j],
            0,
            1,
            w.answer[j],
            given.outcome[j],
            runs,
        )

    def observe_one(model: OnCard, state: OnCard, view: OnCard, seen: OnCard, j: int) -> None:
        observe(hold(model_of(model.arrays, j)), hold(state_of(state.arrays, j)), view, 0, 1, seen)

    def restart_one(model: OnCard, state: OnCard, first: OnCard, j: int) -> None:
        runs = cuda.local.array(packing, types.float64)
        start(hold(model_of(model.arrays, j)), hold(state_of(state.arrays, j)), first, runs)

    own = ask_one, observe_one, restart_one
    return Threads(_advancing(vertices), *map(cuda.jit(device=True), own))


def _advancing(vertices: int) -> Callable[..., None]:
    """Build the function that lets a thread's job run."""
    advance = function_of(kernel.advance)
    model_of = view_of_one(Model, shared=_SHARED)
    state_with = view_of_one(SimulationState, given=("vertex",))
    lanes, noisy = (vertices + 1, len(stride.Q), stride.LANES), (3, vertices * NOISE_SAMPLES)
    columns = len(X)
    own, packing = (1, vertices, columns), (2 * vertices, 3)

    def advance_one(model: OnCard, state: OnCard, loads: OnCard, seconds: int, j: int) -> None:
        # The columns of the vertices are read and written in every second: in the thread's own
        # memory, which caches keep, the whole takes an eighth less time.
        q = cuda.local.array(lanes, types.float64)
        noise = cuda.local.array(noisy, types.float64)
        runs = cuda.local.array(packing, types.float64)
        x = cuda.local.array(own, types.float64)
        kept = state.arrays.vertex[j]
        for v in range(vertices):
            for i in range(columns):
                x[0, v, i] = kept[0, v, i]
        mine, given = state_with(state.arrays, j, x), loads.arrays
        advance(
            hold(model_of(model.arrays, j)),
            hold(mine),
            given.rates[given.load[j]],
            seconds,
            0,
            1,
            given.outcome[j],
            given.no_trace,
            given.not_seen,
            Room(q, noise, runs),
        )
        for v in range(vertices):
            for i in range(columns):
                kept[0, v, i] = x[0, v, i]

    return cuda.jit(device=True)(advance_one)


def _never_quiet(
    n: int,
    c: OnCard,
    upstream: OnCard,
    in_share: OnCard,
    x: OnCard,
    load: OnCard,
    tick: int,
    q: OnCard,
) -> bool:
    """Stand for `quiet_stride`: both ways give the same state, bit for bit."""
    return False
