"""Varga, Balassi, Kiss: "Towards autoscaling of Apache Flink jobs".

Kubernetes' HPA with two metrics: growth of the lag over the intake of the job, and utilisation of
the tasks behind the sources. The equations are in `varga_equations`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from pydantic import Field

from baselines import reasons
from baselines.replicas import Behavior, HorizontalController
from baselines.spans import are_over
from baselines.varga_equations import (
    desired_replicas,
    lag_metric,
    relative_lag_change_rate,
    source_lag,
    utilization,
)
from baselines.worker_changes import WorkerChanges
from dsp_gym.arrays import Floats, Ints
from dsp_gym.compiling import njit
from dsp_gym.config.model import ConfigModel
from dsp_gym.job.tables import SOURCE
from dsp_gym.loop.decision import ScalingDecision
from dsp_gym.loop.due import EARLY_S, is_due
from dsp_gym.loop.lacking import BACKLOG, needs
from dsp_gym.loop.per_job_state import Kept, Parts, RowMemory
from dsp_gym.loop.protocols import Mask
from dsp_gym.loop.snapshot import JOB, RUNNING, VERTEX, MetricsSnapshot, SnapshotArrays
from dsp_gym.loop.topology import JobFacts, Topology
from dsp_gym.loop.unknown import LastKnown
from dsp_gym.policies.capabilities import ExplainingPolicy

PERIOD_S = 60.0
"""Period of deriv() and of the rolling average of the rate, s (section 4.1)."""

SCRAPE_S = 5.0
"""Least distance of samples, s, as Prometheus scrapes."""

LEAST_S = 30.0
"""Shortest span of samples that counts as a minute, s."""


class HpaVargaConfig(ConfigModel):
    """Parameters of the two metrics and of the HorizontalPodAutoscaler behind them."""

    utilization_target: float = Field(
        0.8, gt=0, le=1, description="desired value of equation 5 (the paper's example: 0.8)"
    )
    lag_target: float = Field(
        1.0,
        gt=0,
        le=1,
        description="desired value of equation 4; slightly less than 1 overshoots, to catch up",
    )
    lag_threshold_records: float = Field(
        10_000.0,
        ge=0,
        description="backlog up to which equation 4 leaves scaling down to utilisation, records "
        "(the paper gives no number)",
    )
    threshold_per_replica: bool = Field(
        False,
        description="true: the threshold is that of one replica, whose own lag an adapter reports; "
        "false: of the job",
    )
    lag_max_s: float = Field(
        0.0,
        ge=0,
        le=300,
        description="the lag is the highest of this time, s, from the first fetch after a start "
        "on, as Kafka's records-lag-max is of two samples of 30 s; 0: the lag of now",
    )
    spans_restarts: bool = Field(
        False,
        description="true: the minute of equation 3 goes on through a restart, and the last lag "
        "stands until there is another, as in a query of Prometheus; false: it begins anew",
    )
    counts_sources: bool = Field(False, description="equation 5 counts the tasks of sources, too")
    backpressured_is_idle: bool = Field(
        True,
        description="equation 5 counts waiting for output as idle, as Flink 1.12 of the paper did; "
        "false: Flink's idleTimeMsPerSecond since 1.13, waiting for input only",
    )
    gauges_start_s: float = Field(
        0.0,
        ge=0,
        le=60,
        description="time after a start in which idleTimeMsPerSecond is 0, s: Flink updates a new "
        "task's gauge after 5 s, and a scrape is 5 s old at most; such a task counts as fully "
        "utilised; 0: it has no metric until the gauge is updated",
    )
    per_vertex: bool = Field(
        False,
        description="false: one count for the job, as in the paper; true: an autoscaler per "
        "vertex, each with its own utilisation and the job's lag",
    )
    tolerance: float = Field(
        0.1, ge=0, lt=1, description="|metric / target - 1| that is left alone (Kubernetes)"
    )
    sync_period_s: float = Field(15.0, gt=0, description="time between evaluations, s (Kubernetes)")
    rest_s: float = Field(
        0.0,
        ge=0,
        description="time after a change of the replicas in which both metrics are 0, s",
    )
    readiness_s: float = Field(
        0.0, ge=0, description="seconds after a start in which pods have no metrics"
    )
    restarts_pods: bool = Field(
        True,
        description="true: a rescale starts all pods anew, and the controller waits for their "
        "metrics; false: it adds or removes pods and the others keep theirs, as in reactive mode",
    )
    behavior: Behavior = Field(
        default_factory=Behavior, description="stabilisation and limits of the change"
    )


class Targets(NamedTuple):
    """`HpaVargaConfig` as compiled code takes it."""

    busy: float  # desired value of equation 5
    lag: float  # desired value of equation 4
    lag_threshold: float  # records
    threshold_per_replica: bool
    lag_max_s: float
    spans_restarts: bool
    counts_sources: bool
    backpressured_is_idle: bool
    gauges_start_s: float
    per_vertex: bool
    tolerance: float


NEEDS = needs(
    ("busy_now_ms_per_s", "busy_ms_per_s", "records_in_per_s"),
    BACKLOG,
    demand=False,
    besides=(
        "backpressured_now_ms_per_s",
        "pending_records_max_subtask",
        "pending_partitions_max_subtask",
    ),
)
"""The metrics that a decision on a vertex needs."""


class LagSamples(NamedTuple):
    """The last samples of backlog and counters, S per job, as a ring."""

    written: Ints  # (J,) samples written so far
    arriving: Floats  # (J,) records/s, as last known
    at_s: Floats  # (J, S)
    lag: Floats  # (J, S) records, the highest of the configured time
    lag_now: Floats  # (J, S) records
    taken: Floats  # (J, S) records read since the start


class Metrics(NamedTuple):
    """The two metrics and their parts; NaN where a metric is unknown."""

    lag: Floats  # (J,) equation 2
    relative: Floats  # (J,) equation 3
    guarded: Floats  # (J,) equation 4
    utilization: Floats  # (J, V) equation 5

    @classmethod
    def unknown(cls, jobs: int, vertices: int) -> Metrics:
        """Allocate arrays to fill.

        Returns:
            All NaN.
        """
        per_job = np.full((3, jobs), np.nan)
        return cls(per_job[0], per_job[1], per_job[2], np.full((jobs, vertices), np.nan))


class HpaVarga(Kept, ExplainingPolicy):
    """Varga et al.: relative lag change and utilisation through the HPA formula (eq. 1 to 5)."""

    Config = HpaVargaConfig

    def __init__(self, config: HpaVargaConfig | None = None) -> None:
        self.name = "hpa-varga"
        self.config = c = config or HpaVargaConfig()
        self._controller = HorizontalController(
            c.behavior,
            sync_period_s=c.sync_period_s,
            per_vertex=c.per_vertex,
            readiness_s=c.readiness_s,
            restarts_pods=c.restarts_pods,
        )
        self._changes = WorkerChanges()
        self._targets = Targets(
            c.utilization_target,
            c.lag_target,
            c.lag_threshold_records,
            c.threshold_per_replica,
            c.lag_max_s,
            c.spans_restarts,
            c.counts_sources,
            c.backpressured_is_idle,
            c.gauges_start_s,
            c.per_vertex,
            c.tolerance,
        )
        depth = int(max(PERIOD_S, c.lag_max_s) / SCRAPE_S) + 2
        self._written = RowMemory({"written": ("job", 0), "arriving": ("job", np.nan)})
        self._samples = RowMemory(
            {
                "at_s": ("job", -1e18),
                "lag": ("job", 0.0),
                "lag_now": ("job", 0.0),
                "taken": ("job", 0.0),
            },
            depth=depth,
        )
        self._last_known = LastKnown(NEEDS)
        self._kept = Parts(
            controller=self._controller,
            changes=self._changes,
            written=self._written,
            samples=self._samples,
            last_known=self._last_known,
        )

    def reset(self, jobs: Topology, seeds: Ints, mask: Mask | None = None) -> None:
        self._controller.reset(jobs, mask)
        self._changes.reset(jobs, mask)
        self._written.reset(jobs, mask)
        self._samples.reset(jobs, mask)
        self._last_known.reset(jobs, mask)

    def decide(self, snapshot: MetricsSnapshot) -> ScalingDecision:
        c = self.config
        snapshot = self._last_known.filled(snapshot)
        current = self._controller.current(snapshot)
        seen = Metrics.unknown(*current.shape)
        wanted = np.empty(current.shape, dtype=np.int64)
        _recommend(
            snapshot.topology.facts,
            snapshot.arrays,
            current,
            self._controller.without_metrics(snapshot, current),
            self._targets,
            LagSamples(
                self._written["written"],
                self._written["arriving"],
                self._samples["at_s"],
                self._samples["lag"],
                self._samples["lag_now"],
                self._samples["taken"],
            ),
            seen,
            wanted,
        )
        if c.rest_s > 0:
            rested = are_over(snapshot.t_s, self._changes.changed_s(snapshot), c.rest_s)
            # Metrics of 0 call for no replicas, which the stabilisation window overrules.
            wanted[~rested] = 0
        pods = self._controller.replicas(snapshot, current, wanted)

        def why(job: int, v: int) -> str:
            busy = f"utilisation {seen.utilization[job, v]:.3g}, target {c.utilization_target:g}"
            if np.isnan(seen.lag[job]):
                return busy
            used = "counts" if seen.guarded[job] > 0 else "does not count"
            lag, change = f"{reasons.amount(seen.lag[job])} records", f"{seen.relative[job]:.3g}"
            return f"{busy}; lag {lag}, relative change {change} {used}"

        return reasons.decision(
            snapshot, pods, snapshot.memory_level, why if self.explain else None
        )


@njit(cache=True, nogil=True)
def _idle(seen: SnapshotArrays, j: int, v: int, backpressured_too: bool) -> float:
    """Return the idle time of a vertex's tasks over the last minute, ms/s.

    Without gauges, it is that of the metrics window.
    """
    # Gauges add up to 1000 ms/s: idle is the rest beside busy, and backpressured if that counts.
    idle = 1000.0 - seen.vertex[VERTEX.busy_now_ms_per_s, j, v]
    if not backpressured_too:
        idle -= seen.vertex[VERTEX.backpressured_now_ms_per_s, j, v]
    if np.isnan(idle):
        idle = seen.vertex[VERTEX.idle_ms_per_s, j, v]
        waiting = seen.vertex[VERTEX.backpressured_ms_per_s, j, v]
        if backpressured_too and not np.isnan(waiting):
            idle += waiting
        if backpressured_too and np.isnan(idle):
            idle = 1000.0 - seen.vertex[VERTEX.busy_ms_per_s, j, v]
    return min(max(idle, 0.0), 1000.0) if not np.isnan(idle) else np.nan


@njit(cache=True, nogil=True)
def _recommend(
    t: JobFacts,
    seen: SnapshotArrays,
    current: Ints,
    without: Ints,
    c: Targets,
    m: LagSamples,
    metrics: Metrics,
    wanted: Ints,
) -> None:
    """Apply equations 1 to 5 to every job; fill `metrics` and `wanted`, (J, V) replicas.

    j is a job's row, k its job file, v a vertex; m keeps the last minute's samples.
    """
    pending, growing = seen.vertex[VERTEX.pending_records], seen.vertex[VERTEX.pending_growth_per_s]
    fullest = seen.vertex[VERTEX.pending_records_max_subtask]
    of_fullest = seen.vertex[VERTEX.pending_partitions_max_subtask]
    per_s, total = seen.vertex[VERTEX.records_in_per_s], seen.vertex[VERTEX.records_in_total]
    jobs, vertices = current.shape
    idle, tasks = np.empty(vertices), np.empty(vertices, dtype=np.int64)
    for j in range(jobs):
        k = t.row[j]
        lag = growth = rate = taken = 0.0
        replicas = 1
        is_new = seen.status[j] == RUNNING
        is_new &= seen.job[JOB.t_s, j] - seen.job[JOB.running_since_s, j] < c.gauges_start_s
        for v in range(t.n[k]):
            if t.min_parallelism[k, v] < t.max_parallelism[k, v]:
                replicas = max(replicas, current[j, v])
        for v in range(vertices):
            source = v < t.n[k] and t.kind[k, v] == SOURCE
            tasks[v] = 0 if source or v >= t.n[k] else seen.parallelism[j, v]
            if source and c.counts_sources:  # a replica has at most one task of each vertex
                tasks[v] = min(seen.parallelism[j, v], replicas)
            idle[v] = 0.0 if is_new else _idle(seen, j, v, c.backpressured_is_idle)
            if source:  # one unknown source makes the sum unknown
                lag += source_lag(
                    pending[j, v], fullest[j, v], of_fullest[j, v], t.partitions[k, v]
                )
                growth += growing[j, v]
                rate += per_s[j, v]
                taken += total[j, v]
        if seen.status[j] == RUNNING:
            lag, growth, rate = _of_a_minute(seen, j, c, m, lag, taken, growth, rate)
        relative = relative_lag_change_rate(growth, rate)
        threshold = c.lag_threshold * (replicas if c.threshold_per_replica else 1)
        guarded = lag_metric(lag, threshold, relative)
        metrics.lag[j], metrics.relative[j], metrics.guarded[j] = lag, relative, guarded
        # A job without a log has no lag to watch; an unknown lag of a log is a fault.
        by_lag = guarded / c.lag if t.has_log[k] > 0 else -1.0
        busy = utilization(idle, tasks)
        for v in range(vertices):
            if c.per_vertex:
                busy = 1.0 - idle[v] / 1000.0
            metrics.utilization[j, v] = busy
            wanted[j, v] = desired_replicas(
                current[j, v], by_lag, busy / c.busy, c.tolerance, without[j, v]
            )


@njit(cache=True, nogil=True)
def _of_a_minute(
    seen: SnapshotArrays,
    j: int,
    c: Targets,
    m: LagSamples,
    lag: float,
    taken: float,
    growth: float,
    rate: float,
) -> tuple[float, float, float]:
    """Return lag, its growth and the rate of reading that count for row j, a running job.

    A metrics window of up to a minute has the minute's means. With a longer one, they come from
    samples of backlog and counters; until there are any, the window's means count.

    Args:
        seen: The snapshot.
        j: Row of the job.
        c: Of which time lag and growth count.
        m: Samples, changed in place.
        lag: Backlog of now, records.
        taken: Records read since the start.
        growth: Growth of the backlog over the metrics window, records/s.
        rate: Rate of reading over the metrics window, records/s.

    Returns:
        Records, and twice records/s; NaN where unknown.
    """
    now, since = seen.job[JOB.t_s, j], seen.job[JOB.running_since_s, j]
    is_known = not (np.isnan(lag) or np.isnan(taken))
    if is_known:
        lag = _sample(j, now, since, c.lag_max_s, lag, taken, m)
        # A young job's window shows what it catches up with.
        if now - since >= PERIOD_S and not (np.isnan(growth) or np.isnan(rate)):
            m.arriving[j] = growth + rate
    elif not c.spans_restarts:
        return lag, growth, rate
    # Counters restart with the job.
    fresh, fresh_rate = _minute(j, now, -np.inf if c.spans_restarts else since, m)
    if np.isnan(fresh):
        return lag, growth, rate
    if not is_known:  # a query shows the last sample until there is another
        lag = m.lag[j, (m.written[j] - 1) % m.lag.shape[1]]
    long = seen.job[JOB.window_s, j] > PERIOD_S or np.isnan(growth) or np.isnan(rate)
    if long or c.spans_restarts or c.lag_max_s > 0.0:
        return lag, fresh, fresh_rate
    return lag, growth, rate


@njit(cache=True, nogil=True)
def _sample(
    j: int, now: float, since: float, lag_max_s: float, lag: float, taken: float, m: LagSamples
) -> float:
    """Keep a sample of row j, at most one per scrape.

    Args:
        j: Row of the job.
        now: Time, s.
        since: Time at which the job came up, s.
        lag_max_s: Time of which the highest lag counts, s.
        lag: Backlog, records.
        taken: Records read since the start.
        m: Samples, changed in place.

    Returns:
        The lag that counts, records.
    """
    size = m.at_s.shape[1]
    highest, is_first = lag, True
    for i in range(size if lag_max_s > 0.0 else 0):
        # A consumer starts with the job, and knows no lag from before.
        if m.at_s[j, i] >= since:
            is_first = False
            if now - m.at_s[j, i] <= lag_max_s:
                highest = max(highest, m.lag_now[j, i])
    if lag_max_s > 0.0 and is_first and now - since <= lag_max_s and not np.isnan(m.arriving[j]):
        # Its first fetch saw the whole backlog of the outage: what waits and what was read since,
        # but for what has arrived since.
        highest = max(highest, lag + taken - m.arriving[j] * (now - since))
    if m.written[j] == 0 or is_due(now, m.at_s[j, (m.written[j] - 1) % size], SCRAPE_S):
        newest = m.written[j] % size
        m.at_s[j, newest], m.lag[j, newest], m.taken[j, newest] = now, highest, taken
        m.lag_now[j, newest] = highest if is_first else lag
        m.written[j] += 1
    return highest


@njit(cache=True, nogil=True)
def _minute(j: int, now: float, begin: float, m: LagSamples) -> tuple[float, float]:
    """Compute PromQL's deriv (least squares) and the mean rate of row j.

    Args:
        j: Row of the job.
        now: Time, s.
        begin: Time before which no sample counts, s.
        m: Samples.

    Returns:
        Growth of the backlog and rate of reading over the last minute, records/s; NaN while the
        samples span too little.
    """
    size = m.at_s.shape[1]
    newest = (m.written[j] - 1) % size
    count, oldest = 0, newest
    mean_t = mean_lag = 0.0
    for i in range(size):
        if m.at_s[j, i] >= begin and now - m.at_s[j, i] <= PERIOD_S + EARLY_S:
            count += 1
            mean_t += m.at_s[j, i] - now
            mean_lag += m.lag[j, i]
            if m.at_s[j, i] < m.at_s[j, oldest]:
                oldest = i
    span = m.at_s[j, newest] - m.at_s[j, oldest]
    restarted, read = _read(m.taken[j], oldest, newest)
    if count < 2 or span < LEAST_S or (restarted and begin > -np.inf):
        return np.nan, np.nan
    mean_t, mean_lag = mean_t / count, mean_lag / count
    # Slope by least squares: sum (t - mean t)(lag - mean lag) / sum (t - mean t)^2.
    above = below = 0.0
    for i in range(size):
        if m.at_s[j, i] >= begin and now - m.at_s[j, i] <= PERIOD_S + EARLY_S:
            t = m.at_s[j, i] - now - mean_t
            above += t * (m.lag[j, i] - mean_lag)
            below += t * t
    return above / below, read / span


@njit(cache=True, nogil=True)
def _read(taken: Floats, oldest: int, newest: int) -> tuple[bool, float]:
    """Return whether a counter restarted between two slots of its ring, and what it counted."""
    restarted, size = False, len(taken)
    read = taken[newest] - taken[oldest]
    for step in range((newest - oldest) % size):
        before = taken[(oldest + step) % size]
        # A restarted counter began at 0: what it had counted before is not lost.
        if taken[(oldest + step + 1) % size] < before:
            restarted, read = True, read + before
    return restarted, read
