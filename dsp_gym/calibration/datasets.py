"""A dataset's windows as observations: what a calibration reads where the samples are gone.

A window says of every vertex what a recording's samples say over the same time, so windows that
follow each other without a gap, in one configuration and under one load, are one steady part. What
was offered is what the sources gave out and what their backlog grew by; where no backlog is known,
sources that were held back for more than a tenth of the time were offered more than the job took.
Spread within 5 s, and the fullest subtask, are not in windows.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from dsp_gym.calibration.checks import Problem
from dsp_gym.calibration.observations import SATURATED, Latency, MeasuredRun, SteadyPart
from dsp_gym.calibration.rescale import RescaleTimes
from dsp_gym.errors import DatasetError
from dsp_gym.job.spec import JobSpec
from dsp_gym.metrics.samples import SAMPLE_S

SAME_LOAD = 0.05
"""Offered rates that differ by no more, relatively, are one load with its noise."""

FULL = 0.95
"""A vertex that is busy for so large a share of the time takes all that it can."""

WAITING_S = 10.0
"""Seconds of its rate that wait for a job whose sources never run out of records."""

TRANSITION_COLUMNS = (
    "source",
    "run",
    "t_s",
    "vertex",
    "parallelism",
    "memory_level",
    "seconds",
    "records_in_per_s",
    "records_out_per_s",
    "busy_ms_per_s",
    "backpressured_ms_per_s",
    "cache_hit_rate",
    "state_read_latency_ms",
    "state_write_latency_ms",
    "selectivity",
    "pending_growth_per_s",
)

TransitionRow = Mapping[str, Any]
"""One row of a dataset's transitions by column, see `TRANSITION_COLUMNS`."""


class Tables(Protocol):
    """What is asked of a dataset; `dsp_gym.datasets.reader.Dataset` stands above this package."""

    @property
    def folder(self) -> str | Path:
        """Where it is."""

    @property
    def manifest(self) -> Any:
        """Its configuration, sources and partitions."""

    @property
    def specs(self) -> Mapping[str, JobSpec]:
        """Its jobs."""

    def table(
        self,
        name: str,
        split: str | None = None,
        columns: Sequence[str] | None = None,
        *,
        lenient: bool = False,
    ) -> Iterator[Any]:
        """The rows of a table as Arrow batches.

        Returns:
            Arrow record batches of the columns asked for (None: all), of one split (None: of all).
            A column that no file has is refused, or null if `lenient`.
        """


@dataclass(frozen=True, slots=True)
class MeasuredDataset:
    """What a dataset shows of one job."""

    runs: tuple[MeasuredRun, ...]  # without samples
    seen: tuple[SteadyPart, ...]
    rescale: RescaleTimes
    problems: tuple[Problem, ...] = ()  # what a reader must know


@dataclass(frozen=True, slots=True)
class _Window:
    """All vertices of a run over one window."""

    t_s: float
    seconds: float
    vertices: Mapping[str, TransitionRow]
    rate_per_s: float  # over all sources
    offered_per_s: float  # inf: more than the job took

    @property
    def configuration(self) -> tuple[tuple[str, int, int], ...]:
        """Parallelism and level of every vertex."""
        return tuple(
            (name, int(row["parallelism"]), _level(row)) for name, row in self.vertices.items()
        )


def measured_dataset(
    dataset: Tables, spec: JobSpec, runs: Sequence[str] = ("*",)
) -> MeasuredDataset:
    """The steady parts of the runs of one job in a dataset.

    Args:
        dataset: built with `windows` among its tables.
        spec: the job.
        runs: names of the runs, as globs.

    Returns:
        The runs, their steady parts, and the times of their rescales.

    Raises:
        DatasetError: The dataset has no window of the job in which every vertex was measured.
    """
    window_s = float(dataset.manifest.config.get("windows", {}).get("window_s", 120))
    latency = _latency(dataset)
    measured, seen = [], []
    for name, windows in _by_run(dataset, spec, window_s):
        if not any(fnmatchcase(name, glob) for glob in runs):
            continue
        for number, part in enumerate(_parts(windows, window_s)):
            label = name if number == 0 else f"{name}+{number}"
            found = _observation(spec, label, part, latency)
            if spec.job in dataset.specs:
                base = dataset.specs[spec.job].memory.base_mib
                found = dataclasses.replace(found, base_mib=base)
            seen.append(found)
            measured.append(MeasuredRun.of_part(spec, found))
    if not seen:
        raise DatasetError(
            f"it has no steady window of the job '{spec.job}' with all vertices",
            file=dataset.folder,
            key="runs",
            value=list(runs),
            remedy=f"It has windows of {', '.join(sorted(dataset.specs)) or 'no job'}.",
        )
    return MeasuredDataset(tuple(measured), tuple(seen), _rescale(dataset, spec))


def steady_parts(
    spec: JobSpec,
    moments: Mapping[float, Mapping[str, TransitionRow]],
    window_s: float,
    latency: Latency,
) -> list[SteadyPart]:
    """The steady parts among windows that are at hand.

    Args:
        spec: the job.
        moments: all vertices over one window, by the end of the window, Unix seconds.
        window_s: length of a window, s.
        latency: what the state latencies are.

    Returns:
        One part for each configuration and load, named after the moment it began.
    """
    windows = [_window(spec, t_s, vertices) for t_s, vertices in sorted(moments.items())]
    found = []
    for part in _parts(windows, window_s):
        began = time.gmtime(part[0].t_s - part[0].seconds)
        found.append(_observation(spec, time.strftime("%Y-%m-%d %H:%M:%S", began), part, latency))
    return found


def _by_run(dataset: Tables, spec: JobSpec, window_s: float) -> Iterator[tuple[str, list[_Window]]]:
    """Whole windows of every run of the job, in order of time."""
    rows: dict[tuple[str, str], dict[float, dict[str, TransitionRow]]] = {}
    for batch in dataset.table("windows", columns=("job", *TRANSITION_COLUMNS), lenient=True):
        for row in batch.to_pylist():
            if row["job"] == spec.job and row["seconds"] >= window_s - SAMPLE_S:
                at = rows.setdefault((row["source"], row["run"]), {})
                at.setdefault(row["t_s"], {})[row["vertex"]] = row
    names = [vertex.name for vertex in spec.topological_order()]
    for (_, run), moments in sorted(rows.items()):
        whole = [
            _window(spec, t_s, {name: at[name] for name in names})
            for t_s, at in sorted(moments.items())
            if all(name in at and at[name]["parallelism"] is not None for name in names)
        ]
        yield run, whole


def _window(spec: JobSpec, t_s: float, vertices: Mapping[str, TransitionRow]) -> _Window:
    sources = [vertices[v.name] for v in spec.vertices if v.kind == "source"]
    rate = sum(
        _number(row["records_in_per_s"], 0.0) or _number(row["records_out_per_s"], 0.0)
        for row in sources
    )
    growth = [row["pending_growth_per_s"] for row in sources]
    if all(g is None or np.isnan(g) for g in growth):
        blocked = max(_number(row["backpressured_ms_per_s"], 0.0) for row in sources) / 1000
        offered = np.inf if blocked > 1 - SATURATED else rate
    else:
        offered = rate + sum(_number(g, 0.0) for g in growth)
    # A backlog that is worked off, or stays, hides that the job takes all that it can.
    waiting = sum(_number(row.get("pending_records"), 0.0) for row in sources)
    busy = max(_number(row["busy_ms_per_s"], 0.0) for row in vertices.values()) / 1000
    if rate > 0 and waiting >= WAITING_S * rate and busy >= FULL:
        offered = np.inf
    return _Window(t_s, float(sources[0]["seconds"]), vertices, rate, offered)


def _parts(windows: Sequence[_Window], window_s: float) -> Iterator[list[_Window]]:
    """Windows that do not overlap, of one configuration under one load; catching up is left out."""
    part: list[_Window] = []
    for window in windows:
        if window.rate_per_s > window.offered_per_s / SATURATED or not window.rate_per_s > 0:
            continue
        if part and not _goes_on(part, window):
            yield part
            part = []
        if not part or window.t_s - part[-1].t_s >= window_s:
            part.append(window)
    if part:
        yield part


def _goes_on(part: Sequence[_Window], window: _Window) -> bool:
    first, now = part[0].offered_per_s, window.offered_per_s
    same = first == now or abs(now - first) <= SAME_LOAD * first
    return same and part[0].configuration == window.configuration


def _observation(spec: JobSpec, name: str, part: Sequence[_Window], latency: Latency) -> SteadyPart:
    """The means over a part's windows."""
    rates = np.array([window.rate_per_s for window in part])
    rate = float(rates.mean())
    offered = float(np.mean([window.offered_per_s for window in part]))
    saturated = rate < SATURATED * offered
    half = len(part) // 2
    return SteadyPart(
        name,
        part[0].t_s - part[0].seconds,
        part[-1].t_s,
        {v: p for v, p, _ in part[0].configuration},
        {v: level for v, _, level in part[0].configuration},
        np.inf if saturated else offered,
        rate,
        float("nan"),
        float(np.log(rates[half:].mean() / rates[:half].mean())) if half else float("nan"),
        saturated,
        busy=_means(part, "busy_ms_per_s", 1e-3),
        hit=_means(part, "cache_hit_rate", 1.0),
        read_us=_means(part, "state_read_latency_ms", 1e3),
        write_us=_means(part, "state_write_latency_ms", 1e3),
        selectivity={
            v: ratio
            for v, ratio in _means(part, "selectivity", 1.0).items()
            if next(x.kind for x in spec.vertices if x.name == v) == "operator"
        },
        latency=latency,
    )


def _means(part: Sequence[_Window], column: str, scale: float) -> dict[str, float]:
    found = {}
    for name in part[0].vertices:
        values = [_number(window.vertices[name][column], np.nan) for window in part]
        if np.isfinite(values).any():
            found[name] = float(np.nanmean(values)) * scale
    return found


def _rescale(dataset: Tables, spec: JobSpec) -> RescaleTimes:
    """Outages of the table `rescales`; the stop's share in them is not told apart."""
    if not any("rescales" in partition.tables for partition in dataset.manifest.partitions):
        return RescaleTimes()
    rows = dataset.table("rescales", columns=("job", "cause", "downtime_s"), lenient=True)
    down = [
        row["downtime_s"]
        for batch in rows
        for row in batch.to_pylist()
        if row["job"] == spec.job and row["cause"] == "rescale" and row["downtime_s"] is not None
    ]
    return RescaleTimes.of_outages(down)


def _latency(dataset: Tables) -> Latency:
    """A simulation's clock is its own, and its state latencies are means."""
    clocks = {source.clock for source in dataset.manifest.sources}
    return "mean" if clocks == {"run"} else "median"


def _level(row: TransitionRow) -> int:
    return -1 if row["memory_level"] is None else int(row["memory_level"])


def _number(value: float | None, unknown: float) -> float:
    return unknown if value is None or np.isnan(value) else float(value)
