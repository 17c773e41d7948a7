"""Policies by name: their configuration, the registry and their making."""

from __future__ import annotations

from dsp_gym.policies.capabilities import Capabilities, capabilities_of
from dsp_gym.policies.config import PolicyConfig
from dsp_gym.policies.registry import available, make

__all__ = ["Capabilities", "PolicyConfig", "available", "capabilities_of", "make"]
