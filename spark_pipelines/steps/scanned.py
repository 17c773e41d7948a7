"""Files to the 5 s grid: workers read them as Arrow and hand on cells, which Spark puts together.

The same grid as `steps.align` makes of the same rows as a DataFrame, for a tenth of the time. Rows
that are equal are told apart wherever one worker sees both. Where two parts of a cell, read apart,
share a metric and a sixth of the slot, that cannot be told: such a cell is marked in `doubtful`,
and the caller has to align row by row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import DoubleType, LongType, StructField, StructType

from spark_pipelines.quality.checks import SERIES
from spark_pipelines.scan import Chunk, rows_of
from spark_pipelines.schema import RAW
from spark_pipelines.steps.align import GRID, metric_columns
from spark_pipelines.steps.cells import (
    COUNTED,
    LAST,
    CellRules,
    cells_of,
    compile_cells,
    masks_of,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

DOUBTFUL = "doubtful"
"""True in a cell whose parts may hold rows of one metric and time."""

_KEYS = StructType([field for field in RAW.fields if field.name in SERIES])


def scanned(
    spark: SparkSession, bundles: Sequence[Sequence[Chunk]], wanted: CellRules
) -> DataFrame:
    """The grid of what the chunks hold.

    Args:
        spark: reads one bundle per task.
        bundles: from `scan.chunks_of`.
        wanted: metrics and limits.

    Returns:
        Columns of `steps.align.GRID`, `doubtful`, and one per metric.
    """
    return united(cells(spark, bundles, wanted), wanted.metrics)


def cells(spark: SparkSession, bundles: Sequence[Sequence[Chunk]], wanted: CellRules) -> DataFrame:
    """Partial cells: several rows of one series and slot where several chunks hold rows of it.

    Returns:
        Columns of `parts_schema`.
    """
    compile_cells()
    schema = parts_schema(wanted.metrics)
    names = schema.names

    def read(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for batch in numbers:
            for number in batch.column(0).to_pylist():
                for chunk in bundles[number]:
                    for rows in rows_of(chunk):
                        found = cells_of(rows, wanted)
                        yield pa.RecordBatch.from_arrays([found[n] for n in names], names)

    count = len(bundles)
    return spark.range(0, count, 1, max(1, count)).mapInArrow(read, schema)


def parts_schema(metrics: Sequence[str]) -> StructType:
    """The columns of partial cells.

    Returns:
        Those of a series, counts, and for each metric either its newest value and when that was
        (`_METRIC_at`), or the sum and number of its values (`_METRIC_sum`, `_METRIC_n`).
    """
    fields = [*_KEYS.fields, StructField("slot", LongType()), StructField("t_s", DoubleType())]
    fields += [StructField(name, LongType()) for name in COUNTED]
    for metric in metrics:
        if metric in LAST:
            fields += [
                StructField(metric, DoubleType()),
                StructField(f"_{metric}_at", DoubleType()),
            ]
        else:
            fields.append(StructField(f"_{metric}_sum", DoubleType()))
            fields.append(StructField(f"_{metric}_n", LongType()))
    return StructType(
        [*fields, *(StructField(name, LongType()) for name in ("_bits", *masks_of(metrics)))]
    )


def united(parts: DataFrame, metrics: Sequence[str]) -> DataFrame:
    """One row per series and slot.

    Args:
        parts: from `cells`.
        metrics: the same as for `cells`.

    Returns:
        Columns of `steps.align.GRID`, `doubtful`, and one per metric.
    """
    masks = masks_of(metrics)
    sums: list[Column] = [f.max("t_s").alias("t_s"), f.sum("_bits").alias("_bits")]
    sums += [f.sum(name).alias(name) for name in COUNTED]
    sums += [f.bit_or(mask).alias(mask) for mask in masks]
    for metric in metrics:
        if metric in LAST:
            sums.append(f.max_by(metric, f"_{metric}_at").alias(metric))
        else:
            sums += [f.sum(n).alias(n) for n in (f"_{metric}_sum", f"_{metric}_n")]
    # By series at once: the windows after it, each over one series, then move no row again.
    whole = parts.repartition(*SERIES).groupBy(*SERIES, "slot").agg(*sums)
    bits = sum((f.bit_count(mask) for mask in masks), f.lit(0))
    doubtful = (bits < f.col("_bits")).alias(DOUBTFUL)
    return whole.select(*GRID.names, doubtful, *metric_columns(metrics))
