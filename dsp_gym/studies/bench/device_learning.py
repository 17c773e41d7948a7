"""PPO on a GPU: timed, and followed along its learning curve."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np

from dsp_gym.arrays import Floats
from dsp_gym.config import files
from dsp_gym.envs.scenarios import DEFAULT_LOADS
from dsp_gym.errors import DspGymError, PolicyError
from dsp_gym.experiments.experiment import ExperimentConfig
from dsp_gym.policies.algorithms import load_part
from dsp_gym.records.base import Body
from dsp_gym.shared_names import import_ours

JOB = "bench-8"
FAMILY = "family"
ALGORITHM = "maskable-ppo"

EVALUATIONS, POINTS = 5, 100
"""Validations after the first one, and points of a learning curve at most, of the decisions asked
for."""

RESERVE_S = 15.0
"""Seconds that are left to the last rollout, its update and the checkpoint."""


HOLD_BIAS = 1.0
"""Of the policies that are compared: the shipped one's holds longer than they are trained."""

PLAYED = 7
"""Seed of the episodes that policies are compared on; trainings take their own."""


class TransferAmounts(NamedTuple):
    """How much is learned on either device, and played on both."""

    seeds: int
    updates: int  # of the shipped experiment's size
    episodes: int  # played by each policy
    episode_s: int


class LearningAmounts(NamedTuple):
    """How much is learned."""

    jobs: int
    steps: int  # decisions of a rollout
    wide: tuple[int, int]  # jobs and decisions of a rollout that is timed beside
    rollouts: int  # timed
    epochs: tuple[int, ...]
    transfer: TransferAmounts
    small: bool  # a few graphs and minutes in place of the family's


FULL_LEARNING = LearningAmounts(
    32_768, 32, (131_072, 16), 4, (4, 1), TransferAmounts(2, 8, 512, 14_400), small=False
)
TINY_LEARNING = LearningAmounts(2, 2, (3, 1), 1, (1,), TransferAmounts(1, 1, 3, 240), small=True)


def time_learning(amounts: LearningAmounts) -> dict[str, object]:
    """Time PPO on moves of vertices, nothing of which leaves the card.

    Returns:
        Decisions per second by epochs, the share of rollouts in the time, and the mean return of
        the last episodes that ended; why not where torch or Stable-Baselines3 is missing.
    """
    return _timed(amounts, JOB, lambda epochs: _one_job(amounts, epochs))


def time_family(amounts: LearningAmounts) -> dict[str, object]:
    """Time PPO on capacity actions over the family of random graphs, and with more jobs at once.

    Returns:
        As `time_learning`.
    """
    jobs, steps = amounts.wide
    wide = amounts._replace(jobs=jobs, steps=steps)
    return {
        key: value
        for size in (amounts, wide)
        for key, value in _timed(size, FAMILY, lambda epochs, s=size: family(s, epochs)).items()  # type: ignore[misc]  # bound at once
    }


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


def compare_returns(amounts: LearningAmounts) -> dict[str, object]:
    """Train on each device, and play every policy on both: on seeds that no training has seen.

    Trainings differ in their device and seed alone: sizes and hyperparameters are those of
    `family`, episodes shorter.

    Returns:
        For each training its mean return on either device, with half the width of its 95 %
        interval over episodes, whether these overlap, the share of episodes whose returns are the
        same, and that of decisions that do more than hold; why not where torch or
        Stable-Baselines3 is missing.
    """
    found: dict[str, object] = {}
    try:
        trainer = load_part(ALGORITHM, "trainer")
    except PolicyError as error:
        return {"left out": str(error)}
    for device in ("cuda", "cpu"):
        for seed in range(amounts.transfer.seeds):
            config = _transferred(amounts, device)
            begun = time.perf_counter()
            with TemporaryDirectory() as folder:
                learner = trainer(config, seed, Path(folder))
                learner.run()
            seconds = time.perf_counter() - begun
            policy, episodes = learner.model.policy, amounts.transfer.episodes
            there = _played_on_card(config, policy, episodes)
            here, acting = _played_on_cpu(config, policy, episodes)
            on_card, on_cpu = _interval(there), _interval(here)
            found[f"learned on {device}, seed {seed}"] = {
                "seconds": round(seconds, 1),
                "episodes": episodes,
                "acting": round(acting, 4),
                "card": on_card,
                "CPU": on_cpu,
                "overlap": abs(on_card[0] - on_cpu[0]) <= on_card[1] + on_cpu[1],
                "same returns": round(float(np.isclose(there, here, rtol=1e-9, atol=0).mean()), 4),
            }
    return found


def _interval(returns: Floats) -> tuple[float, float]:
    """Return a mean and half the width of its 95 % interval."""
    spread = returns.std(ddof=1) / math.sqrt(len(returns))
    return round(float(returns.mean()), 4), round(1.96 * float(spread), 4)


def _transferred(amounts: LearningAmounts, device: str) -> ExperimentConfig:
    """Return the shipped experiment with shorter and fewer episodes, on a device."""
    config = family(amounts, epochs=1)
    shipped: Any = files.read_yaml(files.find("experiments", FAMILY))
    sizes = {key: shipped["agent"][key] for key in ("n_envs", "n_steps", "batch_size", "n_epochs")}
    if amounts.small:
        sizes |= {"n_envs": 2, "n_steps": 2, "batch_size": 4}
    steps = sizes["n_envs"] * sizes["n_steps"] * amounts.transfer.updates
    # No validation before the last decision, whose weights are those that are played.
    network = config.ppo.network.model_copy(update={"hold_bias": HOLD_BIAS})
    sizes |= {"device": device, "total_steps": steps, "eval_every": 2 * steps, "network": network}
    env = config.env.model_copy(update={"episode_s": amounts.transfer.episode_s})
    agent = config.agent.model_copy(update=sizes)
    return config.model_copy(update={"agent": agent, "env": env})


def _whole(config: ExperimentConfig, episodes: int) -> ExperimentConfig:
    """Let so many episodes begin at their beginning."""
    how = config.env.randomise.model_copy(update={"stagger": False})
    env = config.env.model_copy(update={"randomise": how})
    agent = config.agent.model_copy(update={"n_envs": episodes})
    return config.model_copy(update={"env": env, "agent": agent})


def _played_on_card(config: ExperimentConfig, policy: Any, episodes: int) -> Floats:
    device, _ = import_ours("agents.device").find_device()
    env = import_ours("agents.device_jobs").DeviceJobs(_whole(config, episodes), device).env
    done, total = env.reset(PLAYED * episodes + np.arange(episodes)), np.zeros(episodes)
    for _ in range(config.env.episode_s // config.env.interval_s):
        seen, masks = done.observation.to_host(), done.mask.to_host()
        chosen, _ = policy.predict(seen, deterministic=True, action_masks=masks)
        done = env.step(np.asarray(chosen, np.int64))
        total += done.reward.to_host()
    return total


def _played_on_cpu(config: ExperimentConfig, policy: Any, episodes: int) -> tuple[Floats, float]:
    """Return the returns, and the share of decisions that do more than hold."""
    batch = import_ours("agents.environment").training_batch(_whole(config, episodes), episodes)
    batch.seed(PLAYED * episodes + np.arange(episodes))
    seen, total, acted = batch.reset(), np.zeros(episodes), []
    for _ in range(config.env.episode_s // config.env.interval_s):
        masks = batch.action_masks()
        chosen, _ = policy.predict(seen, deterministic=True, action_masks=masks)
        done = batch.step(chosen)
        seen, total = done.observation, total + done.reward
        acted.append(np.mean(chosen > 0))
    return total, float(np.mean(acted))


def follow(decisions: int, seconds: float, out: Path, card: str, amounts: LearningAmounts) -> int:
    """Learn on the family of random graphs, from the last checkpoint where there is one.

    Args:
        decisions: Decisions of the whole training.
        seconds: No update begins after these; a checkpoint is written then.
        out: File of the curve so far, written with each of its points; the checkpoint stands
            beside it.
        card: The card's name.
        amounts: Environments and rollouts.

    Returns:
        0; 2 where torch or Stable-Baselines3 is missing; 3 where an error ended the training, as
        of a lost card: the last checkpoint is kept.
    """
    begun = time.monotonic()
    config, folder = family(amounts, amounts.epochs[0], decisions), out.with_suffix("")
    try:
        trainer = load_part(ALGORITHM, "trainer")
    except PolicyError as error:
        sys.stderr.write(f"Nothing was learned: {error}\n")
        return 2
    kept = int(import_ours("agents.checkpoint").checkpoint_steps(folder / "checkpoint"))
    curve = _Curve(out, card, decisions, kept)
    learner: Any = None

    def progress(stage: str, done: int, of: int, figures: dict[str, float]) -> None:
        # No sooner than after an update, so that every command gets on.
        ahead = stage == "learn" and done > max(0, kept)
        if ahead and time.monotonic() - begun > seconds - RESERVE_S:
            learner.stop = True

    try:
        learner = trainer(config, 0, folder, progress=progress, record=curve.add)
        learner.run(resume=kept >= 0)
    except import_ours("agents.training").TrainingInterrupted:
        pass  # out of time; the checkpoint is there
    except DspGymError as error:
        if learner is not None:
            curve.write(int(learner.model.num_timesteps))
        sys.stderr.write(f"The training ended: {error}\n")
        return 3
    steps = int(learner.model.num_timesteps)
    last = curve.write(steps)
    sys.stdout.write(f"{steps:,} of {decisions:,} decisions; {json.dumps(last)}\n")
    return 0


class _Curve:
    """The learning curve over all commands, in a file.

    Args:
        file: The file; it is read where the training goes on from a checkpoint.
        card: The card's name.
        decisions: Decisions of the whole training.
        kept: Decisions of the checkpoint; below zero where there is none. A command that was
            killed may have come further: its later points are dropped, since they are learned
            again.
    """

    def __init__(self, file: Path, card: str, decisions: int, kept: int) -> None:
        goes_on = kept >= 0 and file.is_file()
        before: dict[str, Any] = json.loads(file.read_text("utf-8")) if goes_on else {}
        points = before.get("points", [])
        self.points: list[Body] = [one for one in points if one["decisions"] <= kept]
        self.commands: list[Body] = before.get("commands", [])
        self._file, self._card, self._each = file, card, decisions // POINTS
        self._begun = time.monotonic()

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
            self.write(step)

    def write(self, decisions: int) -> Body:
        """Write the curve with the present command.

        Args:
            decisions: Decisions learned from by now.

        Returns:
            The present command; the card's minutes in the file are those of all commands.
        """
        seconds = round(time.monotonic() - self._begun, 1)
        one = {"card": self._card, "decisions": decisions, "seconds": seconds}
        commands = [*self.commands, one]
        minutes = round(sum(command["seconds"] for command in commands) / 60, 2)
        told = {"card minutes": minutes, "commands": commands, "points": self.points}
        self._file.parent.mkdir(parents=True, exist_ok=True)
        files.write_atomic(self._file, (json.dumps(told, indent=1) + "\n").encode())
        return one


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
    """Return the shipped experiment on a family of random graphs, on the card and from scratch.

    Returns:
        The experiment; with `small` a few graphs, and episodes of minutes.
    """
    document: Any = files.read_yaml(files.find("experiments", FAMILY))
    agent = document["agent"] | _agent(amounts, epochs) | _FROM_SCRATCH
    agent |= {
        "algorithm": ALGORITHM,
        "total_steps": decisions,
        # A rollout more: the last validation is the one that every training ends with.
        "eval_every": decisions // EVALUATIONS + amounts.jobs * amounts.steps,
        "checkpoint_every": max(1, decisions // 2),
        "act_above": [0.1],  # one threshold: a validation takes seconds of one core
    }
    if amounts.small:
        document["family"] |= {"graphs": 2, "vertices": [2, 3], "validation_graphs": 1}
        document["env"]["episode_s"], agent["eval_episodes"] = 240, 1
        document["jobs"] = document["jobs"][:1]
    return ExperimentConfig.model_validate(document | {"agent": agent})


_FROM_SCRATCH: dict[str, object] = {
    "warm_start": None,
    "network": {"encoder": "mlp", "hold_bias": 4},
    "learning_rate": 7e-4,
    "eval_episodes": 24,
}
"""In place of the shipped experiment's: to watch its teacher takes ten minutes of one core."""


def _agent(amounts: LearningAmounts, epochs: int) -> dict[str, object]:
    """Return the keys of the section `agent` that a card asks for."""
    return {
        "device": "cuda",
        "n_envs": amounts.jobs,
        "n_steps": amounts.steps,
        "n_epochs": epochs,
        "batch_size": max(1, amounts.jobs * amounts.steps // 16),
    }
