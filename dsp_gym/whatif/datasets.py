"""Histories from datasets: their windows on a grid of slots, with their rescales and restarts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dsp_gym.arrays import Floats
from dsp_gym.calibration.datasets import Tables
from dsp_gym.errors import DatasetError, MetricsError
from dsp_gym.job.spec import JobSpec
from dsp_gym.loop.configuration import Configuration
from dsp_gym.whatif.history import JobHistory
from dsp_gym.whatif.sampled_history import Deployed, slots_history
from dsp_gym.whatif.slots import SampledSlots

_COLUMNS = (
    "job",
    "source",
    "run",
    "t_s",
    "vertex",
    "parallelism",
    "memory_level",
    "records_in_per_s",
    "records_out_per_s",
    "busy_ms_per_s",
    "cache_hit_rate",
    "pending_records",
    "pending_growth_per_s",
    "latency_p95_s",
)

Row = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class _Outage:
    """One row of the table `rescales`."""

    t_s: float  # when the job went down
    seconds: float  # NaN: not known


def dataset_histories(dataset: Tables, spec: JobSpec | None = None) -> list[JobHistory]:
    """The histories of the jobs in a dataset.

    On a Unix clock the days of a job are one history; each run with its own clock is one.

    Args:
        dataset: built with `windows` among its tables.
        spec: the model of its only job; None: fitted to the windows, from the dataset's job files.

    Returns:
        One for each job and source, or for each run.

    Raises:
        DatasetError: It holds no windows of a job, or a job file is given for several jobs.
    """
    if not any("windows" in one.tables for one in dataset.manifest.partitions):
        raise DatasetError(
            "it has no table 'windows', and decisions alone do not show the arrivals",
            file=dataset.folder,
            remedy="Build it from samples, with windows and rescales among its tables.",
        )
    if spec is not None and set(dataset.specs) != {spec.job}:
        raise DatasetError(
            f"the job file is of '{spec.job}', the dataset of {', '.join(sorted(dataset.specs))}",
            file=dataset.folder,
            key="--job",
            remedy="Leave it out: the dataset holds its job files.",
        )
    clocks = {one.name: one.clock for one in dataset.manifest.sources}
    rows = _grouped(dataset.table("windows", columns=_COLUMNS, lenient=True), clocks)
    outages = _outages(dataset, clocks)
    several = {job for job, *_ in rows if sum(key[0] == job for key in rows) > 1}
    found = []
    for key, moments in sorted(rows.items()):
        job, source, run = key
        name = f"{job} {run or source}" if job in several else job
        model = spec or dataset.specs[job]
        one = _history(name, model, moments, outages.get(key, []), dataset, dated=not run)
        found.append(one if spec is None else replace(one, parts=()))  # a named model stays as is
    return found


_Key = tuple[str, str, str]
"""Job, source, and the run where its clock is its own."""


def _key(row: Row, clocks: Mapping[str, str]) -> _Key:
    source = str(row["source"])
    run = "" if clocks.get(source) == "unix" else str(row["run"])
    return str(row["job"]), source, run


def _grouped(
    batches: Iterator[object], clocks: Mapping[str, str]
) -> dict[_Key, dict[float, dict[str, Row]]]:
    """Rows by history, end of the window, and vertex."""
    found: dict[_Key, dict[float, dict[str, Row]]] = {}
    for row in _rows(batches):
        at = found.setdefault(_key(row, clocks), {}).setdefault(_of(row, "t_s"), {})
        at[str(row["vertex"])] = row
    return found


def _outages(dataset: Tables, clocks: Mapping[str, str]) -> dict[_Key, list[_Outage]]:
    found: dict[_Key, list[_Outage]] = {}
    if any("rescales" in one.tables for one in dataset.manifest.partitions):
        columns = ("job", "source", "run", "t_s", "downtime_s")
        for row in _rows(dataset.table("rescales", columns=columns, lenient=True)):
            one = _Outage(_of(row, "t_s"), _of(row, "downtime_s"))
            found.setdefault(_key(row, clocks), []).append(one)
    return {key: sorted(one, key=lambda o: o.t_s) for key, one in found.items()}


def _rows(batches: Iterator[object]) -> Iterator[Row]:
    for batch in batches:
        yield from batch.to_pylist()  # type: ignore[attr-defined]  # Arrow's, which has no types


def _history(
    name: str,
    spec: JobSpec,
    moments: Mapping[float, Mapping[str, Row]],
    outages: Sequence[_Outage],
    dataset: Tables,
    *,
    dated: bool,
) -> JobHistory:
    windows = dataset.manifest.config.get("windows", {})
    interval_s, window_s = int(windows.get("interval_s", 60)), int(windows.get("window_s", 120))
    names = [vertex.name for vertex in spec.topological_order()]
    whole = {
        t_s: at
        for t_s, at in moments.items()
        if all(vertex in at and at[vertex]["parallelism"] is not None for vertex in names)
    }
    if not whole:
        raise MetricsError(
            f"job '{name}': no window of the dataset holds all of {', '.join(names)}",
            remedy="Build the dataset from samples of every vertex.",
        )
    first, last = min(whole), max(whole)
    slots = round((last - first) / interval_s) + 1
    begin_s: Floats = first - interval_s + interval_s * np.arange(slots, dtype=np.float64)
    laid: list[Mapping[str, Row] | None] = [None] * slots
    for t_s, at in whole.items():
        laid[round((t_s - first) / interval_s)] = at
    notes = []
    if window_s > interval_s:
        notes.append(
            f"windows of {window_s} s every {interval_s} s: the load is a mean over {window_s} s"
        )
    return slots_history(
        name,
        spec,
        _slots(spec, laid, begin_s, interval_s),
        _deployed(spec, whole, outages, interval_s),
        interval_s,
        latency="median" if dated else "mean",
        notes=notes,
        is_dated=dated,
    )


def _slots(
    spec: JobSpec, laid: Sequence[Mapping[str, Row] | None], begin_s: Floats, interval_s: int
) -> SampledSlots:
    """Means of windows as what came in a slot; a slot without a whole window is not known."""
    order = spec.topological_order()

    def of(column: str, kinds: Sequence[str] = ("source", "operator", "sink")) -> Floats:
        columns = [
            [math.nan if at is None else _of(at[v.name], column) for at in laid]
            for v in order
            if v.kind in kinds
        ]
        return np.array(columns).T

    read, emitted = (of(f"records_{way}_per_s", ("source",)) for way in ("in", "out"))
    emitted = np.where(read > 0, read, emitted)  # a dataset may count no input of a source
    pending = of("pending_records", ("source",))
    latency = _highest(of("latency_p95_s"))
    bound_s = float(spec.slo.latency_s)
    came, hit = interval_s * of("records_in_per_s"), of("cache_hit_rate")
    hits = np.nan_to_num(hit) * np.nan_to_num(came)  # weighed by records: lookups are not told
    backlog = pending.sum(axis=1)
    return SampledSlots(
        begin_s=begin_s,
        known=np.asarray(np.isfinite(emitted).all(axis=1)),
        emitted=np.nan_to_num(interval_s * emitted.sum(axis=1)),
        grown=np.nan_to_num(interval_s * of("pending_growth_per_s", ("source",))).sum(axis=1),
        pending=backlog if spec.source.log else np.nan_to_num(backlog),
        late=np.where(np.isfinite(latency), (latency > bound_s).astype(float), np.nan),
        latency_s=latency,
        busy=np.clip(of("busy_ms_per_s") * 1e-3, 0.0, 1.0),
        came=came,
        went=interval_s * of("records_out_per_s"),
        hits=hits,
        misses=np.where(np.isfinite(hit), np.nan_to_num(came) - hits, 0.0),
    )


def _highest(values: Floats) -> Floats:
    """Of each row the highest known value; NaN where none is known."""
    found = np.where(np.isfinite(values), values, -np.inf).max(axis=1)
    return np.where(np.isfinite(found), found, np.nan)


def _deployed(
    spec: JobSpec,
    whole: Mapping[float, Mapping[str, Row]],
    outages: Sequence[_Outage],
    interval_s: int,
) -> list[Deployed]:
    """Configurations in the order of time; an outage after which none changed is a restart."""
    times = np.array(sorted(whole))
    ran = [_configuration(spec, whole[t_s]) for t_s in times.tolist()]
    found = [Deployed(-math.inf, ran[0], math.nan)]
    told = [one for one in outages if times[0] - interval_s < one.t_s < times[-1]]
    for one in told:
        up_s = one.t_s if math.isnan(one.seconds) else one.t_s + one.seconds
        after = min(int(np.searchsorted(times, up_s, side="right")), len(times) - 1)
        down_s = math.nan if math.isnan(one.seconds) else one.t_s
        found.append(Deployed(up_s, ran[after], down_s))
    for k in range(1, len(ran)):
        begins_s = float(times[k]) - interval_s
        running = max((one for one in found if one.t_s <= times[k]), key=lambda one: one.t_s)
        if ran[k] != running.configuration and ran[k] != ran[k - 1]:
            found.append(Deployed(begins_s, ran[k], math.nan))
    return sorted(found, key=lambda one: one.t_s)


def _configuration(spec: JobSpec, at: Mapping[str, Row]) -> Configuration:
    filed = Configuration.of_spec(spec).memory_level
    tasks = {v.name: int(_of(at[v.name], "parallelism")) for v in spec.vertices}
    told = {v.name: _of(at[v.name], "memory_level") for v in spec.vertices}
    level = {name: filed[name] if math.isnan(x) else int(x) for name, x in told.items()}
    return Configuration(tasks, level)


def _of(row: Row, column: str) -> float:
    value = row[column]
    return math.nan if value is None else float(value)  # type: ignore[arg-type]  # a number
