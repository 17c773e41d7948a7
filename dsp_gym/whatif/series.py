"""Histories from tables: a folder for each job, with the tables that `dsp-gym calibrate` reads.

DIR/JOB/series.csv holds what ran, in rows of equal length; a change of `task_slots` is a rescale.
The model comes from DIR/JOB/job.yaml, or is fitted to DIR/JOB/profiles.csv and to static.csv, a run
without rescales (series.csv where there is none), and to the outages of one policy in outages.csv.
Tables may be Parquet files, too.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from dsp_gym.arrays import Floats, Ints
from dsp_gym.calibration.mst_job import job_spec
from dsp_gym.calibration.series import calibrate_series
from dsp_gym.calibration.series_fit import load_factor
from dsp_gym.calibration.series_tables import MeasuredSeries, read_outages, read_series
from dsp_gym.errors import ConfigError
from dsp_gym.job.catalog import load_job
from dsp_gym.job.spec import JobSpec
from dsp_gym.metrics.samples import SAMPLE_S
from dsp_gym.records.parquet import read_table
from dsp_gym.whatif.history import (
    GridSlots,
    JobHistory,
    bridged,
    gridded,
)

SUFFIXES = (".csv", ".parquet")


def series_jobs(folder: Path) -> list[Path]:
    """The folders of jobs in a folder of exported series.

    Args:
        folder: holds a folder for each job, or is the folder of one job.

    Returns:
        Folders that hold a table `series`, by name.

    Raises:
        ConfigError: There is none.
    """
    found = [one for one in (folder, *sorted(folder.iterdir())) if _table(one, "series")]
    if not found:
        raise ConfigError(
            "holds no table series.csv or series.parquet, nor a folder with one",
            file=folder,
            remedy="Give each job a folder: DIR/JOB/series.csv.",
        )
    return found


def holds_series(folder: Path) -> bool:
    """Whether a folder is that of a job's tables, or holds such folders.

    Returns:
        True where a table `series` stands in it or one level below.
    """
    return any(_table(one, "series") for one in (folder, *folder.iterdir()))


def series_history(folder: Path) -> JobHistory:
    """The history of one job from its tables.

    Returns:
        The history; its model is the folder's job.yaml, or fitted to the tables.
    """
    with TemporaryDirectory(prefix="dsp-gym-series-") as scratch:
        name, place = folder.resolve().name, Path(scratch)
        series = read_series(_csv(folder, "series", place))
        spec = _model(folder, name, place)
    return _history(name, spec, series)


def _model(folder: Path, name: str, scratch: Path) -> JobSpec:
    own = folder / "job.yaml"
    if own.is_file():
        return load_job(str(own))
    if _table(folder, "profiles") is None:
        raise ConfigError(
            "holds neither job.yaml nor profiles.csv: there is no model of the job",
            file=folder,
            remedy="Fit one with dsp-gym calibrate --out job.yaml, or add the profiling runs.",
        )
    steady = "static" if _table(folder, "static") else "series"
    outages = _csv(folder, "outages", scratch) if _table(folder, "outages") else None
    report = calibrate_series(
        _csv(folder, steady, scratch),
        _csv(folder, "profiles", scratch),
        name,
        outages=outages,
        policy=None if outages is None else _only_policy(outages, folder),
    )
    return job_spec(report.job_text, name)


def _only_policy(outages: Path, folder: Path) -> str:
    """The policy whose outages a table holds."""
    found = sorted({one.policy for one in read_outages(outages)})
    if len(found) != 1:
        raise ConfigError(
            f"holds the outages of {len(found)} policies: {', '.join(found) or 'none'}",
            file=folder / "outages.csv",
            remedy="Keep the rows of the policy that ran the job.",
        )
    return found[0]


def _table(folder: Path, name: str) -> Path | None:
    return next((f for f in (folder / f"{name}{s}" for s in SUFFIXES) if f.is_file()), None)


def _csv(folder: Path, name: str, scratch: Path) -> Path:
    """The table as CSV, which its readers take."""
    file = _table(folder, name)
    assert file is not None  # its caller looked
    if file.suffix == ".csv":
        return file
    columns = read_table(file)
    written = scratch / f"{name}.csv"
    rows = zip(*columns.values(), strict=True)
    lines = [",".join(columns), *(",".join(map(_cell, row)) for row in rows)]
    written.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return written


def _cell(value: object) -> str:
    return "" if value is None or value != value else str(value).replace(",", " ")


def _history(name: str, spec: JobSpec, series: MeasuredSeries) -> JobHistory:
    interval = max(SAMPLE_S, series.step_s)
    slots = round(float(series.t_s[-1] - series.t_s[0]) / interval) + 1
    place = np.round((series.t_s - series.t_s[0]) / interval).astype(int)

    def laid(values: Floats) -> Floats:
        found = np.full(slots, np.nan)
        found[place] = values
        return found

    tasks = _held(laid(series.slots))
    load = laid(series.offered_per_s) * load_factor(series)
    # The model's latency is what comes on top of the time that passes while nothing queues.
    base_s = float(np.nanmedian(series.latency_s)) if _tells(series) else 0.0
    late = laid(series.late(float(spec.slo.latency_s) + base_s).astype(float))
    missing = int(np.isnan(laid(np.ones(len(place)))).sum())
    parallelism = np.repeat(tasks[:, None], len(spec.vertices), axis=1)
    levels = [0 if vertex.state is not None else -1 for vertex in spec.topological_order()]
    return gridded(
        name,
        spec,
        GridSlots(
            t_s=series.t_s[0] + interval * np.arange(slots, dtype=np.float64),
            interval_s=interval,
            load_per_s=bridged(load, interval),
            tasks=parallelism,
            level=np.tile(np.array(levels, dtype=np.int64), (slots, 1)),
            late=late if _tells(series) else np.full(slots, np.nan),
            lag_s=laid(series.lag_records) * tasks.max() / np.maximum(load, 1e-9),
            latency_s=laid(series.latency_s),
        ),
        notes=(f"{missing} of {slots} rows are missing",) if missing else (),
    )


def _tells(series: MeasuredSeries) -> bool:
    """Whether latencies were measured."""
    return bool(np.isfinite(series.latency_s).any())


def _held(slots: Floats) -> Ints:
    """Task slots of every row; while none is seen the ones before hold.

    A row in which they changed holds a mean of both: it counts as the later one.
    """
    known = np.flatnonzero(np.isfinite(slots) & (slots >= 0.5))
    at = np.searchsorted(known, np.arange(len(slots)), side="right") - 1
    held = np.asarray(np.maximum(1, np.round(slots[known[np.maximum(at, 0)]])), dtype=np.int64)
    before, now, after = held[:-2], held[1:-1], held[2:]
    between = (np.minimum(before, after) < now) & (now < np.maximum(before, after))
    held[1:-1] = np.where(between, after, now)
    return held
