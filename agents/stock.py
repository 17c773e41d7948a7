"""Other algorithms of Stable-Baselines3 and sb3-contrib on the batch of jobs, unmodified."""

from __future__ import annotations

import inspect
from copy import deepcopy
from typing import Any, ClassVar

import numpy as np
import torch
from sb3_contrib import QRDQN, TRPO, RecurrentPPO
from sb3_contrib.common.recurrent.type_aliases import RNNStates
from stable_baselines3 import A2C, DQN
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.logger import configure
from torch import nn

from agents.checkpoint import Tree
from agents.network import NetworkShape
from agents.sb3_ppo import Sb3Ppo, schedule_of
from agents.sb3_vec import Sb3VecEnv
from dsp_gym.arrays import Floats32, Ints
from dsp_gym.envs.single_move import pairs_of
from dsp_gym.errors import ConfigError, did_you_mean
from dsp_gym.experiments.agent import AgentConfig

LSTM_WIDTH = 256
"""RecurrentPPO's default of `lstm_hidden_size`."""

KEPT_DECISIONS = 100_000
"""Decisions that a replay buffer holds, unless `params` says otherwise."""

REPLAYED = ("observations", "next_observations", "actions", "rewards", "dones", "timeouts")


class StockActor:
    """A policy of Stable-Baselines3 that answers with actions of the batch.

    An LSTM's memory starts with the actor: other episodes need another actor.

    Args:
        policy: The policy.
        shape: Shape of its network.
    """

    def __init__(self, policy: Any, shape: NetworkShape) -> None:
        self.policy, self.shape = policy, shape
        self._memory: Any = None

    def predict(self, observation: Floats32, *, deterministic: bool) -> tuple[Ints, None]:
        """Decide.

        Returns:
            Actions (J, parts), and no hidden state: the actor keeps it.
        """
        chosen, self._memory = self.policy.predict(
            observation, state=self._memory, deterministic=deterministic
        )
        chosen = np.asarray(chosen, np.int64)
        if self.shape.single:
            return pairs_of(chosen, self.shape.vertices), None
        return chosen.reshape(len(observation), -1), None


class StockLearner(Sb3Ppo):
    """A stock algorithm on the batch of an environment, with layers over the whole observation.

    A subclass names an algorithm that follows Stable-Baselines3, and the keys that it takes.

    Args:
        env: The jobs, with flat actions where the algorithm needs them.
        agent: Hyperparameters.
        shape: Shape of the network.
        seed: Seed of network, exploration and environments.
    """

    algorithm: ClassVar[type[BaseAlgorithm]]
    network: ClassVar[str] = "MlpPolicy"
    keys: ClassVar[tuple[str, ...]] = ("n_steps", "gamma", "gae_lambda")
    """Keys of the section `agent` that are arguments of the same name."""

    def __init__(self, env: Sb3VecEnv, agent: AgentConfig, shape: NetworkShape, seed: int) -> None:
        self.threads = agent.threads or 1
        torch.set_num_threads(self.threads)
        activation = nn.Tanh if shape.activation == "tanh" else nn.ReLU
        algorithm: Any = self.algorithm
        given: Tree = deepcopy(agent.params)
        network: Tree = given.pop("policy_kwargs", {})
        for name in {"net_arch", "activation_fn"} & network.keys():
            raise ConfigError(
                "is said by agent.network",
                key=f"agent.params.policy_kwargs.{name}",
                remedy="Set agent.network.hidden and agent.network.activation.",
            )
        known = [*inspect.signature(algorithm).parameters]
        if agent.needs.lstm:
            _refuse_other_memory(network)
        for name in agent.params:
            if name not in known:
                raise ConfigError(
                    f"{algorithm.__name__} takes no argument '{name}'",
                    key="agent.params",
                    remedy=did_you_mean(name, known),
                )
        self.model: Any = algorithm(
            self.network,
            env,
            **{
                "learning_rate": schedule_of(agent),
                "policy_kwargs": {
                    "net_arch": list(shape.hidden),
                    "activation_fn": activation,
                    **network,
                },
                "seed": seed,
                "device": "cpu",
                **self.arguments(agent),
                **given,
            },
        )
        self.model.set_logger(configure(None, []))
        # Value-based algorithms have no action_net: they explore by epsilon, not by their logits.
        if hasattr(self.model.policy, "action_net"):
            _hold_first(self.model.policy.action_net, shape)

    def arguments(self, agent: AgentConfig) -> dict[str, object]:
        """Return the section `agent` as arguments of the algorithm.

        Returns:
            Values by the algorithm's own names.
        """
        return {key: getattr(agent, key) for key in self.keys}

    @property
    def observations(self) -> Floats32:
        """Observations of the last rollout, or of the replay buffer, (N, size)."""
        replay = getattr(self.model, "replay_buffer", None)
        if replay is None:
            # PPO and its kin have a rollout buffer, value-based algorithms a replay buffer.
            return super().observations
        seen: Floats32 = replay.observations[: _filled(replay)]
        return seen.reshape(-1, seen.shape[-1])

    def state(self) -> Tree:
        """Return everything the next update depends on, except weights and environments.

        Returns:
            Arrays and JSON values; `restore` continues from there.
        """
        saved = super().state()
        remembered = getattr(self.model, "_last_lstm_states", None)
        if remembered is not None:
            saved["remembered"] = {
                name: torch.stack(getattr(remembered, name)).numpy() for name in RNNStates._fields
            }
        replay = getattr(self.model, "replay_buffer", None)
        if replay is not None:
            filled = _filled(replay)
            saved["replay"] = {
                "calls": int(self.model._n_calls),
                "explores": float(self.model.exploration_rate),
                "place": int(replay.pos),
                "full": bool(replay.full),
                "random": self.model.action_space.np_random.bit_generator.state,
                **{name: getattr(replay, name)[:filled].copy() for name in REPLAYED},
            }
        return saved

    def restore(self, saved: Tree) -> None:
        """Continue from `state()` and the number of steps."""
        super().restore(saved)
        if "remembered" in saved:
            held = saved["remembered"]
            self.model._last_lstm_states = RNNStates(
                *(tuple(torch.from_numpy(held[name])) for name in RNNStates._fields)
            )
        if "replay" not in saved:
            return
        held, replay = saved["replay"], self.model.replay_buffer
        self.model._n_calls, self.model.exploration_rate = held["calls"], held["explores"]
        replay.pos, replay.full = held["place"], held["full"]
        self.model.action_space.np_random.bit_generator.state = held["random"]
        for name in REPLAYED:
            getattr(replay, name)[: len(held[name])] = held[name]


class A2cLearner(StockLearner):
    """A2C of Stable-Baselines3."""

    algorithm: ClassVar[type[BaseAlgorithm]] = A2C
    keys = (*StockLearner.keys, "ent_coef", "vf_coef", "max_grad_norm")


class RecurrentPpoLearner(A2cLearner):
    """PPO of sb3-contrib, with an LSTM before its layers."""

    algorithm: ClassVar[type[BaseAlgorithm]] = RecurrentPPO
    network = "MlpLstmPolicy"
    keys = (*A2cLearner.keys, "batch_size", "n_epochs", "clip_range", "target_kl")


class TrpoLearner(StockLearner):
    """TRPO of sb3-contrib."""

    algorithm = TRPO
    keys = (*StockLearner.keys, "batch_size")

    def arguments(self, agent: AgentConfig) -> dict[str, object]:
        limit = {} if agent.target_kl is None else {"target_kl": agent.target_kl}
        return super().arguments(agent) | {"n_critic_updates": agent.n_epochs} | limit


class DqnLearner(StockLearner):
    """DQN of Stable-Baselines3."""

    algorithm: ClassVar[type[BaseAlgorithm]] = DQN
    keys = ("gamma", "batch_size", "max_grad_norm")

    def arguments(self, agent: AgentConfig) -> dict[str, object]:
        return super().arguments(agent) | {
            "train_freq": agent.n_steps,
            "gradient_steps": agent.n_epochs,
            "learning_starts": agent.n_envs * agent.n_steps,
            "buffer_size": KEPT_DECISIONS,
        }


class QrDqnLearner(DqnLearner):
    """QR-DQN of sb3-contrib."""

    algorithm = QRDQN


def lstm_width(agent: AgentConfig) -> int | None:
    """Return the width of the LSTM of an experiment's network.

    Returns:
        Numbers that it remembers; None: the algorithm has no LSTM.

    Raises:
        ConfigError: The configured width is not valid.
    """
    if not agent.needs.lstm:
        return None
    network = agent.params.get("policy_kwargs")
    width = network.get("lstm_hidden_size", LSTM_WIDTH) if isinstance(network, dict) else LSTM_WIDTH
    if type(width) is not int or not 1 <= width <= 1024:
        raise ConfigError(
            "is not a valid LSTM width",
            key="agent.params.policy_kwargs.lstm_hidden_size",
            value=width,
            remedy="Give a whole number from 1 to 1,024.",
        )
    return width


def _refuse_other_memory(network: Tree) -> None:
    """Refuse an LSTM other than one layer with torch's defaults, as a policy folder holds it."""
    for name, only in (("n_lstm_layers", 1), ("lstm_kwargs", None)):
        if network.get(name, only) != only:
            raise ConfigError(
                "a policy folder holds an LSTM of one layer, with torch's defaults",
                key=f"agent.params.policy_kwargs.{name}",
                value=network[name],
                remedy="Leave it out; lstm_hidden_size makes the LSTM wider.",
            )


def _hold_first(head: Any, shape: NetworkShape) -> None:
    """Bias a fresh agent to hold: moving at random from the start, it would see only outages."""
    with torch.no_grad():
        head.bias.view(-1)[shape.starts[:-1].tolist()] = shape.hold_bias


def _filled(replay: Any) -> int:
    """Return the number of rows of a replay buffer that hold decisions."""
    return int(replay.buffer_size if replay.full else replay.pos)
