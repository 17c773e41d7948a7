"""The registered scenarios: one id per shipped Nexmark job, and one built from a config."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from dsp_gym.config import files
from dsp_gym.envs.config import EnvConfig, ScenarioConfig
from dsp_gym.envs.keywords import (
    SEEDS,
    ScenarioChanges,
    bounded,
    refuse_unknown,
    reloaded,
    rewarded,
)
from dsp_gym.errors import ConfigError, did_you_mean
from dsp_gym.guardrails.chain import build
from dsp_gym.guardrails.config import GuardrailsConfig
from dsp_gym.job.catalog import load_job
from dsp_gym.job.spec import JobSpec
from dsp_gym.loads.splits import LoadSet, SplitName
from dsp_gym.loop.protocols import Guardrail

Job = str | Path | Mapping[str, object] | JobSpec
"""A job: shipped name, YAML file, mapping as in a job file, or the job itself."""

ActionName = Literal["vertex", "capacity"]
"""The action spaces, as `EnvConfig.action` names them."""

BACKENDS = ("simulated", "replay", "flink", "kubernetes")
"""Backends of an environment: the model, a recording, a real Flink, or the operator's."""

ONE_JOB = ("replay", "flink", "kubernetes")
"""Backends that are one job and never a batch."""

DEFAULT_LOADS: dict[str, object] = {
    split: {"loads": ["diurnal-bursts"], "seeds": seeds} for split, seeds in SEEDS.items()
}
"""The loads of a scenario without a config."""


class Scenario(NamedTuple):
    """All parts that an environment is built from."""

    specs: tuple[JobSpec, ...]
    loads: LoadSet
    env: EnvConfig
    guardrails: Guardrail | None
    base_dir: Path | None
    guardrails_config: str | None
    """Name or path of the config behind `guardrails`."""


def scenario(
    job: Job | None = None,
    config: str | Path | Mapping[str, object] | None = None,
    backend: str = "simulated",
    guardrails: str | None = None,
    explain: bool = True,
    action: ActionName | None = None,
) -> Scenario:
    """Load a scenario by the name of a job, or from an experiment's config.

    Args:
        job: name, path or content of a job file; default: the jobs of the config.
        config: name, path or content of an experiment config.
        backend: "simulated", "flink", "kubernetes" or "replay".
        guardrails: name or path of a guardrails config; overrides the config's.
        explain: whether guardrails explain their changes in words; a large batch does without.
        action: the action space; overrides the config's.

    Returns:
        Jobs, loads, environment and guardrails, all loaded and checked; no simulation has begun.

    Raises:
        ConfigError: The backend is not built, or a name or config is wrong.
    """
    _check_backend(backend)
    if config is None:
        if job is None:
            raise ConfigError(
                "neither a job nor a config was given",
                key="config",
                remedy="Pass config='q11' (an experiment) or job='nexmark-q11'.",
            )
        loads = files.parse(LoadSet, DEFAULT_LOADS, "default loads")
        # Without a config, all splits draw from the same shipped load.
        chain = guardrail_chain(guardrails, explain)
        return Scenario((_job(job),), loads, _acting(EnvConfig(), action), chain, None, guardrails)
    experiment, base_dir = _experiment(config)
    jobs: tuple[Job, ...] = (job,) if job is not None else experiment.jobs
    chosen = guardrails or experiment.guardrails
    return Scenario(
        tuple(_job(one) for one in jobs),
        experiment.loads,
        _acting(experiment.env, action),
        guardrail_chain(chosen, explain),
        base_dir,
        chosen,
    )


def changed(made: Scenario, changes: ScenarioChanges, split: SplitName) -> Scenario:
    """Give a scenario another load, other weights of the reward or another bound on latency.

    Args:
        made: The scenario.
        changes: Replacements.
        split: The part of the loads that episodes are drawn from.

    Returns:
        The scenario that the environment is built from.

    Raises:
        ConfigError: A name, value or keyword is wrong.
    """
    refuse_unknown(changes)
    if split not in SEEDS:
        raise ConfigError(
            f"there is no split '{split}'", key="split", remedy=did_you_mean(str(split), SEEDS)
        )
    return made._replace(
        specs=bounded(made.specs, changes),
        loads=reloaded(made.loads, changes, split),
        env=rewarded(made.env, changes),
    )


def _job(job: Job) -> JobSpec:
    """Load the job of a name, path or content."""
    if isinstance(job, JobSpec):
        return job
    if isinstance(job, Mapping):
        return files.parse(JobSpec, dict(job), "job")
    return load_job(job)


def decided_by(
    config: str | Path | Mapping[str, object] | None = None,
    guardrails: str | None = None,
    action: ActionName | None = None,
) -> tuple[EnvConfig, str | None]:
    """Load environment and guardrails of an experiment's config, without its jobs and loads.

    Args:
        config: name, path or content of an experiment config; none: defaults.
        guardrails: name or path of a guardrails config; overrides the config's.
        action: the action space; overrides the config's.

    Returns:
        The environment's configuration, and the guardrails' name or path; None: no guardrails.
    """
    if config is None:
        return _acting(EnvConfig(), action), guardrails
    experiment, _ = _experiment(config)
    return _acting(experiment.env, action), guardrails or experiment.guardrails


def _acting(env: EnvConfig, action: ActionName | None) -> EnvConfig:
    """Give the environment another action space, if there is one."""
    if action is None or action == env.action:
        return env
    if action not in get_args(ActionName):
        raise ConfigError(
            f"there is no action space '{action}'",
            key="action",
            remedy=did_you_mean(action, get_args(ActionName)),
        )
    return files.parse(EnvConfig, {**env.model_dump(), "action": action}, "env")


def guardrail_chain(guardrails: str | None, explain: bool = True) -> Guardrail | None:
    """Build the chain of a shipped name or a path.

    Returns:
        The chain; None where it would be empty.
    """
    if guardrails is None:
        return None
    chain = build(files.load_model(GuardrailsConfig, "guardrails", guardrails), explain=explain)
    return chain if chain.names else None


def _experiment(
    config: str | Path | Mapping[str, object],
) -> tuple[ScenarioConfig, Path | None]:
    """Load the environment's part of an experiment, and the folder of its relative paths."""
    if isinstance(config, Mapping):
        return files.parse(ScenarioConfig, dict(config), "config"), None
    path = files.find("experiments", config)
    return files.load_model(ScenarioConfig, "experiments", path), path.parent


def _check_backend(backend: str) -> None:
    if backend in BACKENDS:
        return
    raise ConfigError(
        f"there is no backend '{backend}'",
        key="backend",
        remedy=did_you_mean(backend, BACKENDS),
    )
