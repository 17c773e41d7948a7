"""Moved to `agents.studies.dataset_claim`; an import is refused with the new name."""

from dsp_gym.config.moved import refusal

raise refusal("agents.dataset_claim", __name__)
