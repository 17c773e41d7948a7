"""Moved to `dsp_gym.backends.flink`; an import is refused with the new name."""

from dsp_gym.config.moved import refusal

raise refusal("dsp_gym.collectors", __name__)
