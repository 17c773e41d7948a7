"""Processor time that shipped agents take for one decision, and the planner for a new plan.

python -m agents.studies.deciding
python -m agents.studies.deciding learned --job random-dag:1003 --days 2
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dsp_gym.arrays import Bools, Floats
from dsp_gym.backends.simulated.jobs import SimulatedJobs
from dsp_gym.config.files import load_model
from dsp_gym.evaluation.config import BenchmarkConfig
from dsp_gym.job.catalog import load_job
from dsp_gym.loads.sampler import LoadSampler
from dsp_gym.loop.decision import GuardedDecision
from dsp_gym.loop.topology import Topology
from dsp_gym.policies import make

__all__ = ["DecisionTimes", "main", "time_decisions"]

SHIPPED = ("learned", "learned-ppo", "learned-q11")
INTERVAL_S, WARM_UP = 60, 5
LONG_MS = 5.0
"""Milliseconds above which a decision must have computed its plan again."""


class DecisionTimes(NamedTuple):
    """Times of the decisions of one policy on one job."""

    ms: Floats  # (decisions,) processor time, including the reason in words

    @property
    def is_long(self) -> Bools:
        """Whether a decision computed its plan again, (decisions,)."""
        return self.ms > LONG_MS


def time_decisions(policy: str, job: str, days: float = 1.0) -> DecisionTimes:
    """Let a policy drive one simulated job under the bursty day of core-v1.

    Args:
        policy: Name or folder.
        job: Name or file.
        days: Simulated days; the first decisions, which compile, are left out.

    Returns:
        The times of its decisions.
    """
    loads = load_model(BenchmarkConfig, "benchmarks", "core-v1").loads
    sampler = LoadSampler(loads, None)
    bursts = sampler.cells("train", 1)[1][0]
    seconds = round(86_400 * days)
    topology = Topology.of([load_job(job)])
    rates = topology.tables.rate_per_s[0] * sampler.rates(bursts, seconds)
    jobs, decider = SimulatedJobs(topology), make(policy)
    jobs.reset(np.zeros(1, np.int64), rates[None, :seconds])
    decider.reset(topology, np.zeros(1, np.int64))
    ms: list[float] = []
    assert jobs.actuator is not None  # simulated jobs have one
    for _ in range(seconds // INTERVAL_S):
        snapshot = jobs.snapshot()
        begun = time.process_time()
        # Processor time, not wall time: other processes of the machine do not count.
        decision = decider.decide(snapshot)
        ms.append(1e3 * (time.process_time() - begun))
        jobs.actuator.apply(GuardedDecision.unchanged(decision))
        jobs.advance(INTERVAL_S)
    return DecisionTimes(np.array(ms[WARM_UP:]))


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a line per policy."""
    parser = argparse.ArgumentParser(prog="python -m agents.studies.deciding", description=__doc__)
    parser.add_argument("policies", nargs="*", default=list(SHIPPED), help="names or folders")
    parser.add_argument("--job", default="nexmark-q11")
    parser.add_argument("--days", type=float, default=1.0)
    chosen = parser.parse_args(arguments)
    titles = ("p50, us", "p99, us", "plans anew", "a plan, ms")
    sys.stdout.write(f"{'policy':20}" + "".join(f"{title:>14}" for title in titles) + "\n")
    for name in chosen.policies:
        found = time_decisions(name, chosen.job, chosen.days)
        p50, p99 = 1e3 * np.percentile(found.ms, (50, 99))
        plans = found.ms[found.is_long]
        once = f"{np.median(plans):14.1f}" if len(plans) else f"{'-':>14}"
        sys.stdout.write(f"{name:20}{p50:14.0f}{p99:14.0f}{len(plans):14d}{once}\n")


if __name__ == "__main__":
    main()
