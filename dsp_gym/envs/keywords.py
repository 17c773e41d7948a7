"""The keyword arguments of `gymnasium.make` that change a scenario: load, reward and SLO."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from dsp_gym.config.files import names, parse
from dsp_gym.config.model import ConfigModel
from dsp_gym.envs.config import EnvConfig
from dsp_gym.envs.reward import TERMS, RewardWeights
from dsp_gym.envs.reward_function import RewardFunction
from dsp_gym.errors import ConfigError, KeywordError
from dsp_gym.job.spec import JobSpec, Slo
from dsp_gym.loads.spec import LoadConfig
from dsp_gym.loads.splits import LoadSet, SplitName, WeightedLoad

if TYPE_CHECKING:
    from gymnasium.vector import AutoresetMode

Load = str | Path | Mapping[str, object] | ConfigModel
"""A load: shipped name, YAML file, mapping as in a load file, or an object of `dsp_gym.loads`."""

Reward = Mapping[str, float] | RewardWeights | RewardFunction | str
"""Weights of the reward by term, terms left out keep theirs; or a function of the terms."""

OTHERS = (
    *("job", "config", "backend", "split", "guardrails", "where", "render_mode", "action"),
    "info_keys",
)
"""The other keywords that `gymnasium.make` takes."""

VECTOR_OTHERS = (*OTHERS, "num_envs", "explain", "autoreset_mode", "max_episode_steps", "device")
"""The other keywords that `gymnasium.make_vec` takes."""

SEEDS = {
    "train": {"from": 0, "to": 512},
    "validation": {"from": 4096, "to": 4352},
    "test": {"from": 4352, "to": 4608},
}
"""Seeds of the loads of a scenario without a config, by split."""


class ScenarioChanges(TypedDict, total=False):
    """Replacements of parts of a scenario; parts left out, or None, stay."""

    load: Load | Sequence[Load] | None
    reward: Reward | None
    slo_s: float | None


# Each lists all its keys: the reference documents those that a class itself has, no inherited ones.
class EnvKeywords(TypedDict, total=False):
    """Keywords of an environment that are None unless given: a scenario's changes, and others."""

    load: Load | Sequence[Load] | None
    reward: Reward | None
    slo_s: float | None
    info_keys: str | Sequence[str] | None


class VectorKeywords(TypedDict, total=False):
    """Keywords of a vector environment that are None unless given."""

    load: Load | Sequence[Load] | None
    reward: Reward | None
    slo_s: float | None
    info_keys: str | Sequence[str] | None
    autoreset_mode: AutoresetMode | str | None
    max_episode_steps: int | None


def bounded(specs: tuple[JobSpec, ...], changes: ScenarioChanges) -> tuple[JobSpec, ...]:
    """Give the jobs another bound on their latency, if there is one.

    Returns:
        The jobs, in their order.

    Raises:
        ConfigError: The bound is no number above 0.
    """
    slo_s = changes.get("slo_s")
    if slo_s is None:
        return specs
    number = isinstance(slo_s, int | float) and not isinstance(slo_s, bool)
    if not (number and math.isfinite(slo_s) and slo_s > 0):
        raise ConfigError(
            "expected seconds above 0: the bound on the p95 latency", key="slo_s", value=slo_s
        )
    return tuple(spec.model_copy(update={"slo": Slo(latency_s=float(slo_s))}) for spec in specs)


def reloaded(loads: LoadSet, changes: ScenarioChanges, split: SplitName) -> LoadSet:
    """Make a set of loads that has only the given ones in the split of the episodes.

    Args:
        loads: The set before; the seeds of its split stay.
        changes: Replacements.
        split: The part of the loads that episodes are drawn from.

    Returns:
        The set; without a load among the changes the one given.

    Raises:
        ConfigError: A load is wrong, or there is none of its name.
    """
    load = changes.get("load")
    if load is None:
        return loads
    seeds = next((part.seeds for name, part in loads.splits() if name == split), None)
    several = load if isinstance(load, Sequence) and not isinstance(load, str) else (load,)
    entries = [_entry(one) for one in several]
    return parse(LoadSet, {split: {"loads": entries, "seeds": seeds or SEEDS[split]}}, "load")


def rewarded(env: EnvConfig, changes: ScenarioChanges) -> EnvConfig:
    """Give an environment's configuration other weights of the reward.

    Returns:
        The configuration; the one given where the changes have no weights: no reward, or a
        function.

    Raises:
        ConfigError: The reward is no mapping, or has a wrong term.
    """
    reward = changes.get("reward")
    if reward is None or isinstance(reward, str) or callable(reward):
        return env
    if isinstance(reward, Mapping):
        weights = parse(RewardWeights, {**env.reward.model_dump(), **reward}, "reward")
    elif isinstance(reward, RewardWeights):
        weights = reward
    else:
        raise ConfigError(
            "expected weights by term",
            key="reward",
            value=reward,
            remedy=f"Pass a mapping of {', '.join(TERMS)} to weights, such as {{'slo': 8.0}}, or "
            "a function of these terms.",
        )
    return parse(EnvConfig, {**env.model_dump(), "reward": weights.model_dump()}, "reward")


def refuse_changes(backend: str, changes: ScenarioChanges, *keys: str) -> None:
    """Refuse unknown keywords, and those that do not apply to a backend.

    Args:
        backend: The backend.
        changes: The keywords given.
        keys: The keywords that do not apply.

    Raises:
        ConfigError: One was given.
        KeywordError: A keyword is unknown.
    """
    refuse_unknown(changes)
    given: Mapping[str, object] = changes
    for key in keys:
        if given.get(key) is not None:
            raise ConfigError(
                f"the backend '{backend}' has its own",
                key=key,
                value=given[key],
                remedy="Leave it out, or take backend='simulated'.",
            )


def refuse_unknown(changes: Mapping[str, object], others: Sequence[str] = OTHERS) -> None:
    """Refuse a keyword that the environment does not take.

    Args:
        changes: The keywords given.
        others: The keywords that the environment takes beside changes.

    Raises:
        KeywordError: There is one; it names the nearest.
    """
    for name in changes:
        if name not in ScenarioChanges.__annotations__:
            raise KeywordError(name, (*ScenarioChanges.__annotations__, *others))


def _entry(load: object) -> object:
    """Turn one load into an entry of a split."""
    if isinstance(load, str | Path):
        return str(load)
    if isinstance(load, LoadConfig):
        return {"load": load.load}
    if isinstance(load, WeightedLoad):
        return load
    if isinstance(load, ConfigModel):
        return {"load": load}
    if not isinstance(load, Mapping):
        raise ConfigError(
            "expected a load",
            key="load",
            value=load,
            remedy=f"Pass one of {', '.join(names('loads'))}, a YAML file, a mapping such as "
            "{'form': 'constant', 'scale': 0.5}, or a list of these.",
        )
    entry = {key: value for key, value in load.items() if key != "description"}
    return entry if "load" in entry else {"load": entry}
