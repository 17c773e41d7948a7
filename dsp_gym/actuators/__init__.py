"""Actuators of real jobs: by resubmission, in place, through Justin's endpoint, and dry."""

from __future__ import annotations

from dsp_gym.actuators.adaptive import AdaptiveActuator
from dsp_gym.actuators.dry_run import DryRunActuator
from dsp_gym.actuators.justin import JustinActuator
from dsp_gym.actuators.resubmit import ResubmitActuator
from dsp_gym.actuators.worker import OnEvent

__all__ = ["AdaptiveActuator", "DryRunActuator", "JustinActuator", "OnEvent", "ResubmitActuator"]
