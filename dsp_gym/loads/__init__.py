"""Loads: arrivals over time and by seed, divided into loads for training and for tests."""

from __future__ import annotations

from dsp_gym.loads.generate import rates
from dsp_gym.loads.sampler import LoadCell, LoadSampler
from dsp_gym.loads.spec import LoadConfig, LoadSpec
from dsp_gym.loads.splits import LoadSet, LoadSplit, SeedRange, SplitName, WeightedLoad
from dsp_gym.loads.traces import Trace, TraceLibrary, read_trace

__all__ = [
    "LoadCell",
    "LoadConfig",
    "LoadSampler",
    "LoadSet",
    "LoadSpec",
    "LoadSplit",
    "SeedRange",
    "SplitName",
    "Trace",
    "TraceLibrary",
    "WeightedLoad",
    "rates",
    "read_trace",
]
