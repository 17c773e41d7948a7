"""What became of every raw row: kept apart with a reason, or counted; nothing is lost silently."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import reduce

from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as f

from dsp_gym.errors import DatasetError
from dsp_gym.job.spec import JobSpec
from spark_pipelines.days import day_of_column
from spark_pipelines.quality import CHECKS
from spark_pipelines.quality.checks import (
    COUNTERS,
    MEANS_CHECKED,
    SERIES,
    metrics_of,
)
from spark_pipelines.schema import QUARANTINE, RAW

_RUN = ("source", "job", "run")


def split_verdicts(
    judged: DataFrame, flagged: DataFrame, sample_s: float
) -> tuple[DataFrame, DataFrame]:
    """Raw rows that were used, and those that were not (`schema.QUARANTINE`).

    Reads all rows again, so this is for when `accounting` says that there are any.

    Args:
        judged: from `quality.checks.judge`.
        flagged: from `quality.checks.flag`.
        sample_s: length of a slot.

    Returns:
        Rows as `schema.RAW`, and rows as `schema.QUARANTINE`.
    """
    slot = f.ceil(f.col("t_s") / sample_s)
    cells = flagged.select(*SERIES, "slot", f.explode("flags").alias("_flag")).select(
        *SERIES, "slot", f.col("_flag.metric").alias("metric"), f.col("_flag.check").alias("_cell")
    )
    fit = judged.where(f.col("check").isNull()).withColumn("slot", slot)
    joined = fit.join(f.broadcast(cells), [*SERIES, "slot", "metric"], "left")
    # Of a counter the slot keeps the newest row only; that is the one the check has failed.
    newest = f.max("t_s").over(Window.partitionBy(*SERIES, "slot", "metric"))
    failed = joined.where(f.col("_cell").isNotNull()).withColumn("_newest_s", newest)
    out = failed.where((f.col("t_s") == f.col("_newest_s")) | ~f.col("metric").isin(*COUNTERS))
    single = judged.where(f.col("check").isNotNull())
    columns = [*RAW.names, "check"]
    keys = [name for name in RAW.names if name != "value"]
    of_cells = (
        out.groupBy(*keys, f.col("_cell").alias("check"))  # rows given twice count once
        .agg(f.max("value").alias("value"))
        .select(*columns)
    )
    quarantined = of_cells.unionByName(single.select(*columns))
    kept = joined.where(f.col("_cell").isNull()).select(*RAW.names)
    merged = failed.where((f.col("t_s") < f.col("_newest_s")) & f.col("metric").isin(*COUNTERS))
    reasons = quarantined.withColumn("reason", _reason())
    return kept.unionByName(merged.select(*RAW.names)), reasons.select(*QUARANTINE.names)


def _reason() -> Column:
    value = f.coalesce(f.col("value").cast("string"), f.lit("null"))
    told = f.lit("failed")
    for name, holds in CHECKS.items():
        told = f.when(
            f.col("check") == name,
            f.concat(
                f.lit(f"expected that {holds}; "),
                f.col("metric"),
                f.lit(" is "),
                value,
                f.lit(" at t_s "),
                f.col("t_s").cast("string"),
            ),
        ).otherwise(told)
    return f.coalesce(told, f.concat(f.lit("a null where none may be; check "), f.col("check")))


def accounting(flagged: DataFrame) -> DataFrame:
    """Per run: `rows`, `passed`, `kept`, `merged`, `duplicates`, `unused`, `day`, `quarantined`.

    All of it follows from the grid. `day` is that of the first row that passed its checks, null
    where none did; `quarantined` holds the rows of cells that failed a check, by check. The rows
    that did not pass are counted by `failures`.

    Args:
        flagged: from `quality.checks.flag`.

    Returns:
        One row per run.
    """
    metrics = metrics_of(flagged)
    cells = reduce(
        lambda total, one: total + one,
        [f.col(name).isNotNull().cast("long") for name in metrics],
        f.lit(0).cast("long"),
    )
    rows_lost = f.aggregate(
        f.col("flags"),
        f.lit(0).cast("long"),
        lambda total, flag: total + _rows_of(flag["metric"], flagged.columns),
    )
    seen = flagged.withColumns({"_cells": cells, "_lost": rows_lost})
    total = seen.groupBy(*_RUN).agg(
        f.sum("rows").alias("rows"),
        f.sum("passed").alias("passed"),
        f.sum("_cells").alias("kept"),
        f.sum("duplicates").alias("duplicates"),
        f.sum(f.col("passed") - f.col("counted")).alias("unused"),
        f.sum(f.col("counted") - f.col("duplicates") - f.col("_cells") - f.col("_lost")).alias(
            "merged"
        ),
        f.min("t_s").alias("_first_s"),
    )
    nothing = f.create_map().cast("map<string,bigint>")
    q = _quarantined(flagged).withColumnsRenamed({name: f"_q_{name}" for name in _RUN})
    same = [total[name].eqNullSafe(q[f"_q_{name}"]) for name in _RUN]
    joined = total.join(q, same, "left")
    return joined.select(
        *_RUN,
        day_of_column(f.col("_first_s")).alias("day"),
        "rows",
        "passed",
        "kept",
        "merged",
        "duplicates",
        "unused",
        f.coalesce("quarantined", nothing).alias("quarantined"),
    )


def _quarantined(flagged: DataFrame) -> DataFrame:
    """Per run: the rows of cells that failed a check, by check, in the column `quarantined`."""
    lost = (
        flagged.where(f.size("flags") > 0)
        .select(*_RUN, f.explode("flags").alias("_flag"), *_row_counts(flagged.columns))
        .select(
            *_RUN,
            f.col("_flag.check").alias("check"),
            _rows_of(f.col("_flag.metric"), flagged.columns).alias("_n"),
        )
    )
    counted = lost.groupBy(*_RUN, "check").agg(f.sum("_n").alias("_n"))
    by_check = f.map_from_entries(f.collect_list(f.struct("check", "_n")))
    return counted.groupBy(*_RUN).agg(by_check.alias("quarantined"))


def failures(judged: DataFrame) -> DataFrame:
    """Per run and check: `rows` that failed it, and the first `day` of those.

    Reads all raw rows again, so this is for when `accounting` says that some did not pass.

    Args:
        judged: from `quality.checks.judge`.

    Returns:
        One row per run and check.
    """
    failed = judged.where(f.col("check").isNotNull())
    return failed.groupBy(*_RUN, "check").agg(
        f.count(f.lit(1)).alias("rows"), f.min("day").alias("day")
    )


def _row_counts(columns: Iterable[str]) -> list[str]:
    return [f"{name}_rows" for name in MEANS_CHECKED if f"{name}_rows" in columns]


def _rows_of(metric: Column, columns: list[str]) -> Column:
    """Raw rows that a failed cell takes with it: all of a mean, one of a counter."""
    found = f.lit(1).cast("long")
    for name in columns:
        if f"{name}_rows" in columns:
            found = f.when(metric == name, f.col(f"{name}_rows")).otherwise(found)
    return found


def outcomes_of(row: Row) -> dict[str, int]:
    """Name what became of the raw rows of one run.

    Args:
        row: of `accounting`.

    Returns:
        Raw rows as `rows`, and by what became of them: `kept` (a cell of the grid), `merged` with
        another row of its slot, `duplicates` of metric and time, `unused` by every step, and
        `quarantined:CHECK`.
    """
    names = ("rows", "kept", "merged", "duplicates", "unused")
    checks = dict(row["quarantined"]).items()
    return {name: row[name] for name in names} | {f"quarantined:{c}": n for c, n in checks}


def prove(rows: Iterable[Row], failed: Iterable[Row] = ()) -> Counter[str]:
    """Add up what became of raw rows, and refuse sums that leave out rows.

    Args:
        rows: of `accounting`.
        failed: of `failures`.

    Returns:
        Raw rows by `outcomes_of`.

    Raises:
        DatasetError: Rows are not accounted for, or are twice.
    """
    total: Counter[str] = Counter()
    for row in rows:
        total.update(outcomes_of(row))
    for row in failed:
        total[f"quarantined:{row['check']}"] += row["rows"]
    told = total.total() - total["rows"]
    if told != total["rows"] or min(total.values(), default=0) < 0:
        said = ", ".join(f"{count} {name}" for name, count in total.items() if name != "rows")
        raise DatasetError(
            f"of {total['rows']} rows {told} are accounted for: {said}",
            remedy="This is a fault of the pipeline; nothing was published.",
        )
    return total


def findings(
    increases: DataFrame, windows: DataFrame, specs: Mapping[str, JobSpec], tolerance: float
) -> DataFrame:
    """Findings that remove no row: source, job, run, t_s, vertex, check, reason.

    Args:
        increases: from `steps.rates.increases`.
        windows: from `steps.windows`.
        specs: the jobs by name; of others the flow is not checked.
        tolerance: share of the records that may be lost or made between two vertices.

    Returns:
        One row per finding.
    """
    gaps = increases.where(f.col("gap_s").isNotNull()).select(
        *_RUN,
        "t_s",
        "vertex",
        f.lit("gaps").alias("check"),
        f.format_string("subtask %d was not seen for %.0f s", "subtask", "gap_s").alias("reason"),
    )
    return gaps.unionByName(_flow(windows, specs, tolerance))


def _flow(windows: DataFrame, specs: Mapping[str, JobSpec], tolerance: float) -> DataFrame:
    """Vertices whose input is not the output of those before them.

    Only where each of those feeds this vertex alone: a record sent to two is counted once or twice,
    depending on how the job sends it.
    """
    edges = [
        (job, edge.from_, vertex.name)
        for job, spec in specs.items()
        for vertex in spec.vertices
        for edge in vertex.inputs
        if all(_consumers(spec, other.from_) == 1 for other in vertex.inputs)
    ]
    pairs = (
        f.array(
            *(
                f.struct(f.lit(j).alias("job"), f.lit(a).alias("from"), f.lit(b).alias("to"))
                for j, a, b in edges
            )
        )
        if edges
        else None
    )
    key = [*_RUN, "t_s"]
    known = windows.select(*key, "vertex", "records_in_per_s", "records_out_per_s")
    if pairs is None:
        empty = known.where(f.lit(False))
        return empty.select(*key, "vertex", f.lit("flow").alias("check"), f.lit("").alias("reason"))
    out = known.withColumn(
        "_to",
        f.filter(pairs, lambda e: (e["job"] == f.col("job")) & (e["from"] == f.col("vertex"))),
    )
    fed = out.select(*key, f.explode("_to.to").alias("vertex"), "records_out_per_s")
    expected = fed.groupBy(*key, "vertex").agg(
        f.sum("records_out_per_s").alias("_given"),
        f.count_if(f.col("records_out_per_s").isNull()).alias("_unknown"),
    )
    both = known.drop("records_out_per_s").join(expected, [*key, "vertex"])
    taken, given = f.col("records_in_per_s"), f.col("_given")
    off = (f.col("_unknown") == 0) & (f.abs(taken - given) > tolerance * f.greatest(taken, given))
    text = "took in %.1f records/s, the vertices before it gave out %.1f"
    return both.where(off & (f.greatest(taken, given) > 1.0)).select(
        *key,
        "vertex",
        f.lit("flow").alias("check"),
        f.format_string(text, "records_in_per_s", "_given").alias("reason"),
    )


def _consumers(spec: JobSpec, name: str) -> int:
    return sum(edge.from_ == name for vertex in spec.vertices for edge in vertex.inputs)
