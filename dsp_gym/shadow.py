"""Moved to `dsp_gym.control.serve`; an import is refused with the new name."""

from dsp_gym.config.moved import refusal

raise refusal("dsp_gym.shadow", __name__)
