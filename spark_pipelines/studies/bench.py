"""The data pipeline's raw rows per second, on generated data.

Ten jobs of eight vertices with four subtasks each, ten metrics every second: 3,200 rows a second.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml
from numpy.typing import NDArray

from dsp_gym.arrays import Floats
from dsp_gym.errors import DatasetError
from dsp_gym.job.catalog import load_job
from dsp_gym.job.spec import JobSpec
from dsp_gym.studies.bench.environment import MeasuredRate

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from spark_pipelines.config import QualityConfig

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
_CHUNK_ROWS = 1_000_000

AGGREGATION_BAR = 2.5e6
BUILD_BAR = 1.0e6

COLD_ROWS = 1_000_000
"""Of a build in a new process."""

WARM_UPS = 3
"""The JVM compiles what a plan became for about as many runs, each faster than the one before."""

BARS = {"scan_factor": 8.0, "skew_factor": 1.5, "peak_mib": 4096.0, "cold_s": 20.0}
"""Highest wanted: seconds over those of the scan; seconds per row with skew over those without; the
most memory that Spark has held; seconds of a build of `COLD_ROWS` in a new process."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large the data is."""

    rows: int
    skewed: bool = False  # the first job has nine tenths of the rows, in more subtasks

    def subtasks(self) -> tuple[int, ...]:
        """Count the subtasks of each vertex, by job.

        Returns:
            One count per job; in a skewed set the first job has nine tenths of all subtasks.
        """
        most = SUBTASKS * (JOBS - 1) * 9 if self.skewed else SUBTASKS
        return (most, *(SUBTASKS,) * (JOBS - 1))


def make_samples(folder: Path, sizes: Sizes) -> int:
    """Write `samples/JOB/`, in order of time, and `jobs/JOB.yaml`.

    Counters rise, busy, backpressured and idle time add up, all of it from a fixed seed.

    Returns:
        The number of rows.
    """
    spec = load_job(JOB)
    vertices = [vertex.name for vertex in spec.vertices]
    per_second = sum(sizes.subtasks()) * len(vertices) * len(MADE_METRICS)
    seconds = max(1, round(sizes.rows / per_second))
    for number, subtasks in enumerate(sizes.subtasks()):
        rng = np.random.Generator(np.random.Philox(key=number))
        _write_job(folder, spec, number, subtasks, seconds, rng)
    return seconds * per_second


def _name(number: int) -> str:
    return f"bench-{number}"


def _write_job(
    folder: Path,
    spec: JobSpec,
    number: int,
    subtasks: int,
    seconds: int,
    rng: np.random.Generator,
) -> None:
    from pyarrow import parquet

    samples, jobs = folder / "samples" / _name(number), folder / "jobs"
    samples.mkdir(parents=True)
    jobs.mkdir(exist_ok=True)
    document = spec.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    text = yaml.safe_dump(document | {"job": _name(number)}, sort_keys=False)
    (jobs / f"{_name(number)}.yaml").write_text(text, encoding="utf-8")
    vertices = [vertex.name for vertex in spec.vertices]
    series = [(vertex, subtask) for vertex in range(len(vertices)) for subtask in range(subtasks)]
    rate = rng.uniform(500, 2000, len(series))
    edges = np.linspace(0, seconds, FILES + 1).astype(int)
    step = max(1, _CHUNK_ROWS // (len(series) * len(MADE_METRICS)))
    for part in range(FILES):
        writer = None
        for begin in range(int(edges[part]), int(edges[part + 1]), step):
            t_s = np.arange(begin, min(begin + step, edges[part + 1])) + 1.0
            table = _table(_name(number), vertices, series, rate, t_s, rng)
            if writer is None:
                writer = parquet.ParquetWriter(
                    samples / f"part-{part}.parquet", table.schema, compression="zstd"
                )
            writer.write_table(table)
        if writer is not None:
            writer.close()


def _table(
    job: str,
    vertices: list[str],
    series: list[tuple[int, int]],
    rate: Floats,
    t_s: Floats,
    rng: np.random.Generator,
) -> pa.Table:
    """Make samples of one job at some seconds, in the columns of `schema.RAW`."""
    import pyarrow as pa

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
    each = len(series) * len(MADE_METRICS)

    def named(codes: NDArray[np.int8], names: list[str]) -> pa.Array:
        return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int8()), pa.array(names))

    def tiled(codes: list[int], repeat: int) -> NDArray[np.int8]:
        return np.tile(np.repeat(codes, repeat), len(t_s) * each // (len(codes) * repeat))

    rows = len(t_s) * each
    zeros = np.zeros(rows, np.int8)
    return pa.table(
        {
            "source": named(zeros, ["bench"]),
            "job": named(zeros, [job]),
            "run": named(zeros, ["run"]),
            "day": named(zeros, ["0000-00-00"]),
            "t_s": np.repeat(t_s, each).astype(np.float64),
            "vertex": named(tiled([v for v, _ in series], len(MADE_METRICS)), vertices),
            "subtask": tiled([s for _, s in series], len(MADE_METRICS)).astype(np.int32),
            "metric": named(tiled(list(range(len(MADE_METRICS))), 1), list(MADE_METRICS)),
            "value": value.reshape(-1),
        }
    )


def bench_spark(
    rows: int, runs: int, *, skew: bool, warm_ups: int = WARM_UPS, folder: Path | None = None
) -> tuple[list[MeasuredRate], dict[str, float]]:
    """Measure the scan, the aggregation and the whole build.

    Args:
        rows: Raw rows.
        runs: Measured runs of each.
        skew: Measure one job with nine tenths of the rows as well.
        warm_ups: Unmeasured runs of each.
        folder: Folder of the data, which is removed afterwards; a temporary one unless given.

    Returns:
        Rates in rows per second and core (the scan: in all); `scan_factor`, `peak_mib`, `cold_s`,
        and `skew_factor` where it was measured.
    """
    cores = len(os.sched_getaffinity(0))
    told: dict[str, float] = {}
    with _scratch(folder) as scratch, _session(cores) as spark:
        even = scratch / "even"
        made = make_samples(even, Sizes(rows))
        scan = _timed(lambda: _scan(even, made), runs, 1)
        windows = _timed(lambda: _aggregate(spark, even), runs, warm_ups)
        rates = [
            _rate("pyarrow scan of all columns", made, scan, cores, 1, None),
            _rate("aggregation to decision windows", made, windows, cores, cores, AGGREGATION_BAR),
        ]
        told["scan_factor"] = statistics.median(windows) / statistics.median(scan)
        if skew:
            uneven = scratch / "skewed"
            skewed = make_samples(uneven, Sizes(rows, skewed=True))
            slow = _timed(lambda: _aggregate(spark, uneven), runs, warm_ups)
            told["skew_factor"] = (
                statistics.median(slow) / skewed / (statistics.median(windows) / made)
            )
            shutil.rmtree(uneven)
        builds = _timed(lambda: _build(even, scratch / "built"), runs, warm_ups)
        rates.append(_rate("whole build", made, builds, cores, cores, BUILD_BAR))
        told["peak_mib"] = _peak_mib(spark)
        shutil.rmtree(even)
    with _scratch(folder) as scratch:
        make_samples(scratch, Sizes(COLD_ROWS))
        told["cold_s"] = statistics.median(_timed(lambda: _cold_build(scratch), runs, 0))
    return rates, told


def _cold_build(folder: Path) -> None:
    """Build in a new process, as `dsp-gym dataset build` does: Spark's start included."""
    code = (
        "import sys; from pathlib import Path; from spark_pipelines.studies import bench; "
        "bench._build(Path(sys.argv[1]), Path(sys.argv[1]) / 'built')"
    )
    subprocess.run([sys.executable, "-c", code, str(folder)], check=True)


def _timed(once: Callable[[], object], runs: int, warm_ups: int) -> list[float]:
    """Time each run, in seconds."""
    for _ in range(warm_ups):
        once()
    seconds = []
    for _ in range(runs):
        begun = time.perf_counter()
        once()
        seconds.append(time.perf_counter() - begun)
    return seconds


def _rate(
    name: str, rows: int, seconds: list[float], cores: int, per: int, bar: float | None
) -> MeasuredRate:
    rates = [rows / each / per for each in seconds]
    unit = "rows/s" if per == 1 else "rows/s per core"
    return MeasuredRate(
        name, unit, statistics.median(rates), min(rates), max(rates), len(rates), cores, bar
    )


def _scan(folder: Path, rows: int) -> None:
    """Decode every value of every column, batch by batch."""
    from pyarrow import dataset

    files = dataset.dataset(folder / "samples", format="parquet")
    seen = sum(batch.num_rows for batch in files.to_batches())
    if seen != rows:
        raise DatasetError(f"the scan saw {seen} of {rows} rows", file=folder)


def _aggregate(spark: SparkSession, folder: Path) -> None:
    """Turn raw rows into decision windows, with every check; write nothing."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    from spark_pipelines.config import QualityConfig, WindowsConfig
    from spark_pipelines.quality.checks import flag
    from spark_pipelines.steps.align import increases
    from spark_pipelines.steps.scanned import DOUBTFUL
    from spark_pipelines.steps.windows import decision_windows

    quality, seen = QualityConfig(), Observation()
    grid = _grid(spark, folder, quality).observe(seen, f.max(DOUBTFUL).alias(DOUBTFUL))
    rising = grid.transform(flag, quality).transform(increases, quality.max_gap_s)
    frame = rising.transform(decision_windows, WindowsConfig(window_s=120, interval_s=120))
    frame.write.format("noop").mode("overwrite").save()
    if seen.get[DOUBTFUL]:
        raise DatasetError("two rows of the samples may be one", file=folder)


def _grid(spark: SparkSession, folder: Path, quality: QualityConfig) -> DataFrame:
    """Make the grid of all jobs' samples."""
    from spark_pipelines.pipeline import known_metrics, parallelism
    from spark_pipelines.scan import COLUMNS, Scan, ScannedFile, chunks_of
    from spark_pipelines.sources.parquet_files import texts_of
    from spark_pipelines.steps.cells import CellRules
    from spark_pipelines.steps.scanned import scanned

    scans, names = [], set[str]()
    for samples in sorted(folder.glob("samples/*")):
        files = sorted(samples.glob("*.parquet"))
        names |= set[str]().union(*(texts_of(file, "metric") for file in files))
        parts = tuple(ScannedFile(str(file), "run") for file in files)
        scans.append(Scan("bench", samples.name, parts, {name: name for name in COLUMNS}))
    wanted = CellRules(tuple(known_metrics(names)), quality.time_tolerance_ms, True)
    return scanned(spark, chunks_of(scans, 2 * parallelism(spark)), wanted)


def _build(folder: Path, out: Path) -> None:
    """Build a dataset of the same rows: every check, table, file and report."""
    from spark_pipelines.build import build
    from spark_pipelines.config import DatasetConfig

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
    document: Mapping[str, object] = {
        "name": "bench",
        "sources": sources,
        "tables": ["windows", "rescales"],
        "tracking": {"enabled": False},
    }
    build(DatasetConfig.model_validate(document), out, rebuild=True)
    shutil.rmtree(out)


@contextmanager
def _scratch(folder: Path | None) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="dsp-gym-bench-", dir=folder) as made:
        yield Path(made)


@contextmanager
def _session(cores: int) -> Iterator[SparkSession]:
    from spark_pipelines.session import spark_session

    with spark_session("bench", f"local[{cores}]") as spark:
        yield spark


def _peak_mib(spark: SparkSession) -> float:
    """Read the most memory that Spark's process has held; driver and executors are one here."""
    gateway: Any = spark.sparkContext._gateway
    pid = gateway.jvm.java.lang.ProcessHandle.current().pid()
    for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise DatasetError("the memory of Spark's process is not known here")
