"""Moved to `dsp_gym.control.loop`; an import is refused with the new name."""

from dsp_gym.config.moved import refusal

raise refusal("dsp_gym.loop.control", __name__)
