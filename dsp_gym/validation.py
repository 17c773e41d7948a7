"""Moved to `dsp_gym.studies.validation`; an import is refused with the new name."""

from dsp_gym.config.moved import refusal

raise refusal("dsp_gym.validation", __name__)
