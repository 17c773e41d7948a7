"""Moved to `agents.studies.dataset_claim`; an import is refused with the new name."""

from dsp_gym.config.moved import refused

raise refused("agents.dataset_claim", __name__)
