"""A second implementation of the data pipeline: plain Python over lists, for small inputs only.

Written from what the steps promise, not from how they do it: one series after the other, one
window after the other.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import pairwise
from statistics import fmean, pvariance
from typing import Any, NamedTuple

from dsp_gym.metrics.flink import BY_NAME
from spark_pipelines.config import QualityConfig, WindowsConfig

SHARES = ("busy_ms_per_s", "backpressured_ms_per_s", "idle_ms_per_s")
TOTALS = ("busy_ms_total", "backpressured_ms_total", "idle_ms_total")
COUNTERS = tuple(name for name, metric in BY_NAME.items() if metric.kind == "counter")
SINCE_START = ("records_in_total", "records_out_total", "cache_hits_total", "cache_misses_total")
PAIRS = {
    "records_in_total": "records_out_total",
    "records_out_total": "records_in_total",
    "cache_hits_total": "cache_misses_total",
    "cache_misses_total": "cache_hits_total",
}
SAMPLE_S = 5.0


class Raw(NamedTuple):
    run: str
    t_s: float
    vertex: str
    subtask: int
    metric: str
    value: float


class Result(NamedTuple):
    rows: int
    kept: int
    merged: int
    duplicates: int
    quarantined: dict[str, int]
    kept_out: Counter[tuple[Any, ...]]  # (row..., check)
    windows: dict[tuple[str, float, str], dict[str, float | None]]


def failed(row: Raw, quality: QualityConfig) -> str | None:
    if not 0 <= row.t_s < 1e11:
        return "time"
    if row.metric not in BY_NAME:
        return "metric"
    if math.isnan(row.value):
        return "unknown"
    upper = {"tm_cpu_load": 1.0, **dict.fromkeys(SHARES, 1000 + quality.time_tolerance_ms)}
    return None if 0 <= row.value <= upper.get(row.metric, 1e18) else "range"


def reference(rows: Iterable[Raw], quality: QualityConfig, windows: WindowsConfig) -> Result:
    """Everything the steps make of raw rows, of any number of runs."""
    given = list(rows)
    kept_out: Counter[tuple[Any, ...]] = Counter()
    by_series: dict[tuple[str, str, int], list[Raw]] = defaultdict(list)
    for row in given:
        check = failed(row, quality)
        if check is None:
            by_series[row.run, row.vertex, row.subtask].append(row)
        else:
            kept_out[*row, check] += 1
    kept = merged = duplicates = 0
    increments: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for (run, vertex, subtask), series in sorted(by_series.items()):
        cells, twice = _cells(series)
        duplicates += twice
        # A cell that is kept out still says that its subtask was seen.
        seen_s = {s: max(t for c in metrics.values() for t in c) for s, metrics in cells.items()}
        out = _flagged(cells, quality)
        for (slot, metric), check in out.items():
            lost = cells[slot].pop(metric)
            for t_s in [max(lost)] if metric in COUNTERS else list(lost):
                kept_out[run, t_s, vertex, subtask, metric, lost[t_s], check] += 1
            merged += len(lost) - 1 if metric in COUNTERS else 0
        kept += sum(len(metrics) for metrics in cells.values())
        merged += sum(len(v) - 1 for metrics in cells.values() for v in metrics.values())
        for row in _increments(cells, seen_s, quality.max_gap_s):
            increments[run].append({"vertex": vertex, "subtask": subtask, **row})
    found = {}
    for run, moments in increments.items():
        for (end_s, vertex), values in _windows(moments, windows).items():
            found[run, end_s, vertex] = values
    checks: Counter[str] = Counter()
    for (*_, check), count in kept_out.items():
        checks[check] += count
    return Result(len(given), kept, merged, duplicates, dict(checks), kept_out, found)


Cells = dict[int, dict[str, dict[float, float]]]


def _cells(series: list[Raw]) -> tuple[Cells, int]:
    """slot -> metric -> time -> value; and how many rows were the same metric and time again."""
    cells: Cells = defaultdict(lambda: defaultdict(dict))
    twice = 0
    for row in series:
        cell = cells[math.ceil(row.t_s / SAMPLE_S)][row.metric]
        twice += row.t_s in cell
        cell[row.t_s] = max(row.value, cell.get(row.t_s, -math.inf))
    return cells, twice


def _value(cell: dict[float, float] | None, metric: str) -> float | None:
    if not cell:
        return None
    return cell[max(cell)] if metric in COUNTERS + TOTALS else fmean(cell.values())


def _flagged(cells: Cells, quality: QualityConfig) -> dict[tuple[int, str], str]:
    """Cells that fail a check, each looked at as they all were at first."""
    found: dict[tuple[int, str], str] = {}
    slots = sorted(cells)
    for at, slot in enumerate(slots):
        around = [slots[i] if 0 <= i < len(slots) else None for i in (at - 1, at, at + 1)]

        def three(metric: str, around: list[int | None] = around) -> list[float | None]:
            return [None if s is None else _value(cells[s].get(metric), metric) for s in around]

        shares = [three(name)[1] for name in SHARES]
        if None not in shares and abs(sum(shares) - 1000) > quality.time_tolerance_ms:
            found |= {(slot, name): "shares" for name in SHARES}
        for metric in (*COUNTERS, "pending_records", "state_bytes", "cache_usage_bytes"):
            before, now, after = three(metric)
            if before is None or now is None or after is None:
                continue
            other = three(PAIRS[metric]) if metric in PAIRS else [None] * 3
            if None not in other:
                rises = other[0] <= other[1] <= other[2] and other[1] > 0
                if before <= after and not before <= now <= after and rises:
                    found[slot, metric] = "monotone"
                    continue
            if now > quality.max_jump_factor * max(before, after, 1000.0):
                found[slot, metric] = "jump"
    return found


def _increments(
    cells: Cells, seen_s: dict[int, float], max_gap_s: float
) -> Iterable[dict[str, Any]]:
    """One entry per slot in which anything was measured."""
    last: dict[str, tuple[float, float]] = {}
    row_before_s = None
    for slot in sorted(cells):
        t_s = seen_s[slot]
        values = {m: _value(cells[slot].get(m), m) for m in BY_NAME if cells[slot].get(m)}
        fell = any(m in last and values[m] < last[m][1] for m in SINCE_START if m in values)
        since_s = None if row_before_s is None else t_s - row_before_s
        gap = since_s is not None and since_s > max_gap_s
        row: dict[str, Any] = {"t_s": t_s, "values": values, "rose": {}}
        row["restarted"] = fell or since_s is None
        row["covers_s"] = SAMPLE_S if fell or since_s is None or gap else since_s
        for metric, value in values.items():
            if metric in last:
                then_s, before = last[metric]
                rose = value - before
                if metric in COUNTERS and value < before:
                    rose = value
                steady = metric in COUNTERS or not fell
                measured = metric in (*COUNTERS, *TOTALS, "pending_records")
                if measured and steady and t_s - then_s <= max_gap_s:
                    row["rose"][metric] = (rose, t_s - then_s)
            last[metric] = (t_s, value)
        row_before_s = t_s
        yield row


def _windows(
    moments: list[dict[str, Any]], windows: WindowsConfig
) -> dict[tuple[float, str], dict[str, float | None]]:
    found = {}
    tasks = [m for m in moments if m["vertex"] != ""]
    if not tasks:
        return {}
    first = int(min(m["t_s"] for m in tasks) // windows.interval_s)
    last = int((max(m["t_s"] for m in tasks) + windows.window_s) // windows.interval_s) + 1
    for number in range(first, last + 1):
        end_s = float(number * windows.interval_s)
        inside = [m for m in tasks if end_s - windows.window_s < m["t_s"] <= end_s]
        restarts = [m["t_s"] for m in inside if m["restarted"]]
        if restarts:
            settled_s = max(restarts) - SAMPLE_S + windows.stabilization_s
            inside = [m for m in inside if m["t_s"] > settled_s]
        for vertex in {m["vertex"] for m in inside}:
            mine = [m for m in inside if m["vertex"] == vertex]
            found[end_s, vertex] = _vertex(mine)
    return found


def _vertex(moments: list[dict[str, Any]]) -> dict[str, float | None]:
    subtasks = sorted({m["subtask"] for m in moments})
    each = [_subtask([m for m in moments if m["subtask"] == s]) for s in subtasks]
    width = max(subtasks) + 1
    whole = len(subtasks) == width or max(subtasks) == -1

    def known(name: str) -> list[float]:
        return [one[name] for one in each if one[name] is not None]

    def total(name: str) -> float | None:
        return sum(known(name)) if whole and len(known(name)) == len(each) else None

    def mean(name: str) -> float | None:
        return fmean(known(name)) if known(name) else None

    def some(name: str) -> float | None:
        return sum(known(name)) if known(name) else None

    hits, misses, state = some("hits"), some("misses"), some("state_bytes")
    taken, given, busy = total("in"), total("out"), mean("busy")
    variance, latency = mean("variance"), known("latency_ms")
    counted = None if hits is None or misses is None else hits + misses
    return {
        "parallelism": width or None,
        "seconds": min(one["seconds"] for one in each) if whole else 0.0,
        "records_in_per_s": taken,
        "records_out_per_s": given,
        "busy_ms_per_s": busy,
        "busy_max_ms_per_s": max(known("busy"), default=None),
        "busy_std_ms_per_s": None if variance is None else math.sqrt(variance),
        "backpressured_ms_per_s": mean("backpressured"),
        "idle_ms_per_s": mean("idle"),
        "true_processing_rate": _over(taken, busy, 1000.0),
        "true_output_rate": _over(given, busy, 1000.0),
        "selectivity": _over(given, taken),
        "cache_hit_rate": _over(hits, counted),
        "state_mib": None if state is None else state / 2**20,
        "pending_records": some("pending"),
        "pending_growth_per_s": some("growth"),
        "latency_p95_s": max(latency) / 1000 if latency else None,
        "state_read_latency_ms": _latency(each),
    }


def _over(a: float | None, b: float | None, scale: float = 1.0) -> float | None:
    return None if a is None or b is None or b <= 0 else a * scale / b


def _subtask(moments: list[dict[str, Any]]) -> dict[str, Any]:
    moments = sorted(moments, key=lambda m: m["t_s"])
    steady = [m for m in moments if not m["restarted"]]

    def known(name: str) -> list[float]:
        return [m["values"][name] for m in moments if name in m["values"]]

    def rose(name: str) -> tuple[float, float] | None:
        parts = [m["rose"][name] for m in steady if name in m["rose"]]
        return (sum(p[0] for p in parts), sum(p[1] for p in parts)) if parts else None

    def rate(name: str) -> float | None:
        found = rose(name)
        return None if found is None or found[1] <= 0 else found[0] / found[1]

    def share(name: str) -> float | None:
        value = rate(f"{name}_ms_total")
        if value is None:
            value = fmean(known(f"{name}_ms_per_s")) if known(f"{name}_ms_per_s") else None
        return None if value is None else min(1000.0, max(0.0, value))

    busy = []
    for m in moments:
        if not m["restarted"] and "busy_ms_total" in m["rose"]:
            busy.append(m["rose"]["busy_ms_total"][0] / m["rose"]["busy_ms_total"][1])
        elif "busy_ms_per_s" in m["values"]:
            busy.append(m["values"]["busy_ms_per_s"])
    given = rate("records_out_total")
    is_source = max(known("records_in_total"), default=0.0) == 0
    hits, misses = rose("cache_hits_total"), rose("cache_misses_total")
    return {
        "seconds": sum(m["covers_s"] for m in moments),
        "in": given if is_source else rate("records_in_total"),
        "out": given,
        **{name: share(name) for name in ("busy", "backpressured", "idle")},
        "variance": pvariance(busy) if busy else None,
        "hits": None if hits is None else hits[0],
        "misses": None if misses is None else misses[0],
        "state_bytes": known("state_bytes")[-1] if known("state_bytes") else None,
        "pending": known("pending_records")[-1] if known("pending_records") else None,
        "growth": rate("pending_records"),
        "latency_ms": fmean(known("latency_p95_ms")) if known("latency_p95_ms") else None,
        "read": [known(f"state_read_latency_p{q}_ms") for q in (50, 75, 95, 99)],
    }


def _latency(each: list[dict[str, Any]]) -> float | None:
    values = [[v for one in each for v in one["read"][q]] for q in range(4)]
    if not values[0]:
        return None
    p50 = fmean(values[0])
    p75, p95, p99 = (fmean(v) if v else p50 for v in values[1:])
    # The area under the quantile function, linear between its points.
    edges = [(0.0, p50), (0.5, p50), (0.75, p75), (0.95, p95), (0.99, p99), (1.0, p99)]
    return sum((b - a) * (x + y) / 2 for (a, x), (b, y) in pairwise(edges))
