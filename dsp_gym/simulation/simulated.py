"""Moved to `dsp_gym.backends.simulated.jobs`; an import is refused with the new name."""

from dsp_gym.config.moved import refusal

raise refusal("dsp_gym.simulation.simulated", __name__)
