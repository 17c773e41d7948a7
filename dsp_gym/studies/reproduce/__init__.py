"""Published numbers beside this release's: `dsp-gym reproduce`."""

from __future__ import annotations

from dsp_gym.studies.reproduce.check import Check
from dsp_gym.studies.reproduce.registry import data_folder, reproduce, studies

__all__ = ["Check", "data_folder", "reproduce", "studies"]
