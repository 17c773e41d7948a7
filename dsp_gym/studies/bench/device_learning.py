"""PPO on a GPU: timed, and followed along its learning curve."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from dsp_gym.config import files
from dsp_gym.envs.scenarios import DEFAULT_LOADS
from dsp_gym.errors import PolicyError
from dsp_gym.experiments.experiment import ExperimentConfig
from dsp_gym.policies.algorithms import load_part
from dsp_gym.shared_names import import_ours

JOB = "bench-8"
FAMILY = "family"
ALGORITHM = "maskable-ppo"

EVALUATIONS, POINTS = 8, 100
"""Validations, and points of a learning curve at most, of the decisions asked for."""

RESERVE_S = 15.0
"""Seconds that are left to the last rollout, its update and the checkpoint."""


class LearningAmounts(NamedTuple):
    """How much is learned."""

    jobs: int
    steps: int  # decisions of a rollout
    rollouts: int  # timed
    epochs: tuple[int, ...]
    small: bool  # a few graphs and minutes in place of the family's


FULL_LEARNING = LearningAmounts(32_768, 32, 4, (4, 1), small=False)
TINY_LEARNING = LearningAmounts(2, 2, 1, (1,), small=True)


def time_learning(amounts: LearningAmounts) -> dict[str, object]:
    """Time PPO on moves of vertices, nothing of which leaves the card.

    Returns:
        Decisions per second by epochs, the share of rollouts in the time, and the mean return of
        the last episodes that ended; why not where torch or Stable-Baselines3 is missing.
    """
    return _timed(amounts, JOB, lambda epochs: _one_job(amounts, epochs))


def time_family(amounts: LearningAmounts) -> dict[str, object]:
    """Time PPO on capacity actions over the family of random graphs.

    Returns:
        As `time_learning`.
    """
    return _timed(amounts, FAMILY, lambda epochs: family(amounts, epochs))


def _timed(
    amounts: LearningAmounts, name: str, experiment: Callable[[int], ExperimentConfig]
) -> dict[str, object]:
    from dsp_gym.simulation.cuda.kernels import synchronize

    found: dict[str, object] = {}
    for epochs in amounts.epochs:
        try:
            trainer = load_part(ALGORITHM, "trainer")
        except PolicyError as error:
            return {"left out": str(error)}
        config = experiment(epochs)
        with TemporaryDirectory() as folder:
            model = trainer(config, 0, Path(folder)).model
        model.begin()
        model.collect()
        told = [model.update(config.ppo.learning_rate)]
        seconds = {"rollouts": 0.0, "updates": 0.0}
        for _ in range(amounts.rollouts):
            begun = time.perf_counter()
            model.collect()
            synchronize()
            rolled = time.perf_counter()
            told.append(model.update(config.ppo.learning_rate))
            seconds["rollouts"] += rolled - begun
            seconds["updates"] += time.perf_counter() - rolled
        decisions, whole = amounts.jobs * amounts.steps * amounts.rollouts, sum(seconds.values())
        found[f"{name}, {amounts.jobs}, {epochs} epochs"] = {
            "decisions/s": round(decisions / whole),
            "share of rollouts": round(seconds["rollouts"] / whole, 3),
            "returns of episodes": [one.get("rollout/ep_rew_mean") for one in told],
        }
    return found


def follow(decisions: int, seconds: float, out: Path, card: str, amounts: LearningAmounts) -> int:
    """Learn on the family of random graphs, from the last checkpoint where there is one.

    Args:
        decisions: Decisions of the whole training.
        seconds: No update begins after these; a checkpoint is written then.
        out: File of the curve so far; the checkpoint stands beside it.
        card: The card's name.
        amounts: Environments and rollouts.

    Returns:
        0; 2 where torch or Stable-Baselines3 is missing.
    """
    begun = time.monotonic()
    config, folder = family(amounts, amounts.epochs[0], decisions), out.with_suffix("")
    try:
        trainer = load_part(ALGORITHM, "trainer")
    except PolicyError as error:
        sys.stderr.write(f"Nothing was learned: {error}\n")
        return 2
    resumes = out.is_file() and (folder / "checkpoint").is_dir()
    curve = _Curve(json.loads(out.read_text("utf-8")) if resumes else {}, decisions)
    learner: Any = None

    def progress(stage: str, done: int, of: int, figures: dict[str, float]) -> None:
        # No sooner than after an update, so that every command gets on.
        ahead = stage == "learn" and done > curve.decisions
        if ahead and time.monotonic() - begun > seconds - RESERVE_S:
            learner.stop = True

    learner = trainer(config, 0, folder, progress=progress, record=curve.add)
    try:
        learner.run(resume=resumes)
    except import_ours("agents.training").TrainingInterrupted:
        pass  # out of time; the checkpoint is there
    steps = int(learner.model.num_timesteps)
    told = curve.told(card, steps, round(time.monotonic() - begun, 1))
    out.parent.mkdir(parents=True, exist_ok=True)
    files.write_atomic(out, (json.dumps(told, indent=1) + "\n").encode())
    last = told["commands"][-1]
    sys.stdout.write(f"{steps:,} of {decisions:,} decisions; {json.dumps(last)}\n")
    return 0


class _Curve:
    """The learning curve over all commands."""

    def __init__(self, before: dict[str, Any], decisions: int) -> None:
        self.points: list[dict[str, Any]] = before.get("points", [])
        self.commands: list[dict[str, Any]] = before.get("commands", [])
        self.decisions = self.commands[-1]["decisions"] if self.commands else 0
        """Decisions that the commands before have learned from."""
        self._each = decisions // POINTS

    def add(self, figures: dict[str, float], step: int) -> None:
        """Keep validations, and now and then the returns of episodes."""
        shown = {
            "return of validation": figures.get("validation/return"),
            "return of episodes": figures.get("rollout/ep_rew_mean"),
        }
        kept = {name: value for name, value in shown.items() if value is not None}
        near = self.points and step - self.points[-1]["decisions"] < self._each
        if kept and ("return of validation" in kept or not near):
            self.points.append({"decisions": step, **kept})

    def told(self, card: str, decisions: int, seconds: float) -> dict[str, Any]:
        """Return the curve with the present command.

        Returns:
            JSON values; the seconds of the card are those of all commands.
        """
        one = {"card": card, "decisions": decisions, "seconds": seconds}
        commands = [*self.commands, one]
        whole = sum(command["seconds"] for command in commands)
        minutes = round(whole / 60, 2)
        return {"card minutes": minutes, "commands": commands, "points": self.points}


def _one_job(amounts: LearningAmounts, epochs: int) -> ExperimentConfig:
    """Return an experiment that learns on the card: the default network, episodes of an hour."""
    return ExperimentConfig.model_validate(
        {
            "name": "device",
            "jobs": [JOB],
            "loads": DEFAULT_LOADS,
            "env": {"episode_s": 3600},
            "agent": _agent(amounts, epochs) | {"eval_episodes": 1},
        }
    )


def family(amounts: LearningAmounts, epochs: int, decisions: int = 1_000_000) -> ExperimentConfig:
    """Return the shipped experiment on a family of random graphs, on the card.

    Returns:
        The experiment; with `small` a few graphs, and episodes of minutes.
    """
    document: Any = files.read_yaml(files.find("experiments", FAMILY))
    agent = document["agent"] | _agent(amounts, epochs)
    agent |= {
        "algorithm": ALGORITHM,
        "total_steps": decisions,
        "eval_every": max(1, decisions // EVALUATIONS),
        "checkpoint_every": max(1, decisions // 2),
        "act_above": [0.1],  # one threshold: a validation takes seconds of one core
    }
    if amounts.small:
        document["family"] |= {"graphs": 2, "vertices": [2, 3], "validation_graphs": 1}
        document["env"]["episode_s"], agent["eval_episodes"] = 240, 1
        document["jobs"] = document["jobs"][:1]
    return ExperimentConfig.model_validate(document | {"agent": agent})


def _agent(amounts: LearningAmounts, epochs: int) -> dict[str, object]:
    """Return the keys of the section `agent` that a card asks for."""
    return {
        "device": "cuda",
        "n_envs": amounts.jobs,
        "n_steps": amounts.steps,
        "n_epochs": epochs,
        "batch_size": max(1, amounts.jobs * amounts.steps // 16),
    }
