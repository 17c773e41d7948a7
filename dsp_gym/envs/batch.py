"""A batch of jobs as environments: one step is one decision of every job.

This is the control loop turned inside out: actions come from outside, everything else (snapshot,
guardrails, actuator, outcome) is the same code.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dsp_gym.envs import action, sizing
from dsp_gym.envs.config import EnvConfig
from dsp_gym.envs.observation import ObservationEncoder
from dsp_gym.envs.reward import RewardTerms, reward, reward_terms
from dsp_gym.job.spec import JobSpec
from dsp_gym.loads.sampler import LoadSampler
from dsp_gym.loads.splits import LoadSet, SplitName
from dsp_gym.loop.decision import GuardedDecision, ScalingDecision
from dsp_gym.loop.protocols import Guardrail
from dsp_gym.loop.rates import Ds2Rates, ds2_rates
from dsp_gym.loop.snapshot import MetricsSnapshot
from dsp_gym.loop.topology import Topology
from dsp_gym.simulation.outcome import Outcome
from dsp_gym.simulation.simulated import SimulatedJobs

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

MAX_KEPT_LOADS = 512
"""Generated loads kept for reuse (an hour of seconds each; tens of MiB)."""


class BatchStep(NamedTuple):
    """What one step gives, each (J,) or (J, ...)."""

    observation: NDArray[np.float32]
    reward: Floats
    terminated: Bools
    truncated: Bools
    terms: RewardTerms
    outcome: Outcome
    guarded: GuardedDecision


class AutoscaleBatch:
    """J environments over simulated jobs, advanced together, without autoreset.

    Args:
        specs: the distinct jobs.
        row: (J,) which of them each environment is.
        loads: where episodes take their loads from.
        split: which part of the loads.
        config: clock, start, reward, simulation.
        guardrails: a guardrail (or chain) inside the environment; None: none.
        vertices: room for that many vertices in observation and action; default the largest job's.
        base_dir: where relative trace paths start.
    """

    def __init__(
        self,
        specs: Sequence[JobSpec],
        row: Sequence[int],
        loads: LoadSet,
        split: SplitName = "train",
        config: EnvConfig | None = None,
        guardrails: Guardrail | None = None,
        vertices: int | None = None,
        base_dir: str | Path | None = None,
    ) -> None:
        self.config = config = config or EnvConfig()
        self.split: SplitName = split
        self.sampler = LoadSampler(loads, base_dir)
        self.jobs = SimulatedJobs(Topology.of(specs, row), config.simulation)
        self.topology = self.jobs.topology
        self.guardrails = guardrails
        self.encoder = ObservationEncoder(self.topology, vertices)
        self.vertices = self.encoder.layout.vertices
        tables, rows = self.topology.tables, self.topology.row
        level = tables.start_level[rows]
        ones = np.ones(len(self))
        reference = sizing.sized(
            tables, rows, tables.rate_per_s[rows], config.start_headroom, ones, level
        )
        self.reference_cost_per_s = sizing.cost_per_s(tables, rows, reference, level)
        self._loads: dict[tuple[str, int], Floats] = {}
        self.base_seeds: Ints = np.zeros(len(self), np.int64)
        self.episodes: Ints = np.zeros(len(self), np.int64)
        self.steps: Ints = np.zeros(len(self), np.int64)
        self.load_labels: list[str] = [""] * len(self)
        self._observation = np.zeros((len(self), self.encoder.layout.size), np.float32)
        self._snapshot: MetricsSnapshot | None = None
        self._targets: tuple[Ints, Ints] | None = None
        self._rates: Ds2Rates | None = None

    def __len__(self) -> int:
        return len(self.topology)

    @property
    def snapshot(self) -> MetricsSnapshot:
        """What was seen last."""
        if self._snapshot is None:
            raise RuntimeError("reset() comes first")
        return self._snapshot

    def seed(self, seeds: Ints, mask: Bools | None = None) -> None:
        """Give each environment a new stream of episodes, or those where the mask is True."""
        rows = np.ones(len(self), dtype=bool) if mask is None else mask
        self.base_seeds[rows] = np.asarray(seeds, dtype=np.int64)[rows]
        self.episodes[rows] = 0

    def reset(self, mask: Bools | None = None) -> NDArray[np.float32]:
        """Begin the next episode in all environments, or where the mask is True."""
        rows = np.arange(len(self)) if mask is None else np.flatnonzero(mask)
        if not len(rows):
            return self._observation
        seconds = self.config.episode_s
        rates = np.zeros((len(self), seconds))
        seeds = np.zeros(len(self), np.int64)
        factor, spread = np.ones(len(self)), np.ones(len(self))
        levels = np.full(len(self), -1, np.int64)
        ranges = self.config.randomise
        reference = self.topology.tables.rate_per_s[self.topology.row]
        for j in rows:
            seeds[j] = _episode_seed(int(self.base_seeds[j]), int(self.episodes[j]))
            draw = np.random.Generator(np.random.Philox(key=int(seeds[j])))
            factor[j] = _log_uniform(draw.random(), ranges.service_factor)
            scale = _log_uniform(draw.random(), ranges.load_scale)
            spread[j] = 2.0 ** (2 * draw.random() - 1)
            levels[j] = draw.integers(0, 8)
            rates[j], self.load_labels[j] = self._load(int(draw.integers(0, 2**31)))
            rates[j] *= scale * reference[j]
        self._start(rows, seeds, rates, factor, spread, levels, mask)
        self.episodes[rows] += 1
        return self._begin(rows, mask)

    def reset_with(
        self, seeds: Ints, rates: Floats, labels: Sequence[str] | None = None
    ) -> NDArray[np.float32]:
        """Begin an episode of given seeds (J,) and loads (J, seconds) in records/s everywhere."""
        ones = np.ones(len(self))
        rows = np.arange(len(self))
        self.load_labels = list(labels or [""] * len(self))
        self._start(rows, seeds, rates, ones, ones, np.zeros(len(self), np.int64), None)
        return self._begin(rows, None)

    def step(self, actions: Ints) -> BatchStep:
        """Take actions (J, V * 2) and advance every job by one decision interval."""
        if self._targets is None:
            raise RuntimeError("reset() comes first")
        size = self.topology.max_vertices * 2
        return self.enact(action.decode(actions[:, :size], *self._targets))

    def enact(self, decision: ScalingDecision) -> BatchStep:
        """The same with the decision itself."""
        snapshot = self.snapshot
        if self.guardrails is None:
            guarded = GuardedDecision.unchanged(decision)
        else:
            guarded = self.guardrails.allow(snapshot, decision)
            self.guardrails.commit(snapshot, guarded)
        self.jobs.apply(guarded)
        outcome = self.jobs.advance(self.config.interval_s)
        self.steps += 1
        terms = reward_terms(outcome, self.reference_cost_per_s)
        terminated = outcome.pending_s > self.config.give_up_backlog_s
        truncated = self.steps * self.config.interval_s >= self.config.episode_s
        self._look()
        self._observation = self.encoder.encode(self.snapshot, self._rates)
        return BatchStep(
            self._observation, reward(terms, self.config.reward), terminated,
            truncated & ~terminated, terms, outcome, guarded,
        )  # fmt: skip

    def action_masks(self) -> Bools:
        """Valid actions, (J, V * 10): for each vertex 7 moves, then 3 of memory."""
        if self._targets is None:
            raise RuntimeError("reset() comes first")
        valid = action.masks(*self._targets)
        missing = self.vertices - self.topology.max_vertices
        if missing:
            padding = np.zeros((len(self), missing, action.LOGITS), dtype=bool)
            padding[..., [action.HOLD, action.MOVES]] = True
            valid = np.concatenate([valid, padding.reshape(len(self), -1)], axis=1)
        return valid

    def encode_decision(self, decision: ScalingDecision) -> Ints:
        """The valid action (J, V * 2) nearest to a decision."""
        if self._targets is None:
            raise RuntimeError("reset() comes first")
        nearest = action.encode(decision, *self._targets)
        missing = self.vertices - self.topology.max_vertices
        return np.pad(nearest, ((0, 0), (0, 2 * missing)))

    def save(self) -> dict[str, Any]:
        """Everything the future depends on; `load` of it continues exactly."""
        return {
            "jobs": self.jobs.save(),
            "encoder": self.encoder.save(),
            "guardrails": None if self.guardrails is None else self.guardrails.state(),
            "base_seeds": self.base_seeds.copy(),
            "episodes": self.episodes.copy(),
            "steps": self.steps.copy(),
            "labels": list(self.load_labels),
            "observation": self._observation.copy(),
        }

    def load(self, saved: dict[str, Any]) -> None:
        """Go on from `save()`."""
        self.jobs.load(saved["jobs"])
        self.encoder.load(saved["encoder"])
        if self.guardrails is not None:
            self.guardrails.restore(saved["guardrails"])
        self.base_seeds, self.episodes = saved["base_seeds"].copy(), saved["episodes"].copy()
        self.steps, self.load_labels = saved["steps"].copy(), list(saved["labels"])
        self._observation = saved["observation"].copy()
        self._look()

    def _load(self, index: int) -> tuple[Floats, str]:
        """The multipliers of a draw, kept for the next time its cell comes up."""
        cell = self.sampler.draw(self.split, index)
        key = (cell.name, cell.seed)
        kept = self._loads.get(key)
        if kept is None:
            kept = self.sampler.rates(cell, self.config.episode_s)
            if len(self._loads) < MAX_KEPT_LOADS:
                self._loads[key] = kept
        return kept, cell.label

    def _start(
        self, rows: Ints, seeds: Ints, rates: Floats, factor: Floats, spread: Floats, levels: Ints,
        mask: Bools | None,
    ) -> None:  # fmt: skip
        tables, row, how = self.topology.tables, self.topology.row, self.config.start
        level = tables.start_level[row].copy()
        parallelism = tables.start_parallelism[row].copy()
        if how == "random":
            drawn = (levels % tables.levels[row])[:, None]
            level = np.where(tables.stateful[row] == 1, drawn, level)
        if how != "job":
            first = rates[:, : self.config.interval_s].mean(axis=1)
            parallelism[rows] = sizing.sized(
                tables, row[rows], first[rows], self.config.start_headroom, factor[rows],
                level[rows],
            )  # fmt: skip
        if how == "random":
            parallelism = np.maximum(1, np.rint(parallelism * spread[:, None])).astype(np.int64)
        self.jobs.reset(
            seeds, rates, parallelism=parallelism, memory_level=level, service_factor=factor,
            mask=mask,
        )  # fmt: skip

    def _begin(self, rows: Ints, mask: Bools | None) -> NDArray[np.float32]:
        self.steps[rows] = 0
        self.encoder.reset(mask)
        if self.guardrails is not None:
            self.guardrails.reset(self.topology, self.jobs.state.seed, mask)
        self._look()
        fresh = (
            self.encoder.encode(self.snapshot, self._rates)
            if mask is None
            else self._encode_rows(rows)
        )
        self._observation = fresh
        return self._observation

    def _encode_rows(self, rows: Ints) -> NDArray[np.float32]:
        """Observations with only some rows encoded anew: encoding advances the encoder's memory."""
        kept = self.encoder.save()
        fresh = self.encoder.encode(self.snapshot, self._rates)
        after = self.encoder.save()
        for name, before in kept.items():
            before[rows] = after[name][rows]
        self.encoder.load(dict(kept))
        observation = self._observation.copy()
        observation[rows] = fresh[rows]
        return observation

    def _look(self) -> None:
        self._snapshot = self.jobs.snapshot()
        self._rates = ds2_rates(self._snapshot)
        self._targets = action.targets(self._snapshot, self.config.ds2_utilization, self._rates)


def _episode_seed(seed: int, episode: int) -> int:
    """63 bits from a base seed and the number of the episode (SplitMix64)."""
    z = (seed * 0x9E3779B97F4A7C15 + (episode + 1) * 0xD1B54A32D192ED03) & (2**64 - 1)
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & (2**64 - 1)
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & (2**64 - 1)
    return (z ^ (z >> 31)) >> 1


def _log_uniform(u: float, bounds: tuple[float, float]) -> float:
    low, high = bounds
    return float(low * (high / low) ** u)
