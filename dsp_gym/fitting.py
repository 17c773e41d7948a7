"""Moved to `dsp_gym.studies.fitting`; an import is refused with the new name."""

from dsp_gym.config.moved import refused

raise refused("dsp_gym.fitting", __name__)
