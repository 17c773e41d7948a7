"""The action: per vertex a move of parallelism and a move of memory.

Moves of parallelism: hold, -25 %, -1, +1, +25 %, x2, DS2's parallelism. Moves of memory: keep, -1,
+1. Invalid moves are masked: beyond bounds, memory a vertex cannot have, vertices that are padding
or fixed, and all moves but holding while the job is not running or its metrics are unknown.
"""

from __future__ import annotations

import math
from typing import NamedTuple, cast

import numpy as np

from dsp_gym.arrays import Bools, Floats, Ints
from dsp_gym.compiling import njit
from dsp_gym.loop.decision import ScalingDecision
from dsp_gym.loop.rates import RATES, Ds2Rates, ds2_rates
from dsp_gym.loop.snapshot import JOB, RUNNING, MetricsSnapshot, SnapshotArrays
from dsp_gym.loop.topology import JobFacts
from dsp_gym.numba_handles import direct

HOLD, MINUS_QUARTER, MINUS_ONE, PLUS_ONE, PLUS_QUARTER, DOUBLE, DS2 = range(7)
KEEP, LEVEL_DOWN, LEVEL_UP = range(3)
MOVES, MEMORY_MOVES = 7, 3
LOGITS = MOVES + MEMORY_MOVES
MOVE_NAMES = ("hold", "-25 %", "-1", "+1", "+25 %", "x2", "what DS2 says")
MEMORY_NAMES = ("keep", "-1", "+1")


class MoveTargets(NamedTuple):
    """The configuration after every move; an invalid move leads to the same as holding."""

    parallelism: Ints  # (J, V, 7) after each move
    level: Ints  # (J, V, 3) after each memory move


def targets(
    snapshot: MetricsSnapshot, ds2_utilization: float, rates: Ds2Rates | None = None
) -> MoveTargets:
    """Compute the configuration after every move, once for each snapshot.

    Args:
        snapshot: the snapshot decided on.
        ds2_utilization: target utilization of DS2's move.
        rates: DS2's rates of this snapshot, where they are not `ds2_rates(snapshot)`.

    Returns:
        The configurations, (J, V, moves). Do not write into the arrays.
    """
    if rates is not None:
        return _led(snapshot, ds2_utilization, rates)
    # Kept with the snapshot: masks, decoding and encoding of one step share it.
    key = kept_as(ds2_utilization)
    known = snapshot.kept(key)
    if known is None:
        return snapshot.keep(key, _led(snapshot, ds2_utilization, ds2_rates(snapshot)))
    return cast(MoveTargets, known)


def kept_as(ds2_utilization: float) -> object:
    """Return the key under which a snapshot keeps its `targets`.

    Returns:
        One key for each target utilization of DS2's move.
    """
    return ("targets", ds2_utilization)


def room(snapshot: MetricsSnapshot) -> MoveTargets:
    """Allocate room for the targets of a snapshot.

    Returns:
        Targets that are not filled in yet.
    """
    shape = snapshot.arrays.parallelism.shape
    return MoveTargets(
        np.empty((*shape, MOVES), np.int64), np.empty((*shape, MEMORY_MOVES), np.int64)
    )


def _led(snapshot: MetricsSnapshot, ds2_utilization: float, rates: Ds2Rates) -> MoveTargets:
    led = room(snapshot)
    facts, seen = snapshot.topology.facts, snapshot.arrays
    _lead(facts, seen, rates.block, ds2_utilization, 0, len(snapshot), led)
    return led


def masks(parallelism: Ints, level: Ints) -> Bools:
    """Mark the valid moves; holding is always valid.

    Returns:
        (J, V * 10) flags: for each vertex 7 moves, then 3 of memory.
    """
    jobs, vertices, _ = parallelism.shape
    valid = np.empty((jobs, vertices * LOGITS), dtype=bool)
    _mark(parallelism, level, 0, jobs, valid)
    return valid


def decode(actions: Ints, parallelism: Ints, level: Ints) -> ScalingDecision:
    """Decode actions (J, V * 2), given `targets`; an invalid move holds.

    Returns:
        The decision they mean, (J, V), without reasons.
    """
    jobs, vertices, _ = parallelism.shape
    if actions.shape != (jobs, 2 * vertices):
        raise ValueError(f"actions have shape {actions.shape}, expected ({jobs}, {2 * vertices})")
    wanted, memory = np.empty((jobs, vertices), np.int64), np.empty((jobs, vertices), np.int64)
    moves = np.ascontiguousarray(actions, dtype=np.int64)
    _pick(moves, parallelism, level, 0, jobs, wanted, memory)
    return ScalingDecision(wanted, memory, ("",) * jobs)


def encode(decision: ScalingDecision, parallelism: Ints, level: Ints) -> Ints:
    """Find the valid action nearest to a decision, such as a teacher's.

    Returns:
        Actions (J, V * 2).
    """
    # Ratios of tasks count, so distances are of logarithms.
    wanted = np.log2(np.maximum(decision.parallelism, 1))[..., None]
    near = np.abs(np.log2(np.maximum(parallelism, 1)) - wanted)  # padding has no tasks
    memory = np.abs(level - decision.memory_level[..., None])
    pairs = np.stack([near.argmin(axis=2), memory.argmin(axis=2)], axis=2)
    return pairs.reshape(len(decision), -1)


@njit(cache=True, nogil=True, borrows=True)
def lead(
    t: JobFacts,
    seen: SnapshotArrays,
    rates: Floats,
    utilization: float,
    low: int,
    high: int,
    led: MoveTargets,
) -> None:
    """Fill in the targets of jobs low..high-1.

    Of vertex v of job j (job file k), `to` are the tasks after each move, `up` the levels, and
    `least` and `most` the bounds of its parallelism.
    """
    parallelism, level = led
    optimal = rates[RATES.optimal]
    for j in range(low, high):
        k = t.row[j]
        free = seen.status[j] == RUNNING and seen.job[JOB.window_fill, j] > 0.0
        for v in range(t.kind.shape[1]):
            p, x = seen.parallelism[j, v], seen.memory_level[j, v]
            to, up = parallelism[j, v], level[j, v]
            # All moves start as holding; those below replace the ones that apply.
            for m in range(MOVES):
                to[m] = p
            for m in range(MEMORY_MOVES):
                up[m] = x
            if t.kind[k, v] < 1 or not free:  # padding and sources hold
                continue
            least, most = t.min_parallelism[k, v], t.max_parallelism[k, v]
            if least < most:
                to[MINUS_QUARTER] = min(p - 1, math.floor(p * 0.75))
                to[MINUS_ONE] = p - 1
                to[PLUS_ONE] = p + 1
                to[PLUS_QUARTER] = max(p + 1, math.ceil(p * 1.25))
                to[DOUBLE] = 2 * p
                # DS2's fractional parallelism has no headroom: divide by the target utilization.
                ds2 = optimal[j, v] / utilization
                if not math.isnan(ds2):
                    to[DS2] = math.ceil(min(ds2, 1e6) - 1e-9)
                for m in range(MOVES):
                    to[m] = min(max(to[m], least), most)
            if t.stateful[k, v] == 0:  # no state: memory is of no use
                up[LEVEL_DOWN] = -1
                up[LEVEL_UP] = min(max(x, 0), t.levels[k] - 1)
            else:
                up[LEVEL_DOWN] = max(x - 1, 0)
                up[LEVEL_UP] = min(x + 1, t.levels[k] - 1)


_lead = direct(lead)


@direct
@njit(cache=True, nogil=True)
def _mark(parallelism: Ints, level: Ints, low: int, high: int, valid: Bools) -> None:
    """Mark the moves of vertices v of jobs low..high-1 as valid where they differ from holding."""
    for j in range(low, high):
        for v in range(parallelism.shape[1]):
            own = valid[j, v * LOGITS : (v + 1) * LOGITS]
            for m in range(MOVES):
                own[m] = m == HOLD or parallelism[j, v, m] != parallelism[j, v, HOLD]
            for m in range(MEMORY_MOVES):
                own[MOVES + m] = m == KEEP or level[j, v, m] != level[j, v, KEEP]


@direct
@njit(cache=True, nogil=True)
def _pick(
    actions: Ints, parallelism: Ints, level: Ints, low: int, high: int, wanted: Ints, memory: Ints
) -> None:
    for j in range(low, high):
        for v in range(wanted.shape[1]):
            move, memory_move = actions[j, 2 * v], actions[j, 2 * v + 1]
            if not (0 <= move < MOVES and 0 <= memory_move < MEMORY_MOVES):
                # Raised from compiled code: numba keeps the type and the constant text of an
                # exception.
                raise ValueError("an action is outside its space: moves 0..6, memory moves 0..2")
            wanted[j, v] = parallelism[j, v, move]
            memory[j, v] = level[j, v, memory_move]
