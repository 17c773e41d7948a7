"""What happened over an interval: the truth, kept apart from what a collector sees."""

from __future__ import annotations

from dataclasses import dataclass

from dsp_gym.arrays import Floats

__all__ = ["Outcome"]


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """Truth over an interval, each (J,)."""

    seconds: Floats
    slo_s: Floats  # seconds whose p95 latency exceeds the bound, or in which the job is down
    down_s: Floats
    latency_p95_s: Floats  # mean over the seconds
    latency_max_s: Floats
    arrived: Floats  # records offered
    processed: Floats  # records taken from the log
    pending: Floats  # records in the log at the end
    pending_s: Floats  # the same in seconds of arrivals, at least a tenth of the reference rate
    core_s: Floats  # requested
    mib_s: Floats  # requested
    tm_s: Floats  # TaskManagers provisioned
    cost: Floats  # money, requested
    cost_provisioned: Floats  # money, whole TaskManagers
    rescales: Floats  # asked for in this interval
    failures: Floats
