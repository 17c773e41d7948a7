"""Rows to the 5 s grid (one row per subtask and slot, one column per metric), and its increases.

Large files come here as cells that workers have merged already (`steps.scanned`). Other rows are
merged in two aggregations: equal rows of one metric and time first, then the rows of a slot.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f
from pyspark.sql.types import DoubleType, LongType, StructField, StructType

from dsp_gym.metrics.flink import BY_NAME
from dsp_gym.metrics.samples import SAMPLE_S
from spark_pipelines.days import FROM_MS
from spark_pipelines.quality.checks import COUNTERS, JUDGED, MEANS_CHECKED, SERIES, metrics_of
from spark_pipelines.schema import RAW, expects
from spark_pipelines.steps.cells import LAST

GRID = StructType(
    [
        *(field for field in RAW.fields if field.name in SERIES),
        StructField("slot", LongType()),  # covers (slot - 1, slot] * sample_s
        StructField("t_s", DoubleType()),  # newest sample; null: none was fit to use
        StructField("rows", LongType()),  # raw ones
        StructField("counted", LongType()),  # rows that passed their checks and have a column
        StructField("passed", LongType()),  # rows that passed their checks
        StructField("duplicates", LongType()),  # of those counted: metric and time of another
    ]
)
"""What every grid has; beside it are columns named as metrics are."""


@expects(JUDGED, GRID)
def align(judged: DataFrame, metrics: Sequence[str] = tuple(BY_NAME)) -> DataFrame:
    """Merge rows that passed their checks to the grid: newest of counters, mean of gauges.

    Of rows with one metric and time the greatest value counts, so that order does not matter.

    Args:
        judged: from `quality.checks.judge`.
        metrics: those that are to have a column; rows of others are counted only.

    Returns:
        The grid: columns of `GRID`, and one per metric.
    """
    return _merged(_distinct(_coded(judged, metrics)), metrics)


def _coded(judged: DataFrame, metrics: Sequence[str]) -> DataFrame:
    """Rows with the slot, and the number of the metric in place of its name.

    `code` is null for a row that is only counted: -1 marks one that passed, but has no column.
    """
    code = f.when(f.col("check").isNotNull(), None)
    for number, metric in enumerate(metrics):
        code = code.when(f.col("metric") == metric, number)
    t_s = f.col("t_s")
    slot = f.when((t_s >= 0) & (t_s < FROM_MS), f.ceil(t_s / SAMPLE_S))
    return judged.select(
        *SERIES, "t_s", "value", slot.alias("slot"), code.otherwise(-1).cast("int").alias("code")
    )


def _distinct(coded: DataFrame) -> DataFrame:
    """Rows of one series, time and metric as one; `rows` says of how many."""
    keys = [*SERIES, "slot", "t_s", "code"]
    return coded.groupBy(*keys).agg(f.max("value").alias("value"), f.count(f.lit(1)).alias("rows"))


def _merged(distinct: DataFrame, metrics: Sequence[str]) -> DataFrame:
    """One row per series and slot."""
    counts, rows = f.col("code") >= 0, f.col("rows")
    parts: list[Column] = []
    for number, metric in enumerate(metrics):
        mine = f.col("code") == number
        value = f.when(mine, f.col("value"))
        if metric in LAST:
            parts.append(f.max_by(value, f.when(mine, f.col("t_s"))).alias(metric))
        else:
            parts += [f.sum(value).alias(f"_{metric}_sum"), f.count(value).alias(f"_{metric}_n")]
    merged = distinct.groupBy(*SERIES, "slot").agg(
        f.max(f.when(counts, f.col("t_s"))).alias("t_s"),
        f.sum("rows").alias("rows"),
        _sum(f.when(counts, rows)).alias("counted"),
        _sum(f.when(f.col("code").isNotNull(), rows)).alias("passed"),
        _sum(f.when(counts, rows - 1)).alias("duplicates"),
        *parts,
    )
    return merged.select(*GRID.names, *metric_columns(metrics))


def metric_columns(metrics: Sequence[str]) -> list[Column]:
    """Make a grid's columns of metrics from the parts that were aggregated.

    Args:
        metrics: by what the grid has a column of each.

    Returns:
        The newest value, or the mean from `_<metric>_sum` and `_<metric>_n`; of gauges that are
        checked the number of rows, too.
    """
    found: list[Column] = []
    for metric in metrics:
        if metric in LAST:
            found.append(f.col(metric))
            continue
        rows = f.col(f"_{metric}_n")
        # Divided by null where there is no row: with none of them, the sum is null.
        found.append((f.col(f"_{metric}_sum") / f.when(rows > 0, rows)).alias(metric))
        if metric in MEANS_CHECKED:
            found.append(rows.alias(f"{metric}_rows"))
    return found


def _sum(value: Column) -> Column:
    return f.coalesce(f.sum(value), f.lit(0).cast("long"))


SINCE_RESTART = ("records_in_total", "records_out_total", "cache_hits_total", "cache_misses_total")
"""Counters that begin at zero when a task does; the others are kept in its state."""

TOTALS = ("busy_ms_total", "backpressured_ms_total", "idle_ms_total")
"""Cumulated times. They fall a little without a restart: see `dsp_gym.metrics.window`."""

_CHANGES = ("pending_records",)
"""Gauges whose change over time is wanted."""


@expects(GRID, GRID)
def increases(grid: DataFrame, max_gap_s: float) -> DataFrame:
    """Add `<metric>_rose`, `<metric>_over_s`, `fell`, `restarted`, `covers_s` and `gap_s`.

    `_rose` is what a counter rose by since its last known value, `_over_s` the seconds since then.
    A counter that falls began again at zero, so what it shows is what it rose by. Both are null
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
