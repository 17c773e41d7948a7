"""The name of a policy in a configuration file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from dsp_gym.config.model import ConfigModel

SHIPPED = "shipped:"
"""Prefix of a trained policy that travels with the package, in place of its folder."""


class PolicyConfig(ConfigModel):
    """A policy and the parameters that differ from its defaults."""

    policy: str = Field(
        min_length=1, description="name of an installed policy: `dsp-gym list policies`"
    )
    params: dict[str, Any] = Field(
        default_factory=dict,
        description="parameters of that policy; its own configuration model checks them",
    )
    provenance: dict[str, Any] | None = Field(
        None, description="how a program found the parameters, as `dsp-gym tune` writes it"
    )


def with_params(base: Mapping[str, object], found: Mapping[str, object]) -> dict[str, object]:
    """Override parameters level by level.

    Returns:
        A new mapping; neither argument is changed.

    >>> with_params({"ds2": {"interval_s": 30, "min_down": 1}}, {"ds2": {"min_down": 2}})
    {'ds2': {'interval_s': 30, 'min_down': 2}}
    """
    whole = dict(base)
    for key, value in found.items():
        below = whole.get(key)
        if isinstance(value, Mapping) and isinstance(below, Mapping):
            whole[key] = with_params(below, value)
        else:
            whole[key] = value
    return whole
