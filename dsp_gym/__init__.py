"""Train, compare and safely deploy autoscaling policies for Apache Flink jobs."""

from __future__ import annotations

__all__ = ["__version__"]

__version__ = "0.1.0"
