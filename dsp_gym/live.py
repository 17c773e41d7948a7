"""Moved to `dsp_gym.control`; an import is refused with the new name."""

from dsp_gym.config.moved import refused

raise refused("dsp_gym.live", __name__)
