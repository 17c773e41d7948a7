"""Series of a whole job: means over equal steps, with the number of slots that ran.

The columns are those of demeter_cars_*.csv. A mean rate over a step becomes the counter that rose
by it, at the step's end; a mean gauge stays what it is, at the step's middle. Where a step lacks
samples the job was down for that long: from what is missing, `stopped` and `running` events are
made, the latter with the slots that ran afterwards.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dsp_gym.calibration.series_tables import MeasuredSeries, read_series
from dsp_gym.job.catalog import load_job
from dsp_gym.job.spec import JobSpec
from dsp_gym.loop.topology import Topology
from dsp_gym.records.hashes import file_sha256
from spark_pipelines.sources import Inputs, Partition, SourceFacts
from spark_pipelines.sources.config import SeriesSource, expanded
from spark_pipelines.sources.parquet_files import texts_in
from spark_pipelines.sources.staging import Row, events_frame, hash_of, read_staged, stage_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_STEADY_ROWS = 4
"""Rows after an outage whose slots are looked at: TaskManagers come back one by one."""


def survey(config: SeriesSource, name: str, work: Path) -> SourceFacts:
    """The series, one piece.

    Returns:
        The source's facts: a single run, its rows staged in `work`.
    """
    file, spec = expanded(config.file), load_job(config.job)
    series = read_series(file)
    run = config.run or file.stem
    sha256 = hash_of(file_sha256(file), name, spec, run)
    piece = stage_rows(work, name, spec.job, run, sha256, _rows(series, spec))
    return SourceFacts(
        name,
        "series",
        str(file),
        "run",
        (piece,),
        {spec.job: spec},
        {run: file.stem},
        (f"means over {series.step_s} s; latency_p95_ms is their mean latency",),
        {"series": series},
    )


def read(
    spark: SparkSession, facts: SourceFacts, only: Collection[Partition] | None = None
) -> Inputs:
    """Samples, and the outages that missing samples show.

    Returns:
        `raw` and `events`, and the metrics that the series has.
    """
    from spark_pipelines.schema import RAW

    pieces = facts.holding(only)
    ((job, spec),) = facts.specs.items()
    events = [
        (job, piece.run, t_s, kind, body)
        for piece in pieces
        for t_s, kind, body in _events(facts.detail["series"], spec)
    ]
    raw = read_staged(spark, pieces, RAW, None)
    told = events_frame(spark, facts.name, events)
    return Inputs(raw, told, None, facts.specs, facts, texts_in(facts, pieces))


def _rows(series: MeasuredSeries, spec: JobSpec) -> Iterator[Row]:
    vertices = spec.topological_order()
    sources = [vertex.name for vertex in vertices if vertex.kind == "source"]
    sinks = [vertex.name for vertex in vertices if vertex.kind == "sink"]
    partitions = round(float(np.nanmax(series.slots)))  # the lag is that of one; a slot has one
    consumed = np.cumsum(np.nan_to_num(series.throughput_per_s * series.samples))
    for i, begin_s in enumerate(series.t_s.tolist()):
        t_s = begin_s + series.step_s
        if series.samples[i] > 0:
            for source in sources:
                share = float(consumed[i]) / len(sources)
                yield t_s, source, -1, "records_out_total", share
                yield t_s, source, -1, "emitted_records_total", share
        if not np.isnan(series.lag_records[i]):
            for source in sources:
                owed = partitions * float(series.lag_records[i]) / len(sources)
                yield t_s, source, -1, "pending_records", owed
        if not np.isnan(series.latency_s[i]):
            for sink in sinks:
                yield t_s, sink, 0, "latency_p95_ms", 1000.0 * float(series.latency_s[i])
        if not np.isnan(series.cpu_load[i]):
            yield t_s, "", 0, "tm_cpu_load", float(series.cpu_load[i])


def _events(
    series: MeasuredSeries, spec: JobSpec
) -> Iterator[tuple[float, str, dict[str, object]]]:
    """What ran at first, and every outage: from the first second without a sample to the last."""
    yield float(series.t_s[0]), "running", _configuration(spec, float(series.slots[0]))
    # A job that is sampled and has consumed nothing in a whole step is still coming up.
    consumes = np.nan_to_num(series.throughput_per_s) > 0
    missing = series.step_s - np.where(consumes, np.nan_to_num(series.samples), 0.0)
    down = missing > 0.1 * series.step_s  # a second or two go missing while it runs
    edges = np.flatnonzero(np.diff(np.concatenate(([False], down, [False])).astype(int)))
    for first, after in edges.reshape(-1, 2).tolist():
        stopped_s = float(series.t_s[first] + series.step_s - missing[first])
        running_s = stopped_s + float(missing[first:after].sum())
        later = series.slots[after : after + _STEADY_ROWS]
        yield stopped_s, "stopped", {}
        if len(later) and not np.all(np.isnan(later)):
            yield running_s, "running", _configuration(spec, float(np.nanmedian(later)))


def _configuration(spec: JobSpec, slots: float) -> dict[str, object]:
    """Every slot runs a task of each vertex."""
    names = [vertex.name for vertex in spec.topological_order()]
    levels = Topology.of([spec]).tables.start_level[0].tolist()
    return {
        "parallelism": dict.fromkeys(names, round(slots)),
        "memory_level": dict(zip(names, levels, strict=False)),
    }
