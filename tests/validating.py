"""A small validation for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dsp_gym.config.files import parse
from dsp_gym.evaluation.validation import ValidationConfig

__all__ = ["REPORTS", "SMALL", "config"]

REPORTS = Path("docs/figures/validation")
SMALL: dict[str, Any] = {
    "jobs": [{"job": "flink-q11"}, {"job": "flink-q11", "rescaling": "in-place"}],
    "loads": [{"name": "flat", "load": {"form": "constant", "rate": 0.5}}],
    "policies": [{"policy": "ds2-local", "rule": True}, "mdp"],
    "seconds": 60,
    "simulations": 1,
}


def config(**changes: Any) -> ValidationConfig:
    """A run of a minute of two policies, on one job in both ways of rescaling."""
    return parse(ValidationConfig, SMALL | changes, "v.yaml")
