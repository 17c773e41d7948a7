"""The goals of tuning: cost and lateness, or the reward, always on training loads.

Cost is counted in the smallest configuration that carries the job's reference rate, so that cheap
and expensive jobs count alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal, Protocol

import numpy as np

from dsp_gym.arrays import Floats
from dsp_gym.control.loop import LoopStep
from dsp_gym.envs.reward import RewardWeights, reward, reward_terms
from dsp_gym.errors import ConfigError
from dsp_gym.evaluation.batch_of_runs import batch_of, benchmark_job, play
from dsp_gym.evaluation.config import BenchmarkConfig, Entrant
from dsp_gym.evaluation.fingerprint import fingerprint
from dsp_gym.experiments.experiment import ExperimentConfig
from dsp_gym.job.sizing import reference_cost_per_s
from dsp_gym.loop.outcome import Outcome
from dsp_gym.loop.topology import Topology
from dsp_gym.policies.config import PolicyConfig, with_params
from dsp_gym.policies.registry import resolve

Goal = Literal["cost", "reward"]
OnSteps = Callable[[int, int], None]
"""Called with the steps taken and the steps in all."""

LABEL = "candidate"


@dataclass(frozen=True, slots=True)
class Score:
    """The score of parameters: lower values are better."""

    value: float  # cost, or the reward with its sign changed
    late: float  # share of the time; 0 where the value alone counts
    metrics: Mapping[str, float]

    def order(self, level: float | None) -> tuple[float, float]:
        """Sort key at a level of lateness: what keeps to it first, then by value."""
        return 0.0 if level is None else max(self.late - level, 0.0), self.value


class Objective(Protocol):
    """Judges parameters."""

    @property
    def decisions(self) -> int:
        """Decisions that scoring takes, so that a search knows how large its trials are."""

    @property
    def levels(self) -> tuple[float, ...]:
        """Shares of the time late, rising, at which costs are compared; none: the value counts."""

    def score(self, params: Mapping[str, object], told: OnSteps) -> Score:
        """Score parameters on training loads; the same ones have the same score on any machine.

        Returns:
            The value, the lateness, and the metrics behind both.
        """

    def about(self) -> dict[str, object]:
        """Facts that the score depends on, for the record of where parameters come from.

        Returns:
            JSON values by name, written into the provenance of a tuned file.
        """


def training_benchmark(config: BenchmarkConfig | ExperimentConfig, seeds: int) -> BenchmarkConfig:
    """Return the training part of a benchmark or an experiment: its training jobs, loads and seeds.

    Args:
        config: The benchmark or experiment.
        seeds: Seeds of each load, the first ones.

    Returns:
        The benchmark without its other splits.
    """
    whole = config.benchmark() if isinstance(config, ExperimentConfig) else config
    split = whole.loads.train
    if split is None:
        raise ConfigError("there are no loads to tune on", key="loads", remedy="Add loads.train.")
    return whole.model_copy(
        update={
            "jobs": whole.train_jobs or whole.jobs,
            "train_jobs": (),
            "split": "train",
            "seeds": seeds if split.seeds is None else min(seeds, len(split.seeds)),
            "reference": None,
            "clairvoyant": False,
            "bootstrap": 100,  # the least; intervals are not looked at
        }
    )


class PolicyObjective:
    """Runs a policy with given parameters.

    Args:
        policy: A name or file; what the file sets stays as it is unless it is tuned.
        name: Name of the benchmark or experiment.
        config: The benchmark or experiment.
        seeds: Seeds per load.
        levels: Shares of the time late at which costs are compared; none: the benchmark's bound.
        measures: Fingerprint of the frontier that the benchmark is the training part of; None: it
            stands for itself.
    """

    def __init__(
        self,
        policy: str,
        name: str,
        config: BenchmarkConfig | ExperimentConfig,
        *,
        seeds: int,
        levels: tuple[float, ...] = (),
        measures: str | None = None,
    ) -> None:
        self.label, self.base, _ = resolve(policy)
        # An experiment's reward has a weight for lateness; a benchmark compares at equal lateness.
        self.goal: Goal = "reward" if isinstance(config, ExperimentConfig) else "cost"
        whole = config.benchmark() if isinstance(config, ExperimentConfig) else config
        self._name, self._fingerprint = name, measures or fingerprint(whole)
        self.benchmark = training_benchmark(config, seeds)
        self.levels: tuple[float, ...] = ()
        if self.goal == "cost":
            self.levels = tuple(sorted(levels)) or (self.benchmark.max_slo_share,)
        self._weights = (
            config.env.reward if isinstance(config, ExperimentConfig) else RewardWeights()
        )
        self._unit = _reference_cost_per_s(self.benchmark)
        entrant = Entrant(policy=self.base, name=LABEL)
        self._batch = batch_of(self.benchmark, entrant)

    @property
    def decisions(self) -> int:
        """Decisions of all runs of a trial."""
        return len(self._batch) * (self.benchmark.episode_s // self.benchmark.interval_s)

    def config(self, params: Mapping[str, object]) -> PolicyConfig:
        """Return the policy with these parameters.

        Returns:
            The policy's configuration; parameters that are not searched keep the base's values.
        """
        return PolicyConfig(policy=self.base.policy, params=with_params(self.base.params, params))

    def score(self, params: Mapping[str, object], told: OnSteps) -> Score:
        earned: list[float] = []

        def observe(_label: str, taken: int, steps: int, step: LoopStep) -> None:
            outcome = step.outcome
            if self.goal == "reward" and isinstance(outcome, Outcome):
                rows = np.repeat(self._unit, len(outcome.cost) // len(self._unit))
                earned.append(float(reward(reward_terms(outcome, rows), self._weights).mean()))
            told(taken, steps)

        entrant = Entrant(policy=self.config(params), name=LABEL)
        cells = play(replace(self._batch, entrant=entrant), observe).cells
        unit = dict(zip(dict.fromkeys(cell.job for cell in cells), self._unit, strict=True))
        seconds = self.benchmark.episode_s
        cost = np.mean([c.metrics["cost"] / (unit[c.job] * seconds) for c in cells])
        late = float(np.mean([c.metrics["slo_share"] for c in cells]))
        metrics = {
            "cost": float(cost),
            "slo_share": late,
            "rescales_per_day": float(
                np.mean([c.metrics["rescales"] for c in cells]) * 86_400 / seconds
            ),
        }
        if self.goal == "cost":
            return Score(float(cost), late, metrics)
        metrics["reward"] = float(np.mean(earned))
        return Score(-metrics["reward"], 0.0, metrics)

    def about(self) -> dict[str, object]:
        b = self.benchmark
        bound = {"lateness": list(self.levels)} if self.levels else {}
        weights = {"weights": self._weights.model_dump()} if self.goal == "reward" else {}
        return {
            "tuned_on": self._name,
            "fingerprint": self._fingerprint,
            "goal": self.goal,
            **bound,
            **weights,
            "base": self.base.model_dump(include={"policy", "params"}),
            "split": b.split,
            "jobs": list(b.jobs),
            "loads": [entry.name for entry in b.loads.train.loads] if b.loads.train else [],
            "seeds_per_load": b.seeds,
            "episode_s": b.episode_s,
        }


def _reference_cost_per_s(benchmark: BenchmarkConfig) -> Floats:
    """Reference cost of each job, money per second, as the reward counts it."""
    topology = Topology.of([benchmark_job(name, benchmark) for name in benchmark.jobs])
    return reference_cost_per_s(topology.tables, topology.row, benchmark.start_headroom)
