"""Actuators of real jobs: by resubmission, in place, through Justin's endpoint, and dry."""

from __future__ import annotations

from dsp_gym.backends.flink.rescale.adaptive import AdaptiveActuator
from dsp_gym.backends.flink.rescale.dry_run import DryRunActuator
from dsp_gym.backends.flink.rescale.justin import JustinActuator
from dsp_gym.backends.flink.rescale.resubmit import ResubmitActuator
from dsp_gym.backends.flink.rescale.worker import OnEvent

__all__ = ["AdaptiveActuator", "DryRunActuator", "JustinActuator", "OnEvent", "ResubmitActuator"]
