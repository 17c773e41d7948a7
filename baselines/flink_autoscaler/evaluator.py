"""The evaluator: rates and thresholds of every vertex from the samples of the window.

Formulas of `ScalingMetricEvaluator` and `AutoScalerUtils`. k is the number of a graph, v a vertex,
u an input of v; `ts_ms` (N,) are the times of the samples, `values` (N, V, SCALING_METRICS).
`error_model="numpy"` makes divisions by 0 give infinity or NaN, as in Java.
"""

from __future__ import annotations

import numpy as np

from baselines.flink_autoscaler.numbers import round3, round_half_up
from baselines.flink_autoscaler.settings import Settings
from baselines.flink_autoscaler.state import (
    BUSY,
    GC,
    GLOBALS,
    IN,
    IN_PER_S,
    LAG,
    LOAD,
    OBSERVED,
    OUT,
    SLOTS,
    Graph,
)
from baselines.flink_autoscaler.window import average, rate
from dsp_gym.arrays import Floats, Ints
from dsp_gym.compiling import njit

EVALUATED = (
    "LOAD",
    "TRUE_PROCESSING_RATE",
    "TARGET_DATA_RATE",
    "CATCH_UP_DATA_RATE",
    "LAG",
    "SCALE_UP_RATE_THRESHOLD",
    "SCALE_DOWN_RATE_THRESHOLD",
)
"""Columns of the evaluated metrics of a vertex."""
E_LOAD, E_TPR, E_TARGET, E_CATCH_UP, E_LAG, E_UP, E_DOWN = range(len(EVALUATED))


@njit(cache=True, nogil=True, error_model="numpy")
def capacity(
    target: float,
    catch_up: float,
    utilization: float,
    with_restart: bool,
    s: Settings,
    restart_s: float,
) -> float:
    """Add up the needed capacity: the backlog's share, head-room for a restart, the load.

    Returns:
        Whole records/s; infinite at a utilisation of 0, NaN where target or catch-up is unknown.
    """
    if np.isnan(catch_up) or np.isnan(target):
        return np.nan
    # The operator clamps the target utilization to 0 and 1.
    share = min(max(utilization, 0.0), 1.0)
    if share == 0.0:
        return np.inf
    # getTargetProcessingCapacity: records of a restart are caught up with over catch_up_s.
    headroom = 0.0
    if with_restart and s.catch_up_s != 0.0:
        headroom = target * restart_s / s.catch_up_s
    return round_half_up(catch_up + headroom + target / share)


@njit(cache=True, nogil=True, error_model="numpy")
def thresholds(
    target: float, catch_up: float, backlogged: bool, s: Settings, restart_s: float
) -> tuple[float, float]:
    """Return the true rates below which a vertex scales up and above which it scales down.

    While a backlog is worked off full utilisation is fine and no vertex scales down.

    Returns:
        Scale-up and scale-down threshold, records/s.
    """
    upper, lower = (1.0, 0.0) if backlogged else (s.upper, s.lower)
    # Up without head-room for a restart, down with it: the gap between the two is the band in which
    # a vertex rests.
    up = capacity(target, catch_up, upper, False, s, restart_s)
    down = capacity(target, catch_up, lower, True, s, restart_s)
    return round3(up), round3(down)


@njit(cache=True, nogil=True, error_model="numpy")
def busy_ms_per_s(ts_ms: Ints, values: Floats, v: int, parallelism: int, s: Settings) -> float:
    """Average busy time over the window: the counter (AVG), or the gauges (MAX, MIN).

    Returns:
        ms per second of one task; NaN where it is unknown.
    """
    # AVG: the counter is exact. MAX and MIN: gauges, averaged over the samples.
    if s.average_busy:
        return rate(ts_ms, values, v, BUSY) / parallelism
    return average(values, v, LOAD, 1) * 1000.0


@njit(cache=True, nogil=True, error_model="numpy")
def true_processing_rate(busy: float, records_in: float, observed: float, switch: float) -> float:
    """Rate a vertex by its busy time, or as observed where that is much less.

    Returns:
        Records/s it could process; infinite where no records come in.
    """
    # Where busy time promises far more than was observed while catching up, the observation counts.
    from_busy = np.inf if records_in == 0.0 else records_in / (busy / 1000.0)
    if np.isnan(observed):
        return from_busy
    if np.isinf(from_busy) or np.isnan(from_busy) or from_busy > observed * (1.0 + switch):
        return observed
    return from_busy


@njit(cache=True, nogil=True, error_model="numpy")
def edge_ratio(graph: Graph, k: int, u: int, v: int, ts_ms: Ints, values: Floats) -> float:
    """Relate the records on the edge from u to v to the records u reads.

    k is the number of the graph, w another input of v.

    Returns:
        Records per record; 0 where u reads none.
    """
    # Rates are growth of the counters over the window.
    records_in = rate(ts_ms, values, u, IN)
    if not records_in > 0.0:
        return 0.0
    # Flink counts no records per edge: a single input gets all of v's, several share by difference
    # where the others have no other output, else u's whole output counts.
    others, n_inputs, known = 0.0, 0, True
    for w in graph.inputs[k, v]:
        if w < 0:
            continue
        n_inputs += 1
        if w != u and known:
            if graph.outputs[k, w] == 1:
                others += rate(ts_ms, values, w, OUT)
            else:
                known = False
    if n_inputs == 1:
        # All that v reads came over its only edge.
        carried = rate(ts_ms, values, v, IN)
    elif known and not np.isnan(others):
        carried = rate(ts_ms, values, v, IN) - others
    else:
        carried = rate(ts_ms, values, u, OUT)
    # Negative differences, from samples taken at different moments, count as nothing.
    return carried / records_in if carried > 0.0 else 0.0


@njit(cache=True, nogil=True, error_model="numpy")
def backlog(graph: Graph, k: int, ts_ms: Ints, values: Floats, threshold_s: float) -> bool:
    """Return whether any source v of graph k is further behind than the threshold.

    Args:
        graph: Graphs of the batch.
        k: Number of the job's graph.
        ts_ms: Times of the samples.
        values: (samples, V, SCALING_METRICS).
        threshold_s: Seconds of the source's rate.

    Returns:
        True where a source's lag exceeds that many seconds of its rate; an unknown lag counts as 0.
    """
    for v in range(graph.n[k]):
        if graph.inputs[k, v, 0] >= 0:
            continue
        # A lag of L records at rate r is L / r seconds of reading.
        records_in = rate(ts_ms, values, v, IN)
        # An unknown lag (a source without a log) is no backlog.
        lag = values[-1, v, LAG]
        if np.isnan(lag):
            lag = 0.0
        if not np.isnan(records_in) and lag / records_in > threshold_s:
            return True
    return False


@njit(cache=True, nogil=True, error_model="numpy")
def _offered(records_in: float, growth: float, lag: float, s: Settings) -> tuple[float, float]:
    """Return the target of a source and its catch-up rate, records/s; NaN for an unknown target."""
    # The lag's growth is load that was not read: d lag / dt + records read = records offered.
    target = records_in + growth
    catch_up = lag / s.catch_up_s if s.catch_up_s != 0.0 and not np.isnan(lag) else 0.0
    return target if np.isnan(target) else max(0.0, target), catch_up


@njit(cache=True, nogil=True, error_model="numpy")
def evaluate(
    graph: Graph,
    k: int,
    ts_ms: Ints,
    values: Floats,
    parallelism: Ints,
    s: Settings,
    restart_s: float,
    out: Floats,
) -> bool:
    """Evaluate every vertex v of one job, from its inputs u.

    Args:
        graph: Graphs of the batch.
        k: Number of the job's graph.
        ts_ms: Times of the samples.
        values: (samples, V, SCALING_METRICS).
        parallelism: (V,) running.
        s: The settings.
        restart_s: Expected restart time.
        out: (V, EVALUATED), filled.

    Returns:
        False where a source's rate is unknown; `out` is then incomplete.
    """
    # During a backlog all vertices may run at full utilisation: one flag for the whole job.
    backlogged = backlog(graph, k, ts_ms, values, s.backlog_s)
    for v in range(graph.n[k]):
        records_in = rate(ts_ms, values, v, IN)
        lag = values[-1, v, LAG]
        if graph.inputs[k, v, 0] < 0:
            target, catch_up = _offered(records_in, rate(ts_ms, values, v, LAG), lag, s)
            if np.isnan(target):
                return False
        else:
            # Those of the inputs times the records per record on each edge.
            target, catch_up = 0.0, 0.0
            for u in graph.inputs[k, v]:
                if u >= 0:
                    ratio = edge_ratio(graph, k, u, v, ts_ms, values)
                    target += out[u, E_TARGET] * ratio
                    catch_up += out[u, E_CATCH_UP] * ratio
        # Rounded vertex by vertex: the next one reads the rounded values, as in Flink.
        target, catch_up = round3(target), round3(catch_up)
        # main: the numerator from per-second gauges where there are any.
        if s.gauge_numerator and not s.average_busy:
            gauge = average(values, v, IN_PER_S, 1)
            if np.isfinite(gauge):
                records_in = gauge
        # Average busy time and observed rate of the window, NaN where too few samples are known.
        busy = busy_ms_per_s(ts_ms, values, v, parallelism[v], s)
        observed = average(values, v, OBSERVED, s.observed_min)
        out[v, E_LOAD] = round3(busy / 1000.0)
        out[v, E_TPR] = round3(true_processing_rate(busy, records_in, observed, s.observed_switch))
        out[v, E_TARGET] = target
        out[v, E_CATCH_UP] = catch_up
        out[v, E_LAG] = round3(lag)
        out[v, E_UP], out[v, E_DOWN] = thresholds(target, catch_up, backlogged, s, restart_s)
    return True


@njit(cache=True, nogil=True, error_model="numpy")
def evaluate_job(values: Floats) -> Floats:
    """Evaluate the metrics of the whole job.

    Args:
        values: (samples, 1, GLOBALS).

    Returns:
        (GLOBALS, 2): last value, and average over the window.
    """
    # Columns: the last value, the average over the window.
    out = np.empty((len(GLOBALS), 2))
    for g in range(len(GLOBALS)):
        # GC time and slots are reported as last values only.
        out[g, 0] = round3(values[-1, 0, g])
        out[g, 1] = np.nan if g in (GC, SLOTS) else round3(average(values, 0, g, 1))
    return out
