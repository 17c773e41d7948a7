"""Decision windows: rates, shares and sizes of subtasks, and of vertices, over a window."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from dsp_gym.metrics.samples import SAMPLE_S
from spark_pipelines.config import WindowsConfig
from spark_pipelines.days import day_of_column
from spark_pipelines.quality.checks import SERIES
from spark_pipelines.schema import WINDOWS, expects
from spark_pipelines.steps.align import GRID, TOTALS

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


_RUN = ("source", "job", "run")
_SPAN = (*_RUN, "window")
_QUANTILES = (50, 75, 95, 99)


@expects(GRID, WINDOWS)
def decision_windows(increases: DataFrame, windows: WindowsConfig) -> DataFrame:
    """One row per vertex and window; windows end at multiples of `interval_s`.

    A window holds what was sampled since the job last (re)started in it and had `stabilization_s`
    to settle, as that of a snapshot does. `memory_level` is null: no metric shows it.

    Args:
        increases: from `steps.rates.increases`.
        windows: their length and distance.

    Returns:
        Rows of `schema.WINDOWS`.
    """
    spread = _spread(_with_columns(increases.where(f.col("vertex") != "")), windows)
    within = Window.partitionBy(*_SPAN)
    began_s = f.max(f.when(f.col("restarted"), f.col("t_s"))).over(within)
    # A subtask's first sample comes after its first seconds, of which it shows nothing before.
    settled_s = began_s - SAMPLE_S + windows.stabilization_s
    inside = spread.withColumn("_settled_s", settled_s).where(
        f.col("_settled_s").isNull() | (f.col("t_s") > f.col("_settled_s"))
    )
    vertices = merged(_subtasks(inside), ["window"])
    busy_share = f.when(f.col("busy_ms_per_s") > 0, f.col("busy_ms_per_s") / 1000.0)
    taken, given = f.col("records_in_per_s"), f.col("records_out_per_s")
    named = vertices.withColumns(
        {
            "t_s": f.col("window") * float(windows.interval_s),
            "day": day_of_column(f.col("newest_s")),
            "parallelism": f.col("seen_parallelism"),
            "memory_level": f.lit(None).cast("int"),
            "true_processing_rate": taken / busy_share,
            "true_output_rate": given / busy_share,
            "selectivity": given / f.when(taken > 0, taken),
        }
    )
    return named.select(*WINDOWS.names)


def configured(windows: DataFrame, configurations: DataFrame) -> DataFrame:
    """Fill in parallelism and memory level where events give the running configuration.

    Args:
        windows: from `decision_windows`.
        configurations: source, job, run, vertex, since_s, until_s, parallelism, memory_level, from
            `steps.rescales.configurations`.

    Returns:
        The windows with both columns filled in where they are known.
    """
    told = configurations.select(
        *VERTEX_KEYS,
        "since_s",
        "until_s",
        f.col("parallelism").alias("_parallelism"),
        f.col("memory_level").alias("_level"),
    )
    w, c = windows.alias("w"), f.broadcast(told).alias("c")
    same = [f.col(f"w.{name}") == f.col(f"c.{name}") for name in VERTEX_KEYS]
    holds = (f.col("w.t_s") > f.col("c.since_s")) & (f.col("w.t_s") <= f.col("c.until_s"))
    joined = w.join(c, [*same, holds], "left")
    filled = {
        "parallelism": f.coalesce("c._parallelism", "w.parallelism").alias("parallelism"),
        "memory_level": f.coalesce("c._level", "w.memory_level").alias("memory_level"),
    }
    return joined.select(*(filled.get(name, f.col(f"w.{name}")) for name in WINDOWS.names))


def _with_columns(frame: DataFrame) -> DataFrame:
    """With every metric that windows look at, null where the source has none."""
    known = {
        **{f"{name}{end}": None for name in _RISEN for end in ("_rose", "_over_s")},
        **dict.fromkeys(_GAUGES),
    }
    missing = [name for name in known if name not in frame.columns]
    return frame.withColumns({name: f.lit(None).cast("double") for name in missing})


_RISEN = (
    "records_in_total",
    "records_out_total",
    "cache_hits_total",
    "cache_misses_total",
    *TOTALS,
    "pending_records",
)
_GAUGES = (
    "busy_ms_per_s",
    "backpressured_ms_per_s",
    "idle_ms_per_s",
    "records_in_total",
    "state_bytes",
    "pending_records",
    "latency_p95_ms",
    *(f"state_{way}_latency_p{q}_ms" for way in ("read", "write") for q in _QUANTILES),
)


def _spread(frame: DataFrame, windows: WindowsConfig) -> DataFrame:
    """Every row once for each window it is in; a window is known by its end over `interval_s`."""
    first = f.ceil(f.col("t_s") / windows.interval_s)
    if windows.window_s == windows.interval_s:
        return frame.withColumn("window", first)
    last = f.ceil((f.col("t_s") + windows.window_s) / windows.interval_s) - 1
    inside = frame.where(last >= first)  # else it lies between two windows
    return inside.withColumn("window", f.explode(f.sequence(first, last)))


def _subtasks(inside: DataFrame) -> DataFrame:
    """Means of each subtask over a window."""
    # What a first sample after a restart rose by was counted from before it.
    steady = ~f.col("restarted")

    def rate(name: str) -> Column:
        rose = f.sum(f.when(steady, f.col(f"{name}_rose")))
        over_s = f.sum(f.when(steady, f.col(f"{name}_over_s")))
        return rose / f.when(over_s > 0, over_s)

    def share(name: str) -> Column:
        known = f.coalesce(rate(f"{name}_ms_total"), f.avg(f"{name}_ms_per_s"))
        bounded = f.greatest(f.lit(0.0), f.least(f.lit(1000.0), known))
        return f.when(known.isNotNull(), bounded)  # both of them pass over a null

    now = f.col("busy_ms_total_rose") / f.col("busy_ms_total_over_s")
    taken, given = rate("records_in_total"), rate("records_out_total")
    # Flink counts no input of a source: what it gives out, it has read.
    is_source = f.coalesce(f.max("records_in_total"), f.lit(0.0)) == 0
    columns = {
        "seconds": f.sum("covers_s"),
        "newest_s": f.max("t_s"),
        "records_in": f.when(is_source, given).otherwise(taken),
        "records_out": given,
        "busy": share("busy"),
        "backpressured": share("backpressured"),
        "idle": share("idle"),
        "busy_var": f.var_pop(f.coalesce(f.when(steady, now), f.col("busy_ms_per_s"))),
        "hits": f.sum(f.when(steady, f.col("cache_hits_total_rose"))),
        "misses": f.sum(f.when(steady, f.col("cache_misses_total_rose"))),
        "state_bytes": _newest("state_bytes"),
        "pending": _newest("pending_records"),
        "pending_growth": rate("pending_records"),
        "latency_ms": f.avg("latency_p95_ms"),
    }
    for way in ("read", "write"):
        for q in _QUANTILES:
            name = f"state_{way}_latency_p{q}_ms"
            columns[f"{way}_p{q}_sum"] = f.sum(name)
            columns[f"{way}_p{q}_n"] = f.count(name)
    return inside.groupBy(*SERIES, "window").agg(*(c.alias(n) for n, c in columns.items()))


def _newest(name: str) -> Column:
    return f.max_by(name, f.when(f.col(name).isNotNull(), f.col("t_s")))
