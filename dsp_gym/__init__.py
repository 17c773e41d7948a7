"""Train, compare and safely deploy autoscaling policies for Apache Flink jobs.

Importing this package registers its environments with Gymnasium.
"""

from __future__ import annotations

from dsp_gym.envs.registration import register_all

__all__ = ["__version__"]

__version__ = "0.1.0"

register_all()
