"""The steps in their order: what sources hold in, tables out.

Computed here is only what is read many times.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from dsp_gym.job.sizing import reference_cost_per_s
from dsp_gym.job.spec import JobSpec
from dsp_gym.loop.topology import Topology
from dsp_gym.metrics.flink import BY_NAME
from dsp_gym.metrics.samples import SAMPLE_S
from spark_pipelines.config import DatasetConfig, QualityConfig
from spark_pipelines.days import day_of_column
from spark_pipelines.sources import Inputs
from spark_pipelines.splits import reach_s, with_split

Keep = Callable[[DataFrame, str], DataFrame]


@dataclass(frozen=True)
class Made:
    """What is to be written and counted, nothing of it computed yet but what is kept."""

    tables: dict[str, DataFrame] = field(default_factory=dict)  # each with columns job and day
    counts: dict[str, DataFrame] = field(default_factory=dict)  # job, day, name, rows
    accounting: DataFrame | None = None  # of raw rows, from `quality.verdicts`
    # Both read all raw rows again, so they are planned where the accounting says there are any.
    failures: Callable[[], DataFrame] | None = None
    quarantine: Callable[[], DataFrame] | None = None


def made_of(
    spark: SparkSession,
    inputs: Sequence[Inputs],
    config: DatasetConfig,
    specs: Mapping[str, JobSpec],
    keep: Keep,
) -> Made:
    """Tables and counts of some sources.

    Args:
        spark: the session.
        inputs: one per source.
        config: the dataset.
        specs: job files of all sources, by job.
        keep: puts down what is read many times, by a name, and gives it back to be read.

    Returns:
        DataFrames to be written and counted; only kept ones are computed.
    """
    loads = {run: load for i in inputs for run, load in i.facts.loads.items()}
    headroom = config.transitions.env.start_headroom
    made, decisions = Made(), [_in_unit(i, headroom) for i in inputs]
    sampled = [i for i in inputs if i.has_samples]
    if sampled:
        made = _with_samples(spark, sampled, config, specs, loads, decisions, keep)
    known = _union(decisions)
    if known is not None and "snapshots" in config.tables:
        made.tables["snapshots"] = known
    if known is not None and "transitions" in config.tables:
        _add_transitions(made, known, config, specs, loads)
    return made


def _with_samples(
    spark: SparkSession,
    inputs: Sequence[Inputs],
    config: DatasetConfig,
    specs: Mapping[str, JobSpec],
    loads: Mapping[str, str],
    decisions: list[DataFrame | None],
    keep: Keep,
) -> Made:
    """Windows and outages, and what became of every sample.

    Adds to `decisions` those that samples show of sources without decisions.
    """
    from spark_pipelines.quality.checks import judge
    from spark_pipelines.quality.verdicts import accounting, failures, findings, split_verdicts
    from spark_pipelines.sources.staging import no_events
    from spark_pipelines.steps.align import increases
    from spark_pipelines.steps.rescales import configurations, rescales
    from spark_pipelines.steps.windows import configured, decision_windows

    quality = config.quality
    told_events = _union([i.events for i in inputs])
    events = no_events(spark) if told_events is None else told_events

    @cache
    def judged() -> DataFrame:
        return _all([i.rows() for i in inputs]).transform(judge, quality, names_of(inputs))

    @cache
    def verdicts() -> tuple[DataFrame, DataFrame]:
        return split_verdicts(judged(), flagged, SAMPLE_S)

    flagged = checked_grid(spark, inputs, quality, keep)
    rising = flagged.transform(increases, quality.max_gap_s)
    windows = rising.transform(decision_windows, config.windows).transform(
        configured, configurations(events)
    )
    windows = keep(windows, "windows")
    told = _on_days(findings(rising, windows, specs, quality.flow_tolerance))
    tables: dict[str, DataFrame] = {"findings": told}
    counts: dict[str, DataFrame] = {}
    if "windows" in config.tables:
        tables["windows"] = windows
    outages = rising.transform(rescales, events, quality.max_gap_s)
    if "rescales" in config.tables:
        tables["rescales"] = outages
    alone = [i.facts.name for i in inputs if i.decisions is None]
    if alone and {"transitions", "snapshots"} & set(config.tables):
        decisions.append(_observed(alone, verdicts()[0], events, outages, config, specs))
    for name in ("windows", "rescales"):
        if name in tables:
            marked = with_split(tables[name], config.splits, loads, reach_s(config))
            tables[name] = marked.where(f.col("split").isNotNull())
            if config.splits.by == "time":
                outside = marked.where(f.col("split").isNull())
                counts[name] = _counted(outside, f.lit(f"{name}:at_split"))
    account = accounting(flagged)
    return Made(tables, counts, account, lambda: failures(judged()), lambda: verdicts()[1])


def _observed(
    names: Sequence[str],
    rows: DataFrame,
    events: DataFrame,
    outages: DataFrame,
    config: DatasetConfig,
    specs: Mapping[str, JobSpec],
) -> DataFrame:
    """The decisions that the samples of these sources show."""
    from spark_pipelines.steps.snapshots import Observing, observed_decisions

    env = config.transitions.env
    rows, events, outages = (
        frame.where(f.col("source").isin(names)) for frame in (rows, events, outages)
    )
    observing = Observing(config.windows, env.interval_s, env)
    return observed_decisions(rows, events, outages, specs, observing)


def names_of(inputs: Sequence[Inputs]) -> frozenset[str]:
    """The metrics that the samples have rows of, known to dsp-gym or not.

    Returns:
        Their names.
    """
    return frozenset[str]().union(*(i.metrics for i in inputs))


def checked_grid(
    spark: SparkSession, inputs: Sequence[Inputs], quality: QualityConfig, keep: Keep
) -> DataFrame:
    """The one pass over all samples; everything after it is a fiftieth of that.

    Files are scanned by workers as Arrow. Where that leaves it open whether two rows are one, the
    pass is made again, row by row: an overlap of two files in one slot of one series.

    Args:
        spark: the session.
        inputs: those with samples.
        quality: tolerances, and checks that are not made.
        keep: as for `made_of`.

    Returns:
        The grid of `quality.checks.flag`, kept.
    """
    from spark_pipelines.quality.checks import flag, judge
    from spark_pipelines.steps.align import align
    from spark_pipelines.steps.scanned import DOUBTFUL

    names = names_of(inputs)

    def aligned(some: Sequence[Inputs]) -> DataFrame:
        raw = _all([i.rows() for i in some])
        return raw.transform(judge, quality, names).transform(align, known_metrics(names))

    others = [i for i in inputs if i.scan is None]
    if len(others) == len(inputs):
        return keep(aligned(inputs).transform(flag, quality), "grid")
    grid = scanned_grid(spark, inputs, quality)
    if others:
        beside = aligned(others).withColumn(DOUBTFUL, f.lit(False))
        grid = grid.unionByName(beside)
    flagged = keep(grid.transform(flag, quality), "grid")
    if not flagged.where(DOUBTFUL).head(1):
        return flagged
    return keep(aligned(inputs).transform(flag, quality), "grid-by-rows")


def scanned_grid(
    spark: SparkSession, inputs: Sequence[Inputs], quality: QualityConfig
) -> DataFrame:
    """The grid of all inputs that are files, read by workers; nothing of it computed yet.

    Args:
        spark: the session.
        inputs: those without a scan are passed over.
        quality: tolerances, and checks that are not made.

    Returns:
        The grid, not checked, with the column `steps.scanned.DOUBTFUL`.
    """
    from spark_pipelines.scan import chunks_of
    from spark_pipelines.steps.cells import CellRules
    from spark_pipelines.steps.scanned import scanned

    scans = [i.scan for i in inputs if i.scan is not None]
    wanted = CellRules(
        tuple(known_metrics(names_of(inputs))),
        quality.time_tolerance_ms,
        "range" not in quality.ignored,
    )
    return scanned(spark, chunks_of(scans, _TASKS_PER_CORE * parallelism(spark)), wanted)


def parallelism(spark: SparkSession) -> int:
    """How many tasks run at once.

    Returns:
        The cores of all executors, as far as Spark knows of them.
    """
    return int(spark.sparkContext.defaultParallelism)


_TASKS_PER_CORE = 2
"""So that a slow one is not waited for alone."""


def cost_factors(specs: Mapping[str, JobSpec], given: float, wanted: float) -> dict[str, float]:
    """What brings costs in the unit of one `start_headroom` to that of another.

    Args:
        specs: the jobs by name.
        given: utilization behind the unit of the costs.
        wanted: utilization behind the unit they are to have.

    Returns:
        By job, the factor: 1 where both units are the same configuration's cost.
    """
    found = {}
    for job, spec in specs.items():
        topology = Topology.of([spec])
        units = [
            reference_cost_per_s(topology.tables, topology.row, headroom)
            for headroom in (given, wanted)
        ]
        found[job] = float(units[0][0] / units[1][0])
    return found


def _in_unit(inputs: Inputs, headroom: float) -> DataFrame | None:
    """The decisions of a source, their cost in the dataset's unit."""
    decisions, given = inputs.decisions, inputs.facts.headroom
    if decisions is None or given is None or given == headroom:
        return decisions
    factors = cost_factors(inputs.specs, given, headroom)
    pairs = [f.lit(part) for pair in factors.items() for part in pair]
    return decisions.withColumn("cost", f.col("cost") * f.create_map(*pairs)[f.col("job")])


def known_metrics(names: Collection[str]) -> list[str]:
    """Select the metrics that are to have a column: each costs time in every row.

    Returns:
        Names of metrics, at least one.
    """
    return [name for name in BY_NAME if name in names] or ["records_in_total"]


def _on_days(found: DataFrame) -> DataFrame:
    return found.withColumn("day", day_of_column(f.col("t_s")))


def _add_transitions(
    made: Made,
    decisions: DataFrame,
    config: DatasetConfig,
    specs: Mapping[str, JobSpec],
    loads: Mapping[str, str],
) -> None:
    from spark_pipelines.schema import TRANSITIONS
    from spark_pipelines.steps.transitions import segments, transitions

    marked = with_split(decisions, config.splits, loads, reach_s(config))
    segmented = marked.where(f.col("split").isNotNull()).transform(segments)
    table = segmented.transform(transitions, specs, config.transitions)
    made.tables["transitions"] = table.select(*TRANSITIONS.names)
    outside = marked.where(f.col("split").isNull())
    made.counts["decisions"] = _counted(decisions, f.lit("decisions"))
    made.counts["outside"] = _counted(outside, f.lit("decisions:at_split"))
    made.counts["uses"] = _counted(segmented, f.concat(f.lit("decisions:"), "use"))


def _all(frames: Sequence[DataFrame | None]) -> DataFrame:
    found = _union(frames)
    assert found is not None  # a reader of samples gives events, if only none
    return found


def _union(frames: Sequence[DataFrame | None]) -> DataFrame | None:
    known = [frame for frame in frames if frame is not None]
    return reduce(lambda a, b: a.unionByName(b), known) if known else None


def _counted(frame: DataFrame, name: Column) -> DataFrame:
    return frame.groupBy("job", "day", name.alias("name")).agg(f.count(f.lit(1)).alias("rows"))
