"""The data pipeline's raw rows per second, on generated data.

Ten jobs of eight vertices with four subtasks each, ten metrics every second: 3,200 rows a second.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import yaml
from numpy.typing import NDArray
from pyarrow import dataset, parquet
from pyspark.sql import Observation, SparkSession
from pyspark.sql import functions as f

from dsp_gym.arrays import Floats
from dsp_gym.errors import DatasetError
from dsp_gym.job.catalog import load_job
from dsp_gym.studies.bench.machine import MeasuredRate, process_status, timed
from spark_pipelines.build import build
from spark_pipelines.config import DatasetConfig, QualityConfig, WindowsConfig
from spark_pipelines.pipeline import known_metrics, parallelism
from spark_pipelines.quality.checks import flag
from spark_pipelines.scan import COLUMNS, Scan, ScannedFile, chunks_of
from spark_pipelines.session import spark_session
from spark_pipelines.sources.parquet_files import texts_of
from spark_pipelines.steps.align import increases
from spark_pipelines.steps.cells import CellRules
from spark_pipelines.steps.scanned import DOUBTFUL, scanned
from spark_pipelines.steps.windows import decision_windows

MADE_METRICS = (
    "records_in_total",
    "records_out_total",
    "cache_hits_total",
    "cache_misses_total",
    "busy_ms_per_s",
    "backpressured_ms_per_s",
    "idle_ms_per_s",
    "pending_records",
    "state_bytes",
    "latency_p95_ms",
)

JOBS, SUBTASKS = 10, 4
JOB = "bench-8"
"""Its vertices are those of every job."""

FILES = 8
_PER_CORE, _PREFIX = "rows/s per core", "dsp-gym-bench-"

AGGREGATION_BAR = 2.5e6
BUILD_BAR = 1.0e6

COLD_ROWS = 1_000_000
"""Of a build in a new process."""

WARM_UPS = 3
"""The JVM compiles what a plan became for about as many runs, each faster than the one before."""

BARS = {"scan_factor": 8.0, "skew_factor": 1.5, "peak_mib": 4096.0, "cold_s": 20.0}
"""Highest wanted: seconds over those of the scan; seconds per row with skew over those without; the
most memory that Spark has held; seconds of a build of `COLD_ROWS` in a new process."""

_PARTS = {"cold_start_s": "spark", "cold_grid_s": "grid"}
"""Stages of that build: Spark's start, and the one pass over all rows, the first plan of a JVM."""


def make_samples(folder: Path, rows: int, *, skewed: bool = False) -> int:
    """Write `samples/JOB/`, in order of time, and `jobs/JOB.yaml`.

    Counters rise, busy, backpressured and idle time add up, all of it from a fixed seed.

    Args:
        folder: Where they are written.
        rows: About how many are wanted.
        skewed: The first job has nine tenths of them, in more subtasks.

    Returns:
        The number of rows.
    """
    document = load_job(JOB).model_dump(mode="json", by_alias=True, exclude_defaults=True)
    vertices = [vertex["name"] for vertex in document["vertices"]]
    most = SUBTASKS * (JOBS - 1) * 9 if skewed else SUBTASKS
    by_job = (most, *(SUBTASKS,) * (JOBS - 1))
    per_second = sum(by_job) * len(vertices) * len(MADE_METRICS)
    seconds = max(1, round(rows / per_second))
    (folder / "jobs").mkdir(parents=True)
    for number, subtasks in enumerate(by_job):
        name, rng = _name(number), np.random.Generator(np.random.Philox(key=number))
        text = yaml.safe_dump(document | {"job": name}, sort_keys=False)
        (folder / "jobs" / f"{name}.yaml").write_text(text, encoding="utf-8")
        samples = folder / "samples" / name
        samples.mkdir(parents=True)
        series = [(v, subtask) for v in range(len(vertices)) for subtask in range(subtasks)]
        rate = rng.uniform(500, 2000, len(series))
        for part, t_s in enumerate(np.array_split(np.arange(seconds) + 1.0, FILES)):
            if len(t_s):
                table = _table(name, vertices, series, rate, t_s, rng)
                parquet.write_table(table, samples / f"part-{part}.parquet", compression="zstd")
    return seconds * per_second


def _name(number: int) -> str:
    return f"bench-{number}"


def _table(
    job: str,
    vertices: list[str],
    series: list[tuple[int, int]],
    rate: Floats,
    t_s: Floats,
    rng: np.random.Generator,
) -> pa.Table:
    """Make samples of one job at some seconds, in the columns of `schema.RAW`."""
    shape = (len(t_s), len(series))
    busy, backpressured = rng.integers(300, 700, shape), rng.integers(0, 100, shape)
    read = np.floor(t_s[:, None] * rate)
    value = np.stack(
        [
            read,
            np.floor(read * 0.5),
            np.floor(read * 0.9),
            np.floor(read * 0.1),
            busy,
            backpressured,
            1000 - busy - backpressured,
            rng.integers(0, 1000, shape),
            np.full(shape, 2.0**20),
            rng.integers(5, 50, shape),
        ],
        axis=2,
    )
    rows = value.size
    zeros = np.zeros(rows, np.int8)

    def named(codes: NDArray[np.int8], names: list[str]) -> pa.Array:
        return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int8()), pa.array(names))

    def tiled(codes: list[int], repeat: int) -> NDArray[np.int8]:
        return np.tile(np.repeat(codes, repeat), rows // (len(codes) * repeat))

    return pa.table(
        {
            "source": named(zeros, ["bench"]),
            "job": named(zeros, [job]),
            "run": named(zeros, ["run"]),
            "day": named(zeros, ["0000-00-00"]),
            "t_s": np.repeat(t_s, rows // len(t_s)).astype(np.float64),
            "vertex": named(tiled([v for v, _ in series], len(MADE_METRICS)), vertices),
            "subtask": tiled([s for _, s in series], len(MADE_METRICS)).astype(np.int32),
            "metric": named(tiled(list(range(len(MADE_METRICS))), 1), list(MADE_METRICS)),
            "value": value.reshape(-1),
        }
    )


def bench_spark(
    rows: int, runs: int, *, skew: bool, warm_ups: int = WARM_UPS
) -> tuple[list[MeasuredRate], dict[str, float]]:
    """Measure the scan, the aggregation and the whole build.

    Args:
        rows: Raw rows.
        runs: Measured runs of each.
        skew: Measure one job with nine tenths of the rows as well.
        warm_ups: Unmeasured runs of each.

    Returns:
        Rates in rows per second and core (the scan: in all); `scan_factor`, `peak_mib`, `cold_s`
        with `cold_start_s` and `cold_grid_s`, parts of it, and `skew_factor` where it was measured.
    """
    cores, told = len(os.sched_getaffinity(0)), dict[str, float]()
    with (
        tempfile.TemporaryDirectory(prefix=_PREFIX) as name,
        spark_session("bench", f"local[{cores}]") as spark,
    ):
        even, uneven, built = (Path(name) / each for each in ("even", "skewed", "built"))
        made = make_samples(even, rows)
        scan = timed(lambda: _scan(even, made), runs, 1)
        windows = timed(lambda: _aggregate(spark, even), runs, warm_ups)
        told["scan_factor"] = median(windows) / median(scan)
        if skew:
            skewed = make_samples(uneven, rows, skewed=True)
            slow = timed(lambda: _aggregate(spark, uneven), runs, warm_ups)
            told["skew_factor"] = median(slow) / skewed / (median(windows) / made)
            shutil.rmtree(uneven)
        builds = timed(lambda: _build(even, built), runs, warm_ups)
        gateway: Any = spark.sparkContext._gateway
        pid = gateway.jvm.java.lang.ProcessHandle.current().pid()
        told["peak_mib"] = process_status("VmHWM", pid) / 1024  # of driver and executors, as one
    with tempfile.TemporaryDirectory(prefix=_PREFIX) as name:
        make_samples(Path(name) / "cold", COLD_ROWS)
        stages: list[dict[str, float]] = []
        cold = timed(lambda: stages.append(_cold_build(Path(name) / "cold")), runs)
        told["cold_s"] = median(cold)
        for part, stage in _PARTS.items():
            told[part] = median(one[stage] for one in stages)
    rates = [
        MeasuredRate.of(name, unit, [made / each / per for each in seconds], cores, bar)
        for name, seconds, unit, per, bar in (
            ("pyarrow scan of all columns", scan, "rows/s", 1, None),
            ("aggregation to decision windows", windows, _PER_CORE, cores, AGGREGATION_BAR),
            ("whole build", builds, _PER_CORE, cores, BUILD_BAR),
        )
    ]
    return rates, told


def _cold_build(folder: Path) -> dict[str, float]:
    """Build in a new process, as `dsp-gym dataset build` does: Spark's start included.

    Returns:
        Seconds by stage.
    """
    code = (
        "import json, sys; from pathlib import Path; from spark_pipelines.studies import bench; "
        "print(json.dumps(bench._build(Path(sys.argv[1]), Path(sys.argv[1]) / 'built')))"
    )
    command = [sys.executable, "-c", code, str(folder)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    seconds: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return seconds


def _scan(folder: Path, rows: int) -> None:
    """Decode every value of every column, batch by batch."""
    files = dataset.dataset(folder / "samples", format="parquet")
    seen = sum(batch.num_rows for batch in files.to_batches())
    if seen != rows:
        raise DatasetError(f"the scan saw {seen} of {rows} rows", file=folder)


def _aggregate(spark: SparkSession, folder: Path) -> None:
    """Turn raw rows into decision windows, with every check; write nothing."""
    quality, seen = QualityConfig(), Observation()
    scans, names = [], set[str]()
    for samples in sorted(folder.glob("samples/*")):
        files = sorted(samples.glob("*.parquet"))
        names |= set[str]().union(*(texts_of(file, "metric") for file in files))
        parts = tuple(ScannedFile(str(file), "run") for file in files)
        scans.append(Scan("bench", samples.name, parts, {name: name for name in COLUMNS}))
    wanted = CellRules(tuple(known_metrics(names)), quality.time_tolerance_ms, True)
    grid = scanned(spark, chunks_of(scans, 2 * parallelism(spark)), wanted)
    checked = grid.observe(seen, f.max(DOUBTFUL).alias(DOUBTFUL)).transform(flag, quality)
    rising = checked.transform(increases, quality.max_gap_s)
    frame = rising.transform(decision_windows, WindowsConfig(window_s=120, interval_s=120))
    frame.write.format("noop").mode("overwrite").save()
    if seen.get[DOUBTFUL]:
        raise DatasetError("two rows of the samples may be one", file=folder)


def _build(folder: Path, out: Path) -> dict[str, float]:
    """Build a dataset of the same rows: every check, table, file and report; tell the stages."""
    sources = [
        {
            "kind": "archives",
            "name": _name(n),
            "folder": str(folder / "samples" / _name(n)),
            "job": str(folder / "jobs" / f"{_name(n)}.yaml"),
            "run": "run",
        }
        for n in range(JOBS)
    ]
    config = DatasetConfig.model_validate(
        {
            "name": "bench",
            "sources": sources,
            "tables": ["windows", "rescales"],
            "tracking": {"enabled": False},
        }
    )
    built = build(config, out, rebuild=True)
    shutil.rmtree(out)
    return built.seconds
