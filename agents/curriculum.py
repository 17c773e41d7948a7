"""A curriculum: more episodes on the jobs where an agent is farthest from the best plan.

The attainable improvement differs between jobs: a job with few configurations leaves nothing to
learn, whatever its price. An agent's price for a day is therefore compared with that of the best
plan for the same day at the same price of lateness, which is computed once:

    gap = agent's price / plan's price - 1
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import numpy as np

from agents.environment import guardrails_of
from agents.validation import totals
from dsp_gym.arrays import Bools, Floats, Floats32, Ints
from dsp_gym.envs.batch import AutoscaleBatch
from dsp_gym.envs.config import Randomisation
from dsp_gym.envs.core import BatchStep
from dsp_gym.evaluation.run import PLAN
from dsp_gym.experiments.agent import CurriculumConfig
from dsp_gym.experiments.experiment import ExperimentConfig
from dsp_gym.policies.capabilities import FutureLoad, capabilities_of
from dsp_gym.policies.config import PolicyConfig
from dsp_gym.policies.registry import make

CURRICULUM_SEED = 0x637572
"""First seed of the days on which gaps are measured."""


class Actor(Protocol):
    """A deployed agent over observations and masks."""

    def predict(
        self, observation: Floats32, *, deterministic: bool, action_masks: Bools
    ) -> tuple[Ints, None]:
        """Decide.

        Returns:
            Actions (J, parts), and no hidden state.
        """
        ...


class Curriculum:
    """A measure of gaps, over one day of each training job.

    Args:
        config: The experiment; its `agent.curriculum` is set.
        how: Section `agent.curriculum` of the experiment.
        base_dir: Folder that relative trace paths start from.
    """

    def __init__(
        self, config: ExperimentConfig, how: CurriculumConfig, base_dir: str | Path | None = None
    ) -> None:
        self.how = how
        ranges, specs = config.env.randomise, config.training_specs()
        # A plan knows one price of lateness, the reward's, and the true parameters of its job: only
        # randomisations of the load remain.
        days = Randomisation(load_scale=ranges.load_scale, load_start=ranges.load_start)
        self.batch = AutoscaleBatch(
            specs,
            list(range(len(specs))),
            config.loads,
            "train",
            config.env.model_copy(update={"randomise": days}),
            guardrails_of(config),
            base_dir=base_dir,
        )
        self.batch.seed(CURRICULUM_SEED + np.arange(len(specs)))
        self.best: Floats | None = None
        """(jobs,) price of the best plan for each day; None until it is computed."""

    def gaps(self, actor: Actor) -> Floats:
        """Measure the gap of an agent on each job.

        Args:
            actor: The deployed agent.

        Returns:
            (jobs,) shares of the plan's price, 0 or more.
        """
        if self.best is None:
            self.best = self._plan()

        def act(observation: Floats32) -> BatchStep:
            masks = self.batch.action_masks()
            actions, _ = actor.predict(observation, deterministic=True, action_masks=masks)
            return self.batch.step(actions)

        # Rewards are negative prices. An agent that beats the plan has no gap.
        price = -totals(self.batch, self._begun(), act).reward
        return np.asarray(np.maximum(0.0, price / np.maximum(self.best, 1e-12) - 1.0))

    def _begun(self) -> Floats32:
        self.batch.episodes[:] = 0
        return self.batch.reset()

    def _plan(self) -> Floats:
        """Compute the price of the best plan for every day."""
        batch, env = self.batch, self.batch.config
        weights = {
            "slo_weight": env.reward.slo,
            "rescale_weight": env.reward.rescale * env.interval_s,
        }
        plan = make(PolicyConfig(policy=PLAN, params=weights))
        know_future = capabilities_of(plan).know_future
        assert know_future is not None  # what the name stands for
        observation = self._begun()
        know_future(batch.topology, FutureLoad(batch.jobs.rates, env.interval_s))
        plan.reset(batch.topology, batch.jobs.state.seed)
        found = totals(batch, observation, lambda _: batch.enact(plan.decide(batch.snapshot)))
        return -found.reward


def odds(gaps: Floats, by_gap: float) -> Floats:
    """Return the probability with which episodes take each job.

    Args:
        gaps: (jobs,) 0 or more.
        by_gap: Share of the episodes whose job is drawn by gap; the rest are drawn uniformly.

    Returns:
        (jobs,) probabilities.

    >>> odds(np.array([0.1, 0.3]), by_gap=0.5)
    array([0.375, 0.625])
    """
    alike = np.full(len(gaps), 1.0 / len(gaps))
    total = gaps.sum()
    return alike if total == 0 else (1.0 - by_gap) * alike + by_gap * gaps / total
