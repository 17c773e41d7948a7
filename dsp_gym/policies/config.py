"""The name of a policy in a configuration file."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from dsp_gym.config.model import ConfigModel

__all__ = ["SHIPPED", "PolicyConfig"]

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
