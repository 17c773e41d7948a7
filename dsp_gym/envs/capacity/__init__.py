"""Capacity actions: hold, or re-target the whole job at a multiple of its present load.

`action` turns a multiple into tasks and memory levels, `course` remembers the load, `features`
describes the job in ratios and logarithms, `codec` is what an environment or a policy holds.
"""

from dsp_gym.envs.capacity.action import KAPPAS
from dsp_gym.envs.capacity.codec import CapacityCodec
from dsp_gym.envs.capacity.features import CAPACITY_FEATURES

__all__ = ["CAPACITY_FEATURES", "KAPPAS", "CapacityCodec"]
