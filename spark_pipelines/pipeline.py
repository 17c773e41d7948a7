"""The steps in their order: what sources hold in, tables out. No action is run here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING

from dsp_gym.job.spec import JobSpec
from spark_pipelines.config import DatasetConfig
from spark_pipelines.sources import Inputs
from spark_pipelines.splits import reach_s, with_split

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Made", "made_of"]


@dataclass(frozen=True)
class Made:
    """What is to be written and counted."""

    tables: Mapping[str, DataFrame]  # each with columns job and day; `quarantine` among them
    counts: Mapping[str, DataFrame]  # columns job, day, name, rows: what became of rows
    cached: list[DataFrame] = field(default_factory=list)  # to be let go of when all is written


def made_of(inputs: Sequence[Inputs], config: DatasetConfig, specs: Mapping[str, JobSpec]) -> Made:
    """Tables and counts of some sources.

    Args:
        inputs: one per source.
        config: the dataset.
        specs: job files of all sources, by job.
    """
    made = Made({}, {})
    decisions = _union([i.decisions for i in inputs])
    loads = {run: load for i in inputs for run, load in i.facts.loads.items()}
    if decisions is not None and "transitions" in config.tables:
        made = _with_transitions(made, decisions, config, specs, loads)
    return made


def _with_transitions(
    made: Made, decisions: DataFrame, config: DatasetConfig, specs: Mapping[str, JobSpec],
    loads: Mapping[str, str],
) -> Made:  # fmt: skip
    from pyspark.sql import functions as f

    from spark_pipelines.schema import TRANSITIONS
    from spark_pipelines.steps.transitions import segments, transitions

    reach = reach_s(config)
    marked = with_split(decisions, config.splits, loads, reach)
    segmented = marked.where(f.col("split").isNotNull()).drop("split").transform(segments)
    encoded = segmented.transform(transitions, specs, config.transitions)
    table = with_split(encoded.drop("split"), config.splits, loads, reach)
    outside = f.when(f.col("split").isNull(), "decisions:at_split")
    return Made(
        {**made.tables, "transitions": table.select(*TRANSITIONS.names)},
        {
            **made.counts,
            "decisions": _counted(decisions, f.lit("decisions")),
            "splits": _counted(marked.where(f.col("split").isNull()), outside),
            "uses": _counted(segmented, f.concat(f.lit("decisions:"), "use")),
        },
        made.cached,
    )


def _union(frames: Sequence[DataFrame | None]) -> DataFrame | None:
    known = [frame for frame in frames if frame is not None]
    return reduce(lambda a, b: a.unionByName(b), known) if known else None


def _counted(frame: DataFrame, name: object) -> DataFrame:
    from pyspark.sql import functions as f

    return frame.groupBy("job", "day", name.alias("name")).agg(f.count(f.lit(1)).alias("rows"))  # type: ignore[attr-defined]
