"""What could be won at most: a lower bound of the cost, and the best plan with the load known."""

from __future__ import annotations

from baselines.clairvoyant.policy import Clairvoyant, ClairvoyantConfig

__all__ = ["Clairvoyant", "ClairvoyantConfig"]
