"""Runs of a job that an autoscaler scaled as one, read from a table of a Prometheus' samples.

A row is a sample of a run: what arrived and what was processed, the lag, busy time, TaskManagers.
Latency, idle and backpressured time and CPU load may be missing. What cannot be is refused by name;
what is clear in another unit is converted, and a note says so.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dsp_gym.arrays import Floats
from dsp_gym.calibration.csv_rows import read_rows
from dsp_gym.errors import ConfigError

RUN_COLUMNS = (
    "run",
    "t_s",
    "input_rate_per_s",
    "throughput_per_s",
    "lag_records",
    "busy_share",
    "taskmanagers",
)
"""Columns that such a table needs."""

OPTIONAL = ("latency_s", "idle_share", "backpressured_raw", "cpu_load")
"""Columns without which less is known."""

LABELS = ("query", "policy", "setting")
"""Columns that say which job ran under what; empty where they are missing."""

MOST_MISSING = 0.5
"""Share of a run's samples that may be missing."""

MOST_TASKMANAGERS = 32768

ROUNDED = 1.02
"""Largest share that a gauge may show for the whole of its time."""


@dataclass(frozen=True, slots=True)
class ScaledRun:
    """One run, a sample per row and equally far apart; (T,) each, NaN where nothing is known.

    Attributes:
        run: its name.
        query: the job that ran; empty if the table does not say.
        policy: what scaled it.
        setting: of the policy.
        t_s: time of each sample.
        input_per_s: records that arrived.
        throughput_per_s: records processed, where the table counts them.
        lag_records: backlog of all partitions.
        busy: share of time, mean over operators, 0..1.
        taskmanagers: registered.
        latency_s: age of the records that sources emit.
        idle: share of time, mean over operators, 0..1.
        backpressured: share of time of the operator that waits most, 0..1.
        cpu: load of a TaskManager, 0..1.
    """

    run: str
    query: str
    policy: str
    setting: str
    t_s: Floats
    input_per_s: Floats
    throughput_per_s: Floats
    lag_records: Floats
    busy: Floats
    taskmanagers: Floats
    latency_s: Floats
    idle: Floats
    backpressured: Floats
    cpu: Floats

    def __len__(self) -> int:
        return len(self.t_s)

    @property
    def step_s(self) -> float:
        """Seconds between samples."""
        return float(np.median(np.diff(self.t_s)))

    def every_second(self) -> Floats:
        """Interpolate the load between samples.

        Returns:
            Records/s of each second from the first sample to the last.
        """
        known = np.isfinite(self.input_per_s)
        seconds = np.arange(self.t_s[0], self.t_s[-1] + 1.0)
        return np.asarray(np.interp(seconds, self.t_s[known], self.input_per_s[known]))


@dataclass(frozen=True, slots=True)
class ReadRuns:
    """The runs of a table, and what was converted or left out in reading it."""

    runs: tuple[ScaledRun, ...]
    notes: tuple[str, ...]

    def of(self, query: str | None, file: Path) -> tuple[ScaledRun, ...]:
        """The runs of one job.

        Args:
            query: its name; None: there is only one.
            file: the table, for errors.

        Returns:
            At least one run.

        Raises:
            ConfigError: The table has no such job, or several and none is named.
        """
        known = sorted({run.query for run in self.runs})
        if query is None and len(known) == 1:
            return self.runs
        if query not in known:
            said = "the table holds several queries" if query is None else "no run of that query"
            raise ConfigError(
                said, file=file, value=query, remedy=f"Name one of: {', '.join(known)}."
            )
        return tuple(run for run in self.runs if run.query == query)


def read_runs(file: Path) -> ReadRuns:
    """Read the table; it may be compressed with gzip.

    Args:
        file: with the columns `RUN_COLUMNS`, and those of `OPTIONAL` and `LABELS` it has.

    Returns:
        Its runs in the order of the table, and notes.

    Raises:
        ConfigError: The file cannot be read, lacks a column or has a row of another length, or
            holds what cannot be.
    """
    rows = read_rows(file, RUN_COLUMNS, whole=True)
    by_run = {name: list(own) for name, own in itertools.groupby(rows, lambda row: row["run"])}
    if sum(map(len, by_run.values())) < len(rows):
        raise ConfigError(
            "the rows of a run do not stand together", file=file, remedy="Sort them by run and t_s."
        )
    if not rows:
        raise ConfigError("holds no run", file=file, remedy="It needs a row per sample of a run.")
    names = [*RUN_COLUMNS[1:], *(name for name in OPTIONAL if name in rows[0])]
    columns = {name: np.array([_number(file, row, name) for row in rows]) for name in names}
    notes = _in_units(file, columns)
    found, begin = [], 0
    for name, own in by_run.items():
        span = slice(begin, begin + len(own))
        values = {column: values[span] for column, values in columns.items()}
        found.append(_run(file, name, own[0], values, notes))
        begin += len(own)
    return ReadRuns(tuple(found), tuple(notes))


def _number(file: Path, row: dict[str, str], column: str) -> float:
    """NaN where the field is empty."""
    text = row[column].strip()
    try:
        value = float(text) if text else math.nan
    except ValueError:
        value = math.inf
    if math.isinf(value):
        where = f"of run {row['run']!r} is not a finite number"
        raise ConfigError(f"{column} {where}", file=file, key=column, value=text)
    return value


def _in_units(file: Path, columns: dict[str, Floats]) -> list[str]:
    """Bring every column to its unit, in place.

    Returns:
        Notes on what was converted, and what counts as unknown.

    Raises:
        ConfigError: A value cannot be, in any unit.
    """
    notes = _shares(file, columns)
    latency = columns.get("latency_s")
    if latency is not None and np.any(latency < 0):
        many = int((latency < 0).sum())
        notes.append(f"latency_s is below 0 in {many} samples, as of clocks that differ: read as 0")
        columns["latency_s"] = np.maximum(latency, 0.0)
    for column in ("input_rate_per_s", "throughput_per_s"):
        bad = columns[column] < 0
        if np.any(bad):
            notes.append(
                f"{column} is below 0 in {int(bad.sum())} samples, as of a counter that restarted: "
                "they count as unknown"
            )
            columns[column] = np.where(bad, np.nan, columns[column])
    lag, count = columns["lag_records"], columns["taskmanagers"]
    no_count = (count < 0) | (count > MOST_TASKMANAGERS) | (count != np.round(count))
    for column, bad, what in (
        ("lag_records", lag < 0, "below 0"),
        ("taskmanagers", no_count & np.isfinite(count), "no count"),
    ):
        if np.any(bad):
            raise ConfigError(
                f"{column} is {what}",
                file=file,
                key=column,
                value=float(columns[column][bad][0]),
                remedy="Leave the field empty if the value is unknown.",
            )
    return notes


def _shares(file: Path, columns: dict[str, Floats]) -> list[str]:
    """Bring shares of time and of a CPU to 0..1, in place; notes on what was converted."""
    notes = []
    for column, per_unit in (
        ("busy_share", 1000.0),
        ("idle_share", 1000.0),
        ("backpressured_raw", 1000.0),
        ("cpu_load", 100.0),
    ):
        if column not in columns:
            continue
        values = columns[column]
        most, least = float(np.nanmax(values, initial=0.0)), float(np.nanmin(values, initial=0.0))
        if least < 0 or most > ROUNDED * per_unit:
            raise ConfigError(
                f"{column} goes from {least:g} to {most:g}",
                file=file,
                key=column,
                remedy=f"Give it from 0 to 1, or from 0 to {per_unit:g}.",
            )
        is_share = most <= ROUNDED
        if is_share == (column == "backpressured_raw") and most > 0:
            units = ("0..1", "0..1000 ms/s") if per_unit == 1000 else ("0..1", "0..100 %")
            seen, wanted = units if is_share else units[::-1]
            notes.append(f"{column} is {seen} in this table: read as {wanted}")
        columns[column] = np.minimum(values if is_share else values / per_unit, 1.0)
    return notes


def _run(
    file: Path, name: str, first: dict[str, str], values: dict[str, Floats], notes: list[str]
) -> ScaledRun:
    """One run, its missing samples filled with NaN."""
    t_s = values.pop("t_s")
    if len(t_s) < 2 or not np.all(np.isfinite(t_s)):
        raise ConfigError(f"run {name!r} needs two rows or more, each with its t_s", file=file)
    steps = np.diff(t_s)
    if np.any(steps <= 0):
        at = int(np.argmax(steps <= 0))
        raise ConfigError(
            f"t_s of run {name!r} goes from {t_s[at]:g} to {t_s[at + 1]:g}: a clock that restarted,"
            " or two runs under one name",
            file=file,
            key="t_s",
            remedy="Give every run a name of its own, and sort its rows by t_s.",
        )
    step = float(np.median(steps))
    places = np.round((t_s - t_s[0]) / step).astype(int)
    length = int(places[-1]) + 1
    missing = length - len(set(places.tolist()))
    if missing > MOST_MISSING * length:
        raise ConfigError(
            f"run {name!r} lacks {missing} of {length} samples",
            file=file,
            value=f"longest gap {steps.max():g} s, samples every {step:g} s",
            remedy=f"A run may lack {100 * MOST_MISSING:g} % of its samples; leave it out.",
        )
    if missing:
        notes.append(f"run {name!r} lacks {missing} of {length} samples: they count as unknown")
    filled = {column: np.full(length, np.nan) for column in (*RUN_COLUMNS[2:], *OPTIONAL)}
    for column, own in values.items():
        filled[column][places] = own
    for column in ("input_rate_per_s", "taskmanagers"):
        if not np.any(filled[column] > 0):
            raise ConfigError(
                f"run {name!r}: {column} is 0 or empty in every row", file=file, key=column
            )
    query, policy, setting = (first.get(label, "").strip() for label in LABELS)
    times_s = t_s[0] + step * np.arange(length)
    gauges = [filled[column] for column in (*RUN_COLUMNS[2:], *OPTIONAL)]
    return ScaledRun(name, query, policy, setting, times_s, *gauges)


def changes_of(taskmanagers: Floats) -> list[int]:
    """Rows at which the number of TaskManagers is another than in the known row before.

    Returns:
        Indices, in order.
    """
    known = [(i, n) for i, n in enumerate(taskmanagers.tolist()) if not math.isnan(n)]
    return [i for (_, before), (i, n) in itertools.pairwise(known) if n != before]


def quieted(rows: Iterable[int], apart: float) -> list[tuple[int, int]]:
    """Join changes that follow each other: TaskManagers come and go one after another.

    Args:
        rows: of changes, in order.
        apart: rows within which a change belongs to the one before.

    Returns:
        First and last row of each.
    """
    found: list[tuple[int, int]] = []
    for row in rows:
        if found and row - found[-1][1] <= apart:
            found[-1] = (found[-1][0], row)
        else:
            found.append((row, row))
    return found


def policies_of(runs: Sequence[ScaledRun]) -> list[str]:
    """The names of the policies that scaled runs.

    Returns:
        Names, each once, in order.
    """
    return list(dict.fromkeys(run.policy for run in runs))
