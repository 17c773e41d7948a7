"""Actuators of real jobs: by resubmission, in place, and through Justin's endpoint."""

from __future__ import annotations

from dsp_gym.backends.flink.rescale.in_place import AdaptiveActuator
from dsp_gym.backends.flink.rescale.justin import JustinActuator
from dsp_gym.backends.flink.rescale.resubmit import ResubmitActuator

__all__ = ["AdaptiveActuator", "JustinActuator", "ResubmitActuator"]
