"""Published numbers beside this release's: `dsp-gym reproduce`."""

from __future__ import annotations

from dsp_gym.studies.reproduce.registry import Check, data_folder, reproduce, studies

__all__ = ["Check", "data_folder", "reproduce", "studies"]
