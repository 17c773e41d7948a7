"""Named checks. Of single rows before they are merged, of cells of the 5 s grid after.

A **cell** is one metric of one subtask in one slot of the grid. What fails a check becomes unknown,
its rows are kept in quarantine, and everything else is used.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f
from pyspark.sql.types import StringType, StructField, StructType

from dsp_gym.metrics.flink import BY_NAME
from spark_pipelines.config import QualityConfig
from spark_pipelines.days import FROM_MS, LARGEST, SHARES
from spark_pipelines.quality import ROW_CHECKS
from spark_pipelines.schema import RAW, expects

SERIES = ("source", "job", "run", "vertex", "subtask")
"""What one subtask's rows have in common."""

COUNTERS = tuple(name for name, metric in BY_NAME.items() if metric.kind == "counter")
"""They fall to zero when the job restarts, and never else."""

SIZES = ("pending_records", "state_bytes", "cache_usage_bytes")
"""Gauges that grow and shrink as records come and go."""

MEANS_CHECKED = (*SHARES, *SIZES)
"""Gauges of which a grid keeps, as `<metric>_rows`, how many rows a mean is of."""

JUDGED = StructType([*RAW.fields, StructField("check", StringType())])

_ROOM = 1000.0
"""Below this, in a metric's own unit, a jump is none: an idle job's first records are many times
those of the sample before."""


@expects(RAW, JUDGED)
def judge(
    raw: DataFrame, quality: QualityConfig, names: Collection[str] | None = None
) -> DataFrame:
    """Add to every row the name of the first row check it fails; null where it fails none.

    Cheap enough to be part of the pass that merges rows: no row is moved.

    Args:
        raw: rows.
        quality: tolerances, and checks that are not made.
        names: the metrics that there are rows of, where that is known: what is none of ours is then
            not looked for in every row.

    Returns:
        The rows with a column `check`.
    """
    value, t_s, metric = f.col("value"), f.col("t_s"), f.col("metric")
    if names is None:
        strange = ~metric.isin(*BY_NAME)
    else:
        strange = metric.isin(*sorted({*names} - {*BY_NAME}))
    # What is asked first is false of most rows, so names are compared for few of them.
    above = (value > LARGEST) | (
        (value > 1.0)
        & (
            ((value > 1000.0 + quality.time_tolerance_ms) & metric.isin(*SHARES))
            | (metric == "tm_cpu_load")
        )
    )
    fails: Mapping[str, Column] = {
        "identity": _any_null("job", "run", "vertex", "subtask", "metric"),
        # Spark orders NaN above every number, so it fails an upper bound; null fails neither.
        "time": t_s.isNull() | (t_s < 0) | (t_s >= FROM_MS),
        "metric": strange,
        "unknown": value.isNull() | f.isnan(value),
        "range": (value < 0) | above,
    }
    check = f.lit(None).cast("string")
    for name in reversed(list(ROW_CHECKS)):
        if name not in quality.ignored:
            check = f.when(fails[name], name).otherwise(check)
    return raw.withColumn("check", check)


def _any_null(*names: str) -> Column:
    found = f.col(names[0]).isNull()
    for name in names[1:]:
        found = found | f.col(name).isNull()
    return found


def metrics_of(grid: DataFrame) -> tuple[str, ...]:
    """The metrics that a grid has columns of.

    Returns:
        Names in the order of the metrics' table.
    """
    return tuple(name for name in BY_NAME if name in grid.columns)


def flag(grid: DataFrame, quality: QualityConfig) -> DataFrame:
    """Make cells unknown that fail a check, and name them in `flags`.

    Args:
        grid: from `steps.align.align`.
        quality: tolerances, and checks that are not made.

    Returns:
        The grid with `flags`, an array of (metric, check), empty where all is well.
    """
    fails = _shares(grid, quality) if "shares" not in quality.ignored else {}
    order = Window.partitionBy(*SERIES).orderBy("slot")
    neighbours: dict[str, Column] = {}
    for metric in _ordered(grid):
        neighbours[f"{metric}_before"] = f.lag(metric).over(order)
        neighbours[f"{metric}_after"] = f.lead(metric).over(order)
    seen = grid.withColumns(neighbours)
    if "monotone" not in quality.ignored:
        fails |= _monotone(grid.columns)
    if "jump" not in quality.ignored:
        for metric, found in _jumps(_ordered(grid), quality.max_jump_factor).items():
            earlier = fails.get(metric, [])
            fails[metric] = [*earlier, found]
    flags, kept = [], {}
    for metric, failures in fails.items():
        name = f.coalesce(*(f.when(failed, check) for check, failed in failures))
        flags.append(f.struct(f.lit(metric).alias("metric"), name.alias("check")))
        kept[metric] = f.when(name.isNull(), f.col(metric))
    every = (
        f.array(*flags) if flags else f.array().cast("array<struct<metric:string,check:string>>")
    )
    marked = seen.withColumn("flags", f.filter(every, lambda x: x["check"].isNotNull()))
    return marked.withColumns(kept).drop(*neighbours) if kept else marked.drop(*neighbours)


def _ordered(grid: DataFrame) -> list[str]:
    """Metrics whose neighbours in time show whether they can be."""
    return [name for name in metrics_of(grid) if name in COUNTERS or name in SIZES]


Failures = dict[str, list[tuple[str, Column]]]


def _shares(grid: DataFrame, quality: QualityConfig) -> Failures:
    if not set(SHARES) <= set(grid.columns):
        return {}
    busy, backpressured, idle = (f.col(name) for name in SHARES)
    off = f.abs(busy + backpressured + idle - 1000.0) > quality.time_tolerance_ms
    return {name: [("shares", off)] for name in SHARES}


def _monotone(columns: Iterable[str]) -> Failures:
    """A dip or a spike of one sample while another counter of the task keeps rising.

    A task that restarts takes all its counters down with it. Where no other one shows it,
    a fall is taken for a restart.
    """
    pairs = {
        "records_in_total": "records_out_total",
        "records_out_total": "records_in_total",
        "cache_hits_total": "cache_misses_total",
        "cache_misses_total": "cache_hits_total",
    }
    found: Failures = {}
    for metric, other in pairs.items():
        if metric not in columns or other not in columns:
            continue
        before, now, after = _around(metric)
        other_before, other_now, other_after = _around(other)
        rises = (other_before <= other_now) & (other_now <= other_after) & (other_now > 0)
        off = (before <= after) & ((now < before) | (now > after)) & rises
        found[metric] = [("monotone", off)]
    return found


def _jumps(metrics: Sequence[str], factor: float) -> dict[str, tuple[str, Column]]:
    found = {}
    for metric in metrics:
        before, now, after = _around(metric)
        around = f.greatest(before, after, f.lit(_ROOM))
        off = before.isNotNull() & after.isNotNull() & (now > factor * around)
        found[metric] = ("jump", off)
    return found


def _around(metric: str) -> tuple[Column, Column, Column]:
    return f.col(f"{metric}_before"), f.col(metric), f.col(f"{metric}_after")
