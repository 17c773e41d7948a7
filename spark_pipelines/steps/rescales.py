"""Outages of a run: when it went down, for how long, and the configuration before and after.

Where events show it (`stopped` or `failure`, then `running`), they are believed. Where a run has
none, its samples are: counters of most of its subtasks fall together, or its subtasks are others.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f
from pyspark.sql.types import (
    DoubleType,
    LongType,
    StringType,
)

from dsp_gym.metrics.samples import SAMPLE_S
from dsp_gym.records.base import Body
from spark_pipelines.days import day_of
from spark_pipelines.schema import EVENTS, RESCALES, expects
from spark_pipelines.steps.align import GRID
from spark_pipelines.steps.outages import Timeline, outages

_RUN = ("source", "job", "run")


@expects(GRID, RESCALES)
def rescales(increases: DataFrame, events: DataFrame, max_gap_s: float) -> DataFrame:
    """Every outage of every run.

    Args:
        increases: from `steps.rates.increases`.
        events: `schema.EVENTS`; may be empty.
        max_gap_s: longer without any sample of a run is an outage, if its configuration differs.

    Returns:
        Rows of `schema.RESCALES`.
    """
    timeline = _timeline(increases)

    def of_run(key: tuple[pa.Scalar, ...], seen: pa.Table, told: pa.Table) -> pa.Table:
        names = [scalar.as_py() for scalar in key]
        rows = [
            dict(zip(_RUN, names, strict=True)) | {"day": day_of(row["t_s"])} | row
            for row in outages(Timeline.of(seen), _events(told), max_gap_s, SAMPLE_S)
        ]
        return pa.Table.from_pylist(rows, _arrow())

    told = events.select(*EVENTS.names).groupBy(*_RUN)
    return timeline.groupBy(*_RUN).cogroup(told).applyInArrow(of_run, RESCALES)


def _arrow() -> pa.Schema:
    kinds: dict[type, pa.DataType] = {StringType: pa.string(), DoubleType: pa.float64()}
    return pa.schema([(field.name, kinds[type(field.dataType)]) for field in RESCALES.fields])


def _events(told: pa.Table) -> list[Body]:
    return sorted(told.to_pylist(), key=lambda event: float(event["t_s"]))


def _timeline(increases: DataFrame) -> DataFrame:
    """One row per run and slot: few enough to be looked at one after the other.

    `widths` names the vertices whose number of subtasks is another than in the slot before.
    """
    tasks = increases.where(f.col("vertex") != "")
    if "pending_records" not in tasks.columns:
        tasks = tasks.withColumn("pending_records", f.lit(None).cast("double"))
    counts = f.col("_follows") & (f.greatest(f.lit(0.0), *_counters(tasks)) > 0)
    per_vertex = (
        tasks.withColumn("_follows", f.col("t_s").isNotNull())
        .groupBy(*_RUN, "slot", "vertex")
        .agg(
            f.min("t_s").alias("first_s"),
            f.max("t_s").alias("last_s"),
            f.count_if(f.col("fell")).alias("fallen"),
            f.count_if(counts).alias("series"),
            (f.max("subtask") + 1).alias("width"),
            f.sum("pending_records").alias("pending"),
            f.max("covers_s").alias("every_s"),
        )
    )
    order = Window.partitionBy(*_RUN, "vertex").orderBy("slot")
    changed = ~f.col("width").eqNullSafe(f.lag("width").over(order))
    marked = per_vertex.withColumn("_width", f.when(changed, f.struct("vertex", "width")))
    return marked.groupBy(*_RUN, "slot").agg(
        f.min("first_s").alias("first_s"),
        f.max("last_s").alias("last_s"),
        f.sum("fallen").cast(LongType()).alias("fallen"),
        f.sum("series").cast(LongType()).alias("series"),
        f.collect_list("_width").alias("widths"),
        f.sum("pending").alias("pending"),
        f.max("every_s").alias("every_s"),
    )


def _counters(tasks: DataFrame) -> list[Column]:
    names = [n for n in ("records_in_total", "records_out_total") if n in tasks.columns]
    return [f.col(name) for name in names] or [f.lit(0.0)]


def configurations(events: DataFrame) -> DataFrame:
    """Read the running configuration from each `running` event to the next.

    Returns:
        One row per run, vertex and span [since_s, until_s).
    """
    order = Window.partitionBy(*_RUN).orderBy("t_s")
    number = "map<string,int>"
    body = f.from_json("body", f"parallelism {number}, memory_level {number}")
    running = (
        events.where(f.col("kind") == "running")
        .withColumn("_body", body)
        .where(f.col("_body.parallelism").isNotNull())
        .withColumn("_number", f.row_number().over(order))
        .withColumn("until_s", f.coalesce(f.lead("t_s").over(order), f.lit(float("inf"))))
    )
    # A run's first configuration is also that of what was sampled before it was said.
    since_s = f.when(f.col("_number") == 1, f.lit(float("-inf"))).otherwise(f.col("t_s"))
    each = running.withColumn("since_s", since_s).select(
        *_RUN, "since_s", "until_s", "_body", f.explode("_body.parallelism").alias("vertex", "_p")
    )
    return each.select(
        *_RUN,
        "vertex",
        "since_s",
        "until_s",
        f.col("_p").alias("parallelism"),
        f.col("_body.memory_level")[f.col("vertex")].alias("memory_level"),
    )
