"""Moved to `dsp_gym.evaluation.experiment`; an import is refused with the new name."""

from dsp_gym.config.moved import refused

raise refused("dsp_gym.experiment", __name__)
