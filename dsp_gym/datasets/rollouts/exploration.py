"""Exploration: now and then one vertex takes a random valid move, and how likely that was.

With moves of vertices, with probability epsilon one of the m vertices that can move is drawn, and
for it one of the n distinct configurations that its moves lead to. An action a, where the policy's
own is g, is taken with probability

    (1 - epsilon) [a = g]  +  epsilon / m * sum over v of [a = g everywhere but at v] / n_v

With capacity actions one of the job's n valid choices is drawn, holding among them:

    (1 - epsilon) [a = g]  +  epsilon / n
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np

from dsp_gym.arrays import Bools, Floats, Ints
from dsp_gym.envs import action
from dsp_gym.envs.codec import Codec
from dsp_gym.loop.decision import ScalingDecision
from dsp_gym.loop.snapshot import MetricsSnapshot

_STREAM = zlib.crc32(b"exploration")


class Explorer(Protocol):
    """Replaces some of a policy's decisions."""

    def __call__(
        self, step: int, snapshot: MetricsSnapshot, decision: ScalingDecision
    ) -> tuple[ScalingDecision, Floats]:
        """The decision that is proposed, and the probability (J,) of its action."""


class RandomMoves:
    """The random moves of J episodes; those of one seed are the same in any batch.

    Args:
        epsilon: share of the decisions that explore.
        seeds: one per episode.
        steps: decisions per episode.
        ds2_utilization: target utilization of the move "what DS2 says".
    """

    def __init__(
        self, epsilon: float, seeds: Sequence[int], steps: int, ds2_utilization: float
    ) -> None:
        self.epsilon = epsilon
        self.ds2_utilization = ds2_utilization
        self._draws = _drawn(seeds, steps, 3)  # whether, which vertex, which move

    def __call__(
        self, step: int, snapshot: MetricsSnapshot, decision: ScalingDecision
    ) -> tuple[ScalingDecision, Floats]:
        """The decision that is proposed, and the probability (J,) of its action."""
        if not self.epsilon:
            return decision, np.ones(len(decision))
        moves, memory = action.targets(snapshot, self.ds2_utilization)
        choices = _distinct(moves) * _distinct(memory)  # (J, V)
        can_move = (choices > 1).sum(axis=1)
        parallelism, level = decision.parallelism.copy(), decision.memory_level.copy()
        draws = self._draws[:, step]
        for j in np.flatnonzero((draws[:, 0] < self.epsilon) & (can_move > 0)):
            v = int(np.flatnonzero(choices[j] > 1)[int(draws[j, 1] * can_move[j])])
            levels = np.unique(memory[j, v])
            p, x = divmod(int(draws[j, 2] * choices[j, v]), len(levels))
            parallelism[j, v], level[j, v] = np.unique(moves[j, v])[p], levels[x]
        proposed = replace(decision, parallelism=parallelism, memory_level=level)
        own = action.encode(decision, moves, memory)
        taken = action.encode(proposed, moves, memory)
        return proposed, self._propensity(own != taken, choices, can_move)

    def _propensity(self, differs: Bools, choices: Ints, can_move: Ints) -> Floats:
        """Probability of the actions, (J,), given where (J, V * 2) they differ from the policy's.

        An action differs at one vertex at most, since exploring changes no more.
        """
        share = np.where(choices > 1, 1.0 / choices, 0.0)
        there = np.any(differs.reshape(*choices.shape, 2), axis=2)  # (J, V)
        explored = np.any(there, axis=1)
        # Summed vertex by vertex, so that padding does not change the order.
        through = np.cumsum(np.where(explored[:, None] & ~there, 0.0, share), axis=1)[:, -1]
        own = np.where(explored, 0.0, 1.0 - self.epsilon)
        return np.where(can_move > 0, own + self.epsilon * through / np.maximum(can_move, 1), 1.0)


class RandomCapacities:
    """Random capacity actions of J episodes; those of one seed are the same in any batch.

    Args:
        epsilon: Share of the decisions that explore.
        seeds: One per episode.
        steps: Decisions per episode.
        codec: Of the environment, which looks at the snapshots.
    """

    def __init__(self, epsilon: float, seeds: Sequence[int], steps: int, codec: Codec) -> None:
        self.epsilon = epsilon
        self.codec = codec
        self._draws = _drawn(seeds, steps, 2)  # whether, which choice

    def __call__(
        self, step: int, snapshot: MetricsSnapshot, decision: ScalingDecision
    ) -> tuple[ScalingDecision, Floats]:
        """The decision that is proposed, and the probability (J,) of its action."""
        if not self.epsilon:
            return decision, np.ones(len(decision))
        valid, own = self.codec.masks(snapshot), self.codec.encode(snapshot, decision)
        count, draws = valid.sum(axis=1), self._draws[:, step]
        explores = draws[:, 0] < self.epsilon
        # The n-th valid choice: the first up to which n are valid.
        place = (draws[:, 1] * count).astype(np.int64) + 1
        drawn = (valid.cumsum(axis=1) >= place[:, None]).argmax(axis=1)
        taken = np.where(explores, drawn, own[:, 0])
        other = self.codec.decode(snapshot, taken[:, None])
        there = explores[:, None]
        proposed = replace(
            decision,
            parallelism=np.where(there, other.parallelism, decision.parallelism),
            memory_level=np.where(there, other.memory_level, decision.memory_level),
        )
        meant = np.where(taken == own[:, 0], 1.0 - self.epsilon, 0.0)
        return proposed, meant + self.epsilon / count


def _drawn(seeds: Sequence[int], steps: int, numbers: int) -> Floats:
    """Uniform numbers of each episode, (J, steps, numbers)."""
    streams = [np.random.Philox(key=[seed, _STREAM]) for seed in seeds]
    return np.array([np.random.Generator(stream).random((steps, numbers)) for stream in streams])


def _distinct(targets: Ints) -> Ints:
    """How many different values stand along the last axis, (J, V)."""
    ordered = np.sort(targets, axis=2)
    return np.asarray(1 + (np.diff(ordered, axis=2) != 0).sum(axis=2))
