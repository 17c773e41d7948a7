"""Policies by name, through the entry points of installed distributions.

The library imports no policy: `baselines` and `agents` offer theirs in the group
`dsp_gym.policies`, and so can anyone else.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dsp_gym.config import files
from dsp_gym.config.plugins import Plugins
from dsp_gym.errors import ConfigError, PolicyError, did_you_mean
from dsp_gym.loop.protocols import Policy
from dsp_gym.policies.config import PolicyConfig

__all__ = ["GROUP", "available", "installed", "is_installed", "load_class", "make", "resolve"]

GROUP = "dsp_gym.policies"
"""Entry-point group under which a distribution offers policies."""

_INSTALLED = Plugins(GROUP, "policy", "docs/guides/add-a-policy.md", PolicyError)

POLICY_FILE = "policy.json"
"""What makes a folder a learned policy."""


def make(policy: str | Path | PolicyConfig) -> Policy:
    """The policy of a name, a YAML file, the folder of a learned policy, or a configuration.

    Returns:
        The policy, to be reset before its first decision; `name` is the one it was asked for by.

    >>> make("ds2-justin").name
    'ds2-justin'

    Raises:
        ConfigError: No policy has that name, or its parameters are wrong.
        PolicyError: The policy cannot be loaded.
    """
    name, config, where = resolve(policy)
    cls = load_class(config.policy)
    made: Policy = cls(files.parse(cls.Config, config.params, where))
    made.name = name
    return made


def resolve(policy: str | Path | PolicyConfig) -> tuple[str, PolicyConfig, str]:
    """Find what a name, file, folder or configuration of a policy means.

    Returns:
        Name, configuration, and where the configuration stands, for errors.
    """
    if isinstance(policy, PolicyConfig):
        return policy.policy, policy, f"parameters of policy '{policy.policy}'"
    path = Path(policy)
    if (path / POLICY_FILE).is_file():
        config = PolicyConfig(policy="learned", params={"path": str(path)})
        return path.resolve().name, config, str(path)
    text = str(policy)
    if text in _INSTALLED and text not in files.names("policies"):
        return text, PolicyConfig(policy=text), f"parameters of policy '{text}'"
    try:
        found = files.find("policies", policy)
    except ConfigError as error:
        known = [*_INSTALLED, *files.names("policies")]
        raise ConfigError(
            f"there is no policy '{policy}'", file=error.file, remedy=did_you_mean(text, known)
        ) from None
    config = files.load_model(PolicyConfig, "policies", found)
    return found.stem, config, f"{found}: params"


def available() -> dict[str, str]:
    """List every installed policy and shipped configuration.

    Returns:
        A sentence about each, by name.
    """
    about = {name: _INSTALLED.about(name) for name in _INSTALLED}
    for name in files.names("policies"):
        config = files.load_model(PolicyConfig, "policies", name)
        about.setdefault(name, f"{config.policy} with the parameters of configs/policies/{name}")
    return dict(sorted(about.items()))


def load_class(name: str) -> Any:
    """Import the class behind a policy's name.

    Returns:
        The class, a `Policy` with its `Config`.

    Raises:
        ConfigError: No distribution offers a policy of that name.
        PolicyError: The class cannot be imported.
    """
    return _INSTALLED.load(name)


def installed() -> tuple[str, ...]:
    """List the installed policies that run with their defaults.

    Returns:
        Their names.
    """
    return tuple(
        name
        for name in _INSTALLED
        if not any(field.is_required() for field in load_class(name).Config.model_fields.values())
    )


def is_installed(name: str) -> bool:
    """Whether a distribution offers a policy of that name.

    Returns:
        True where the name is registered; the class is not imported.
    """
    return name in _INSTALLED
