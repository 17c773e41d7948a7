"""A job fitted to runs in which an autoscaler changed its TaskManagers.

What each number comes from:

- capacity of a TaskManager: throughput of samples behind the load or at full CPU, long after a
  change: there the job processes what it can; how it falls with TaskManagers is Amdahl's law
  through these, since few numbers of them are seen at their limit;
- outage: the peak of the lag after a change over the load, which includes what was read again;
- signals: busy, idle and backpressured time, CPU load and lag at rest against the load of a slot
  and the number of TaskManagers. Operators that share a core are idle at saturation, so none of
  these is the load.

The gauges are means over operators, and policies divide by the busy time of one of them. At
saturation it lies between the mean of those left and what its own time and theirs allow, which is
for sources the time in which they are not backpressured: the middle is taken.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dsp_gym.arrays import Bools, Floats
from dsp_gym.calibration.scaled_runs import ScaledRun, changes_of, quieted
from dsp_gym.errors import ConfigError, MissingExtraError
from dsp_gym.job.signals import Response

SETTLED_S = 75.0
"""Age of a change after which Flink's rates, means over 60 s, show nothing of it."""
GAUGES_S = 135.0
"""The same of time gauges that the query averages over a minute once more."""
BEHIND_S = 3.0
"""Lag over load above which a job is behind; at rest it is about one."""
SETTLES_S = 60.0
"""Changes within that time of each other are one: their TaskManagers come one after another."""
PEAK_S = 75.0
"""Time after a change in which its peak of the lag shows."""
ROUNDS = 20
"""Fits in which the values of a gauge at its limit are found."""
LEAST_GAUGE = 0.05
"""Gauge below which an error counts as if it were as large."""
ENOUGH = 20
"""Samples beyond which a cell of load and TaskManagers counts no more."""
FEWEST = 3
"""Samples at a number of TaskManagers that say what these can process."""
TOP = 0.75
"""Quantile of these samples: some subtasks have caught up while others are still behind."""
FULL_CPU = 0.97
"""CPU load at which a job has no more to give."""
BUSY_CPU = 0.9
"""CPU load below which some tasks of a job that is behind have caught up."""
COLD_S = 300.0
"""Start of a run, in which nothing is compiled or cached yet."""
LOSSES = np.linspace(0.0, 1.0, 201) ** 2
"""Factors of Amdahl's law that are tried: finer where they are small."""
FEW_CHANGES = 10
MOST_OPERATORS = 8
NOTHING: Response = (0.0, 0.0, 0.0, 0.0, 0.0)
LEAST_LOAD_SHARE = 0.1
"""Load over the run's mean below which lag over load says nothing."""


@dataclass(frozen=True, slots=True)
class ScaledFit:
    """A job fitted to scaled runs; rates are in the records that arrive.

    Attributes:
        capacity_per_s: of one TaskManager.
        loss: factor a of 1 / (1 + a (n - 1)), the share of it that each of n TaskManagers has.
        per_taskmanager: TaskManagers, records/s of each of them, and samples, where they showed it.
        selectivity: records that throughput counts per record that arrives.
        outage_s: of a change p10, p50, p90, from the peak of the lag; with what was read again.
        changes: that it comes from.
        cold_s: after the outage, until added TaskManagers work; 0 where latency is not known.
        cpu: response of the CPU load; None: not measured.
        lag_s: response of the lag at rest.
        busy: response of the busy time of each operator, sources first.
        backpressured: response of the sources' backpressured time.
        base_latency_s: while nothing waits.
        most_taskmanagers: seen.
        start: TaskManagers at the start of a run.
        reference_per_s: median load.
        warnings: what to know about it.
    """

    capacity_per_s: float
    loss: float
    per_taskmanager: tuple[tuple[int, float, int], ...]
    selectivity: float
    outage_s: tuple[float, float, float]
    changes: int
    cold_s: float
    cpu: Response | None
    lag_s: Response
    busy: tuple[Response, ...]
    backpressured: Response
    base_latency_s: float
    most_taskmanagers: int
    start: int
    reference_per_s: float
    warnings: tuple[str, ...]

    def capacity_at(self, taskmanagers: Floats) -> Floats:
        """Capacity of all TaskManagers together, records/s.

        Returns:
            Of the shape of `taskmanagers`.
        """
        n = np.asarray(taskmanagers, dtype=float)
        return np.asarray(self.capacity_per_s * n * share_kept(n, self.loss))


@dataclass(frozen=True, slots=True)
class _Samples:
    """Samples of all runs side by side."""

    age_s: Floats  # of the run
    since_s: Floats  # the last change
    input_per_s: Floats
    throughput_per_s: Floats
    lag_records: Floats
    taskmanagers: Floats
    busy: Floats
    idle: Floats
    backpressured: Floats
    cpu: Floats
    latency_s: Floats


def fit_runs(runs: Sequence[ScaledRun]) -> ScaledFit:
    """Fit a job to runs of it.

    Args:
        runs: of one job, at least one.

    Returns:
        The fit.

    Raises:
        ConfigError: The runs never show the job's capacity, or no change of it.
    """
    s = _side_by_side(runs)
    warnings: list[str] = []
    steady = (s.since_s >= SETTLED_S) & (s.taskmanagers >= 1) & (s.throughput_per_s > 0)
    steady &= np.isfinite(s.input_per_s) & (s.input_per_s > 0)
    selectivity = float(np.median((s.throughput_per_s / s.input_per_s)[steady]))
    if 0.9 < selectivity < 1.1:  # one, but for samples in which a backlog grew or shrank
        selectivity = 1.0
    full = _full(s, steady, selectivity)
    per_taskmanager = _capacities(s, full, selectivity)
    capacity, loss = amdahl(per_taskmanager, warnings)
    outages = [outage for run in runs for outage in outages_of(run)]
    if not outages:
        raise ConfigError(
            "no change of TaskManagers shows an outage",
            remedy="Give runs in which an autoscaler changed a job that kept up.",
        )
    if len(outages) < FEW_CHANGES:
        warnings.append(f"{len(outages)} changes: quantiles of so few outages are rough")
    low, middle, high = np.quantile(outages, [0.1, 0.5, 0.9]).tolist()
    n = np.maximum(s.taskmanagers, 1.0)
    load = np.minimum(s.throughput_per_s / selectivity / (capacity * n), 1.0)
    shown = steady & (s.since_s >= GAUGES_S) & (s.age_s >= COLD_S)
    rests = s.lag_records < BEHIND_S * s.input_per_s
    lag_s = s.lag_records / np.maximum(s.input_per_s, 1e-9)
    busy, backpressured = _operators(s, load, shown, full & (s.since_s >= GAUGES_S), warnings)
    has_cpu = bool(np.any(np.isfinite(s.cpu)))
    quiet = s.latency_s[shown & rests]
    return ScaledFit(
        capacity,
        loss,
        per_taskmanager,
        selectivity,
        (low, middle, high),
        len(outages),
        cold_s(runs),
        _response(load, s.taskmanagers, s.cpu, shown, most=FULL_CPU) if has_cpu else None,
        _response(load, s.taskmanagers, lag_s, shown & rests, rises=False),
        busy,
        backpressured,
        float(np.nanmedian(quiet)) if np.any(np.isfinite(quiet)) else 0.0,
        int(np.nanmax(s.taskmanagers)),
        int(np.median([run.taskmanagers[np.isfinite(run.taskmanagers)][0] for run in runs])),
        float(np.nanmedian(s.input_per_s)),
        tuple(warnings),
    )


def cold_s(runs: Sequence[ScaledRun]) -> float:
    """Time from the end of an outage until added TaskManagers work.

    Latency is a mean over tasks. Those that ran before soon catch up, so what is left of it is
    that of the added ones, times their share.

    Args:
        runs: of one cluster; the jobs may be several.

    Returns:
        The median of the age of these tasks' records, less that of the outage, s; 0 where no
        latency is known, or no TaskManager came to a job that kept up.
    """
    found = []
    for run in runs:
        step = run.step_s
        before, after = max(2, round(SETTLED_S / step)), max(1, round(SETTLES_S / step))
        for first, last in quieted(changes_of(run.taskmanagers), SETTLES_S / step):
            n, was = run.taskmanagers[last], run.taskmanagers[first - 1]
            quiet = run.latency_s[max(0, first - before) : max(0, first - 1)]
            shown = run.latency_s[last + 1 : last + 1 + after]
            rises = first >= before and n > was > 0
            if rises and np.all(quiet < BEHIND_S) and np.any(np.isfinite(shown)):
                found.append(float(np.nanmax(shown)) * n / (n - was))
    outages = [outage for run in runs for outage in outages_of(run)]
    if not (found and outages):
        return 0.0
    return max(0.0, float(np.median(found) - np.median(outages)))


def outages_of(run: ScaledRun) -> list[float]:
    """Outages of a run's changes: the peak of the lag over the load, less the lag at rest.

    Only a change of a job that kept up tells: a backlog of before is no outage.

    Returns:
        Seconds each, what was read again included.
    """
    found = []
    step = run.step_s
    changes = quieted(changes_of(run.taskmanagers), SETTLES_S / step)
    least = LEAST_LOAD_SHARE * float(np.nanmean(run.input_per_s))
    before, after = max(2, round(SETTLED_S / step)), max(1, round(PEAK_S / step))
    for place, (first, last) in enumerate(changes):
        until = changes[place + 1][0] if place + 1 < len(changes) else len(run)
        rest = run.lag_records[max(0, first - before) : max(0, first - 1)]
        load = run.input_per_s[max(0, first - 2) : first + 1]
        peak = run.lag_records[first - 1 : min(last + after, until)]
        if not (np.any(np.isfinite(rest)) and np.any(np.isfinite(peak))):
            continue
        at_rest, per_s = float(np.nanmedian(rest)), float(np.nanmean(load))
        if per_s > least and at_rest < BEHIND_S * per_s and first >= before:
            found.append(max(0.0, float(np.nanmax(peak)) - at_rest) / per_s)
    return found


def _side_by_side(runs: Sequence[ScaledRun]) -> _Samples:
    since, age = [], np.concatenate([run.t_s - run.t_s[0] for run in runs])
    for run in runs:
        at, last = np.full(len(run), math.inf), -math.inf
        changes = set(changes_of(run.taskmanagers))
        for i in range(len(run)):
            last = run.t_s[i] if i in changes or i == 0 else last
            at[i] = run.t_s[i] - last
        since.append(at)

    def joined(name: str) -> Floats:
        return np.concatenate([getattr(run, name) for run in runs])

    names = ("input_per_s", "throughput_per_s", "lag_records", "taskmanagers")
    gauges = ("busy", "idle", "backpressured", "cpu", "latency_s")
    seen = [joined(name) for name in (*names, *gauges)]
    seen[names.index("taskmanagers")] = np.nan_to_num(seen[names.index("taskmanagers")])
    return _Samples(age, np.concatenate(since), *seen)


def _full(s: _Samples, steady: Bools, selectivity: float) -> Bools:
    """Samples in which the job processes what it can."""
    full = (s.lag_records > BEHIND_S * s.input_per_s) & (
        s.throughput_per_s > 1.02 * selectivity * s.input_per_s
    )
    # Where latency is known it says more: the lag that Kafka's clients report is up to 60 s old.
    full &= ~np.isfinite(s.latency_s) | (s.latency_s > BEHIND_S)
    # A few tasks that are behind, such as those just added, are no full job.
    full &= ~np.isfinite(s.cpu) | (s.cpu >= BUSY_CPU)
    return np.asarray((full | (s.cpu >= FULL_CPU)) & steady & (s.age_s >= COLD_S))


def _capacities(s: _Samples, full: Bools, selectivity: float) -> tuple[tuple[int, float, int], ...]:
    """What each TaskManager of a job processes at most, by their number."""
    found = []
    for n in np.unique(s.taskmanagers[full]).tolist():
        own = s.throughput_per_s[full & (s.taskmanagers == n)] / (n * selectivity)
        if len(own) >= FEWEST:
            found.append((int(n), float(np.quantile(own, TOP)), len(own)))
    if not found:
        raise ConfigError(
            "no run shows the job's capacity: it never catches up for long enough",
            remedy="Give runs in which the job works off a backlog, for three minutes or more.",
        )
    return tuple(found)


def amdahl(shown: Sequence[tuple[int, float, int]], warnings: list[str]) -> tuple[float, float]:
    """Fit Amdahl's law to what TaskManagers process, by their number.

    Args:
        shown: TaskManagers, records/s of each of them, and samples.
        warnings: one is added where a single number was seen.

    Returns:
        Capacity of one TaskManager, and the law's factor.
    """
    n, per_s, samples = (np.array(values, dtype=float) for values in zip(*shown, strict=True))
    if len(shown) == 1:
        warnings.append(
            f"capacity was seen with {n[0]:.0f} TaskManagers only: that of others is in proportion"
        )
        return float(per_s[0]), 0.0
    weight = np.minimum(samples, 100.0)
    single = np.log(per_s) - np.log(share_kept(n, LOSSES[:, None]))  # (factors, TaskManagers)
    mean = (single * weight).sum(axis=1) / weight.sum()
    error = ((single - mean[:, None]) ** 2 * weight).sum(axis=1)
    best = int(np.argmin(error))
    return float(np.exp(mean[best])), float(LOSSES[best])


def share_kept(n: Floats | float, loss: Floats | float) -> Floats:
    """Share of its capacity alone that each of n TaskManagers has.

    >>> float(share_kept(3.0, 0.5))
    0.5

    Returns:
        0..1.
    """
    return np.asarray(1.0 / (1.0 + loss * (np.asarray(n) - 1.0)))


def _response(
    load: Floats,
    taskmanagers: Floats,
    gauge: Floats,
    chosen: Bools,
    *,
    rises: bool = True,
    at_rest: bool = True,
    most: float = math.inf,
) -> Response:
    """Fit a response; a median for each tenth of load and number of TaskManagers.

    Args:
        load: (N,) of a task.
        taskmanagers: (N,)
        gauge: (N,) what it showed.
        chosen: (N,) samples to fit to.
        rises: it does not fall with the load, from one TaskManager to the most that were seen.
        at_rest: it may be above 0 without load.
        most: where it is as high, it would be higher if it could.
    """
    use = chosen & np.isfinite(gauge) & np.isfinite(load)
    if not np.any(use):
        return NOTHING
    cells = (np.round(10 * load) + 100 * taskmanagers)[use]
    _, place, count = np.unique(cells, return_inverse=True, return_counts=True)

    def medians(values: Floats) -> Floats:
        return np.array([np.median(values[use][place == i]) for i in range(len(count))])

    load, taskmanagers = medians(load), np.maximum(medians(taskmanagers), 1.0)
    gauge, weight = medians(gauge), np.sqrt(np.minimum(count, ENOUGH))
    if rises:  # policies divide by gauges: what counts is the relative error
        weight = weight / np.maximum(gauge, LEAST_GAUGE)
    # Between one TaskManager and the most, `part` of the way by the logarithm: at both ends a
    # rising curve is a sum of rising ones, with no factor below 0.
    longest = math.log(max(2.0, float(taskmanagers.max())))
    part = np.log(taskmanagers) / longest
    rising = [load, load**2]
    columns = [np.ones_like(load), *(c * (1 - part) for c in rising), *(c * part for c in rising)]
    rows = np.stack(columns if at_rest else columns[1:], axis=1) * weight[:, None]
    solve = _least_squares if rises else lambda m, y: np.linalg.lstsq(m, y, rcond=None)[0]
    wanted, full = gauge.copy(), gauge >= most
    factors = solve(rows, wanted * weight)
    for _ in range(ROUNDS if np.any(full) else 0):
        # A gauge at its limit is no error where the response lies above it.
        wanted[full] = np.maximum(gauge[full], (rows @ factors / weight)[full])
        factors = solve(rows, wanted * weight)
    alone, many = factors[-4:-2], factors[-2:]
    more = (many - alone) / longest
    a, b, c, d, e = (float(f"{v:.4g}") for v in (factors[0] if at_rest else 0.0, *alone, *more))
    return a, b, c, d, e


def _least_squares(rows: Floats, wanted: Floats) -> Floats:
    """Factors of at least 0."""
    try:
        from scipy.optimize import nnls
    except ImportError as error:
        raise MissingExtraError("plan", "calibrating from scaled runs") from error
    return np.asarray(nnls(rows, wanted)[0])


def _operators(
    s: _Samples, load: Floats, shown: Bools, full: Bools, warnings: list[str]
) -> tuple[tuple[Response, ...], Response]:
    """Busy time of each operator, and backpressured time of the sources."""
    mean = _response(load, s.taskmanagers, s.busy, shown, at_rest=False)
    full = full & np.isfinite(s.busy + s.idle + s.backpressured) & (s.busy > 0)
    if not np.any(full):
        warnings.append("no idle and backpressured time: all operators are as busy as the mean")
        return (mean,), NOTHING
    back = _response(load, s.taskmanagers, s.backpressured, shown, at_rest=False)
    waits = 1.0 - s.busy - s.idle  # mean over operators
    known = full & (waits > 0.01)
    ratio = s.backpressured[known] / waits[known]
    count = min(MOST_OPERATORS, max(1, round(float(np.median(ratio))) if len(ratio) else 1))
    total = left = count * s.busy[full]  # operators busy at saturation
    found = []
    for place in range(count):
        # As much as the rest in the mean, or all that its time allows: the middle of both.
        time = 1.0 - s.backpressured[full] if place == 0 else np.ones_like(left)
        least = left / (count - place)
        own = (least + np.maximum(least, np.minimum(left, time))) / 2
        left = left - own
        part = count * float(np.mean(own / total))
        a, b, c, d, e = (float(f"{part * factor:.4g}") for factor in mean)
        found.append((a, b, c, d, e))
    return tuple(found), back
