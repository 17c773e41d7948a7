"""Moved to `dsp_gym.evaluation.tuning`; an import is refused with the new name."""

from dsp_gym.config.moved import refusal

raise refusal("dsp_gym.tuning", __name__)
