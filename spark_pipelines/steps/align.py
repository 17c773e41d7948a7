"""Rows to the 5 s grid: one row per subtask and slot, one column per metric, each row counted.

This is the one step that sees every raw row, so what it costs, the pipeline costs. It merges rows
as it reads them, in one hash aggregation on (series, slot); aggregating by second first, to see
equal rows, would cost half as much again. Equal rows are found all the same: every row sets the bit
of its metric and its sixth of the slot. Where as many bits are set as there are rows, no two rows
have one metric and time. The other slots, few or none, are merged again, row by row.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import DoubleType, LongType, StructField, StructType

from dsp_gym.metrics.flink import BY_NAME
from dsp_gym.metrics.samples import SAMPLE_S
from spark_pipelines.quality.checks import JUDGED, MEANS_CHECKED, SERIES
from spark_pipelines.quality.limits import FROM_MS
from spark_pipelines.schema import RAW, expects
from spark_pipelines.steps.cells import LAST, PER_MASK, SIXTHS, masks_of

__all__ = ["GRID", "align"]

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
def align(
    judged: DataFrame,
    metrics: Sequence[str] = tuple(BY_NAME),
    sample_s: float = SAMPLE_S,
    *,
    crowded: bool = False,
) -> DataFrame:
    """Merges rows that passed their checks to the grid: newest of counters, mean of gauges.

    Of rows with one metric and time the greatest value counts, so that order does not matter.

    Args:
        judged: from `quality.checks.judge`.
        metrics: those that are to have a column; rows of others are counted only.
        sample_s: length of a slot.
        crowded: samples come more often than `sample_s` / 6, or are known to repeat: goes row by
            row at once.

    Returns:
        The grid: columns of `GRID`, and one per metric.
    """
    coded = _coded(judged, metrics, sample_s)
    if crowded:
        return _merged(_distinct(coded), metrics)
    masks = masks_of(metrics)
    quick = _shared(_merged(coded, metrics, masks))
    bits = sum((f.bit_count(mask) for mask in masks), f.lit(0))
    keys = [*SERIES, "slot"]
    suspect = quick.where(bits < f.col("counted")).select(
        *(f.col(key).alias(f"_{key}") for key in keys)
    )
    # Null-safe: a row that failed its checks may have no vertex.
    same = [f.col(key).eqNullSafe(f.col(f"_{key}")) for key in keys]
    # Where there is none, Spark sees it before it begins with this branch, and leaves it out.
    again = coded.join(f.broadcast(suspect), same, "left_semi")
    exact = _merged(_distinct(again), metrics)
    certain = quick.where(bits == f.col("counted"))
    return certain.select(*exact.columns).unionByName(exact)


def _shared(frame: DataFrame) -> DataFrame:
    """The same rows, through a filter that passes all and that no optimisation looks behind.

    Spark would else compute a frame that is used twice two times: each time only the columns
    that are needed, of the rows that are, so that no two plans are one.
    """
    return frame.where(f.hash(*frame.columns) >= f.lit(-(2**31)) - f.rand(0))


def _coded(judged: DataFrame, metrics: Sequence[str], sample_s: float) -> DataFrame:
    """Rows with the slot, and the number of the metric in place of its name.

    `code` is null for a row that is only counted: -1 marks one that passed, but has no column.
    """
    code = f.when(f.col("check").isNotNull(), None)
    for number, metric in enumerate(metrics):
        code = code.when(f.col("metric") == metric, number)
    t_s = f.col("t_s")
    slot = f.when((t_s >= 0) & (t_s < FROM_MS), f.ceil(t_s / sample_s))
    coded = judged.select(
        *SERIES, "t_s", "value", slot.alias("slot"), code.otherwise(-1).cast("int").alias("code")
    )
    into = f.col("t_s") / sample_s - f.col("slot") + 1.0  # 0..1, how far into its slot
    sixth = f.greatest(f.ceil(into * SIXTHS).cast("int") - 1, f.lit(0))
    return coded.withColumn("sixth", f.least(sixth, f.lit(SIXTHS - 1)))


def _distinct(coded: DataFrame) -> DataFrame:
    """Rows of one series, time and metric as one; `rows` says of how many."""
    keys = [*SERIES, "slot", "t_s", "code"]
    return coded.groupBy(*keys).agg(f.max("value").alias("value"), f.count(f.lit(1)).alias("rows"))


def _merged(coded: DataFrame, metrics: Sequence[str], masks: Sequence[str] = ()) -> DataFrame:
    """One row per series and slot.

    Args:
        coded: rows as they are, or with `rows` where several are one.
        metrics: by code.
        masks: columns that tell which (metric, sixth of the slot) there are. Where they are given,
            they count the rows of a mean, too: right where no two rows set one bit.
    """
    distinct = "rows" in coded.columns
    counts = f.col("code") >= 0
    sums: list[Column] = []
    values: list[Column] = []
    for number, metric in enumerate(metrics):
        mine = f.col("code") == number
        value = f.when(mine, f.col("value"))
        if metric in LAST:
            sums.append(f.max_by(value, f.when(mine, f.col("t_s"))).alias(metric))
            values.append(f.col(metric))
            continue
        sums.append(f.sum(value).alias(f"_{metric}_sum"))
        if masks:
            rows = _bits_of(number, masks)
        else:
            sums.append(f.count(value).alias(f"_{metric}_n"))
            rows = f.col(f"_{metric}_n")
        # Divided by null where there is no row: with none of them, the sum is null.
        values.append((f.col(f"_{metric}_sum") / f.when(rows > 0, rows)).alias(metric))
        if metric in MEANS_CHECKED:
            values.append(rows.alias(f"{metric}_rows"))
    if distinct:
        rows, given = f.col("rows"), f.sum("rows")
        repeated = {"duplicates": _sum(f.when(counts, rows - 1))}
    else:
        rows, given, repeated = f.lit(1), f.count(f.lit(1)), {}

    def total(which: Column) -> Column:
        return _sum(f.when(which, rows)) if distinct else f.count(f.when(which, rows))

    told = {
        "t_s": f.max(f.when(counts, f.col("t_s"))),
        "rows": given,
        "counted": total(counts),
        "passed": total(f.col("code").isNotNull()),
        **repeated,
    }
    bits = [_mask(n).alias(mask) for n, mask in enumerate(masks)]
    merged = coded.groupBy(*SERIES, "slot").agg(
        *(column.alias(name) for name, column in told.items()), *sums, *bits
    )
    if not distinct:
        merged = merged.withColumn("duplicates", f.lit(0).cast("long"))
    return merged.select(*GRID.names, *values, *masks)


def _sum(value: Column) -> Column:
    return f.coalesce(f.sum(value), f.lit(0).cast("long"))


def _mask(number: int) -> Column:
    """The bits that the rows of some metrics set."""
    low = number * PER_MASK
    mine = (f.col("code") >= low) & (f.col("code") < low + PER_MASK)
    bit = (f.col("code") - low) * SIXTHS + f.col("sixth")
    shifted = f.call_function("shiftleft", f.lit(1).cast("long"), bit)
    return f.coalesce(f.bit_or(f.when(mine, shifted)), f.lit(0).cast("long"))


def _bits_of(number: int, masks: Sequence[str]) -> Column:
    """How many sixths of a slot have a row of one metric."""
    own = (2**SIXTHS - 1) << (number % PER_MASK * SIXTHS)
    mask = f.col(masks[number // PER_MASK])
    return f.bit_count(mask.bitwiseAND(f.lit(own).cast("long"))).cast("long")
