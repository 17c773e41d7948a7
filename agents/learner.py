"""One agent of one seed: its environments, its network, and interruptible learning."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import nn

from agents.capacity import CapacityActor
from agents.checkpoint import (
    Tree,
    checkpoint_steps,
    read_checkpoint,
    refuse_other_config,
    write_checkpoint,
)
from agents.cloning import Demonstrations, clone, demonstrate
from agents.curriculum import Curriculum, odds
from agents.environment import training_batch, validation_batch
from agents.network import NetworkShape
from agents.offline import demonstrated, improve, read_transitions
from agents.ppo import NativePpo
from agents.sb3_ppo import Sb3Ppo
from agents.sb3_vec import Sb3VecEnv
from agents.stages import BatchLearner, OnStage, TrainingInterrupted
from agents.stock import StockActor, lstm_width
from agents.validation import validate
from dsp_gym.arrays import Floats32, Ints
from dsp_gym.envs.batch import AutoscaleBatch
from dsp_gym.envs.capacity.action import HOLD
from dsp_gym.envs.observation import FJ, FV, ObservationLayout
from dsp_gym.errors import ConfigError
from dsp_gym.evaluation.statistics import interquartile_mean
from dsp_gym.experiments.agent import AgentConfig, OfflineConfig, WarmStartConfig
from dsp_gym.experiments.experiment import ExperimentConfig
from dsp_gym.policies.algorithms import load_part

__all__ = ["Learner", "TrainingInterrupted"]

SAMPLE_ROWS, SAMPLES_KEPT = 256, 256
"""Observations kept of each rollout, and number of rollouts they are kept of."""

CALIBRATION_STEPS = 32
"""Decisions per job behind the normalisation of the observation."""

CALIBRATION_ACTS = 0.03
"""Share of them in which a capacity agent acts: with more, jobs would mostly be down."""

HOST_JOBS = 512
"""Most jobs on the CPU of a training on a GPU: what imitates, and fixes the normalisation."""

SMALLEST_STD = 0.25
"""Least standard deviation to divide by: features that hardly vary in training must not become

huge where they vary more.
"""


@dataclass
class BestWeights:
    """The best weights so far by validation."""

    steps: int = 0
    figures: dict[str, float] = field(default_factory=dict)
    weights: dict[str, Floats32] = field(default_factory=dict)


class Learner:
    """The training of one agent.

    Args:
        config: The experiment.
        seed: Seed of network, exploration and environments.
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
        agent = config.ppo
        self.config, self.seed = config, seed
        self.checkpoint = folder / "checkpoint"
        self.masked = agent.needs.masked
        self.best = BestWeights()
        self.samples: list[Floats32] = []
        self.stop = False
        self._progress: OnStage = progress or (lambda stage, done, of, figures: None)
        self._record = record or (lambda figures, step: None)
        on_card = agent.device == "cuda"
        rows = min(agent.n_envs, HOST_JOBS) if on_card else agent.n_envs
        self.batch = training_batch(config, rows, base_dir)
        self.validation = validation_batch(config, base_dir)
        how = agent.curriculum
        self.curriculum = None if how is None else Curriculum(config, how, base_dir)
        self.env = Sb3VecEnv(self.batch, agent.gamma, flat=agent.needs.flat_actions)
        self.shape = shape_of(config, self.batch)
        self.card: str | None = None
        self.model: BatchLearner = (
            self._on_card(base_dir)
            if on_card
            else load_part(agent.algorithm, "learner")(self.env, agent, self.shape, seed)
        )
        self._resumed_at = 0

    def _on_card(self, base_dir: str | Path | None) -> BatchLearner:
        """Make PPO on a GPU."""
        from agents.device import find_device
        from agents.device_jobs import DeviceJobs
        from agents.device_ppo import DevicePpo

        device, self.card = find_device()
        jobs = DeviceJobs(self.config, device, base_dir)
        return DevicePpo(self.env, self.config.ppo, self.shape, self.seed, jobs)

    def run(self, *, resume: bool = False) -> BestWeights:
        """Learn to the end, from the last checkpoint if asked.

        Args:
            resume: Whether to continue from the last checkpoint; otherwise it is removed.

        Returns:
            The best weights, with their step and validation figures.

        Raises:
            TrainingInterrupted: `stop` was set; a checkpoint of what was learned has been written.
            DeviceError: The GPU was lost; the last checkpoint is kept.
        """
        if resume:
            self._restore()
        else:
            shutil.rmtree(self.checkpoint, ignore_errors=True)
            self._begin()
        # A resumed training may be complete already.
        self._resumed_at = self.model.num_timesteps
        if self._resumed_at < self.config.ppo.total_steps:
            self._learn()
        elif self.best.weights:
            return self.best
        self.evaluate()
        self.save()
        return self.best

    def _learn(self) -> None:
        try:
            self.model.learn(self.config.ppo.total_steps, self.tick, self.sample)
        except Exception as error:  # torch and numba-cuda raise errors of many kinds
            if self.card is None:
                raise
            from agents.device import is_of_card, lost

            if not is_of_card(error):
                raise
            steps, kept = self.model.num_timesteps, checkpoint_steps(self.checkpoint)
            raise lost(error, self.card, steps, self.checkpoint, kept) from error

    @property
    def figures(self) -> dict[str, float]:
        """Validation figures of the best weights so far."""
        return self.best.figures

    def evaluate(self) -> dict[str, float]:
        """Run the validation loads, and keep the weights if they are the best so far.

        Returns:
            Figures of the agent in its present state.
        """
        figures = self._validated()
        steps = int(self.model.num_timesteps)
        self._record({f"validation/{key}": value for key, value in figures.items()}, steps)
        # By return alone, also where other figures are worse.
        if not self.best.weights or figures["return"] > self.best.figures["return"]:
            self.best = BestWeights(steps, figures, self.weights())
        return figures

    def _direct(self, curriculum: Curriculum, act_above: float) -> None:
        """Shift episodes to the jobs on which the agent is far from the best plan."""
        gaps = curriculum.gaps(CapacityActor(self.weights(), self.shape, act_above))
        self.batch.source.job_odds = odds(gaps, curriculum.how.by_gap)
        steps = int(self.model.num_timesteps)
        told = {"mean": float(gaps.mean()), "highest": float(gaps.max())}
        self._record({f"gap/{key}": value for key, value in told.items()}, steps)

    def _validated(self) -> dict[str, float]:
        """Return figures of the agent as it is; of a capacity agent at its best threshold."""
        if self.config.ppo.needs.plain_layers:
            actor = StockActor(self.model.policy, self.shape)
            average = interquartile_mean if self.shape.choices is None else np.mean
            return validate(actor, self.validation, masked=False, average=average)
        if self.shape.choices is None:
            return validate(self.model.policy, self.validation, masked=self.masked)
        # Lateness is rare and dear, and its price is paid on the mean: no interquartile mean here,
        # which would drop the rare late days.
        tried = [
            validate(
                CapacityActor(self.weights(), self.shape, threshold),
                self.validation,
                average=np.mean,
            )
            | {"act_above": threshold}
            for threshold in self.config.ppo.act_above
        ]
        return max(tried, key=lambda figures: figures["return"])

    def weights(self) -> dict[str, Floats32]:
        """Copy the network's weights.

        Returns:
            Float32 arrays by the names that NumPy inference uses.
        """
        state = self._network.state_dict()
        return {key: value.detach().numpy().copy() for key, value in state.items()}

    @property
    def _network(self) -> nn.Module:
        """The module with all weights of the agent."""
        policy = self.model.policy
        found: nn.Module = (
            policy if self.config.ppo.needs.plain_layers else policy.features_extractor
        )
        return found

    def save(self) -> None:
        """Write a checkpoint from which training continues bit for bit."""
        write_checkpoint(
            self.checkpoint,
            {
                "config": self.config.model_dump(mode="json", by_alias=True),
                "seed": self.seed,
                "steps": int(self.model.num_timesteps),
                "policy": self.weights(),
                # Gigabytes on a card: there a training continues with new episodes.
                "env": None if self.card else self.env.save(),
                **self.model.state(),
                "best": {
                    "steps": self.best.steps,
                    "figures": self.best.figures,
                    "weights": self.best.weights,
                },
                "samples": list(self.samples),
                "curriculum": self._directed(),
            },
        )

    def _directed(self) -> Tree | None:
        """Return the state of the curriculum; None without one."""
        if self.curriculum is None or self.curriculum.best is None:
            return None
        return {"best": self.curriculum.best, "odds": self.batch.source.job_odds}

    def sample(self) -> None:
        """Keep some observations of the rollout, evenly over time and jobs."""
        self._keep(self.model.observations)

    def _keep(self, flat: Floats32) -> None:
        stride = max(1, len(flat) // SAMPLE_ROWS)
        # An odd stride is prime to powers of two, the usual numbers of jobs, and visits all of
        # them.
        self.samples.append(flat[:: stride | 1][:SAMPLE_ROWS].copy())
        if len(self.samples) > SAMPLES_KEPT:
            # Every second sample is dropped, so that the rest stays spread over all of training.
            self.samples = self.samples[::2]

    def tick(self, figures: dict[str, float]) -> None:
        """Report, evaluate, write a checkpoint and stop, as due between two updates.

        Args:
            figures: Figures of the last update.
        """
        steps, agent = int(self.model.num_timesteps), self.config.ppo
        if steps == self._resumed_at > 0:
            return  # done before the checkpoint was written
        rollout = agent.n_envs * agent.n_steps
        if figures:
            self._record(figures, steps)
        if _due(steps, rollout, agent.evaluated_every):
            found = self.evaluate()
            if self.curriculum is not None and steps:
                self._direct(self.curriculum, found["act_above"])
        self._progress(
            "learn",
            steps,
            agent.total_steps,
            {**figures, **{f"best_{key}": value for key, value in self.best.figures.items()}},
        )
        if self.stop or (steps and _due(steps, rollout, agent.checkpoint_every)):
            self.save()
        if self.stop:
            raise TrainingInterrupted

    def _begin(self) -> None:
        agent = self.config.ppo
        self.env.reset()
        if agent.warm_start is not None:
            shown = self._shown(agent.warm_start)
            self._normalise(shown.observations)
            self._imitate(shown, agent.warm_start)
            if not agent.total_steps:  # no rollout to sample from will follow
                self._keep(shown.observations)
        if agent.offline is not None:
            self._learn_offline(agent.offline, normalise=agent.warm_start is None)
        elif agent.warm_start is None and not agent.needs.plain_layers:
            self._normalise(_calibrated(self.batch))
        # Learning starts on the first episodes of the seed's streams, whether or not anything came
        # before: results do not depend on the length of calibration.
        self.env.seed(self.seed)

    def _prepare(self, stage: str, done: int, of: int, figures: dict[str, float]) -> None:
        """Report progress before learning, of which no checkpoint is kept: a stop is at once."""
        self._progress(stage, done, of, figures)
        if self.stop:
            raise TrainingInterrupted

    def _shown(self, warm: WarmStartConfig) -> Demonstrations:
        if warm.teacher is not None:

            def told(done: int) -> None:
                self._prepare("watch", min(done, warm.decisions), warm.decisions, {})

            gamma = self.config.ppo.gamma
            return demonstrate(self.batch, warm.teacher, warm.decisions, gamma, told)
        seen = read_transitions(self.config, warm)
        return demonstrated(seen, self.config, warm.min_propensity)

    def _imitate(self, shown: Demonstrations, warm: WarmStartConfig) -> None:
        def told(epoch: int, loss: float) -> None:
            self._prepare("imitate", epoch, warm.epochs, {"imitation_loss": loss})

        agreement = clone(self.model.policy, shown, warm, self.config.ppo, told)
        self._record({"warm_start/agreement": agreement}, 0)

    def _learn_offline(self, offline: OfflineConfig, *, normalise: bool) -> None:
        def told(epoch: int, loss: float) -> None:
            self._prepare("offline", epoch, offline.epochs, {"offline_loss": loss})

        seen = read_transitions(self.config, offline)
        if normalise:
            self._normalise(seen.observation)
        if not self.config.ppo.total_steps:
            self._keep(seen.observation)
        self._record(improve(self.model.policy, seen, offline, self.config, told), 0)

    def _normalise(self, observations: Floats32) -> None:
        """Fix the shift and scale of each feature from observations made before learning."""
        vertex, job = by_feature(observations, self.shape.vertices)
        network = self.model.policy.features_extractor
        for name, values in (("vertex", vertex), ("job", job)):
            if not values.shape[1]:
                continue
            mean, std = values.mean(axis=0), values.std(axis=0)
            # A constant feature is left unscaled: it may vary for another job.
            varied = std > 1e-6
            shift = np.where(varied, mean, 0.0)
            scale = np.where(varied, 1 / np.maximum(std, SMALLEST_STD), 1.0)
            getattr(network, f"{name}_shift").copy_(torch.from_numpy(shift))
            getattr(network, f"{name}_scale").copy_(torch.from_numpy(scale))

    def _restore(self) -> None:
        saved = read_checkpoint(self.checkpoint)
        refuse_other_config(self.checkpoint, saved["config"], self.config)
        self._network.load_state_dict({k: torch.from_numpy(v) for k, v in saved["policy"].items()})
        if saved["env"] is not None and not self.card:
            self.env.load(saved["env"])
        self.model.restore(saved)
        best = saved["best"]
        self.best = BestWeights(best["steps"], best["figures"], best["weights"])
        self.samples = list(saved["samples"])
        if self.curriculum is not None and (directed := saved.get("curriculum")) is not None:
            self.curriculum.best, self.batch.source.job_odds = directed["best"], directed["odds"]


def ppo(env: Sb3VecEnv, agent: AgentConfig, shape: NetworkShape, seed: int) -> BatchLearner:
    """Make PPO, by the learner that the experiment chooses.

    Returns:
        This project's, or Stable-Baselines3's.
    """
    return (NativePpo if agent.learner == "native" else Sb3Ppo)(env, agent, shape, seed)


def shape_of(config: ExperimentConfig, batch: AutoscaleBatch) -> NetworkShape:
    """Derive the network's shape from an experiment.

    Returns:
        A shape over vertices, or over the job as a whole for capacity actions.

    Raises:
        ConfigError: The network encodes vertices, and the agent observes none.
    """
    given = config.ppo.network.model_dump()
    codec = batch.codec
    if config.ppo.needs.plain_layers:
        given["whole"], given["lstm"] = True, lstm_width(config.ppo)
    if config.env.action == "capacity":
        if config.ppo.network.encoder != "mlp":
            raise ConfigError(
                "capacity actions see the job as a whole, not its vertices",
                key="agent.network.encoder",
                value=config.ppo.network.encoder,
                remedy="Set agent.network.encoder: mlp.",
            )
        (choices,), features = codec.choices, codec.observation_size
        return NetworkShape(
            **given, vertices=0, vertex_features=0, job_features=features, choices=choices
        )
    given["single"] = config.ppo.needs.flat_actions
    return NetworkShape(**given, vertices=batch.vertices, vertex_features=FV, job_features=FJ)


def by_feature(observations: Floats32, vertices: int) -> tuple[Floats32, Floats32]:
    """Split observations into features, without padding.

    Returns:
        Vertex features (rows, Fv) and job features (rows, Fj); the former empty where there are no
        columns for vertices.
    """
    if not vertices:
        return np.zeros((0, 0), np.float32), observations
    layout = ObservationLayout(vertices)
    vertex = observations[:, layout.vertex].reshape(-1, FV)
    return vertex[observations[:, layout.mask].reshape(-1) > 0], observations[:, layout.job]


def _calibrated(batch: AutoscaleBatch) -> Floats32:
    """Collect observations of jobs under random valid moves, or re-targeted now and then."""
    rng = np.random.Generator(np.random.Philox(key=int(batch.base_seeds[0])))
    seen = []
    for _ in range(CALIBRATION_STEPS):
        step = batch.step(_drawn(batch, rng))
        seen.append(step.observation)
        done = step.terminated | step.truncated
        if done.any():
            batch.reset(done)
    return np.concatenate(seen)


def _drawn(batch: AutoscaleBatch, rng: np.random.Generator) -> Ints:
    """Draw random moves of all vertices, or for a few jobs a capacity."""
    if batch.config.action == "vertex":
        return rng.integers(0, [7, 3] * batch.vertices, (len(batch), 2 * batch.vertices))
    masks = batch.action_masks()
    wanted = rng.random(masks.shape) * masks
    acts = rng.random(len(batch)) < CALIBRATION_ACTS
    return np.where(acts, wanted.argmax(axis=1), HOLD)[:, None]


def _due(steps: int, rollout: int, every: int) -> bool:
    """Return whether a multiple of `every` was passed during the last rollout, or at the start."""
    return steps // every != (steps - rollout) // every
