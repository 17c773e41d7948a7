"""The goals of tuning: cost and lateness, or the reward, always on training loads.

Cost is counted in the smallest configuration that carries the job's reference rate, so that cheap
and expensive jobs count alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, Protocol

import numpy as np

from dsp_gym.arrays import Floats
from dsp_gym.control.loop import LoopStep
from dsp_gym.envs.reward import RewardWeights, reward, reward_terms
from dsp_gym.errors import ConfigError
from dsp_gym.evaluation.batch_of_runs import RunBatch, batch_of, benchmark_job, play
from dsp_gym.evaluation.config import BenchmarkConfig, Entrant
from dsp_gym.evaluation.fingerprint import fingerprint
from dsp_gym.evaluation.frontier.board import frontier_fingerprint
from dsp_gym.evaluation.frontier.config import FrontierConfig
from dsp_gym.evaluation.referee.board import referee_fingerprint
from dsp_gym.evaluation.referee.config import RefereeConfig
from dsp_gym.evaluation.referee.development import development_runs
from dsp_gym.evaluation.scorecard import ScorecardCell
from dsp_gym.experiments.comparison import AnyComparison
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
    if isinstance(config, ExperimentConfig):
        whole, jobs = config.benchmark(), config.jobs
    else:
        whole, jobs = config, config.train_jobs or config.jobs
    split = whole.loads.train
    if split is None:
        raise ConfigError("there are no loads to tune on", key="loads", remedy="Add loads.train.")
    return whole.model_copy(
        update={
            "jobs": jobs,
            "train_jobs": (),
            "split": "train",
            "seeds": seeds if split.seeds is None else min(seeds, len(split.seeds)),
            "reference": None,
            "clairvoyant": False,
            "bootstrap": 100,  # the least; intervals are not looked at
        }
    )


class TuningRuns(NamedTuple):
    """Runs that a policy is tuned on, all of one length."""

    batch: RunBatch  # of any policy; its entrant is replaced
    reference_cost: Floats  # (runs,) of the episode, in the job's reference configuration

    @property
    def steps(self) -> int:
        """Decisions of each run."""
        return self.batch.config.episode_s // self.batch.config.interval_s


class PolicyObjective:
    """Runs a policy with given parameters.

    Args:
        policy: A name or file; what the file sets stays as it is unless it is tuned.
        name: Name of the benchmark, the frontier, the referee or the experiment.
        config: Its configuration.
        seeds: Seeds per load; of a referee, triples of each kind of jobs in each family of load.
    """

    def __init__(self, policy: str, name: str, config: AnyComparison, *, seeds: int) -> None:
        self.label, self.base, _ = resolve(policy)
        # An experiment's reward has a weight for lateness; a benchmark compares at equal lateness.
        self.goal: Goal = "reward" if isinstance(config, ExperimentConfig) else "cost"
        self.levels: tuple[float, ...] = ()
        self._weights = RewardWeights()
        if isinstance(config, RefereeConfig):
            self.levels = tuple(sorted(config.lateness))
            self._runs, about = _of_referee(config, seeds)
        else:
            if isinstance(config, FrontierConfig):
                self.levels = tuple(sorted(config.lateness))
                mark, config = frontier_fingerprint(config), config.tuning_benchmark()
            elif isinstance(config, ExperimentConfig):
                self._weights = config.env.reward
                mark = fingerprint(config.benchmark())
            else:
                self.levels = (config.max_slo_share,)
                mark = fingerprint(config)
            self._runs, about = _of_benchmark(training_benchmark(config, seeds))
            about = {"fingerprint": mark, **about}
        self._about = {"tuned_on": name, **about}

    @property
    def decisions(self) -> int:
        """Decisions of all runs of a trial."""
        return sum(len(runs.batch) * runs.steps for runs in self._runs)

    def config(self, params: Mapping[str, object]) -> PolicyConfig:
        """Return the policy with these parameters.

        Returns:
            The policy's configuration; parameters that are not searched keep the base's values.
        """
        return PolicyConfig(policy=self.base.policy, params=with_params(self.base.params, params))

    def score(self, params: Mapping[str, object], told: OnSteps) -> Score:
        entrant = Entrant(policy=self.config(params), name=LABEL)
        steps, done = sum(runs.steps for runs in self._runs), 0
        cells: list[ScorecardCell] = []
        costs: list[float] = []
        earned: list[float] = []
        for runs in self._runs:
            rewards = _Rewards(runs, self._weights) if self.goal == "reward" else None

            def observe(
                _label: str,
                taken: int,
                _of: int,
                step: LoopStep,
                before: int = done,
                rewards: _Rewards | None = rewards,
            ) -> None:
                if rewards is not None:
                    rewards.add(step)
                told(before + taken, steps)

            found = play(replace(runs.batch, entrant=entrant), observe).cells
            cells += found
            costs += [
                c.metrics["cost"] / own for c, own in zip(found, runs.reference_cost, strict=True)
            ]
            earned += [] if rewards is None else rewards.earned
            done += runs.steps
        late = float(np.mean([c.metrics["slo_share"] for c in cells]))
        days = np.repeat(
            [runs.batch.config.episode_s / 86_400 for runs in self._runs],
            [len(runs.batch) for runs in self._runs],
        )
        metrics = {
            "cost": float(np.mean(costs)),
            "slo_share": late,
            "rescales_per_day": float(np.mean([c.metrics["rescales"] for c in cells] / days)),
        }
        if self.goal == "cost":
            return Score(metrics["cost"], late, metrics)
        metrics["reward"] = float(np.mean(earned))
        return Score(-metrics["reward"], 0.0, metrics)

    def about(self) -> dict[str, object]:
        bound = {"lateness": list(self.levels)} if self.levels else {}
        weights = {"weights": self._weights.model_dump()} if self.goal == "reward" else {}
        return {
            **self._about,
            "goal": self.goal,
            **bound,
            **weights,
            "base": self.base.model_dump(include={"policy", "params"}),
        }


class _Rewards:
    """The reward of each step, mean over the runs."""

    def __init__(self, runs: TuningRuns, weights: RewardWeights) -> None:
        self.earned: list[float] = []
        self._unit = runs.reference_cost / runs.batch.config.episode_s
        self._weights = weights

    def add(self, step: LoopStep) -> None:
        """Count a step."""
        outcome = step.outcome
        if isinstance(outcome, Outcome):
            terms = reward_terms(outcome, self._unit)
            self.earned.append(float(reward(terms, self._weights).mean()))


def _of_benchmark(benchmark: BenchmarkConfig) -> tuple[tuple[TuningRuns, ...], dict[str, object]]:
    """Return the runs of the training part of a benchmark, and what says which they are."""
    topology = Topology.of([benchmark_job(name, benchmark) for name in benchmark.jobs])
    unit = reference_cost_per_s(topology.tables, topology.row, benchmark.start_headroom)
    batch = batch_of(benchmark, Entrant(policy="static", name=LABEL))
    about: dict[str, object] = {
        "split": benchmark.split,
        "jobs": list(benchmark.jobs),
        "loads": [entry.name for entry in benchmark.loads.train.loads]
        if benchmark.loads.train
        else [],
        "seeds_per_load": benchmark.seeds,
        "episode_s": benchmark.episode_s,
    }
    return (TuningRuns(batch, unit[batch.runs.job] * benchmark.episode_s),), about


def _of_referee(
    config: RefereeConfig, each: int
) -> tuple[tuple[TuningRuns, ...], dict[str, object]]:
    """Return the runs of the development set of a referee, and what says which they are."""
    found = development_runs(config, each=each)
    about: dict[str, object] = {
        "fingerprint": referee_fingerprint(config),
        "split": "development",
        "families": [runs.family for runs in found],
        "triples": sum(len(runs.batch) for runs in found),
    }
    return tuple(TuningRuns(runs.batch, runs.reference_cost) for runs in found), about
