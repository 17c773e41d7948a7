"""Guardrails: limits that hold for the decisions of every policy."""

from __future__ import annotations

from dsp_gym.guardrails.chain import Chain, build
from dsp_gym.guardrails.config import GuardrailsConfig

__all__ = ["Chain", "GuardrailsConfig", "build"]
