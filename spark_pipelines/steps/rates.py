"""Counters to what they rose by, across restarts: slot by slot, of each subtask by itself."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from dsp_gym.metrics.samples import SAMPLE_S
from spark_pipelines.quality.checks import COUNTERS, SERIES, metrics_of
from spark_pipelines.schema import expects
from spark_pipelines.steps.align import GRID

__all__ = ["SINCE_RESTART", "TOTALS", "increases"]

SINCE_RESTART = ("records_in_total", "records_out_total", "cache_hits_total", "cache_misses_total")
"""Counters that begin at zero when a task does; the others are kept in its state."""

TOTALS = ("busy_ms_total", "backpressured_ms_total", "idle_ms_total")
"""Cumulated times. They fall a little without a restart: see `dsp_gym.metrics.window`."""

_CHANGES = ("pending_records",)
"""Gauges whose change over time is wanted."""


@expects(GRID, GRID)
def increases(grid: DataFrame, max_gap_s: float) -> DataFrame:
    """Adds `<metric>_rose`, `<metric>_over_s`, `fell`, `restarted`, `covers_s` and `gap_s`.

    `_rose` is what a counter rose by since its last known value, `_over_s` the seconds since then.
    A counter that falls began anew at zero, so what it shows is what it rose by. Both are null
    where nothing is known for longer than `max_gap_s`: the rise belongs to no time in particular.
    `fell` is true where a counter did; `restarted` there and in the first row of a series;
    `covers_s` are the seconds that a row speaks for, at most `max_gap_s`; `gap_s` those that none
    does.

    Args:
        grid: from `steps.align.align`, checked or not.
        max_gap_s: longer without a sample is a gap.

    Returns:
        The grid with these columns.
    """
    order = Window.partitionBy(*SERIES).orderBy("slot")
    before = order.rowsBetween(Window.unboundedPreceding, -1)
    measured = grid.where(f.col("t_s").isNotNull())
    present = metrics_of(grid)
    wanted = [name for name in (*COUNTERS, *TOTALS, *_CHANGES) if name in present]
    last: dict[str, Column] = {"_t_before": f.lag("t_s").over(order)}
    for name in wanted:
        at = f.when(f.col(name).isNotNull(), f.col("t_s"))
        last[f"_{name}_before"] = f.last(name, ignorenulls=True).over(before)
        last[f"_{name}_before_s"] = f.last(at, ignorenulls=True).over(before)
    seen = measured.withColumns(last)
    since_s = f.col("t_s") - f.col("_t_before")
    fell = f.lit(False)
    for name in wanted:
        if name in SINCE_RESTART:
            fell = fell | f.coalesce(f.col(name) < f.col(f"_{name}_before"), f.lit(False))
    gap = since_s > max_gap_s
    told: dict[str, Column] = {
        "fell": fell,
        "restarted": fell | f.col("_t_before").isNull(),
        "covers_s": f.when(fell | since_s.isNull() | gap, float(SAMPLE_S)).otherwise(since_s),
        "gap_s": f.when(gap & ~fell, since_s),
    }
    for name in wanted:
        rose, over_s = _rise(name, fell)
        known = rose.isNotNull() & (over_s <= max_gap_s)
        told[f"{name}_rose"] = f.when(known, rose)
        told[f"{name}_over_s"] = f.when(known, over_s)
    return seen.withColumns(told).drop(*last)


def _rise(name: str, restarted: Column) -> tuple[Column, Column]:
    """By how much a value changed since it was last known, and over how many seconds."""
    value, before = f.col(name), f.col(f"_{name}_before")
    over_s = f.col("t_s") - f.col(f"_{name}_before_s")
    if name in COUNTERS:
        return f.when(value < before, value).otherwise(value - before), over_s
    # Neither a time cumulated nor a backlog can be followed over a restart.
    return f.when(~restarted, value - before), over_s
