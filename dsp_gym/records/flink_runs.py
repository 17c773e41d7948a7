"""The measured runs of `flink_runs/` (runs.csv, samples.csv.gz): their columns as our samples.

One job: source -> split -> state -> sink, in many configurations. A name such as
`direct-read-p4-m16-sat` says what state does, its parallelism, managed memory and load.
"""

from __future__ import annotations

import csv
import gzip
import math
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO

from dsp_gym.config.strict_json import MISFITS
from dsp_gym.errors import SchemaError
from dsp_gym.job.spec import JobSpec
from dsp_gym.loop.configuration import Configuration
from dsp_gym.metrics.samples import Row, Samples
from dsp_gym.records.manifest import Event, RecordedLoad
from dsp_gym.records.recording import Run

_COLUMNS: dict[str, tuple[str, float]] = {
    "records_in": ("records_in_total", 1.0),
    "records_out": ("records_out_total", 1.0),
    "busy_ms_per_s": ("busy_ms_per_s", 1.0),
    "backpressured_ms_per_s": ("backpressured_ms_per_s", 1.0),
    "idle_ms_per_s": ("idle_ms_per_s", 1.0),
    "block_cache_hit": ("cache_hits_total", 1.0),
    "block_cache_miss": ("cache_misses_total", 1.0),
    "block_cache_usage_bytes": ("cache_usage_bytes", 1.0),
    "live_data_bytes": ("state_bytes", 1.0),
    "read_latency_ns_p50": ("state_read_latency_p50_ms", 1e-6),
    "read_latency_ns_p99": ("state_read_latency_p99_ms", 1e-6),
    "write_latency_ns_p50": ("state_write_latency_p50_ms", 1e-6),
    "write_latency_ns_p99": ("state_write_latency_p99_ms", 1e-6),
}


_MOST_LINE = 100_000


def is_flink_runs(folder: Path) -> bool:
    """Whether a folder holds measured runs in these columns.

    Returns:
        True where `runs.csv` and `samples.csv.gz` exist; their columns are not read.
    """
    return (folder / "runs.csv").is_file() and (folder / "samples.csv.gz").is_file()


def read_flink_runs(folder: Path, spec: JobSpec) -> list[Run]:
    """Every run of the folder, in its order, as a run of the job. Times count from `running`.

    Args:
        folder: holds runs.csv and samples.csv.gz.
        spec: a job with the vertices source, split, state and sink. A run whose managed memory is
            none of its levels gets a copy whose level 0 is such that one of them is.

    Returns:
        The runs, each with its samples.

    Raises:
        SchemaError: A file cannot be read or lacks a column.
    """
    rows: dict[str, list[Row]] = {}
    for line in _lines(folder / "samples.csv.gz"):
        try:
            rows.setdefault(line["run"], []).extend(_samples(line))
        except MISFITS as error:
            raise SchemaError(
                f"a sample of run {line.get('run')!r} has no usable {error}",
                file=folder / "samples.csv.gz",
                remedy="Expected the columns of the measured runs.",
            ) from error
    return [_run(line, spec, rows) for line in _lines(folder / "runs.csv")]


def _lines(path: Path) -> Iterator[dict[str, str]]:
    try:
        with (gzip.open if path.suffix == ".gz" else open)(
            path, "rt", encoding="utf-8", newline=""
        ) as stream:
            yield from csv.DictReader(_bounded(stream))
    except (OSError, EOFError, ValueError, csv.Error, zlib.error) as error:
        raise SchemaError(
            f"cannot be read: {error}", file=path, remedy="Name the folder of measured runs."
        ) from error


def _bounded(stream: IO[str]) -> Iterator[str]:
    """Lines of a file, which may be packed: a few bytes can stand for a line of any length."""
    while line := stream.readline(_MOST_LINE + 1):
        if len(line) > _MOST_LINE:
            raise ValueError(f"a line is longer than {_MOST_LINE} characters")
        yield line


def _run(line: dict[str, str], spec: JobSpec, rows: Mapping[str, list[Row]]) -> Run:
    try:
        samples = Samples.of(rows.get(line["run"], []))
        name, start_s = line["run"], float(line["submit_to_running_s"])
        managed_mib = float(line["state_managed_memory_mib"])
        tasks = {
            "source": 1,
            "split": int(line["split_parallelism"]),
            "state": int(line["state_parallelism"]),
            "sink": 1,
        }
        load = RecordedLoad(name=line["schedule"], steps=_steps(line["schedule"]))
        stop_s = float(line["stop_with_savepoint_s"])
    except MISFITS as error:
        raise SchemaError(
            f"run {line.get('run')!r} of runs.csv has no usable {error}",
            remedy="Expected the columns of the measured runs.",
        ) from error
    level = -1
    if managed_mib > 0:
        nearest = round(math.log2(managed_mib / spec.memory.base_mib))
        level = min(max(nearest, 0), spec.memory.levels - 1)
        spec = _with_base(spec, managed_mib / 2**level)
    end_s = float(samples.t_s[-1]) if len(samples) else 0.0
    return Run(
        name=name,
        spec=spec,
        configuration=Configuration(tasks, dict.fromkeys(tasks, -1) | {"state": level}),
        load=load,
        repeat=0,
        events=(
            Event(t_s=-start_s, kind="submitted", run=name),
            Event(t_s=0.0, kind="running", run=name),
            Event(t_s=end_s + stop_s, kind="savepoint", run=name, body={"seconds": stop_s}),
        ),
        t_load_s=0.0,
        t_running_s=0.0,
        t_end_s=end_s,
        complete=len(samples) > 0,
        cause=None if len(samples) else "no samples",
        given=samples,
    )


def _with_base(spec: JobSpec, base_mib: float) -> JobSpec:
    """The job whose levels hold the run's memory as it was: 24 MiB is no level of 16 and 32."""
    if math.isclose(base_mib, spec.memory.base_mib, rel_tol=1e-6):
        return spec
    memory = spec.memory.model_copy(update={"base_mib": base_mib})
    return spec.model_copy(update={"memory": memory})


def _steps(schedule: str) -> tuple[tuple[float, float], ...]:
    """`rate:seconds,...` as starts and rates.

    >>> _steps("3000:60,9000:100000")
    ((0.0, 3000.0), (60.0, 9000.0))
    """
    steps, at_s = [], 0.0
    for step in schedule.split(","):
        rate, seconds = step.split(":")
        steps.append((at_s, float(rate)))
        at_s += float(seconds)
    return tuple(steps)


def _samples(line: dict[str, str]) -> Iterator[Row]:
    t_s, vertex, subtask = float(line["t_s"]), line["vertex"], int(line["subtask"])
    for column, (metric, scale) in _COLUMNS.items():
        if line[column]:
            yield t_s, vertex, subtask, metric, float(line[column]) * scale
    # `emitted` counts what a source released; other vertices repeat their output there.
    if line["emitted"] and vertex == "source":
        yield t_s, vertex, subtask, "emitted_records_total", float(line["emitted"])
