"""An agent that decides on capacities: from logits to a decision, with NumPy alone.

Acting is a hazard per minute: the agent learned how often to act, not at which minute. A deployed
agent therefore acts as soon as the probability of acting exceeds a threshold chosen on validation
jobs, and takes the multiple it rates best.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from agents.folder import PolicyDocument
from agents.holding import HOLD_BLIND, HOLD_DOWN, HOLD_NOT_FINITE, HOLD_UNSEEN
from agents.network import FORBIDDEN, NetworkShape, Weights, logits, members_of, not_finite
from agents.recurrent import LstmMemory
from dsp_gym.arrays import Bools, Floats, Floats32, Ints
from dsp_gym.envs.capacity.action import (
    BLIND,
    DOWN,
    FILLING,
    HOLD,
    KAPPAS,
    READY,
    SETTLED,
    UNCOUNTED,
    UNSEEN,
)
from dsp_gym.envs.capacity.codec import CapacityCodec
from dsp_gym.envs.capacity.features import CAPACITY_FEATURES
from dsp_gym.envs.config import CapacityConfig
from dsp_gym.loop.decision import ScalingDecision
from dsp_gym.loop.protocols import Mask, State
from dsp_gym.loop.snapshot import MetricsSnapshot
from dsp_gym.loop.topology import Topology

DISAGREEMENT = "disagreement"
"""Name of the disagreement of an ensemble's members, listed beside the observation's features."""

_LEAST = np.float32(1e-6)
"""Bound of probabilities of acting, away from 0 and 1, before their log-odds are taken."""

_WORDS = {
    READY: "hold",
    DOWN: HOLD_DOWN,
    BLIND: HOLD_BLIND,
    FILLING: "hold: less than a fifth of the metrics window is covered",
    UNCOUNTED: "hold: no load has been counted yet",
    UNSEEN: HOLD_UNSEEN,
    SETTLED: "hold: every multiple of the load leads to the running configuration",
}


def chosen(values: Floats32, masks: Bools, act_above: float | None) -> tuple[Ints, Floats32]:
    """Choose from logits.

    Args:
        values: (J, K) logits.
        masks: (J, K) valid choices; holding is always valid.
        act_above: Probability of acting above which the best multiple is taken; None: the best
            choice is taken, holding included.

    Returns:
        (J,) choices, and (J,) probability of acting.
    """
    allowed = np.where(masks, values, FORBIDDEN)
    # A softmax with its largest logit subtracted, so that `exp` cannot overflow.
    odds = np.exp(allowed - allowed.max(axis=1, keepdims=True))
    acting = 1 - odds[:, HOLD] / odds.sum(axis=1)
    if act_above is None:
        return np.argmax(allowed, axis=1), np.asarray(acting, np.float32)
    best = 1 + np.argmax(allowed[:, 1:], axis=1)
    acts = (acting > act_above) & masks[:, 1:].any(axis=1)
    return np.where(acts, best, HOLD), np.asarray(acting, np.float32)


def agreed(values: Floats32, masks: Bools) -> tuple[Floats32, Floats32]:
    """Merge the answers of an ensemble into one: the mean of its probabilities.

    Args:
        values: (M, J, K) logits of the M members; M = 1 for a single network.
        masks: (J, K) valid choices; holding is always valid.

    Returns:
        (J, K) logits, unchanged for a single network; and (J,) disagreement of the members about
        acting: the standard deviation of its log-odds, 0 where holding is the only valid choice.
    """
    if len(values) == 1:
        return values[0], np.zeros(len(masks), np.float32)
    allowed = np.where(masks, values, FORBIDDEN)
    odds = np.exp(allowed - allowed.max(axis=2, keepdims=True))
    odds /= odds.sum(axis=2, keepdims=True)
    acting = np.clip(1 - odds[:, :, HOLD], _LEAST, 1 - _LEAST)
    spread = np.log(acting / (1 - acting)).std(axis=0)
    # The square of the least probability: a choice that no member takes stays far below all others.
    together = np.log(np.maximum(odds.mean(axis=0), _LEAST * _LEAST))
    differ = np.where(masks[:, 1:].any(axis=1), spread, np.float32(0))
    return together.astype(np.float32), differ.astype(np.float32)


class CapacityActor:
    """A deployed network, or an ensemble, over observations and masks.

    Args:
        weights: Weights of the actor.
        shape: Shape of the network.
        act_above: Probability of acting above which it acts.
    """

    def __init__(self, weights: Weights, shape: NetworkShape, act_above: float) -> None:
        self.members, self.shape = members_of(weights, shape), shape
        self.act_above = act_above

    def predict(
        self, observation: Floats32, *, deterministic: bool, action_masks: Bools
    ) -> tuple[Ints, None]:
        """Decide through the interface of Stable-Baselines3's policies.

        Args:
            observation: (J, size) observations.
            deterministic: Ignored: a deployed agent has no randomness.
            action_masks: (J, K) valid choices.

        Returns:
            (J, 1) actions, and no hidden state.
        """
        values, _ = self.answer(observation, action_masks)
        return chosen(values, action_masks, self.act_above)[0][:, None], None

    def answer(self, observation: Floats32, masks: Bools) -> tuple[Floats32, Floats32]:
        """Evaluate the members and merge their answers.

        Returns:
            Logits and disagreement, as `agreed` returns them.
        """
        said = [logits(one, self.shape, observation) for one in self.members]
        return agreed(np.stack(said), masks)


class CapacityAgent:
    """A trained agent over snapshots: the part of `agents.trained` for capacity actions.

    Args:
        document: Document of the policy folder.
        weights: Weights of the actor.
        late_price: Price of a late minute.
    """

    def __init__(self, document: PolicyDocument, weights: Weights, late_price: float) -> None:
        self.document, self.late_price = document, late_price
        self._members = members_of(weights, document.network)
        self._memory = LstmMemory(weights, document.network)
        ranges = document.observation.quantiles
        more = () if len(self._members) == 1 else (DISAGREEMENT,)
        self._names = (*CAPACITY_FEATURES, *more)
        limits = [ranges.get(name, (-np.inf, np.inf)) for name in self._names]
        self._low, self._high = np.array(limits, np.float32).T
        self._codec: CapacityCodec | None = None
        self._price: Floats = np.zeros(0)

    def reset(self, jobs: Topology, mask: Mask | None) -> None:
        """Restart all rows, or only those where the mask is True."""
        self._memory.reset(len(jobs), mask)
        if mask is not None and self._codec is not None:
            self._codec.reset(mask)
            return
        self._codec = CapacityCodec(jobs, self.document.action.sizing or CapacityConfig())
        self._price = np.full(len(jobs), self.late_price)

    def decide(self, snapshot: MetricsSnapshot, explain: bool) -> tuple[ScalingDecision, Floats32]:
        """Hold, or re-target.

        Args:
            snapshot: Metrics of the J jobs.
            explain: Whether to write reasons.

        Returns:
            The (J, V) decision with each job's reason, and the (J,) probability of the choice,
            holding or acting.
        """
        codec = self._ready
        observation = codec.look(snapshot, self._price)
        known, masks = self.document.action, codec.masks(snapshot)
        with np.errstate(over="ignore", invalid="ignore"):  # the reason below says so
            values, differ = self._answer(observation, masks, self._memory.see(observation))
        lost = not_finite(values)
        self._memory.forget_where(lost)
        values = np.where(lost[:, None], np.float32(0), values)
        if self.document.network.whole and not known.masked:
            # Models of other libraries may have been trained without masks: an invalid choice may
            # then be the best one, and the environment holds for it.
            best, acting = chosen(values, np.ones_like(masks), known.act_above)
            choices = np.where(masks[np.arange(len(best)), best], best, HOLD)
        else:
            choices, acting = chosen(values, masks, known.act_above)
        choices = np.where(lost, HOLD, choices)
        wanted = codec.decode(snapshot, choices[:, None])
        reasons = [""] * len(snapshot)
        if explain:
            loads, obstacle = codec.present_per_s(), codec.targets(snapshot).obstacle
            reasons = [
                _reason(int(choice), float(load), int(what))
                for choice, load, what in zip(choices, loads, obstacle, strict=True)
            ]
            # Without a measured load the features are placeholders, not evidence of distance from
            # training.
            seen = (obstacle == READY) | (obstacle == SETTLED)
            for job, names in self._far(observation, differ, seen).items():
                reasons[job] += f"; outside the range of its training: {', '.join(names)}"
        for job in np.flatnonzero(lost).tolist():
            reasons[job] = HOLD_NOT_FINITE
        decision = ScalingDecision(wanted.parallelism, wanted.memory_level, tuple(reasons))
        return decision, np.where(choices == HOLD, 1 - acting, acting)

    def features(self, snapshot: MetricsSnapshot) -> Mapping[str, Floats32]:
        """Encode a snapshot without changing the memory of past ones.

        Returns:
            Each feature by name, (J,).
        """
        codec = self._ready
        # Encoding advances filters over time: the codec's state is put back afterwards.
        if (looked := codec.looked(snapshot)) is not None:
            observation = looked.observation
        else:
            saved = codec.save()
            observation = codec.look(snapshot, self._price)
            codec.load(saved)
        if len(self._members) == 1:
            return _by_name(observation)
        _, differ = self._answer(observation, codec.masks(snapshot))
        return {**_by_name(observation), DISAGREEMENT: differ}

    def state(self) -> State:
        """Return everything the next decision depends on.

        Returns:
            JSON values; empty before the first reset.
        """
        return {} if self._codec is None else {**self._codec.state(), **self._memory.state()}

    def restore(self, state: State) -> None:
        """Continue from the values of `state()`."""
        self._ready.restore(state)
        self._memory.restore(state)

    def _answer(
        self, observation: Floats32, masks: Bools, remembered: Floats32 | None = None
    ) -> tuple[Floats32, Floats32]:
        """Return the logits of the choices and the members' disagreement, as `agreed` does."""
        network = self.document.network
        said = [logits(one, network, observation, remembered) for one in self._members]
        return agreed(np.stack(said), masks)

    def _far(self, observation: Floats32, differ: Floats32, seen: Bools) -> dict[int, list[str]]:
        """Collect features outside their training range, by job; jobs without any are omitted."""
        if len(self._members) > 1:
            observation = np.column_stack([observation, differ])
        flags = ((observation < self._low) | (observation > self._high)) & seen[:, None]
        found: dict[int, list[str]] = {}
        for job, place in zip(*map(np.ndarray.tolist, np.nonzero(flags)), strict=True):
            found.setdefault(job, []).append(self._names[place])
        return found

    @property
    def _ready(self) -> CapacityCodec:
        if self._codec is None:
            raise RuntimeError("reset() comes first")
        return self._codec


def _by_name(observation: Floats32) -> dict[str, Floats32]:
    return {name: observation[:, i] for i, name in enumerate(CAPACITY_FEATURES)}


def _reason(choice: int, load_per_s: float, obstacle: int) -> str:
    if choice == HOLD:
        return _WORDS[obstacle]
    return f"load {load_per_s:,.4g}/s: to what carries {KAPPAS[choice - 1]:g} times as much"
