"""Published numbers, and what this release says to them: `dsp-gym reproduce`."""

from __future__ import annotations

from dsp_gym.reproduce.check import Check
from dsp_gym.reproduce.registry import data_folder, reproduce, studies

__all__ = ["Check", "data_folder", "reproduce", "studies"]
