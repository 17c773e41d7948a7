"""Returns of rules and agents on the same episodes of an environment.

A rule decides on the snapshot, in parallelism and memory of every vertex; an agent chooses among
the environment's actions. Both take their steps in the environment itself, through its wrappers
and inside its guardrails, so that their returns compare.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast, runtime_checkable

import gymnasium
import numpy as np
from gymnasium.vector import VectorEnv

from dsp_gym.arrays import Floats, Ints
from dsp_gym.envs.batch import AutoscaleBatch
from dsp_gym.envs.single import AutoscaleEnv
from dsp_gym.errors import ConfigError
from dsp_gym.loop.protocols import Policy
from dsp_gym.policies.capabilities import FutureLoad, capabilities_of, without_reasons
from dsp_gym.policies.config import PolicyConfig
from dsp_gym.policies.registry import make

AnyEnv = gymnasium.Env[Any, Any]
"""A single environment, wrapped or not."""

Info = Mapping[str, object]
"""What an environment tells beside observation and reward."""

Act = Callable[..., object]
"""An agent as a function of observation and info, which returns an action."""


@runtime_checkable
class PredictingModel(Protocol):
    """An agent as Stable-Baselines3 and sb3-contrib have it."""

    @property
    def predict(self) -> Callable[..., tuple[object, object]]:
        """The method that gives an action, and the state of a recurrent network."""


Agent = str | Path | PolicyConfig | Policy | PredictingModel | Act
"""A policy by name, file or folder, or the object; a model with `predict`; or a function."""


@dataclass(frozen=True, slots=True, eq=False)
class PolicyReturns:
    """What one policy earned in each of n episodes."""

    policy: str
    seeds: tuple[int, ...]
    returns: Floats  # (n,) sum of the rewards of an episode, undiscounted
    lengths: Ints  # (n,) decisions
    costs: Floats  # (n,) money requested; NaN where `info` has no `cost`
    late_shares: Floats  # (n,) share of seconds beyond the SLO; NaN where `info` has no `slo_s`

    @property
    def mean(self) -> float:
        """Mean of the returns."""
        return float(self.returns.mean())

    @property
    def standard_error(self) -> float:
        """Standard error of that mean; NaN of a single episode."""
        n = len(self.returns)
        return float(self.returns.std(ddof=1) / np.sqrt(n)) if n > 1 else float("nan")

    def __str__(self) -> str:
        if len(self.seeds) == 1:
            return f"{self.policy}: return {self.mean:.2f} in 1 episode"
        return (
            f"{self.policy}: return {self.mean:.2f} ± {self.standard_error:.2f} in "
            f"{len(self.seeds)} episodes"
        )


def evaluate_policy(
    policy: Agent,
    env: str | AnyEnv,
    episodes: int = 20,
    seed: int = 0,
    name: str | None = None,
) -> PolicyReturns:
    """Play episodes of an environment with a rule or an agent and add up the rewards.

    Episode k is the first one after `env.reset(seed=seed + k)`, for every policy alike.

    Args:
        policy: A policy of this project by name ("ds2"), file or folder, or the object itself; a
            model with `predict`, as of Stable-Baselines3; or a function of observation and info.
        env: A single environment, wrapped or not, or its id.
        episodes: Number of episodes.
        seed: Seed of the first episode.
        name: What the result calls the policy; None: its own name.

    Returns:
        Returns, lengths, costs and late shares by episode.

    Raises:
        ConfigError: There is no such policy, or the environment does not fit it.
        PolicyError: The policy cannot be loaded.
    """
    if episodes < 1:
        raise ConfigError("expected 1 or more", key="episodes", value=episodes)
    if isinstance(env, VectorEnv):
        raise ConfigError(
            "expected a single environment, not a vector of them",
            key="env",
            remedy="Make it with gymnasium.make.",
        )
    made = gymnasium.make(env) if isinstance(env, str) else env
    try:
        player = _player_of(policy, made)
        played = [_play(made, player, seed + k) for k in range(episodes)]
    finally:
        if made is not env:
            made.close()
    returns, lengths, costs, late_s, seconds = (
        np.array(part) for part in zip(*played, strict=True)
    )
    return PolicyReturns(
        name or player.name,
        tuple(range(seed, seed + episodes)),
        returns.astype(np.float64),
        lengths.astype(np.int64),
        costs.astype(np.float64),
        late_s / seconds,
    )


class _Player(Protocol):
    """Chooses the argument of `env.step`."""

    name: str

    def begin(self, seed: int) -> None:
        """An episode has begun."""

    def act(self, observation: object, info: Info) -> object:
        """Return the next action."""


class _Rule:
    """A policy of this project, whose decisions are enacted as they are."""

    def __init__(self, policy: Policy, env: AnyEnv) -> None:
        inner = env.unwrapped
        if not isinstance(inner, AutoscaleEnv):
            raise ConfigError(
                f"the policy '{policy.name}' scales Flink jobs; it needs an environment of dsp-gym",
                key="env",
                value=str(inner),
            )
        layer = env
        while isinstance(layer, gymnasium.Wrapper):
            if isinstance(layer, gymnasium.ActionWrapper):
                raise ConfigError(
                    f"the wrapper {type(layer).__name__} translates actions; the policy "
                    f"'{policy.name}' takes none",
                    key="env",
                    remedy="Pass the environment without it: the same seeds give the same "
                    "episodes.",
                )
            layer = layer.env
        self.name, self._policy, self._core = policy.name, without_reasons(policy), inner.batch

    def begin(self, seed: int) -> None:
        core, can = self._core, capabilities_of(self._policy)
        if can.know_future is not None:
            if not isinstance(core, AutoscaleBatch):
                raise ConfigError(
                    f"the policy '{self.name}' must be told the load to come, which no real job "
                    "knows",
                    key="policy",
                )
            rates = core.jobs.rates[:, : core.config.episode_s]
            can.know_future(core.topology, FutureLoad(rates, core.config.interval_s))
        self._policy.reset(core.topology, np.array([seed], np.int64))

    def act(self, observation: object, info: Info) -> object:
        return self._policy.decide(self._core.snapshot)


class _OfModel:
    """A model with `predict`, with masks and a state where it has them; deterministic."""

    def __init__(self, model: PredictingModel, env: AnyEnv) -> None:
        self.name, self._model, self._env = type(model).__name__, model, env
        self._masked = "action_masks" in inspect.signature(model.predict).parameters
        self._state: object = None
        self._begins = True

    def begin(self, seed: int) -> None:
        self._state, self._begins = None, True

    def act(self, observation: object, info: Info) -> object:
        more: dict[str, object] = {}
        if self._masked:
            more["action_masks"] = self._env.get_wrapper_attr("action_masks")()
        action, self._state = self._model.predict(
            observation,
            state=self._state,
            episode_start=np.array([self._begins]),
            deterministic=True,
            **more,
        )
        self._begins = False
        return action


class _OfFunction:
    """A function of observation and info."""

    def __init__(self, function: Act) -> None:
        self.name = getattr(function, "__name__", type(function).__name__)
        self.act = function

    def begin(self, seed: int) -> None:
        """Nothing is remembered here."""


def _player_of(policy: Agent, env: AnyEnv) -> _Player:
    if isinstance(policy, str | Path | PolicyConfig):
        return _Rule(make(policy), env)
    if isinstance(policy, Policy):
        return _Rule(policy, env)
    if isinstance(policy, PredictingModel):
        return _OfModel(policy, env)
    if callable(policy):
        return _OfFunction(policy)
    raise ConfigError(
        f"expected a policy, found {type(policy).__name__}",
        key="policy",
        remedy="Pass a name such as 'ds2', a policy, a model with predict(), or a function of "
        "observation and info.",
    )


def _play(env: AnyEnv, player: _Player, seed: int) -> tuple[float, int, float, float, float]:
    """Play one episode: return, decisions, cost, late seconds, seconds."""
    inner = env.unwrapped
    interval_s = inner.batch.config.interval_s if isinstance(inner, AutoscaleEnv) else float("nan")
    observation, info = env.reset(seed=seed)
    player.begin(seed)
    earned, steps, cost, late_s, ended = 0.0, 0, 0.0, 0.0, False
    while not ended:
        observation, reward, terminated, truncated, info = env.step(player.act(observation, info))
        earned, steps, ended = earned + float(reward), steps + 1, terminated or truncated
        cost, late_s = cost + _told(info, "cost"), late_s + _told(info, "slo_s")
    return earned, steps, cost, late_s, steps * interval_s


def _told(info: Info, key: str) -> float:
    return float(cast(float, info.get(key, np.nan)))
