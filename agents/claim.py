"""Moved to `agents.studies.claim`; an import is refused with the new name."""

from dsp_gym.config.moved import refusal

raise refusal("agents.claim", __name__)
