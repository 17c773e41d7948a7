"""The most a policy can save: a lower bound of the cost, and the best plan for a known load."""

from __future__ import annotations

from baselines.clairvoyant.policy import Clairvoyant, ClairvoyantConfig

__all__ = ["Clairvoyant", "ClairvoyantConfig"]
