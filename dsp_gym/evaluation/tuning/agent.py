"""Tuning an agent: one training per trial, judged on training loads it did not learn from."""

from __future__ import annotations

import importlib
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dsp_gym.config.files import parse
from dsp_gym.errors import ConfigError
from dsp_gym.evaluation.experiment import ExperimentConfig
from dsp_gym.evaluation.tuning.objective import OnSteps, Score
from dsp_gym.evaluation.tuning.space import with_params
from dsp_gym.loads.splits import LoadSet, SeedRange

__all__ = ["AgentObjective", "with_held_out_seeds"]

HELD_OUT = 0.2
"""Share of the training seeds that agents are judged on instead of learning from them."""


def with_held_out_seeds(loads: LoadSet) -> LoadSet:
    """Keeps the training loads alone; their last fifth of seeds takes the place of validation.

    Returns:
        The loads.
    """
    seeds = loads.train.seeds if loads.train is not None else None
    if loads.train is None or seeds is None or len(seeds) < 2:
        raise ConfigError(
            "tuning an agent needs two training seeds or more, to judge it on one it did not "
            "learn from",
            key="loads.train.seeds",
            remedy="Give loads.train a range of seeds.",
        )
    cut = seeds.to - max(1, round(HELD_OUT * len(seeds)))
    train, held_out = SeedRange(from_=seeds.from_, to=cut), SeedRange(from_=cut, to=seeds.to)
    return LoadSet(
        train=loads.train.model_copy(update={"seeds": train}),
        validation=loads.train.model_copy(update={"seeds": held_out}),
    )


class AgentObjective:
    """Trains an agent with given hyper-parameters, for the reward of its experiment.

    Args:
        config: The experiment; its first seed is trained.
        folder: Where each training is kept while it runs.
        steps: Decisions per training; the experiment's when None.
    """

    def __init__(self, config: ExperimentConfig, folder: Path, steps: int | None = None) -> None:
        self._config, self._folder = config, folder
        self._steps = steps or config.agent.total_steps
        self._loads = with_held_out_seeds(config.loads)
        # By name: the library stands below the agents, and works without them and without torch.
        self._training: Any = importlib.import_module("agents.training")

    def config(self, params: Mapping[str, object]) -> ExperimentConfig:
        """The experiment with these hyper-parameters, as it would be trained in full.

        Returns:
            A valid experiment; all but the section `agent` is as it was.
        """
        document = self._config.model_dump(mode="json", by_alias=True)
        agent = with_params(document["agent"], params)
        return parse(ExperimentConfig, {**document, "agent": agent}, "the search space")

    def score(self, params: Mapping[str, object], told: OnSteps) -> Score:
        config = self.config(params)
        agent = config.agent.model_copy(
            update={
                "seeds": config.agent.seeds[:1],
                "total_steps": self._steps,
                "eval_every": min(config.agent.eval_every, self._steps),
            }
        )
        trial = config.model_copy(update={"agent": agent, "loads": self._loads})

        class Shown(self._training.SeedProgress):  # type: ignore[name-defined, misc]
            """Passes on the progress of the learning."""

            def update(self, stage: str, done: int, of: int, figures: dict[str, float]) -> None:
                if stage == "learn":
                    told(done, of)

        try:
            result = self._training.train(trial, self._folder, progress=Shown())
        except self._training.TrainingInterrupted:
            raise KeyboardInterrupt from None
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)
        figures = {key: float(value) for key, value in result.validation.items()}
        return Score(-figures["return"], 0.0, figures)

    def about(self) -> dict[str, object]:
        loads = self._loads.model_dump(mode="json", by_alias=True)
        return {
            "tuned_on": self._config.name,
            "goal": "reward",
            "split": "train",
            "jobs": list(self._config.jobs),
            "steps": self._steps,
            "loads": loads,
            "base": self._config.agent.model_dump(mode="json"),
        }
