"""Observations, actions and masks of decisions, as the environment of either action gives them.

Segments advance side by side, one call of the environment's own code for each step of them all.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from dsp_gym.arrays import Bools, Floats32, Ints
from dsp_gym.datasets.encoding import EncodingConfig
from dsp_gym.datasets.transitions import lists_of
from dsp_gym.envs import action
from dsp_gym.envs.capacity.action import CHOICES
from dsp_gym.envs.capacity.codec import CapacityCodec
from dsp_gym.envs.observation import ObservationEncoder
from dsp_gym.loop.decision import ScalingDecision
from dsp_gym.loop.rates import Ds2Rates, ds2_rates
from dsp_gym.loop.snapshot import MetricsSnapshot


class Encoded(NamedTuple):
    """N rows, of which K become transitions."""

    observation: Floats32  # (N, size)
    action: Ints  # (K, parts)
    mask: Bools  # (K, choices of all parts)


def encode(
    rows: pa.Table,
    seen: MetricsSnapshot,
    begins: Bools,
    kept: Ints,
    config: EncodingConfig,
    columns: int,
) -> Encoded:
    """Encode rows of one job, in the order of run, segment and step.

    Args:
        rows: Those K that become transitions, with what was decided.
        seen: The snapshots of all N rows.
        begins: (N,) where a segment begins.
        kept: (K,) places of `rows` among the N.
        config: The environment encoded for.
        columns: V, the room for vertices.

    Returns:
        Observations of all rows, actions and masks of those that are kept.
    """
    if config.env.action == "capacity":
        return _capacities(rows, seen, begins, kept, config)
    rates = ds2_rates(seen)
    chosen, valid = _moves(rows, seen.take(kept), rates, kept, config, columns)
    return Encoded(_observations(seen, rates, begins, columns), chosen, valid)


class _Step(NamedTuple):
    """One step of all segments; one that has ended repeats its last row, unheard."""

    rows: Ints  # (J,) places among the N
    going: Bools  # (J,)


def _side_by_side(begins: Bools) -> Iterator[_Step]:
    starts = np.flatnonzero(begins)
    lengths = np.diff(np.append(starts, len(begins)))
    for t in range(int(lengths.max(initial=0))):
        yield _Step(starts + np.minimum(t, lengths - 1), t < lengths)


def _observations(
    snapshot: MetricsSnapshot, rates: Ds2Rates, begins: Bools, columns: int
) -> Floats32:
    """Observations (N, size) of moves of vertices."""
    encoder = ObservationEncoder(snapshot.topology.take(np.flatnonzero(begins)), columns)
    found = np.empty((len(begins), encoder.layout.size), np.float32)
    for rows, going in _side_by_side(begins):
        now = encoder.encode(snapshot.take(rows), rates.take(rows))
        found[rows[going]] = now[going]
    return found


def _moves(
    rows: pa.Table,
    seen: MetricsSnapshot,
    rates: Ds2Rates,
    kept: Ints,
    config: EncodingConfig,
    columns: int,
) -> tuple[Ints, Bools]:
    """Actions (K, 2 V) and masks (K, 10 V), padded to V as the environment pads them."""
    vertices = seen.topology.max_vertices
    reached = action.targets(seen, config.env.ds2_utilization, rates.take(kept))
    missing = columns - vertices
    chosen = np.pad(action.encode(_decision(rows, seen), *reached), ((0, 0), (0, 2 * missing)))
    _take_over(rows, chosen[:, : 2 * vertices], other=1)
    padding = np.zeros((len(kept), missing, action.LOGITS), dtype=bool)
    padding[..., [action.HOLD, action.MOVES]] = True
    valid = np.concatenate([action.masks(*reached), padding.reshape(len(kept), -1)], axis=1)
    return chosen, valid


def _capacities(
    rows: pa.Table, seen: MetricsSnapshot, begins: Bools, kept: Ints, config: EncodingConfig
) -> Encoded:
    """Capacity actions, with the service model that was learned up to each decision."""
    n, starts = len(begins), np.flatnonzero(begins)
    codec = CapacityCodec(seen.topology.take(starts), config.env.capacity)
    price = np.full(len(starts), config.env.reward.slo)
    found = Encoded(
        np.empty((n, codec.observation_size), np.float32),
        np.zeros((n, 1), np.int64),
        np.zeros((n, CHOICES), dtype=bool),
    )
    # A row without a decision, such as a run's last, holds; nobody reads it.
    wanted, memory = seen.arrays.parallelism.copy(), seen.arrays.memory_level.copy()
    decided = _decision(rows, seen.take(kept))
    wanted[kept], memory[kept] = decided.parallelism, decided.memory_level
    for at, going in _side_by_side(begins):
        now = seen.take(at)
        decision = ScalingDecision(wanted[at], memory[at], ("",) * len(at))
        heard = at[going]
        found.observation[heard] = codec.look(now, price)[going]
        found.action[heard] = codec.encode(now, decision)[going]
        found.mask[heard] = codec.masks(now)[going]
    chosen = found.action[kept]
    _take_over(rows, chosen, other=2 * seen.topology.max_vertices)
    return Encoded(found.observation, chosen, found.mask[kept])


def _decision(rows: pa.Table, seen: MetricsSnapshot) -> ScalingDecision:
    """What was proposed, (K, V)."""
    shape = (len(rows), seen.topology.max_vertices)
    return ScalingDecision(
        lists_of(rows["proposed_parallelism"], shape, np.int64, rows),
        lists_of(rows["proposed_memory_level"], shape, np.int64, rows),
        ("",) * len(rows),
    )


def _take_over(rows: pa.Table, chosen: Ints, other: int) -> None:
    """Write the environment's own actions where there are any of this kind.

    Args:
        rows: With the column `action`.
        chosen: (K, parts), the nearest to what was proposed; written.
        other: Parts of an action of the other kind, whose proposal counts.
    """
    taken = rows["action"].combine_chunks()
    parts = taken.value_lengths().fill_null(other).to_numpy(zero_copy_only=False)
    told = np.flatnonzero(parts != other)
    if len(told):
        places = pa.array(told)
        shape = (len(told), chosen.shape[1])
        chosen[told] = lists_of(taken.take(places), shape, np.int64, rows.take(places))
