"""Capacity actions: hold, or re-target the whole job at a multiple of its present load.

`action` turns a multiple into tasks and memory levels, `load_history` remembers the load,
`features` describes the job in ratios and logarithms, and `codec` combines them for environments
and policies.
"""

from dsp_gym.envs.capacity.action import KAPPAS
from dsp_gym.envs.capacity.codec import CapacityCodec
from dsp_gym.envs.capacity.features import CAPACITY_FEATURES

__all__ = ["CAPACITY_FEATURES", "KAPPAS", "CapacityCodec"]
