"""A job's 30 s means, its short profiling runs, and its outages, read from CSV tables."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dsp_gym.arrays import Bools, Floats
from dsp_gym.calibration.csv_rows import read_rows
from dsp_gym.errors import ConfigError

SERIES_COLUMNS = (
    "t_s",
    "offered_events_per_s",
    "throughput_events_per_s",
    "throughput_samples",
    "consumer_lag_records",
    "latency_ms",
    "cpu_load",
    "task_slots",
)
PROFILE_COLUMNS = (
    "parallelism",
    "cpu_cores_per_tm",
    "tm_memory_mb",
    "slots_per_tm",
    "avg_throughput_events_per_s",
    "avg_latency_ms",
)
OUTAGE_COLUMNS = (
    "policy",
    "run",
    "t_s",
    "outage_s",
    "slots_before",
    "slots_after",
    "offered_events_per_s",
    "peak_lag_records",
    "catchup_s",
    "failure_injected",
)


@dataclass(frozen=True, slots=True)
class MeasuredSeries:
    """Means over equal steps of time; NaN where nothing was sampled."""

    t_s: Floats
    offered_per_s: Floats
    throughput_per_s: Floats
    samples: Floats  # seconds of the step with a sample of the throughput
    lag_records: Floats  # of one partition
    latency_s: Floats
    cpu_load: Floats  # mean over TaskManagers
    slots: Floats

    @property
    def step_s(self) -> int:
        """Seconds of one row."""
        return round(float(np.median(np.diff(self.t_s))))

    @property
    def consumed(self) -> float:
        """Records consumed in all."""
        return float(np.nansum(self.throughput_per_s * self.samples))

    def late(self, latency_s: float) -> Bools:
        """Rows (T,) whose latency is above the bound, or missing.

        Returns:
            (T,) flags, one per row of the series.
        """
        return np.asarray(np.isnan(self.latency_s) | (self.latency_s > latency_s))

    def every_second(self, factor: float = 1.0) -> Floats:
        """Interpolate the offered rate between the rows' middles.

        Returns:
            Records/s of each second.
        """
        known = ~np.isnan(self.offered_per_s)
        seconds = np.arange(len(self.t_s) * self.step_s) + self.t_s[0]
        middle = self.t_s[known] + self.step_s / 2
        return np.asarray(factor * np.interp(seconds, middle, self.offered_per_s[known]))


@dataclass(frozen=True, slots=True)
class Profile:
    """A short run of one configuration."""

    parallelism: int
    cores: float  # that its slots can use
    memory_per_slot_mib: float
    throughput_per_s: float
    latency_s: float


@dataclass(frozen=True, slots=True)
class RecordedOutage:
    """A gap in the consumed throughput."""

    policy: str
    run: int
    t_s: int
    outage_s: int
    slots_before: int
    slots_after: int
    offered_per_s: float
    peak_lag_records: float  # of one partition
    catchup_s: float  # 0 or NaN: it did not catch up before the next one
    failure_injected: bool


def read_series(file: Path) -> MeasuredSeries:
    """Read a series.

    Returns:
        Its rows as arrays (T,), in order of time.
    """
    rows = read_rows(file, SERIES_COLUMNS)
    columns = [np.array([_number(row, c, file) for row in rows]) for c in SERIES_COLUMNS]
    columns[SERIES_COLUMNS.index("latency_ms")] /= 1000
    series = MeasuredSeries(*columns)
    if len(rows) < 2 or np.any(np.diff(series.t_s) <= 0):
        raise ConfigError(
            "needs two rows or more, in order of time",
            file=file,
            key="t_s",
            remedy="Sort the rows by t_s and keep each time once.",
        )
    for column, values, what in (
        ("offered_events_per_s", series.offered_per_s, "no load"),
        ("throughput_events_per_s", series.throughput_per_s, "no throughput"),
    ):
        if np.any(values < 0):
            row = int(np.argmax(values < 0))
            raise ConfigError(
                f"row {row + 1} is below 0",
                file=file,
                key=column,
                value=float(values[row]),
                remedy="Leave the field empty if the value is unknown.",
            )
        if not np.any(values > 0):
            raise ConfigError(
                f"shows {what}: the column is 0 or empty in every row",
                file=file,
                key=column,
                remedy="Give a series of a job under load, an hour of it or more.",
            )
    return series


def read_profiles(file: Path) -> list[Profile]:
    """The profiling runs, in the file's order.

    Returns:
        One profile per row: slot memory in MB, throughput in records/s, latency in s.
    """
    found = []
    for row in read_rows(file, PROFILE_COLUMNS):
        values = {column: _number(row, column, file) for column in PROFILE_COLUMNS}
        p, slots = values["parallelism"], values["slots_per_tm"]
        cores = min(p, math.ceil(p / slots) * values["cpu_cores_per_tm"])
        found.append(
            Profile(
                int(p),
                cores,
                values["tm_memory_mb"] / slots,
                values["avg_throughput_events_per_s"],
                values["avg_latency_ms"] / 1000,
            )
        )
    return found


def read_outages(file: Path) -> list[RecordedOutage]:
    """The outages of every run, in the file's order.

    Returns:
        One outage per row; times in s, lag in records, rates in records/s.
    """
    return [
        RecordedOutage(
            row["policy"],
            int(_number(row, "run", file)),
            int(_number(row, "t_s", file)),
            int(_number(row, "outage_s", file)),
            int(_number(row, "slots_before", file)),
            int(_number(row, "slots_after", file)),
            _number(row, "offered_events_per_s", file),
            _number(row, "peak_lag_records", file),
            _number(row, "catchup_s", file),
            _number(row, "failure_injected", file) > 0,
        )
        for row in read_rows(file, OUTAGE_COLUMNS)
    ]


def _number(row: dict[str, str], column: str, file: Path) -> float:
    """NaN where the field is empty."""
    try:
        return float(row[column]) if row[column].strip() else math.nan
    except ValueError:
        raise ConfigError("is not a number", file=file, key=column, value=row[column]) from None
