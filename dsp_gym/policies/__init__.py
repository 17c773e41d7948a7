"""Policies by name: their configuration, the registry and their making."""

from __future__ import annotations

from dsp_gym.policies.config import PolicyConfig
from dsp_gym.policies.registry import available, make
from dsp_gym.policies.requirement import CapacityModel, Requirement

__all__ = ["CapacityModel", "PolicyConfig", "Requirement", "available", "make"]
