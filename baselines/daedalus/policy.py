"""Daedalus' loop: measure, model, forecast, and choose the smallest number of workers.

What a snapshot has instead of the metrics of the paper:

- A worker is a subtask of every vertex, as with Flink's reactive mode and one slot per
  TaskManager. Its CPU is the busy share of the busiest vertex that can be scaled; its skew is that
  vertex' hottest subtask over the mean. One line stands for all workers, which gives the same sum
  where their lines are equal.
- A loop has one mean in place of 60 values of one second. Forecasts have steps of a loop, and the
  straight line runs through the last five.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from pydantic import Field, model_validator

from baselines import reasons
from baselines.daedalus.capacity import add_sample, capacity_of, keep_capacity, rate_at
from baselines.daedalus.forecast import forecast_differences, forecast_line
from baselines.daedalus.memory import DaedalusMemory, empty_memory
from baselines.daedalus.recovery import adapt, add_growth, is_usual, recovery_s
from dsp_gym.arrays import Floats, Ints
from dsp_gym.compiling import njit
from dsp_gym.config.model import ConfigModel
from dsp_gym.job.tables import SOURCE
from dsp_gym.loop.decision import ScalingDecision
from dsp_gym.loop.due import is_due
from dsp_gym.loop.lacking import BACKLOG, needs
from dsp_gym.loop.per_job_state import Kept, Parts
from dsp_gym.loop.protocols import Mask
from dsp_gym.loop.snapshot import JOB, RUNNING, VERTEX, MetricsSnapshot, SnapshotArrays
from dsp_gym.loop.topology import JobFacts, Topology
from dsp_gym.loop.unknown import LastKnown
from dsp_gym.policies.capabilities import ExplainingPolicy

NEEDS = needs(
    ("busy_ms_per_s", "records_in_per_s"), BACKLOG, demand=False, besides=("busy_max_ms_per_s",)
)
"""The metrics that a decision on a vertex needs."""


class DaedalusConfig(ConfigModel):
    """Parameters of Daedalus; the defaults are those of its public repository."""

    interval_s: float = Field(60.0, gt=0, description="time between loops, s")
    warm_up_s: float = Field(
        120.0, ge=0, description="time after a (re)start whose samples the model leaves out, s"
    )
    rest_s: float = Field(180.0, ge=0, description="rest after a (re)start, s")
    hold_s: float = Field(
        600.0,
        ge=0,
        description="time after a (re)start until which only a job is rescaled whose capacity is "
        "below its load, or below the forecast of the next loop, s",
    )
    target_recovery_s: float = Field(
        600.0, gt=0, description="longest recovery from a rescale, as predicted, s"
    )
    checkpoint_interval_s: float = Field(
        10.0, ge=0, description="records of this time are read again after a rescale, s"
    )
    downtime_up_s: float = Field(
        30.0, ge=0, description="downtime of a rescale that adds workers, before any was seen, s"
    )
    downtime_down_s: float = Field(
        15.0, ge=0, description="downtime of one that takes workers away, likewise, s"
    )
    downtime_step_s: float = Field(
        1.0, ge=0, description="change of an expected downtime after a recovery was seen, s"
    )
    horizon_s: float = Field(900.0, gt=0, description="time that is forecast, s")
    line_horizon_s: float = Field(
        600.0, gt=0, description="time that is forecast where the straight line does it, s"
    )
    trusted_error: float = Field(
        0.25,
        gt=0,
        description="relative error of the last forecast from which on the straight line forecasts",
    )
    order: int = Field(
        2,
        ge=1,
        le=8,
        description="differences of the load that the next one depends on (assumption; they search "
        "an ARIMA model with orders up to 5)",
    )
    history: int = Field(
        120, ge=20, description="loops of load that the forecast is fitted to (assumption)"
    )
    min_cpu_spread: float = Field(
        0.02,
        ge=0,
        description="standard deviation of the CPU share below which samples tell no slope, and "
        "the line runs through the origin (assumption)",
    )

    @model_validator(mode="after")
    def _holds_after_its_rest(self) -> DaedalusConfig:
        if self.hold_s < self.rest_s:
            raise ValueError(f"hold_s {self.hold_s:g} is below rest_s {self.rest_s:g}")
        return self


class DaedalusRules(NamedTuple):
    """`DaedalusConfig` as compiled code takes it."""

    interval_s: float
    warm_up_s: float
    rest_s: float
    hold_s: float
    target_recovery_s: float
    checkpoint_s: float
    downtime_step_s: float
    steps: int  # of a forecast
    line_steps: int  # of one by the straight line
    trusted_error: float
    order: int
    min_cpu_spread: float

    @classmethod
    def of(cls, c: DaedalusConfig) -> DaedalusRules:
        """Read a configuration.

        Returns:
            Numbers for compiled code; horizons in whole loops.
        """
        return cls(
            c.interval_s,
            c.warm_up_s,
            c.rest_s,
            c.hold_s,
            c.target_recovery_s,
            c.checkpoint_interval_s,
            c.downtime_step_s,
            math.ceil(c.horizon_s / c.interval_s),
            math.ceil(c.line_horizon_s / c.interval_s),
            c.trusted_error,
            c.order,
            c.min_cpu_spread,
        )


class LoopMetrics(NamedTuple):
    """What one loop observes of a job; NaN where unknown."""

    load: float  # records/s offered
    read: float  # records/s
    lag: float  # records
    cpu: float  # 0..1, of the mean worker
    highest_cpu: float  # of the busiest worker


class ChoiceFigures(NamedTuple):
    """The figures behind a decision, (J,) each; NaN where the loop did not choose."""

    capacity: Floats
    load: Floats
    highest: Floats  # of the forecast
    recovery_s: Floats


class Daedalus(Kept, ExplainingPolicy):
    """Daedalus (2024): the fewest workers that carry load and forecast and recover in time."""

    Config = DaedalusConfig

    def __init__(self, config: DaedalusConfig | None = None) -> None:
        self.name = "daedalus"
        self.config = c = config or DaedalusConfig()
        self._rules = DaedalusRules.of(c)
        self._memory = empty_memory(c.history, c.downtime_up_s, c.downtime_down_s)
        self._last_known = LastKnown(NEEDS)
        self._kept = Parts(memory=self._memory, last_known=self._last_known)

    def reset(self, jobs: Topology, seeds: Ints, mask: Mask | None = None) -> None:
        self._memory.reset(jobs, mask)
        self._last_known.reset(jobs, mask)

    def decide(self, snapshot: MetricsSnapshot) -> ScalingDecision:
        snapshot = self._last_known.filled(snapshot)
        pods = snapshot.parallelism.copy()
        said = ChoiceFigures(*np.full((4, len(snapshot)), np.nan))
        memory = self._memory.arrays(DaedalusMemory)
        _decide(snapshot.topology.facts, snapshot.arrays, self._rules, memory, said, pods)

        def why(job: int, v: int) -> str:
            carried, load = reasons.amount(said.capacity[job]), reasons.amount(said.load[job])
            highest, recovers_s = reasons.amount(said.highest[job]), said.recovery_s[job]
            return f"carries {carried}/s of {load}/s, forecast up to {highest}/s; recovery " + (
                f"{recovers_s:.0f} s" if np.isfinite(recovers_s) else "beyond the forecast"
            )

        return reasons.decision(
            snapshot, pods, snapshot.memory_level, why if self.explain else None
        )


@njit(cache=True, nogil=True)
def _decide(
    t: JobFacts,
    seen: SnapshotArrays,
    c: DaedalusRules,
    m: DaedalusMemory,
    said: ChoiceFigures,
    pods: Ints,
) -> None:
    """Run a loop for every job that is due.

    j is a job's row, k its job file, v a vertex.

    Args:
        t: The jobs.
        seen: The snapshot.
        c: The rules.
        m: Memory, changed in place.
        said: Filled in where a number of workers is chosen.
        pods: (J, V) parallelism, changed where it is another number.
    """
    t_s = seen.job[JOB.t_s]
    for j in range(len(t_s)):
        workers, least, most = _workers(t, seen, j)
        if seen.status[j] != RUNNING or most == 0:
            continue
        _notice(j, t_s[j], seen.job[JOB.running_since_s, j], workers, m)
        if not is_due(t_s[j], m.evaluated_s[j], c.interval_s):
            continue
        now = _observe(t, seen, j)
        if np.isnan(now.load) or np.isnan(now.lag) or np.isnan(now.cpu):
            continue
        m.evaluated_s[j] = t_s[j]
        _learn(seen, j, workers, now, c, m)
        ahead = _forecast(j, now.load, c, m)
        if not is_due(t_s[j], m.moved_s[j], c.rest_s):
            continue
        wanted = _choose(j, workers, (least, most), now, ahead, t_s[j], c, m, said)
        if wanted == workers:
            continue
        takes_s = said.recovery_s[j]
        m.asked[j], m.predicted_s[j] = wanted, takes_s if takes_s < np.inf else np.nan
        k = t.row[j]
        for v in range(t.n[k]):
            low, high = t.min_parallelism[k, v], t.max_parallelism[k, v]
            if low < high:
                pods[j, v] = min(max(wanted, low), high)


@njit(cache=True, nogil=True, borrows=True)
def _workers(t: JobFacts, seen: SnapshotArrays, j: int) -> tuple[int, int, int]:
    """Return the running workers of job j, fewest and most; 0 at most where nothing can be scaled.

    Workers are counted by the largest parallelism, as a HorizontalPodAutoscaler of the job does.
    """
    k = t.row[j]
    workers = most = 0
    least = 1 << 30
    for v in range(t.n[k]):
        low, high = t.min_parallelism[k, v], t.max_parallelism[k, v]
        if low < high:
            workers = max(workers, seen.parallelism[j, v])
            least, most = min(least, low), max(most, high)
    return workers, least, most


@njit(cache=True, nogil=True, borrows=True)
def _notice(j: int, now: float, since: float, workers: int, m: DaedalusMemory) -> None:
    """Notice a rescale of job j since the last snapshot: a rest begins, and a recovery."""
    if m.running[j] >= 0 and m.running[j] != workers:
        m.moved_s[j] = since if since > m.seen_s[j] else now
        # Only a rescale that was asked for has a prediction to compare with.
        m.is_open[j] = workers == m.asked[j] and not np.isnan(m.predicted_s[j])
        m.is_up[j] = workers > m.running[j]
    elif since > m.moved_s[j]:  # a start, or a restart without a rescale
        m.moved_s[j] = since
    m.seen_s[j], m.running[j] = now, workers


@njit(cache=True, nogil=True, borrows=True)
def _observe(t: JobFacts, seen: SnapshotArrays, j: int) -> LoopMetrics:
    """Observe load and lag of job j at its sources, and the CPU of its busiest vertex."""
    k = t.row[j]
    load = read = lag = 0.0
    cpu = highest = -1.0
    for v in range(t.n[k]):
        arriving = seen.vertex[VERTEX.records_in_per_s, j, v]
        if t.kind[k, v] == SOURCE:
            growth = pending = 0.0  # a generator without a log has no backlog
            if t.has_log[k] > 0:
                growth = seen.vertex[VERTEX.pending_growth_per_s, j, v]
                pending = seen.vertex[VERTEX.pending_records, j, v]
            read += arriving
            offered = arriving + growth
            load += 0.0 if offered < 0.0 else offered  # unknown stays unknown
            lag += pending
        if t.min_parallelism[k, v] == t.max_parallelism[k, v] or np.isnan(cpu):
            continue
        busy = seen.vertex[VERTEX.busy_ms_per_s, j, v] / 1000.0
        if not busy <= cpu:  # an unknown vertex might be the busiest
            hottest = seen.vertex[VERTEX.busy_max_ms_per_s, j, v] / 1000.0
            cpu, highest = busy, busy if np.isnan(hottest) else max(busy, hottest)
    return LoopMetrics(load, read, lag, cpu, highest)


@njit(cache=True, nogil=True, borrows=True)
def _learn(
    seen: SnapshotArrays,
    j: int,
    workers: int,
    now: LoopMetrics,
    c: DaedalusRules,
    m: DaedalusMemory,
) -> None:
    """Learn from one loop: the downtime of the last rescale, and the capacity that runs."""
    t_s, since = seen.job[JOB.t_s, j], seen.job[JOB.running_since_s, j]
    growth = now.load - now.read
    if m.is_open[j] and is_usual(m, j, growth):
        outage_s = seen.job[JOB.outage_s, j]
        observed_s = t_s - m.moved_s[j] + (outage_s if outage_s > 0.0 else 0.0)
        adapt(m, j, observed_s, c.downtime_step_s)
    add_growth(m, j, growth)
    # The metrics are means over the window, which must not reach into the warm-up.
    window_s = seen.job[JOB.window_s, j] * seen.job[JOB.window_fill, j]
    is_warm = np.isnan(since) or is_due(t_s - window_s, since, c.warm_up_s)
    if workers == 0 or not is_warm:
        return
    add_sample(m, j, now.cpu, now.read / workers)
    # Skew keeps the mean worker below full CPU when the busiest one is at it.
    of_worker = rate_at(m, j, 1.0 - (now.highest_cpu - now.cpu), c.min_cpu_spread)
    if of_worker > 0.0:
        keep_capacity(m, j, t_s, workers, of_worker * workers)


@njit(cache=True, nogil=True)
def _forecast(j: int, load: float, c: DaedalusRules, m: DaedalusMemory) -> Floats:
    """Write down the load of job j, judge the last forecast by it, and make the next one."""
    size = m.load.shape[1]
    m.load[j, m.written[j] % size] = load
    m.written[j] += 1
    kept = min(m.written[j], size)
    past = np.empty(kept)
    for i in range(kept):
        past[i] = m.load[j, (m.written[j] - kept + i) % size]
    error, expected = np.inf, m.expected[j]
    if not np.isnan(expected) and load > 0.0:
        error = abs(load - expected) / load
    ahead = np.empty(c.steps)
    is_fitted = forecast_differences(past, c.order, ahead)
    m.expected[j] = ahead[0] if is_fitted else np.nan
    if not (is_fitted and error < c.trusted_error):
        ahead = np.empty(c.line_steps)
        forecast_line(past, ahead)
    return ahead


@njit(cache=True, nogil=True, borrows=True)
def _highest(ahead: Floats, within_s: float, step_s: float) -> float:
    """Return the highest forecast of the steps that begin before a time."""
    highest = ahead[0]
    for s in range(1, ahead.shape[0]):
        if s * step_s < within_s:
            highest = max(highest, ahead[s])
    return float(highest)


@njit(cache=True, nogil=True, borrows=True)
def _choose(
    j: int,
    workers: int,
    bounds: tuple[int, int],
    now: LoopMetrics,
    ahead: Floats,
    t_s: float,
    c: DaedalusRules,
    m: DaedalusMemory,
    said: ChoiceFigures,
) -> int:
    """Choose the number of workers of job j: candidates from the smallest on.

    Args:
        j: Row of the job.
        workers: Running workers.
        bounds: Fewest and most workers.
        now: What was observed.
        ahead: (steps,) forecast of the load, records/s.
        t_s: Time, s.
        c: The rules.
        m: Memory.
        said: Figures behind the choice, filled in.

    Returns:
        Workers; the running ones where the capacity is not known.
    """
    running = capacity_of(m, j, workers)
    if np.isnan(running):
        return workers
    step_s, highest = c.interval_s, _highest(ahead, np.inf, c.interval_s)
    is_held = not is_due(t_s, m.moved_s[j], c.hold_s)
    if is_held and running > max(now.load, ahead[0]):
        return workers
    waiting = now.load * c.checkpoint_s + now.lag
    said.load[j], said.highest[j] = now.load, highest
    for count in range(bounds[0], bounds[1] + 1):
        capacity = capacity_of(m, j, count)
        if not capacity > now.load:
            continue
        down_s = m.down_s[j] if count < workers else m.up_s[j]
        takes_s = recovery_s(capacity, waiting, down_s, ahead, step_s)
        said.capacity[j], said.recovery_s[j] = capacity, takes_s
        if takes_s > c.target_recovery_s or capacity < _highest(ahead, takes_s, step_s):
            continue
        if count == workers:
            return count
        if count < workers and running < now.lag:
            continue
        if capacity > highest:
            return count
    capacity = capacity_of(m, j, bounds[1])
    said.capacity[j] = capacity
    said.recovery_s[j] = recovery_s(capacity, waiting, m.up_s[j], ahead, step_s)
    return bounds[1]
