"""`dsp-gym dataset build --engine polars`: decisions to tables in this process, without a JVM.

The rows are Spark's to the last bit: the encoder is the same, and nothing else is computed. Samples
are left to Spark, for a mean over a window is a sum, and another engine adds up in another order.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import dataset
from pyspark.sql.pandas.types import to_arrow_schema

from dsp_gym.envs.reward import TERMS
from dsp_gym.errors import DatasetError
from dsp_gym.job.spec import JobSpec
from spark_pipelines.config import DatasetConfig, SplitsConfig
from spark_pipelines.pipeline import cost_factors
from spark_pipelines.schema import DECISIONS, TRANSITIONS
from spark_pipelines.sources import Partition, SourceFacts
from spark_pipelines.sources.staging import without
from spark_pipelines.splits import PART_OF_RUN, reach_s
from spark_pipelines.steps.transitions import ENCODED, encoded, topologies
from spark_pipelines.store import mark_written, tables_of, write_rows

Counts = dict[Partition, dict[str, int]]

_RUN = ("source", "job", "run")
_ROWS_AT_ONCE = 50_000
"""Decisions of one call of the encoder; a run is not cut."""


class Stages(Protocol):
    """Takes the time of a stage, and tells of it."""

    def __call__(self, name: str, detail: str = "") -> AbstractContextManager[None]:
        """A stage, from here to the end of the block."""


def refuse_samples(facts: Sequence[SourceFacts]) -> None:
    """Check that all sources are files of decisions.

    Raises:
        DatasetError: One of them is not.
    """
    for source in facts:
        if not source.decided:
            raise DatasetError(
                f"source '{source.name}' is of kind '{source.kind}', which Spark alone reads: "
                "polars takes rollouts and journals",
                file=source.path,
                key="--engine",
                value="polars",
                remedy="Leave out --engine.",
            )


def write_decisions(
    config: DatasetConfig,
    facts: Sequence[SourceFacts],
    specs: Mapping[str, JobSpec],
    only: Collection[Partition],
    building: Path,
    stages: Stages,
) -> Counts:
    """Write `snapshots` and `transitions` of some partitions, one job after the other.

    Args:
        config: the dataset.
        facts: sources that passed `refuse_samples`.
        specs: job files of all sources, by job.
        only: partitions that are written.
        building: folder of the build; what it holds of these tables is removed first.
        stages: told of every job.

    Returns:
        Decisions by what became of them, by partition.

    Raises:
        DatasetError: A file of a source is no Parquet of decisions, or a decision does not fit its
            job.
    """
    wanted = [name for name in ("snapshots", "transitions") if name in config.tables]
    for name in wanted:
        shutil.rmtree(tables_of(building) / name, ignore_errors=True)
    encode = _encoder(config, specs)
    counts: Counts = {partition: {} for partition in sorted(only)}

    def write(name: str, rows: pa.Table) -> None:
        for partition, part in _by_partition(rows, only):
            write_rows(part, building, name, partition, config.rows_per_file)

    for job in sorted({job for job, _ in only}):
        with stages("decisions", job):
            rows = _decisions_of(job, facts, specs, only, config.transitions.env.start_headroom)
            if "snapshots" in wanted:
                write("snapshots", rows)
            if "transitions" in wanted:
                told = used(rows, config, _loads(facts))
                _count(counts, told)
                write("transitions", encode(rows, told))
    for name in wanted:
        mark_written(building, name)
    return counts


def _loads(facts: Sequence[SourceFacts]) -> dict[str, str]:
    return {run: load for source in facts for run, load in source.loads.items()}


def _decisions_of(
    job: str,
    facts: Sequence[SourceFacts],
    specs: Mapping[str, JobSpec],
    only: Collection[Partition],
    headroom: float,
) -> pa.Table:
    """Rows of DECISIONS of one job, costs in the dataset's unit; runs are read whole."""
    schema, found = to_arrow_schema(DECISIONS), []
    stored = to_arrow_schema(without(DECISIONS, "source"))
    mine = {partition for partition in only if partition[0] == job}
    for source in facts:
        pieces = source.holding(mine)
        days = sorted({day for piece in pieces for of, day in piece.partitions if of == job})
        for piece in pieces:
            try:
                scanned = dataset.dataset(str(piece.file), schema=stored, format="parquet")
                read = scanned.to_table(
                    filter=(pc.field("job") == job) & pc.field("day").isin(days)
                )
            except (OSError, ValueError, pa.ArrowException) as error:
                raise source.unreadable(piece, str(error).splitlines()[0]) from error
            factor = 1.0
            if source.headroom not in (None, headroom):
                factor = cost_factors({job: specs[job]}, source.headroom, headroom)[job]
            cost = pc.multiply(read["cost"], factor)
            read = read.set_column(read.schema.get_field_index("cost"), "cost", cost)
            named = read.append_column("source", pa.repeat(source.name, len(read)))
            found.append(named.select(schema.names).cast(schema))
    rows = pa.concat_tables(found)
    return rows.sort_by([(name, "ascending") for name in (*_RUN, "step", "t_s")])


def used(rows: pa.Table, config: DatasetConfig, loads: Mapping[str, str]) -> pl.DataFrame:
    """Which split each decision belongs to, and what becomes of it: `steps.transitions.segments`.

    Args:
        rows: of DECISIONS of one job, at least one, in the order of run, step and time.
        config: the dataset.
        loads: run -> name of its load, where known.

    Returns:
        Row by row: `row` (its number), source, job, run, day, step, `split` (null: none),
        `segment` and `use` (null without a split).
    """
    snapshot = rows["snapshot"]
    seen = pc.is_valid(pc.struct_field(snapshot, "parallelism"))
    narrow = rows.select([*_RUN, "day", "step", "t_s", *TERMS])
    narrow = narrow.append_column("known", pc.and_(pc.is_valid(snapshot), seen))
    narrow = narrow.append_column("decided", pc.is_valid(rows["proposed_parallelism"]))
    frame = pl.DataFrame(narrow).with_row_index("row")
    job = rows["job"][0].as_py()
    marked = frame.with_columns(split=_split(job, config.splits, loads, reach_s(config)))
    inside = _segmented(marked.filter(pl.col("split").is_not_null()))
    told = marked.join(inside, on="row", how="left", maintain_order="left")
    return told.select("row", *_RUN, "day", "step", "split", "segment", "use")


def _segmented(frame: pl.DataFrame) -> pl.DataFrame:
    """Row, segment and use, as `steps.transitions.segments` has them."""
    rewarded = pl.all_horizontal(pl.col(t).is_not_null() & pl.col(t).is_not_nan() for t in TERMS)
    first = pl.int_range(pl.len()).over(*_RUN, "step") == 0
    usable = frame.with_columns(
        first=first,
        usable=pl.col("known") & first,
        whole=pl.col("known") & pl.col("decided") & rewarded,
    )
    before = pl.col("step", "whole", "split").shift(1).over(*_RUN, "usable").name.prefix("_")
    followed = (pl.col("_step") == pl.col("step") - 1) & pl.col("_whole")
    followed &= pl.col("_split") == pl.col("split")
    begins = pl.col("usable") & ~followed.fill_null(value=False)
    cut = usable.with_columns(before).with_columns(
        segment=begins.cast(pl.Int32).cum_sum().over(*_RUN)
    )
    goes_on = pl.col("step").shift(-1).over(*_RUN, "segment", "usable").is_not_null()
    use = (
        pl.when(~pl.col("first"))
        .then(pl.lit("duplicate"))
        .when(~pl.col("known"))
        .then(pl.lit("no_snapshot"))
        .when(~pl.col("decided"))
        .then(pl.lit("final"))
        .when(~pl.col("whole"))
        .then(pl.lit("no_reward"))
        .when(~goes_on)
        .then(pl.lit("no_next"))
        .otherwise(pl.lit("transition"))
    )
    return cut.select("row", "segment", use=use)


def _split(job: str, splits: SplitsConfig, loads: Mapping[str, str], reach_s: float) -> pl.Expr:
    """The split of a row of a job, as `spark_pipelines.splits` has it."""
    if splits.by == "load":
        by_run = {run: splits.named(load) for run, load in loads.items()}
        other = splits.named("")
        run = pl.col("run").str.replace(PART_OF_RUN, "")
        return run.replace_strict(by_run, default=other, return_dtype=pl.String)
    found: pl.Expr = pl.lit(splits.named(job) if splits.by == "job" else "train")
    t_s = pl.col("t_s")
    for boundary_s, split in splits.boundaries():
        found = pl.when(t_s > boundary_s).then(pl.lit(split)).otherwise(found)
        near = t_s.is_between(boundary_s + 1e-9, boundary_s + reach_s)
        found = pl.when(~near).then(found)
    return found


def _count(counts: Counts, told: pl.DataFrame) -> None:
    """Add up what became of the decisions."""
    whole = pl.col("split").is_null()
    uses = pl.when(whole).then(pl.lit("at_split")).otherwise(pl.col("use"))
    found = told.with_columns(use=uses).group_by("job", "day", "use").len()
    for job, day, use, rows in found.iter_rows():
        of = counts.get((job, day))
        if of is not None:
            of["decisions"] = of.get("decisions", 0) + rows
            of[f"decisions:{use}"] = of.get(f"decisions:{use}", 0) + rows


def _encoder(
    config: DatasetConfig, specs: Mapping[str, JobSpec]
) -> Callable[[pa.Table, pl.DataFrame], pa.Table]:
    """A function from decisions, and what becomes of them, to rows of TRANSITIONS."""
    columns = config.transitions.columns(specs)
    compiled = topologies(specs, config.transitions)

    def encode(rows: pa.Table, told: pl.DataFrame) -> pa.Table:
        made = [to_arrow_schema(TRANSITIONS).empty_table()]
        for part in _parts(told.filter(pl.col("use").is_in(ENCODED))):
            some = rows.take(part["row"].to_arrow())
            for name in ("split", "segment", "use"):
                values = part[name].to_arrow()
                kind = pa.int32() if name == "segment" else pa.string()
                some = some.append_column(name, values.cast(kind))
            made.append(encoded(some, compiled, config.transitions, columns))
        return pa.concat_tables(made)

    return encode


def _parts(told: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Whole runs, so many together as the encoder is to hold in memory."""
    run = pl.struct(*_RUN).rle_id()
    ends = told.select(run=run).with_row_index().group_by("run").len().sort("run")["len"].to_list()
    begin = end = 0
    for rows in ends:
        if end > begin and end + rows - begin > _ROWS_AT_ONCE:
            yield told[begin:end]
            begin = end
        end += rows
    if end > begin:
        yield told[begin:end]


def _by_partition(
    rows: pa.Table, only: Collection[Partition]
) -> Iterator[tuple[Partition, pa.Table]]:
    keys = rows.select(["job", "day"]).group_by(["job", "day"]).aggregate([])
    for job, day in sorted((key["job"], key["day"]) for key in keys.to_pylist()):
        if (job, day) in only:
            yield (job, day), rows.filter((pc.field("job") == job) & (pc.field("day") == day))
