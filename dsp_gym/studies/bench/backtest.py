"""The time of a backtest of a fleet, once its metrics are fetched.

Jobs are random graphs of the usual sizes under a load that rises and falls every day. They ran on a
fixed configuration that carries the peak, and were measured as Prometheus measures: so each one is
fitted, replayed as it was deployed, and replayed with every policy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from dsp_gym.arrays import Floats
from dsp_gym.calibration.model import JobModel
from dsp_gym.calibration.observations import SteadyPart
from dsp_gym.engine import Engine
from dsp_gym.job.catalog import load_job, random_job
from dsp_gym.job.sizing import sized
from dsp_gym.loop.topology import Topology
from dsp_gym.studies.bench.machine import Figure, timed
from dsp_gym.whatif.backtest import backtest
from dsp_gym.whatif.history import DAY_S, GridSlots, JobHistory, gridded
from dsp_gym.whatif.policies import named_entrants

POLICIES = ("ds2", "justin-paper", "flink-autoscaler", "planner")

PARTS = 16
"""Steady parts that a job is fitted to."""

BUSIEST = 0.7
"""Peak load over the reference rate."""


def bench_backtest(
    jobs: int, days: float, policies: tuple[str, ...], interval_s: int, engine: Engine
) -> list[Figure]:
    """Measure a backtest of a fleet, from its histories to its document.

    Args:
        jobs: Jobs in the fleet.
        days: Days of each history.
        policies: Policies to replay.
        interval_s: Seconds between decisions.
        engine: Place of the work.

    Returns:
        Seconds on the clock, and the decisions of all replays.
    """
    histories = fleet(jobs, days, interval_s)
    (seconds,) = timed(
        lambda: backtest(
            histories, "a fleet", entrants=named_entrants(policies, "default"), engine=engine
        ),
        runs=1,
    )
    how = f"{jobs} jobs, {days:g} days, {len(policies)} policies"
    return [
        Figure("backtest", "s", seconds, method=how),
        Figure("decisions", "", sum(map(len, histories)) * (len(policies) + 1), method=how),
    ]


def fleet(jobs: int, days: float, interval_s: int) -> list[JobHistory]:
    """Make histories of random jobs.

    Returns:
        One history per job, with steady parts to fit its model to.
    """
    return [_history(number, days, interval_s) for number in range(jobs)]


def _history(number: int, days: float, interval_s: int) -> JobHistory:
    name, slots = f"job-{number}", round(days * DAY_S / interval_s)
    spec = load_job(random_job(number)).model_copy(update={"job": name})
    t_s: Floats = interval_s * np.arange(slots, dtype=np.float64)
    peak = BUSIEST * float(spec.source.rate_per_s)
    topology = Topology.of([spec])
    level = topology.tables.start_level[topology.row]
    tasks = sized(topology.tables, topology.row, np.array([peak]), 1.0, np.ones(1), level)
    unknown = np.full(slots, np.nan)
    history = gridded(
        name,
        spec,
        GridSlots(
            t_s=t_s,
            interval_s=interval_s,
            load_per_s=peak * (0.6 - 0.4 * np.cos(2 * np.pi * (t_s / DAY_S + number / 10))),
            tasks=np.tile(tasks, (slots, 1)),
            level=np.tile(level, (slots, 1)),
            late=np.zeros(slots),
            lag_s=unknown,
            latency_s=unknown,
        ),
        is_dated=True,
    )
    return replace(history, parts=_parts(history, topology.names(0)))


def _parts(history: JobHistory, names: Sequence[str]) -> tuple[SteadyPart, ...]:
    """Compute what the model itself would have shown at some of the loads."""
    tasks = dict(zip(names, history.parallelism[0].tolist(), strict=True))
    level = dict(zip(names, history.memory_level[0].tolist(), strict=True))
    model = JobModel(history.spec, {})
    slots = np.linspace(0, len(history) - 1, PARTS).astype(int)
    seen = [
        SteadyPart(f"{slot}", 0.0, 300.0, tasks, level, rate, rate, 0.02, 0.0, saturated=False)
        for slot, rate in zip(slots, history.load_per_s[slots].tolist(), strict=True)
    ]
    return tuple(replace(part, busy=model.predict(part).busy) for part in seen)
