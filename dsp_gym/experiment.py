"""Moved to `dsp_gym.evaluation.experiment`; an import is refused with the new name."""

from dsp_gym.config.moved import refusal

raise refusal("dsp_gym.experiment", __name__)
