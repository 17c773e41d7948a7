"""Policies by name, through the entry points of installed distributions.

The library imports no policy: `baselines` and `agents` offer theirs in the group
`dsp_gym.policies`, and other distributions can do the same.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from dsp_gym.config import files
from dsp_gym.config.plugins import Plugins
from dsp_gym.config.strict_json import parse_json
from dsp_gym.errors import ConfigError, PolicyError, did_you_mean
from dsp_gym.loop.protocols import Policy
from dsp_gym.policies.config import SHIPPED, PolicyConfig, with_params
from dsp_gym.policies.folder_files import read_regular
from dsp_gym.policies.pins import refuse_other_digest, split_pin

GROUP = "dsp_gym.policies"
"""Entry-point group under which a distribution offers policies."""

_INSTALLED = Plugins(GROUP, "policy", "docs/guides/add-a-policy.md", PolicyError)

POLICY_FILE = "policy.json"
"""The file that makes a folder a trained policy."""

MOST_BYTES = 512 * 1024
"""Largest size of that file; those of the shipped policies have six thousand bytes."""

TRAINED = "trained"
"""Name of the policy that reads the folder of any trained policy.

The document of a folder names the installed policy that reads it; one that names none is read by
the policy of this name.
"""

_RENAMED = {"learned": "planner", "mdp-no-file": "planner-no-file"}
"""Names of earlier versions, and those that took their place."""


def make(policy: str | Path | PolicyConfig) -> Policy:
    """Make the policy of a name, a YAML file, the folder of a trained policy, or a configuration.

    Returns:
        The policy, to be reset before its first decision; its `name` is the one given.

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
    """Resolve a name, file, folder or configuration of a policy.

    A configuration may name a shipped one: its parameters override those of the file. A trained
    policy goes to the installed policy that reads its folder. Where it is named with a digest,
    FOLDER@sha256:..., the folder must have that digest.

    Returns:
        Name, configuration without a pin, and place of the configuration, for errors.

    Raises:
        ConfigError: No policy has that name.
        PolicyError: The folder has another digest.
    """
    name, config, where = _found(policy)
    return name, _as_trained(_completed(config)), where


def _found(policy: str | Path | PolicyConfig) -> tuple[str, PolicyConfig, str]:
    """Resolve the same with the configuration as it is written."""
    if isinstance(policy, PolicyConfig):
        return policy.policy, policy, f"parameters of policy '{policy.policy}'"
    text, digest = split_pin(str(policy))
    path = _settled(Path(text))
    if digest is not None:
        refuse_other_digest(path, digest, str(policy))
    if (path / POLICY_FILE).is_file():
        config = PolicyConfig(policy=_reader_of(path), params={"path": str(path)})
        return path.resolve().name, config, str(path)
    if text in _INSTALLED and text not in files.names("policies"):
        return text, PolicyConfig(policy=text), f"parameters of policy '{text}'"
    try:
        found = files.find("policies", text)
    except ConfigError as error:
        raise ConfigError(
            f"there is no policy '{policy}'", file=error.file, remedy=_remedy(text)
        ) from None
    return found.stem, files.load_model(PolicyConfig, "policies", found), f"{found}: params"


def _settled(path: Path) -> Path:
    """Follow links such as `latest` once: they may lead elsewhere before the policy is read."""
    found = path.resolve()
    return path if found == path.absolute() else found


def _remedy(name: str) -> str:
    """Offer the name that took the place of an unknown one, or the nearest."""
    now = _RENAMED.get(name)
    if now is None:
        return did_you_mean(name, [*_INSTALLED, *files.names("policies")])
    return f"Did you mean '{now}', its present name?"


def _completed(config: PolicyConfig) -> PolicyConfig:
    """Return the installed policy of a shipped configuration that is named; others unchanged."""
    if config.policy in _INSTALLED:
        return config
    if config.policy not in files.names("policies"):
        raise ConfigError(
            f"there is no policy '{config.policy}'", key="policy", remedy=_remedy(config.policy)
        )
    shipped = files.load_model(PolicyConfig, "policies", config.policy)
    return shipped.model_copy(update={"params": with_params(shipped.params, config.params)})


def _as_trained(config: PolicyConfig) -> PolicyConfig:
    """Return a trained policy with the installed policy that reads it; any other unchanged."""
    config = _unpinned(config)
    folder = folder_of(config) if config.policy == TRAINED else None
    return config if folder is None else config.model_copy(update={"policy": _reader_of(folder)})


def _unpinned(config: PolicyConfig) -> PolicyConfig:
    """Return a policy without the digest of its folder, after checking it."""
    named = config.params.get("path")
    path, digest = split_pin(named) if isinstance(named, str) else (None, None)
    if path is None or digest is None:
        return config
    refuse_other_digest(Path(path), digest, path)
    return config.model_copy(update={"params": {**config.params, "path": path}})


def is_pinned(policy: str | Path | PolicyConfig) -> bool:
    """Return whether a name fixes a policy: by a digest, or as part of a package.

    Returns:
        False for a trained policy from a folder that is named without its digest.
    """
    if not isinstance(policy, PolicyConfig) and split_pin(str(policy))[1] is not None:
        return True
    config = _found(policy)[1]
    named = config.params.get("path")
    has_digest = isinstance(named, str) and split_pin(named)[1] is not None
    return has_digest or folder_of(config) is None


def _reader_of(folder: Path) -> str:
    """Return the installed policy that reads a folder: the one that its document names."""
    try:
        document = parse_json(read_regular(folder / POLICY_FILE, MOST_BYTES))
    except (OSError, ValueError):
        return TRAINED  # its error names the fault in the file
    named = document.get("policy", TRAINED) if isinstance(document, dict) else TRAINED
    if not isinstance(named, str) or named not in _INSTALLED:
        raise PolicyError(
            "is read by a policy that is not installed",
            file=folder / POLICY_FILE,
            key="policy",
            value=named,
            remedy=did_you_mean(str(named), list(_INSTALLED)),
        )
    return named


def folder_of(policy: PolicyConfig) -> Path | None:
    """Return the folder of a trained policy.

    Returns:
        The folder that its parameters name; None for a policy that is not trained, or is shipped.
    """
    named = policy.params.get("path")
    if not isinstance(named, str):
        return None
    path = Path(split_pin(named)[0])
    return path if (path / POLICY_FILE).is_file() else None


def is_trained(policy: PolicyConfig) -> bool:
    """Return whether a policy was made by `dsp-gym train`.

    Returns:
        True for a policy from a folder, and for the shipped ones.
    """
    is_shipped = str(policy.params.get("path")).startswith(SHIPPED)
    return policy.policy == TRAINED or is_shipped or folder_of(policy) is not None


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


def load_module(name: str) -> ModuleType:
    """Import the module that a policy's name leads to.

    Returns:
        The module that its entry point names.

    Raises:
        ConfigError: No distribution offers a policy of that name.
        PolicyError: The module cannot be imported.
    """
    load_class(name)
    return import_module(_INSTALLED.entries[name].module)


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


def forget() -> None:
    """Look for installed policies again at the next call."""
    _INSTALLED.forget()


def is_installed(name: str) -> bool:
    """Return whether a distribution offers a policy of that name.

    Returns:
        True where the name is registered; the class is not imported.
    """
    return name in _INSTALLED
