"""PPO of Stable-Baselines3 on the batch of jobs: the learner `sb3`."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from sb3_contrib import MaskablePPO
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import configure

from agents.actor_critic import MaskableVertexPolicy, VertexPolicy, policy_arguments
from agents.checkpoint import Tree
from agents.network import NetworkShape
from agents.sb3_vec import Sb3VecEnv
from dsp_gym.arrays import Floats32
from dsp_gym.experiments.agent import AgentConfig


class Sb3Ppo:
    """PPO on the batch of an environment.

    Args:
        env: The jobs.
        agent: Hyperparameters.
        shape: Shape of the network.
        seed: Seed of network, exploration and environments.
    """

    def __init__(self, env: Sb3VecEnv, agent: AgentConfig, shape: NetworkShape, seed: int) -> None:
        self.threads = agent.threads or 1
        torch.set_num_threads(self.threads)
        algorithm, policy = (
            (MaskablePPO, MaskableVertexPolicy) if agent.needs.masked else (PPO, VertexPolicy)
        )
        self.model: Any = algorithm(
            policy,  # type: ignore[arg-type]  # one of two, with its own algorithm
            env,
            learning_rate=schedule_of(agent),
            n_steps=agent.n_steps,
            batch_size=agent.batch_size,
            n_epochs=agent.n_epochs,
            gamma=agent.gamma,
            gae_lambda=agent.gae_lambda,
            clip_range=agent.clip_range,
            ent_coef=agent.ent_coef,
            # Names of Stable-Baselines3's arguments; `AgentConfig` uses the same where it can.
            vf_coef=agent.vf_coef,
            max_grad_norm=agent.max_grad_norm,
            target_kl=agent.target_kl,
            policy_kwargs=policy_arguments(shape),
            seed=seed,
            device="cpu",
        )
        self.model.set_logger(configure(None, []))

    @property
    def policy(self) -> MaskableVertexPolicy | VertexPolicy:
        """Actor and critic."""
        policy: MaskableVertexPolicy | VertexPolicy = self.model.policy
        return policy

    @property
    def num_timesteps(self) -> int:
        """Decisions learned from, over all jobs."""
        return int(self.model.num_timesteps)

    @property
    def observations(self) -> Floats32:
        """Observations of the last rollout, (T J, size)."""
        seen: Floats32 = self.model.rollout_buffer.observations
        return seen.reshape(-1, seen.shape[-1])

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
        self.model.learn(
            until - self.num_timesteps,
            callback=_Callback(between, sampled),
            reset_num_timesteps=False,
        )

    def state(self) -> Tree:
        """Return everything the next update depends on, except weights and environments.

        Returns:
            Arrays and JSON values; `restore` continues exactly.
        """
        model = self.model
        if model._last_obs is None:
            model._setup_learn(0, reset_num_timesteps=False)
        optimizer = model.policy.optimizer.state_dict()["state"]
        return {
            "updates": int(model._n_updates),
            "optimizer": {
                str(key): {name: np.asarray(value) for name, value in entry.items()}
                for key, entry in optimizer.items()
            },
            "observation": np.asarray(model._last_obs),
            "starts": np.asarray(model._last_episode_starts),
            "episodes": list(model.ep_info_buffer or ()),
            "random": _random_state(),
        }

    def restore(self, saved: Tree) -> None:
        """Continue from `state()` and the number of steps."""
        model = self.model
        groups = model.policy.optimizer.state_dict()["param_groups"]
        state = {
            int(key): {name: torch.from_numpy(value) for name, value in entry.items()}
            for key, entry in saved["optimizer"].items()
        }
        model.policy.optimizer.load_state_dict({"state": state, "param_groups": groups})
        model.num_timesteps, model._n_updates = saved["steps"], saved["updates"]
        model._last_obs = saved["observation"]
        model._last_episode_starts = saved["starts"]
        model._setup_learn(0, reset_num_timesteps=False)
        model.ep_info_buffer.extend(saved["episodes"])
        _restore_random(saved["random"])


class _Callback(BaseCallback):
    """Hooks between two updates, where everything is at rest: evaluating, writing, stopping."""

    def __init__(
        self, between: Callable[[dict[str, float]], None], sampled: Callable[[], None]
    ) -> None:
        super().__init__()
        self.between, self.sampled = between, sampled

    def _on_rollout_start(self) -> None:
        self.between(
            {
                key: float(value)
                for key, value in self.logger.name_to_value.items()
                if key.startswith(("train/", "rollout/"))
                and isinstance(value, int | float | np.number)
            }
        )

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        self.sampled()


def schedule_of(agent: AgentConfig) -> float | Callable[[float], float]:
    """Return the learning rate over a training in the form that Stable-Baselines3 takes.

    Returns:
        A number, or a function of the share of training left.
    """
    if agent.schedule == "constant":
        return agent.learning_rate
    rate = agent.learning_rate
    # The last rollout may exceed the end: without the bound its rate would be negative and ascend.
    return lambda remaining: rate * max(remaining, 0.0)


def _random_state() -> dict[str, object]:
    """Return the states of the three global generators, from which Stable-Baselines3 draws."""
    kind, keys, position, has_gauss, cached = np.random.get_state(legacy=True)  # noqa: NPY002
    version, internal, gauss = random.getstate()
    return {
        "torch": torch.get_rng_state().numpy(),
        "numpy": {
            "kind": kind,
            "keys": np.asarray(keys),
            "position": int(position),
            "has_gauss": int(has_gauss),
            "cached": float(cached),
        },
        "python": {
            "version": version,
            "internal": np.array(internal, dtype=np.uint32),
            "gauss": gauss,
        },
    }


def _restore_random(saved: Tree) -> None:
    torch.set_rng_state(torch.from_numpy(saved["torch"]))
    numpy, python = saved["numpy"], saved["python"]
    np.random.set_state(  # noqa: NPY002
        (numpy["kind"], numpy["keys"], numpy["position"], numpy["has_gauss"], numpy["cached"])
    )
    internal = tuple(int(value) for value in python["internal"])
    random.setstate((python["version"], internal, python["gauss"]))
