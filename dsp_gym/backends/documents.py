"""JSON as servers send and take it; its values are checked where they are read."""

from __future__ import annotations

from typing import Any

__all__ = ["Document", "Json"]

Json = Any
"""Any JSON value, parsed."""

Document = dict[str, Json]
"""A JSON object, parsed."""
