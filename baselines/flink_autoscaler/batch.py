"""One pass over a batch of jobs, from gauges and counters to the wanted parallelism.

Letters: j is a job's row, k the number of its graph, v a vertex and p its parallelism; s are the
settings. Constants such as IN or E_TPR are columns (`state`, `evaluator`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from baselines.flink_autoscaler.evaluator import E_TPR, EVALUATED, evaluate
from baselines.flink_autoscaler.numbers import round3
from baselines.flink_autoscaler.scaler import Pass, Recommended, scale_vertices
from baselines.flink_autoscaler.settings import Settings
from baselines.flink_autoscaler.state import (
    BUSY,
    GC,
    GLOBALS,
    HEAP_RATIO,
    IN,
    IN_PER_S,
    LAG,
    LOAD,
    OBSERVED,
    OUT,
    SCALING_METRICS,
    Graph,
    Remembered,
    Scaling,
    record_restart,
    remember,
    restart_s,
    trim,
)
from baselines.flink_autoscaler.window import append, average, copy_rows, observed_rate, restarted
from dsp_gym.arrays import Bools, Floats, Ints
from dsp_gym.compiling import njit
from dsp_gym.loop.due import is_due

WAITING, FAILED, BALANCED, DUE = range(4)
"""Result of a pass: no decision yet, an error, no rescale, a rescale."""


class Seen(NamedTuple):
    """A snapshot of J jobs in the units and terms of the rules."""

    row: Ints  # (J,) number of the graph
    now_ms: Ints
    running_ms: Ints
    running: Bools
    parallelism: Ints  # (J, V)
    fixed: Bools
    records_in: Floats
    records_out: Floats
    records_in_per_s: Floats
    pending: Floats
    busy: Floats  # 60 s gauges, mean over subtasks
    backpressured: Floats
    hottest: Floats  # hottest over mean subtask, >= 1
    gc: Floats  # (J,) share of the time
    heap_ratio: Floats


class Wanted(NamedTuple):
    """Result of a pass over J jobs."""

    result: Ints  # (J,) WAITING, FAILED, BALANCED, DUE
    new: Ints  # (J, V)
    outside: Bools
    expected: Floats
    events: Ints
    evaluated: Floats  # (J, V, EVALUATED) of the last pass that evaluated


@njit(cache=True, nogil=True, error_model="numpy")
def _sample(
    graph: Graph,
    seen: Seen,
    memory: Remembered,
    s: Settings,
    j: int,
    since_ms: float,
    rows: Floats,
    excluded: Bools,
) -> bool:
    """Fill the sample of one job; False if no vertex of it is known.

    j is the job's row, k the number of its graph, v a vertex, p its parallelism, m a metric.
    """
    k, known = seen.row[j], False
    window, busy_ms = memory.window, memory.busy_ms
    count = window.size[j]
    for v in range(graph.n[k]):
        busy = seen.busy[j, v]
        p = seen.parallelism[j, v]
        row = rows[v]
        row[:] = np.nan
        excluded[v] = seen.fixed[j, v] or np.isnan(busy)
        known = known or not np.isnan(seen.records_in[j, v])
        row[IN], row[OUT] = seen.records_in[j, v], seen.records_out[j, v]
        # A snapshot has no cumulated busy time: integrate the gauge, summed over subtasks.
        if not np.isnan(busy):
            busy_ms[j, v] += busy * p * since_ms / 1000.0
            # MAX is the default aggregator: the gauge's mean times the hottest subtask's factor.
            load = busy if s.average_busy else min(1000.0, busy * seen.hottest[j, v])
            row[LOAD] = max(0.0, load) / 1000.0
        row[BUSY] = busy_ms[j, v]
        per_s = seen.records_in_per_s[j, v]
        # The rate since the last sample, where there is one: the snapshot's rate is a longer mean.
        if count > 0 and seen.now_ms[j] > window.ts_ms[j, count - 1]:
            grown = row[IN] - window.vertex[j, count - 1, v, IN]
            per_s = 1000.0 * grown / (seen.now_ms[j] - window.ts_ms[j, count - 1])
        if graph.inputs[k, v, 0] >= 0:
            row[IN_PER_S] = per_s
        else:
            lag = seen.pending[j, v]
            row[LAG] = 0.0 if np.isnan(lag) else lag
            carried = average(window.vertex[j, :count], v, OBSERVED, s.observed_min)
            row[OBSERVED] = observed_rate(
                max(0.0, per_s), row[LAG], seen.backpressured[j, v], s.observed_lag_s, carried
            )
        # Flink rounds samples to three decimals (`numbers.round3`).
        for m in range(len(SCALING_METRICS)):
            row[m] = round3(row[m])
    return known


class _Scratch(NamedTuple):
    """Room that the passes of one batch share."""

    rows: Floats  # (V, SCALING_METRICS)
    sample: Floats  # (GLOBALS,)
    excluded: Bools  # (V,)
    evaluated: Floats  # (V, EVALUATED)


@njit(cache=True, nogil=True, error_model="numpy")
def _run_job(
    graph: Graph,
    seen: Seen,
    s: Settings,
    memory: Remembered,
    j: int,
    scratch: _Scratch,
    out: Wanted,
) -> int:
    """Collect, evaluate and scale one job, row j; k is the number of its graph, n of its vertices.

    Times are in ms, the restart time in s.

    Returns:
        The result of the pass.
    """
    window, history, tracking = memory.window, memory.history, memory.tracking
    k, now, running_ms = seen.row[j], seen.now_ms[j], seen.running_ms[j]
    n, sample = graph.n[k], scratch.sample
    # A restart empties the window and begins the counters at zero.
    if restarted(window, j, running_ms):
        memory.busy_ms[j] = 0.0
    since = now - memory.collected_ms[j] if window.size[j] > 0 else 0
    memory.collected_ms[j] = now
    if not _sample(graph, seen, memory, s, j, float(since), scratch.rows, scratch.excluded):
        return FAILED
    # In the order of the operator's pass: window, history, restart time, evaluation, scaling.
    sample[GC], sample[HEAP_RATIO] = seen.gc[j], seen.heap_ratio[j]
    full = append(window, j, now, running_ms, s.stabilization_ms, s.window_ms, scratch.rows, sample)
    trim(history, tracking, j, n, now, s.history_age_ms, s.history_count)
    record_restart(history, tracking, j, n, running_ms, seen.parallelism[j])
    count = window.size[j]
    if count < 2:
        return WAITING
    restart = restart_s(tracking, j, s.tracking, s.restart_s, s.restart_limit_s)
    if not evaluate(
        graph,
        k,
        window.ts_ms[j, :count],
        window.vertex[j, :count],
        seen.parallelism[j],
        s,
        restart,
        scratch.evaluated,
    ):
        return FAILED
    copy_rows(scratch.evaluated, out.evaluated[j])
    out.expected[j] = np.nan
    # Only a full window leads to a decision; before, the metrics are reported alone.
    if not full:
        return WAITING
    return _scale(graph, seen, s, memory, Pass(k, j, now, restart), scratch, out)


@njit(cache=True, nogil=True, error_model="numpy")
def _scale(
    graph: Graph,
    seen: Seen,
    s: Settings,
    memory: Remembered,
    at: Pass,
    scratch: _Scratch,
    out: Wanted,
) -> int:
    """Scale one job that was evaluated, unless its heap or garbage collection forbids it.

    Returns:
        The result of the pass.
    """
    j, window = at.row, memory.window
    # Memory pressure holds back a rescale, as in `gate.under_memory_pressure`.
    heap = average(window.job[j, : window.size[j]], 0, HEAP_RATIO, 1)
    if seen.gc[j] > s.gc_threshold or heap > s.heap_threshold:
        return BALANCED
    due = scale_vertices(
        graph,
        at,
        scratch.evaluated,
        seen.parallelism[j],
        scratch.excluded,
        s,
        memory.history,
        memory.delayed,
        Recommended(out.new[j], out.outside[j], out.expected[j], out.events[j]),
    )
    if due < 0:
        return FAILED
    return DUE if due == 1 else BALANCED


@njit(cache=True, nogil=True, error_model="numpy")
def run_batch(
    graph: Graph, seen: Seen, s: Settings, interval_ms: int, memory: Remembered, out: Wanted
) -> None:
    """Collect, evaluate and scale every job whose next pass has come; j is a job's row.

    Args:
        graph: Graphs of the batch.
        seen: The snapshot.
        s: The settings.
        interval_ms: Time between two passes.
        memory: Changed in place.
        out: Filled.
    """
    vertices = seen.parallelism.shape[1]
    # Scratch arrays, once for the batch; a job fills the first n rows.
    scratch = _Scratch(
        np.empty((vertices, len(SCALING_METRICS))),
        np.full(len(GLOBALS), np.nan),
        np.zeros(vertices, dtype=np.bool_),
        np.empty((vertices, len(EVALUATED))),
    )
    for j in range(len(seen.row)):
        _leave(seen, j, out)
        for v in range(vertices):
            out.events[j, v] = 0
        last_s, interval_s = memory.collected_ms[j] / 1000.0, interval_ms / 1000.0
        if not seen.running[j] or not is_due(seen.now_ms[j] / 1000.0, last_s, interval_s):
            out.result[j] = WAITING
            continue
        out.result[j] = _run_job(graph, seen, s, memory, j, scratch, out)
        if out.result[j] == FAILED:
            _leave(seen, j, out)


@njit(cache=True, nogil=True)
def _leave(seen: Seen, j: int, out: Wanted) -> None:
    """Let job j keep its running configuration; v is a vertex."""
    for v in range(seen.parallelism.shape[1]):
        out.new[j, v] = seen.parallelism[j, v]


@njit(cache=True, nogil=True)
def apply(graph: Graph, seen: Seen, out: Wanted, accepted: Bools, memory: Remembered) -> None:
    """Remember the rescales that passed the gate; `accepted` is (J,)."""
    for j in range(len(accepted)):
        if accepted[j]:
            rates = out.evaluated[j, :, E_TPR].copy()
            scaling = Scaling(seen.parallelism[j], out.new[j], rates, out.expected[j])
            remember(memory, j, graph.n[seen.row[j]], seen.now_ms[j], scaling)
