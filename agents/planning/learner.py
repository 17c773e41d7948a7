"""One planning policy of one seed: counts of transitions, and the choice of its late price."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from agents.checkpoint import read_checkpoint, refuse_other_config, write_checkpoint
from agents.environment import validation_batch
from agents.planning.chain import counted
from agents.planning.config import MdpConfig
from agents.planning.draws import minutes_of, training_minutes
from agents.planning.history import Past, pasts
from agents.planning.load import STATES
from agents.planning.policy import MdpPolicy
from agents.stages import OnStage, TrainingInterrupted
from agents.validation import played
from dsp_gym.arrays import Floats, Floats32
from dsp_gym.config.files import parse
from dsp_gym.envs.core import BatchStep
from dsp_gym.errors import ConfigError
from dsp_gym.experiments.agent import PlanningConfig
from dsp_gym.experiments.experiment import ExperimentConfig
from dsp_gym.job.catalog import load_job

Tried = dict[float, dict[str, float]]
"""Figures on the validation loads, by price of a late minute."""


@dataclass
class ChosenPrice:
    """The price chosen by validation."""

    late_price: float = 0.0
    figures: dict[str, float] = field(default_factory=dict)


class PlanningLearner:
    """The training of one policy.

    Args:
        config: The experiment.
        seed: Seed of the draws of its training loads.
        folder: Folder that checkpoints are written to.
        progress: Called with the progress of each stage.
        record: Called with figures and their step.
        base_dir: Folder that relative trace paths start from.
    """

    def __init__(
        self,
        config: ExperimentConfig,
        seed: int,
        folder: Path,
        *,
        progress: OnStage | None = None,
        record: Callable[[dict[str, float], int], None] | None = None,
        base_dir: str | Path | None = None,
    ) -> None:
        self.config, self.seed, self.agent = config, seed, _planning(config)
        self.checkpoint = folder / "checkpoint"
        self.params = parse(MdpConfig, dict(self.agent.params), "agent.params")
        if self.params.walk is not None:
            raise ConfigError(
                "a planning policy with a walk counts no loads, so there is nothing to train",
                key="agent.params.walk",
                remedy="Leave the walk out, or search its weights: dsp-gym tune planner-walk.",
            )
        self.best = ChosenPrice()
        self.stop = False
        self.validation = validation_batch(config, base_dir)
        self.counts: Floats = np.zeros((max(1, len(self.agent.laws)), STATES, STATES))
        self.past: dict[str, Past] = {}
        self.tried: Tried = {}
        self._progress: OnStage = progress or (lambda stage, done, of, figures: None)
        self._record = record or (lambda figures, step: None)
        self._base_dir = base_dir

    def run(self, *, resume: bool = False) -> ChosenPrice:
        """Count transitions and try prices.

        Args:
            resume: Whether to reuse the prices tried before the last checkpoint; otherwise it is
                removed.

        Returns:
            The lowest price that keeps lateness below the target, or the highest available, with
            its figures.

        Raises:
            TrainingInterrupted: `stop` was set; a checkpoint has been written.
        """
        if resume:
            self._restore()
        else:
            shutil.rmtree(self.checkpoint, ignore_errors=True)
        self._count()
        prices, low, high = self.agent.late_prices, 0, len(self.agent.late_prices)
        # Bisection for the lowest price that meets the target: lateness falls as the price rises,
        # so that log2(n) of the n prices need a run.
        while low < high:
            middle = (low + high) // 2
            figures = self._figures(prices[middle])
            if figures["slo_share"] <= self.agent.late_target:
                high = middle
            else:
                low = middle + 1
        price = prices[min(low, len(prices) - 1)]
        self.best = ChosenPrice(price, self.tried[price])
        self._tell(self.agent.total_steps)
        self._save(self.agent.total_steps)
        return self.best

    @property
    def figures(self) -> dict[str, float]:
        """Validation figures of the price chosen."""
        return self.best.figures

    @property
    def kept_aim(self) -> bool:
        """Whether the chosen price meets the target."""
        return self.best.figures["slo_share"] <= self.agent.late_target

    def _count(self) -> None:
        """Count the transitions of the training loads, law by law, and of the jobs' own past.

        What the jobs have gone through counts in every law.
        """
        agent, config = self.agent, self.config
        if agent.history is not None:
            specs = [load_job(name) for name in config.jobs]
            self.past = pasts(
                agent.history.dataset,
                specs,
                self.params.sizing,
                filed=self.params.prior == "job-file",
            )
            for past in self.past.values():
                self.counts += agent.history.weight * counted(past.loads)
        # Only for the display: the sampler may yield fewer where a split has fewer seeds.
        loads = agent.laws or (() if config.loads.train is None else config.loads.train.loads)
        for done, (law, minutes) in enumerate(self._drawn()):
            self.counts[law] += counted([minutes])
            self._progress("count", done + 1, agent.draws * len(loads), {})
            self._heed()
        if not self.counts.any():
            raise ConfigError(
                "there is no minute of load to learn from",
                key="agent.draws",
                value=agent.draws,
                remedy="Draw some training loads, or name a dataset of more than two minutes.",
            )

    def _drawn(self) -> Iterator[tuple[int, Floats]]:
        """Draw the loads to count, each with the place of its law."""
        agent, config = self.agent, self.config
        if agent.laws:
            for place, law in enumerate(agent.laws):
                for minutes in minutes_of(
                    law, config.env.episode_s, agent.draws, self.seed, place, self._base_dir
                ):
                    yield place, minutes
            return
        for minutes in training_minutes(
            config.loads,
            config.env.episode_s,
            agent.draws,
            seed=self.seed,
            scale=config.env.randomise.load_scale,
            base_dir=self._base_dir,
        ):
            yield 0, minutes

    def _figures(self, price: float) -> dict[str, float]:
        """Play the validation loads at a price, unless that was done before."""
        if price not in self.tried:
            self.tried[price] = self._played(price)
            steps = len(self.tried)
            told = {"late_price": price, **self.tried[price]}
            self._record({f"validation/{key}": value for key, value in told.items()}, steps)
            # Saved after every price: a price takes minutes of simulation.
            self._save(steps)
            self._tell(steps)
            self._heed()
        return self.tried[price]

    def _played(self, price: float) -> dict[str, float]:
        batch = self.validation
        policy = MdpPolicy(self.params.model_copy(update={"late_price": price}), self.counts)
        policy.explain = False
        batch.episodes[:] = 0
        observation = batch.reset()
        policy.reset(batch.topology, batch.base_seeds)
        steps, done = batch.config.episode_s // batch.config.interval_s, 0

        def act(_: Floats32) -> BatchStep:
            nonlocal done
            done += 1
            self._progress(f"price {price:g}", done, steps, {})
            self._heed()
            return batch.enact(policy.decide(batch.snapshot))

        return played(batch, observation, act)

    def _tell(self, steps: int) -> None:
        best = {f"best_{key}": value for key, value in self.best.figures.items()}
        self._progress("learn", steps, self.agent.total_steps, best)

    def _heed(self) -> None:
        """Stop if asked to; a price whose run is incomplete is lost."""
        if self.stop:
            self._save(len(self.tried))
            raise TrainingInterrupted

    def _save(self, steps: int) -> None:
        write_checkpoint(
            self.checkpoint,
            {
                "config": self.config.model_dump(mode="json", by_alias=True),
                "seed": self.seed,
                "steps": steps,
                "tried": [[price, figures] for price, figures in self.tried.items()],
            },
        )

    def _restore(self) -> None:
        saved = read_checkpoint(self.checkpoint)
        refuse_other_config(self.checkpoint, saved["config"], self.config)
        self.tried = {price: dict(figures) for price, figures in saved["tried"]}


def _planning(config: ExperimentConfig) -> PlanningConfig:
    if config.agent.kind != "planning":
        raise ConfigError(
            "this learner plans", key="agent.kind", value=config.agent.kind, remedy="Use Learner."
        )
    return config.agent
