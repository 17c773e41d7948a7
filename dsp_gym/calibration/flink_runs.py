"""Moved to `dsp_gym.studies.validation.flink_runs`; an import is refused with the new name."""

from dsp_gym.config.moved import refusal

raise refusal("dsp_gym.calibration.flink_runs", __name__)
