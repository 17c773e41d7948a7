"""The version of this distribution, below everything that writes it down."""

from __future__ import annotations

__all__ = ["__version__"]

__version__ = "0.1.0"
