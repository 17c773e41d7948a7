"""Guardrails: what no policy may do, whichever it is."""

from __future__ import annotations

from dsp_gym.guardrails.chain import Chain, build
from dsp_gym.guardrails.config import GuardrailsConfig

__all__ = ["Chain", "GuardrailsConfig", "build"]
