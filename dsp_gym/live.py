"""Moved to `dsp_gym.control`; an import is refused with the new name."""

from dsp_gym.config.moved import refusal

raise refusal("dsp_gym.live", __name__)
