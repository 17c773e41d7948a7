"""Moved to `spark_pipelines.studies.scale`; an import is refused with the new name."""

from dsp_gym.config.moved import refusal

raise refusal("spark_pipelines.scale", __name__)
