"""The decision windows once more, in Polars and one process: what a machine does without Spark.

From what the steps promise, for the metrics that `studies.bench` makes: checks of rows and cells,
the grid, what counters rose by, and windows since the last restart. Equal rows are not looked for.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dsp_gym.errors import MissingExtraError
from dsp_gym.metrics.samples import SAMPLE_S
from spark_pipelines.config import QualityConfig, WindowsConfig
from spark_pipelines.days import FROM_MS, SHARES, largest_of

if TYPE_CHECKING:
    import polars as pl

__all__ = ["SERIES", "has_polars", "polars_windows"]

SERIES = ("source", "job", "run", "vertex", "subtask")
_VERTEX = SERIES[:-1]
_PAIRS = {
    "records_in_total": "records_out_total",
    "records_out_total": "records_in_total",
    "cache_hits_total": "cache_misses_total",
    "cache_misses_total": "cache_hits_total",
}
_SIZES = ("pending_records", "state_bytes")
_RISING = (*_PAIRS, "pending_records")
_ROOM = 1000.0  # as in quality.checks: below it a jump is none


def has_polars() -> bool:
    """Whether Polars is installed.

    Returns:
        True where it can be imported.
    """
    return importlib.util.find_spec("polars") is not None


def polars_windows(
    files: Sequence[Path], metrics: Sequence[str], quality: QualityConfig, windows: WindowsConfig
) -> pl.DataFrame:
    """Raw rows to decision windows.

    Args:
        files: Parquet with the columns of `schema.RAW`.
        metrics: those of the rows, each of which gets a column.
        quality: tolerances.
        windows: their length, which is also their distance, and the time to settle.

    Returns:
        One row per vertex and window, columns as in `schema.WINDOWS` where the metrics tell them.

    Raises:
        MissingExtraError: Polars is not installed.
    """
    if not has_polars():
        raise MissingExtraError("bench", "decision windows without Spark")
    import polars as pl

    grid = _checked(_grid(pl.scan_parquet(list(files)), metrics, quality), quality)
    rising = _rising(grid, quality.max_gap_s)
    return _windows(rising, windows).collect(engine="streaming")


def _grid(raw: pl.LazyFrame, metrics: Sequence[str], quality: QualityConfig) -> pl.LazyFrame:
    """One row per series and slot: newest of counters, mean of gauges."""
    import polars as pl

    t_s, value, metric = pl.col("t_s"), pl.col("value"), pl.col("metric").cast(pl.String)
    above = value > largest_of("", 0.0)
    for name in metrics:
        above |= (metric == name) & (value > largest_of(name, quality.time_tolerance_ms))
    fit = (t_s >= 0) & (t_s < FROM_MS) & value.is_not_nan() & (value >= 0) & ~above
    names = [pl.col(name).cast(pl.String) for name in SERIES[:-1]]
    known = raw.filter(fit & metric.is_in(list(metrics))).with_columns(
        *names, metric, slot=(t_s / SAMPLE_S).ceil().cast(pl.Int64)
    )
    cells = known.group_by(*SERIES, "slot", "metric").agg(
        newest=value.max_by(t_s), mean=value.mean(), t_s=t_s.max()
    )

    def of(name: str) -> pl.Expr:
        told = "newest" if name in _PAIRS else "mean"
        return pl.col(told).filter(pl.col("metric") == name).first().alias(name)

    merged = cells.group_by(*SERIES, "slot").agg(pl.col("t_s").max(), *(of(m) for m in metrics))
    return merged.sort(*SERIES, "slot")


def _checked(grid: pl.LazyFrame, quality: QualityConfig) -> pl.LazyFrame:
    """With cells unknown that fail a check."""
    import polars as pl

    around = {
        name: (
            pl.col(name).shift(1).over(SERIES),
            pl.col(name),
            pl.col(name).shift(-1).over(SERIES),
        )
        for name in (*_PAIRS, *_SIZES)
    }
    total = pl.sum_horizontal(*(pl.col(name) for name in SHARES), ignore_nulls=False)
    off = {name: (total - 1000.0).abs() > quality.time_tolerance_ms for name in SHARES}
    for name, (before, now, after) in around.items():
        bound = pl.max_horizontal(before, after, pl.lit(_ROOM))
        fails = before.is_not_null() & after.is_not_null()
        fails &= now > quality.max_jump_factor * bound
        if name in _PAIRS:
            first, middle, last = around[_PAIRS[name]]
            rises = (first <= middle) & (middle <= last) & (middle > 0)
            dips = (before <= after) & ((now < before) | (now > after))
            fails = fails.fill_null(False) | (rises & dips).fill_null(False)
        off[name] = fails
    return grid.with_columns(
        pl.when(~fails.fill_null(False)).then(pl.col(name)).alias(name)
        for name, fails in off.items()
    )


def _rising(grid: pl.LazyFrame, max_gap_s: float) -> pl.LazyFrame:
    """With what counters rose by since they were last known, across restarts."""
    import polars as pl

    t_s = pl.col("t_s")
    last = {"before_s": t_s.shift(1).over(SERIES)}
    for name in _RISING:
        at = pl.when(pl.col(name).is_not_null()).then(t_s)
        last[f"{name}_before"] = pl.col(name).forward_fill().shift(1).over(SERIES)
        last[f"{name}_before_s"] = at.forward_fill().shift(1).over(SERIES)
    seen = grid.with_columns(**last)
    fell = pl.any_horizontal(
        (pl.col(name) < pl.col(f"{name}_before")).fill_null(False) for name in _PAIRS
    )
    since_s = t_s - pl.col("before_s")
    unknown = fell | since_s.is_null() | (since_s > max_gap_s)
    told = {
        "restarted": fell | since_s.is_null(),
        "covers_s": pl.when(unknown).then(float(SAMPLE_S)).otherwise(since_s),
    }
    for name in _RISING:
        now, before = pl.col(name), pl.col(f"{name}_before")
        fallen = now if name in _PAIRS else None
        rose = (
            pl.when((now < before) if name in _PAIRS else fell).then(fallen).otherwise(now - before)
        )
        over_s = t_s - pl.col(f"{name}_before_s")
        near = rose.is_not_null() & (over_s <= max_gap_s)
        told[f"{name}_rose"] = pl.when(near).then(rose)
        told[f"{name}_over_s"] = pl.when(near).then(over_s)
    return seen.with_columns(**told)


def _windows(rising: pl.LazyFrame, windows: WindowsConfig) -> pl.LazyFrame:
    import polars as pl

    t_s, span = pl.col("t_s"), [*SERIES[:3], "window"]
    spread = rising.filter(pl.col("vertex") != "").with_columns(
        window=(t_s / windows.interval_s).ceil().cast(pl.Int64)
    )
    settled = (
        spread.filter("restarted")
        .group_by(span)
        .agg(settled_s=t_s.max() - SAMPLE_S + windows.stabilization_s)
    )
    inside = spread.join(settled, on=span, how="left").filter(
        pl.col("settled_s").is_null() | (t_s > pl.col("settled_s"))
    )
    steady = ~pl.col("restarted")

    def rate(name: str) -> pl.Expr:
        rose = pl.col(f"{name}_rose").filter(steady)
        over_s = pl.col(f"{name}_over_s").filter(steady).sum()
        return pl.when((over_s > 0) & (rose.count() > 0)).then(rose.sum() / over_s)

    def some(name: str) -> pl.Expr:
        rose = pl.col(f"{name}_rose").filter(steady)
        return pl.when(rose.count() > 0).then(rose.sum())

    is_source = pl.col("records_in_total").max().fill_null(0.0) == 0
    given = rate("records_out_total")
    subtasks = inside.group_by(*SERIES, "window").agg(
        seconds=pl.col("covers_s").sum(),
        records_in=pl.when(is_source).then(given).otherwise(rate("records_in_total")),
        records_out=given,
        variance=pl.col("busy_ms_per_s").var(ddof=0),
        hits=some("cache_hits_total"),
        misses=some("cache_misses_total"),
        growth=rate("pending_records"),
        latency_ms=pl.col("latency_p95_ms").mean(),
        **{name: pl.col(name).mean() for name in SHARES},
        **{
            name: pl.col(name)
            .drop_nulls()
            .get(t_s.filter(pl.col(name).is_not_null()).arg_max(), null_on_oob=True)
            for name in _SIZES
        },
    )
    return _vertices(subtasks).with_columns(t_s=pl.col("window") * float(windows.interval_s))


def _vertices(subtasks: pl.LazyFrame) -> pl.LazyFrame:
    """Subtasks to vertices: sums of rates and sizes, means and the hottest of time shares."""
    import polars as pl

    width = pl.col("subtask").max() + 1
    whole = (pl.len() == width) | (pl.col("subtask").max() == -1)

    def total(name: str) -> pl.Expr:
        return pl.when(whole & (pl.col(name).count() == pl.len())).then(pl.col(name).sum())

    def some(name: str) -> pl.Expr:
        return pl.when(pl.col(name).count() > 0).then(pl.col(name).sum())

    vertices = subtasks.group_by(*_VERTEX, "window").agg(
        parallelism=pl.when(width > 0).then(width).cast(pl.Int32),
        seconds=pl.when(whole).then(pl.col("seconds").min()).otherwise(0.0),
        records_in_per_s=total("records_in"),
        records_out_per_s=total("records_out"),
        busy_max_ms_per_s=pl.col("busy_ms_per_s").max(),
        busy_std_ms_per_s=pl.col("variance").mean().sqrt(),
        hits=some("hits"),
        misses=some("misses"),
        state_mib=some("state_bytes") / 2**20,
        pending_records=some("pending_records"),
        pending_growth_per_s=some("growth"),
        latency_p95_s=pl.col("latency_ms").max() / 1000.0,
        **{name: pl.col(name).mean() for name in SHARES},
    )
    counted = pl.col("hits") + pl.col("misses")
    taken, given = pl.col("records_in_per_s"), pl.col("records_out_per_s")
    busy = pl.when(pl.col("busy_ms_per_s") > 0).then(pl.col("busy_ms_per_s") / 1000.0)
    return vertices.with_columns(
        true_processing_rate=taken / busy,
        true_output_rate=given / busy,
        selectivity=pl.when(taken > 0).then(given / taken),
        cache_hit_rate=pl.when(counted > 0).then(pl.col("hits") / counted),
    )
