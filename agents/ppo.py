"""PPO on the batch of jobs, implemented here: the learner `native`.

Loss, advantages and Adam are those of Stable-Baselines3, against which tests compare them. The
implementation differs: weights and gradients are one vector each, a rollout is normalised once, and
a minibatch is cut into pieces whose gradients are coded by hand (`agents.gradients`), for several
cores. A piece's place in the sum does not depend on the number of cores, hence neither do results.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from agents.actor_critic import MaskableVertexPolicy, VertexPolicy, policy_arguments
from agents.checkpoint import Tree
from agents.gradients import Flat, RolloutInputs, RowPiece, piece_of, piece_rows
from agents.kernels import (
    Coefficients,
    RolloutDecisions,
    advantages,
    draw,
    links_of,
    normalise,
    surrogate,
)
from agents.network import OBSERVATION_LIMIT, NetworkShape
from agents.sb3_vec import Sb3VecEnv
from dsp_gym.arrays import Floats, Floats32, Ints
from dsp_gym.engine import cores
from dsp_gym.envs.action import HOLD, LOGITS, MOVES
from dsp_gym.experiments.agent import AgentConfig

LANES = 4
"""Partial sums that make up a minibatch's gradient; as many cores can work on it."""

ADAM_EPS, BETA_1, BETA_2 = 1e-5, 0.9, 0.999
"""Constants of Adam, as in Stable-Baselines3."""

FIGURES = ("policy_gradient_loss", "value_loss", "entropy_loss", "approx_kl", "clip_fraction")
EPISODES_KEPT = 100
STREAM = 0x70706F
"""Second half of the key of the learner's random numbers; the seed is the first."""


class Rollout:
    """T decisions of J jobs; row t J + j is decision t of job j."""

    def __init__(self, steps: int, env: Sb3VecEnv, shape: NetworkShape) -> None:
        jobs, size = env.num_envs, env.batch.codec.observation_size
        width = shape.vertices * (shape.vertex_features + 1) + shape.job_features
        self.observations = np.zeros((steps, jobs, size), np.float32)
        # One row more: the observation after the last decision, whose value ends the advantages.
        self.inputs = np.zeros((steps + 1, jobs, width), np.float32)
        self.starts = shape.starts
        self.actions = np.zeros((steps, jobs, len(self.starts) - 1), np.int64)
        self.masks = np.ones((steps, jobs, shape.logits), bool)
        self.values = np.zeros((steps + 1, jobs), np.float32)
        self.rewards, self.log_prob, self.advantage, self.target = np.zeros(
            (4, steps, jobs), np.float32
        )
        self.ends = np.zeros((steps, jobs), bool)
        self.flat_inputs = torch.from_numpy(self.inputs.reshape(-1, width))

    def decisions(self, advantage: Floats32) -> RolloutDecisions:
        """Return all decisions as rows, with the given advantages (T J,).

        Returns:
            Views of the rollout's arrays.
        """
        size = self.rewards.size
        return RolloutDecisions(
            self.actions.reshape(size, -1),
            self.masks.reshape(size, -1),
            self.starts,
            self.log_prob.reshape(size),
            advantage,
            self.target.reshape(size),
        )


@dataclass
class Lane:
    """Buffers for one partial sum of a minibatch, used by one core at a time."""

    gradient: Flat
    figures: Floats
    pieces: dict[int, RowPiece]


class Ppo(ABC):
    """The course of PPO: rollouts and updates in turn, on whichever device.

    Args:
        env: The jobs.
        agent: Hyperparameters.
        shape: Shape of the network.
        seed: Seed of network, exploration and environments.
    """

    moments: Tensor
    """(2, weights) means of gradients and of their squares, of Adam."""

    def __init__(self, env: Sb3VecEnv, agent: AgentConfig, shape: NetworkShape, seed: int) -> None:
        self.env, self.agent, self.shape = env, agent, shape
        self.masked = agent.needs.masked
        torch.set_num_threads(1)  # cores work on pieces, not within a product
        torch.manual_seed(seed)
        env.seed(seed)
        self.policy = (MaskableVertexPolicy if self.masked else VertexPolicy)(
            env.observation_space,
            env.action_space,
            lambda _: agent.learning_rate,
            **policy_arguments(shape),  # type: ignore[arg-type]  # of Stable-Baselines3
        )
        self.generator = np.random.Generator(np.random.Philox(key=[seed, STREAM]))
        self.num_timesteps = self.updates = self.adam_steps = 0
        self.episodes: deque[Tree] = deque(maxlen=EPISODES_KEPT)
        self.observation = np.zeros((0, 0), np.float32)  # none yet
        self.weights = gathered(self.policy.features_extractor)

    @abstractmethod
    def begin(self) -> None:
        """Make the first observation, where there is none."""

    @abstractmethod
    def collect(self) -> None:
        """Make the decisions of a rollout, and compute their advantages."""

    @abstractmethod
    def update(self, learning_rate: float) -> dict[str, float]:
        """Learn from the rollout.

        Args:
            learning_rate: Learning rate of this update.

        Returns:
            Figures by the names that Stable-Baselines3 uses.
        """

    def learn(
        self,
        until: int,
        between: Callable[[dict[str, float]], None] = lambda figures: None,
        sampled: Callable[[], None] = lambda: None,
    ) -> None:
        """Learn until a number of decisions, including the first rollout that reaches it.

        Args:
            until: Decisions over all jobs, including those before.
            between: Called before each rollout with the figures of the last update.
            sampled: Called after each rollout.
        """
        self.begin()
        figures: dict[str, float] = {}
        while self.num_timesteps < until:
            between(figures)
            # The share left when the rollout begins, so that the last update has a rate above zero.
            left = 1 - self.num_timesteps / until if self.agent.schedule == "linear" else 1.0
            self.collect()
            sampled()
            figures = self.update(self.agent.learning_rate * left)

    def state(self) -> Tree:
        """Return everything the next update depends on, except weights and environments.

        Returns:
            Arrays and JSON values; `restore` continues exactly.
        """
        self.begin()
        return {
            "updates": self.updates,
            "optimizer": {"steps": self.adam_steps, "moments": self.moments.cpu().numpy().copy()},
            "observation": self.observation,
            "episodes": list(self.episodes),
            "random": self.generator.bit_generator.state,
        }

    def restore(self, saved: Tree) -> None:
        """Continue from `state()`."""
        self.num_timesteps, self.updates = saved["steps"], saved["updates"]
        self.adam_steps = saved["optimizer"]["steps"]
        self.moments.copy_(torch.from_numpy(saved["optimizer"]["moments"]))
        self.observation = saved["observation"]
        self.episodes.extend(saved["episodes"])
        self.generator.bit_generator.state = saved["random"]

    def fresh_seed(self) -> int:
        """Draw a seed for environments that begin again.

        Returns:
            A seed that depends on the learner's own, and on what it has drawn before.
        """
        return int(self.generator.integers(0, 2**31))

    def _told(
        self, means: Sequence[float], explained: float, learning_rate: float
    ) -> dict[str, float]:
        """Return the figures of an update by the names that Stable-Baselines3 uses."""
        by_name = dict(zip(FIGURES, means, strict=True))
        by_name["entropy_loss"] = -by_name["entropy_loss"]
        told = {f"train/{name}": value for name, value in by_name.items()} | {
            "train/explained_variance": explained,
            "train/learning_rate": learning_rate,
            "train/n_updates": float(self.updates),
        }
        if self.episodes:
            for key, name in (("r", "rew"), ("l", "len")):
                told[f"rollout/ep_{name}_mean"] = float(np.mean([e[key] for e in self.episodes]))
        return told


class NativePpo(Ppo):
    """PPO on the cores of this machine.

    Args:
        env: The jobs.
        agent: Hyperparameters.
        shape: Shape of the network.
        seed: Seed of network, exploration and environments.
    """

    def __init__(self, env: Sb3VecEnv, agent: AgentConfig, shape: NetworkShape, seed: int) -> None:
        super().__init__(env, agent, shape, seed)
        self.rollout = Rollout(agent.n_steps, env, shape)
        self.moments = torch.zeros(2, len(self.weights.vector))
        self.lanes = [
            # One gradient vector per lane: lanes add without locks.
            Lane(
                Flat(torch.zeros_like(self.weights.vector), self.weights.by_name.items()),
                np.zeros(len(FIGURES)),
                {},
            )
            for _ in range(LANES)
        ]
        self.threads = agent.threads or min(LANES, cores())
        self.workers = ThreadPoolExecutor(self.threads, "ppo") if self.threads > 1 else None
        self.seen = RolloutInputs(
            self.rollout.flat_inputs, links_of(np.zeros((1, 1, 1), np.float32))
        )

    def restore(self, saved: Tree) -> None:
        """Continue from the `state()` of any device; after a GPU's, with new episodes."""
        super().restore(saved)
        if saved["env"] is None:
            self.env.seed(self.fresh_seed())

    @property
    def observations(self) -> Floats32:
        """Observations of the last rollout, (T J, size)."""
        return self.rollout.observations.reshape(-1, self.rollout.observations.shape[2])

    def begin(self) -> None:
        """Make the first observation, where there is none."""
        if not len(self.observation):
            self.observation = self.env.reset()
        # Edges are constant within a training: read from the first observation once.
        v = self.shape.vertices
        edges = self.observation[:, self.observation.shape[1] - v * v :]
        self.seen = RolloutInputs(
            self.rollout.flat_inputs, links_of(edges.reshape(len(edges), v, v))
        )

    def collect(self) -> None:
        """Make the decisions of a rollout, and compute their advantages."""
        rollout, agent = self.rollout, self.agent
        shift, scale = self._normalisation()
        prepare = partial(
            normalise,
            shift=shift,
            scale=scale,
            features=self.shape.vertex_features,
            limit=OBSERVATION_LIMIT,
        )
        for t in range(agent.n_steps):
            rollout.observations[t] = self.observation
            prepare(self.observation, inputs=rollout.inputs[t])
            self._allow(t)
            self._decide(t)
            observation, rewards, ends, infos = self.env.step(rollout.actions[t])
            self.num_timesteps += len(rewards)
            cut = [j for j in np.flatnonzero(ends) if infos[j]["TimeLimit.truncated"]]
            self.episodes.extend(infos[j]["episode"] for j in np.flatnonzero(ends))
            if cut:  # truncated by the clock, would have continued
                terminal = np.stack([infos[j]["terminal_observation"] for j in cut])
                rewards[cut] += np.float32(agent.gamma) * self._values(terminal)
            rollout.rewards[t], rollout.ends[t] = rewards, ends
            self.observation = np.asarray(observation, np.float32)
        prepare(self.observation, inputs=rollout.inputs[-1])
        self._in_lanes(partial(self._judge, t=agent.n_steps), self.env.num_envs)
        advantages(
            rollout.rewards,
            rollout.values,
            rollout.ends,
            agent.gamma,
            agent.gae_lambda,
            rollout.advantage,
        )
        np.add(rollout.advantage, rollout.values[:-1], out=rollout.target)

    def update(self, learning_rate: float) -> dict[str, float]:
        """Learn from the rollout.

        Args:
            learning_rate: Learning rate of this update.

        Returns:
            Figures by the names that Stable-Baselines3 uses.
        """
        agent, rollout = self.agent, self.rollout
        seen: list[Floats] = []
        for _ in range(agent.n_epochs):
            # A permutation per epoch, as in Stable-Baselines3: every decision is used once.
            order = self.generator.permutation(rollout.rewards.size)
            self.updates += 1
            for start in range(0, len(order), agent.batch_size):
                gradient, figures = self.gradient(order[start : start + agent.batch_size])
                seen.append(figures)
                if self._is_far(figures):
                    break
                self._step(gradient, learning_rate)
            if self._is_far(seen[-1]):
                break
        values, target = rollout.values[:-1], rollout.target
        means = np.mean(seen, axis=0).tolist()
        return self._told(means, _explained(values, target), learning_rate)

    def gradient(self, rows: Ints) -> tuple[Tensor, Floats]:
        """Compute the gradient of the loss over some rows of the rollout.

        Args:
            rows: (R,) indices of the rows.

        Returns:
            The gradient, (weights,), and the means of `FIGURES`.
        """
        advantage = self.rollout.advantage.reshape(-1)
        if len(rows) > 1:
            own = advantage[rows]
            # Normalised over the minibatch with an unbiased deviation, as in Stable-Baselines3.
            advantage = (advantage - own.mean()) / (own.std(ddof=1) + np.float32(1e-8))
        share = Coefficients(
            *map(
                np.float32,
                (self.agent.clip_range, self.agent.ent_coef, self.agent.vf_coef, 1 / len(rows)),
            )
        )
        decisions = self.rollout.decisions(advantage)
        for lane in self.lanes:
            lane.gradient.vector.zero_()
            lane.figures[:] = 0

        def learn(lane: Lane, part: slice) -> None:
            piece, own = self._piece(lane, part), rows[part]
            piece.forward(self.weights.layers, self.seen, own)
            # Views of the lane's buffers: no allocation per piece.
            surrogate(
                piece.logits.array,
                piece.values.array,
                decisions,
                own,
                share,
                piece.d_logits.array,
                piece.d_values.array,
                lane.figures,
            )
            piece.backward(self.weights.layers, lane.gradient.layers)

        self._in_lanes(learn, len(rows))
        # Always summed in the order of the lanes: float sums depend on it, to the bit.
        whole = self.lanes[0]
        for lane in self.lanes[1:]:
            whole.gradient.vector.add_(lane.gradient.vector)
        return whole.gradient.vector, np.sum([lane.figures for lane in self.lanes], axis=0)

    def _allow(self, t: int) -> None:
        """Mark the valid moves of step t; a padded vertex can only hold."""
        masks = self.rollout.masks[t]
        masks[:] = self.env.batch.action_masks() if self.masked else True
        if not self.shape.vertices:
            return
        job, vertex = np.nonzero(self.rollout.inputs[t][:, -self.shape.vertices :] == 0)
        by_vertex = masks.reshape(len(masks), -1, LOGITS)
        by_vertex[job, vertex] = np.isin(np.arange(LOGITS), (HOLD, MOVES))

    def _decide(self, t: int) -> None:
        rollout = self.rollout
        uniforms = self.generator.random(rollout.actions[t].shape, np.float32)

        def decide(lane: Lane, part: slice) -> None:
            logits = self._judge(lane, part, t)
            draw(
                logits,
                rollout.masks[t][part],
                uniforms[part],
                rollout.starts,
                rollout.actions[t][part],
                rollout.log_prob[t][part],
            )

        self._in_lanes(decide, self.env.num_envs)

    def _judge(self, lane: Lane, part: slice, t: int) -> Floats32:
        """Write the values of some jobs before step t.

        Returns:
            Their logits, (R, K).
        """
        jobs = self.env.num_envs
        piece = self._piece(lane, part)
        rows = np.arange(t * jobs + part.start, t * jobs + part.stop)
        piece.forward(self.weights.layers, self.seen, rows)
        self.rollout.values[t, part] = piece.values.array[:, 0]
        return piece.logits.array

    def _values(self, observations: Floats32) -> Floats32:
        with torch.no_grad():
            values: Floats32 = self.policy.predict_values(torch.from_numpy(observations)).numpy()
        return values[:, 0]

    def _in_lanes(self, work: Callable[[Lane, slice], object], count: int) -> None:
        """Run work on all rows: pieces are dealt to lanes, lanes to cores."""
        # Pieces of equal size where possible: buffers are kept by their number of rows.
        size = min(piece_rows(self.shape.vertices), -(-count // LANES))
        parts = [slice(start, min(start + size, count)) for start in range(0, count, size)]

        def run(number: int) -> None:
            for part in parts[number::LANES]:
                work(self.lanes[number], part)

        # The iterator is consumed so that an error in a lane is raised.
        for _ in (self.workers.map if self.workers else map)(run, range(LANES)):
            pass

    def _piece(self, lane: Lane, part: slice) -> RowPiece:
        rows = part.stop - part.start
        if rows not in lane.pieces:
            lane.pieces[rows] = piece_of(self.shape, rows)
        return lane.pieces[rows]

    def _is_far(self, figures: Floats) -> bool:
        """Return whether the policy has moved too far from the one that decided.

        Stable-Baselines3 stops an epoch by the same rule.
        """
        limit = self.agent.target_kl
        return limit is not None and bool(figures[FIGURES.index("approx_kl")] > 1.5 * limit)

    def _step(self, gradient: Tensor, learning_rate: float) -> None:
        """Take a step of Adam (Kingma and Ba, 2015), on a gradient of bounded norm."""
        gradient.mul_(min(1.0, self.agent.max_grad_norm / (float(gradient.norm()) + 1e-6)))
        self.adam_steps += 1
        mean, square = self.moments
        mean.lerp_(gradient, 1 - BETA_1)
        square.mul_(BETA_2).addcmul_(gradient, gradient, value=1 - BETA_2)
        # The two moments start at zero: dividing by 1 - beta^t removes the bias (algorithm 1).
        unbiased = 1 - BETA_1**self.adam_steps, math.sqrt(1 - BETA_2**self.adam_steps)
        length = square.sqrt().div_(unbiased[1]).add_(ADAM_EPS)
        self.weights.vector.addcdiv_(mean, length, value=-learning_rate / unbiased[0])

    def _normalisation(self) -> tuple[Floats32, Floats32]:
        """Return shift and scale of every feature column of an observation."""
        network, v = self.policy.features_extractor, self.shape.vertices
        shift, scale = (
            torch.cat(
                [getattr(network, f"vertex_{what}").repeat(v), getattr(network, f"job_{what}")]
            )
            for what in ("shift", "scale")
        )
        return shift.numpy(), scale.numpy()


def _explained(values: Floats32, target: Floats32) -> float:
    """Return the share of the targets' variance that the critic explains; NaN if it is zero."""
    variance = float(np.var(target))
    return 1 - float(np.var(target - values)) / variance if variance > 0 else math.nan


def gathered(network: nn.Module) -> Flat:
    """Move a network's weights into one vector, of which they remain views.

    Returns:
        The vector, and its parts.
    """
    # After this, stepping the vector steps every layer of the torch module.
    parameters = dict(network.named_parameters())
    flat = Flat(torch.cat([p.data.flatten() for p in parameters.values()]), parameters.items())
    for name, parameter in parameters.items():
        parameter.data = flat.by_name[name]
    return flat
