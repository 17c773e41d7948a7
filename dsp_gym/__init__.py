"""Train, compare and safely deploy autoscaling policies for Apache Flink jobs.

Importing this package registers its environments with Gymnasium, at once where Gymnasium is
imported already and otherwise together with it.
"""

from __future__ import annotations

from dsp_gym.envs.registration import register_with_gymnasium

__all__ = ["__version__"]

__version__ = "0.1.0"

register_with_gymnasium()
