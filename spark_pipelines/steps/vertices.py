"""Subtasks to vertices: sums of rates and sizes, means and the hottest of time shares."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

__all__ = ["VERTEX_KEYS", "merged"]

VERTEX_KEYS = ("source", "job", "run", "vertex")
"""What the rows of one vertex have in common."""


def merged(subtasks: DataFrame, by: Iterable[str]) -> DataFrame:
    """One row per vertex from one per subtask, each with its means over one span of time.

    A rate of the vertex is the sum over all its subtasks, so it is null where one of them did not
    report: a sum over the others would be no rate of the vertex. The vertex is as parallel as its
    highest subtask says; a value of the whole vertex stands as subtask -1.

    Args:
        subtasks: from `steps.windows`.
        by: columns that tell spans apart, beside those of the vertex.

    Returns:
        One row per key and vertex.
    """
    width = f.max("subtask") + 1
    whole = (f.count(f.lit(1)) == width) | (f.max("subtask") == -1)

    def total(name: str) -> Column:
        return f.when(whole & (f.count(name) == f.count(f.lit(1))), f.sum(name))

    busy = f.col("busy")
    hits, misses = f.sum("hits"), f.sum("misses")
    columns: dict[str, Column] = {
        "seen_parallelism": f.when(width > 0, width).cast("int"),
        "seconds": f.when(whole, f.min("seconds")).otherwise(0.0),
        "newest_s": f.max("newest_s"),
        "records_in_per_s": total("records_in"),
        "records_out_per_s": total("records_out"),
        "busy_ms_per_s": f.avg(busy),
        "busy_max_ms_per_s": f.max(busy),
        "busy_std_ms_per_s": f.sqrt(f.avg("busy_var")),
        "backpressured_ms_per_s": f.avg("backpressured"),
        "idle_ms_per_s": f.avg("idle"),
        "cache_hit_rate": f.when(hits + misses > 0, hits / (hits + misses)),
        "state_mib": f.sum("state_bytes") / 2**20,
        "pending_records": f.sum("pending"),
        "pending_growth_per_s": f.sum("pending_growth"),
        "latency_p95_s": f.max("latency_ms") / 1000.0,
        **{f"state_{way}_latency_ms": _latency(way) for way in ("read", "write")},
    }
    return subtasks.groupBy(*VERTEX_KEYS, *by).agg(*(c.alias(name) for name, c in columns.items()))


def _latency(way: str) -> Column:
    """Mean of a histogram known by quantiles, taken as linear between them.

    As `dsp_gym.metrics.window` has it: flat below the first and above the last.
    """
    p50, p75, p95, p99 = (
        f.sum(f"{way}_p{q}_sum") / f.when(f.sum(f"{way}_p{q}_n") > 0, f.sum(f"{way}_p{q}_n"))
        for q in (50, 75, 95, 99)
    )
    p75, p95, p99 = (f.coalesce(q, p50) for q in (p75, p95, p99))
    return 0.5 * p50 + 0.125 * (p50 + p75) + 0.1 * (p75 + p95) + 0.02 * (p95 + p99) + 0.01 * p99
