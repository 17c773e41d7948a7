"""Finding parameters: of a published policy, or of an agent, on training loads only."""

from __future__ import annotations

from dsp_gym.experiments.tuning.space import Pick, SearchSpace, search_space

__all__ = ["Pick", "SearchSpace", "search_space"]
