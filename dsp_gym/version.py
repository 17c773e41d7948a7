"""The version of this distribution, below everything that writes it down."""

from __future__ import annotations

__version__ = "1.0.0"
