"""JSON as servers send and take it; its values are checked where they are read."""

from __future__ import annotations

from dsp_gym.config.strict_json import MISFITS, Json

__all__ = ["MISFITS", "Document", "Json"]

Document = dict[str, Json]
"""A JSON object, parsed."""
