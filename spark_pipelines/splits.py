"""Which split a row belongs to; a row that would know of two splits belongs to none.

By time, what is seen after a boundary looks back over the metrics window: rows up to `reach_s`
after it are left out, and counted. They are left out of decisions before transitions are made, and
a run ends at a boundary, so neither a next observation nor a return-to-go looks across it.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from spark_pipelines.config import DatasetConfig, SplitsConfig

PART_OF_RUN = r"@\d{4}-\d\d-\d\d$"
"""Readers that cut a run by day put the day behind its name."""


def reach_s(config: DatasetConfig) -> float:
    """Compute how long after a boundary a row still looks back over it.

    Returns:
        Seconds, at least one decision interval.
    """
    seen, simulated = config.windows, config.transitions.env.simulation.measurement
    window_s = max(seen.window_s, simulated.window_s)
    delay_s = max(config.splits.lag_s, simulated.delay_s)
    return float(max(window_s + delay_s, seen.interval_s, config.transitions.env.interval_s))


def with_split(
    frame: DataFrame, splits: SplitsConfig, loads: Mapping[str, str], reach_s: float
) -> DataFrame:
    """Add `split`: train, validation, test, or null where a row belongs to none.

    Args:
        frame: with columns job, run and t_s.
        splits: in what they differ.
        loads: run -> name of its load; of a run that is not there the load is "".
        reach_s: how far rows look back.

    Returns:
        The frame with the column `split`.
    """
    if splits.by == "load":
        by_run = {run: splits.named(load) for run, load in loads.items()}
        run = f.regexp_replace("run", PART_OF_RUN, "")
        return frame.withColumn("split", f.coalesce(_mapped(by_run, run), f.lit(splits.named(""))))
    return frame.withColumn("split", _split(splits, reach_s))


def _split(splits: SplitsConfig, reach_s: float) -> Column:
    found = f.lit("train")
    if splits.by == "job":
        for names, split in ((splits.validation, "validation"), (splits.test, "test")):
            for name in names:
                found = f.when(f.col("job").rlike(_pattern(name)), split).otherwise(found)
    for boundary_s, split in splits.boundaries():
        t_s = f.col("t_s")
        found = f.when(t_s > boundary_s, split).otherwise(found)
        found = f.when(~t_s.between(boundary_s + 1e-9, boundary_s + reach_s), found)
    return found


def _mapped(values: Mapping[str, str], key: Column) -> Column:
    if not values:
        return f.lit(None).cast("string")
    pairs = chain.from_iterable((f.lit(run), f.lit(split)) for run, split in values.items())
    return f.create_map(*pairs)[key]


def _pattern(glob: str) -> str:
    """A glob as an anchored regular expression, as Java reads it."""
    import fnmatch

    return (
        "^" + fnmatch.translate(glob).replace("(?s:", "(?:").replace(r"\Z", "").rstrip(")") + ")$"
    )
