"""Train, compare and safely deploy autoscaling policies for Apache Flink jobs.

Importing this package registers its environments with Gymnasium: at once if Gymnasium has been
imported, otherwise when it is.
"""

from __future__ import annotations

from dsp_gym.envs.registration import register_with_gymnasium
from dsp_gym.version import __version__

__all__ = ["__version__"]

register_with_gymnasium()
