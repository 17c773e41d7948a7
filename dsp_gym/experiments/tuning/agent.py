"""Tuning an agent: one training per trial, judged on training loads it did not learn from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from dsp_gym.config.files import parse
from dsp_gym.errors import ConfigError
from dsp_gym.experiments.experiment import ExperimentConfig
from dsp_gym.experiments.tuning.objective import OnSteps, Score
from dsp_gym.loads.spec import TraceLoad, nodes
from dsp_gym.loads.splits import LoadSet, SeedRange
from dsp_gym.policies.config import with_params
from dsp_gym.shared_names import import_ours

HELD_OUT = 0.2
"""Share of the training seeds that agents are judged on instead of learning from them."""


def with_held_out_seeds(loads: LoadSet) -> LoadSet:
    """Keep the training loads alone; their last fifth of seeds takes the place of validation.

    Returns:
        The loads.

    Raises:
        ConfigError: There are no two seeds to share out, or a load is a recording, whose
            window all seeds share.
    """
    seeds = loads.train.seeds if loads.train is not None else None
    if loads.train is None or seeds is None or len(seeds) < 2:
        raise ConfigError(
            "tuning an agent needs two training seeds or more, to judge it on one it did not "
            "learn from",
            key="loads.train.seeds",
            remedy="Give loads.train a range of seeds.",
        )
    for entry in loads.train.loads:
        if any(isinstance(node, TraceLoad) for node in nodes(entry.load)):
            raise ConfigError(
                "tuning an agent judges it on training loads it did not learn from, and all "
                "seeds of a recording share its window",
                key="loads.train",
                value=entry.name,
                remedy="Tune the agent on an experiment whose loads.train are generated, and give "
                "the parameters found to this one.",
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
    """

    def __init__(self, config: ExperimentConfig) -> None:
        self._config = config
        self.decisions = config.ppo.total_steps
        self.levels: tuple[float, ...] = ()
        self._loads = with_held_out_seeds(config.loads)
        _training()  # found missing before the search begins

    def config(self, params: Mapping[str, object]) -> ExperimentConfig:
        """Return the experiment with these hyper-parameters, as it would be trained in full.

        Returns:
            A valid experiment; all but the section `agent` is as it was.
        """
        document = self._config.model_dump(mode="json", by_alias=True)
        agent = with_params(document["agent"], params)
        return parse(ExperimentConfig, {**document, "agent": agent}, "the search space")

    def score(self, params: Mapping[str, object], told: OnSteps) -> Score:
        config = self.config(params)
        agent = config.ppo.model_copy(
            update={
                "seeds": config.ppo.seeds[:1],
                "eval_every": min(config.ppo.evaluated_every, self.decisions),
            }
        )
        trial = config.model_copy(update={"agent": agent, "loads": self._loads})

        training = _training()

        class Shown(training.SeedProgress):  # type: ignore[name-defined, misc]  # known by name only
            """Passes on the progress of the learning."""

            def update(
                self, seed: int, stage: str, done: int, of: int, figures: dict[str, float]
            ) -> None:
                if stage == "learn":
                    told(done, of)

        with TemporaryDirectory(prefix="dsp-gym-trial-") as folder:
            try:
                result = training.train(trial, Path(folder), progress=Shown())
            except training.TrainingInterrupted:
                raise KeyboardInterrupt from None
        figures = {key: float(value) for key, value in result.validation.items()}
        return Score(-figures["return"], 0.0, figures)

    def about(self) -> dict[str, object]:
        loads = self._loads.model_dump(mode="json", by_alias=True)
        return {
            "tuned_on": self._config.name,
            "goal": "reward",
            "split": "train",
            "jobs": list(self._config.jobs),
            "steps": self.decisions,
            "loads": loads,
            "base": self._config.ppo.model_dump(mode="json"),
        }


def _training() -> Any:
    """Import by name: the library is below the agents, and works without them and torch."""
    return import_ours("agents.training")
