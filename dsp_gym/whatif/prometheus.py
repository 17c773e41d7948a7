"""The history of a job from Prometheus, chunk by chunk: two weeks do not fit in memory at once."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from dsp_gym.arrays import Floats
from dsp_gym.backends.flink.history import FlinkHistory
from dsp_gym.errors import ConfigError, MetricsError
from dsp_gym.job.catalog import load_job
from dsp_gym.job.spec import JobSpec
from dsp_gym.loop.configuration import Configuration
from dsp_gym.metrics.running import RunningTime, interval_of, running_in
from dsp_gym.metrics.samples import Samples
from dsp_gym.whatif.history import JobHistory
from dsp_gym.whatif.sampled_history import Deployed, slots_history
from dsp_gym.whatif.slots import SampledSlots, sampled_slots, slot_edges

CARRIED_S = 600.0
"""Samples of the chunk before that are looked at again, so that no increase is lost between two."""

LONGEST_OUTAGE_S = 1800.0
"""A longer time without the job is no rescale."""

_SHARES = ("busy", "idle", "backpressured")

FINE_S = 15.0
"""Scrapes that are further apart show no outage."""


def job_files(folder: Path) -> list[JobSpec]:
    """The jobs whose files stand in a folder, as `dsp-gym discover` writes them.

    Returns:
        One job for each YAML file, by the file's name.

    Raises:
        ConfigError: There is none, or one is no job file.
    """
    files = sorted(folder.glob("*.yaml")) if folder.is_dir() else []
    if not files:
        raise ConfigError(
            "holds no job file",
            key="--jobs",
            value=str(folder),
            remedy="Write them: dsp-gym discover --help",
        )
    return [load_job(str(file)) for file in files]


def fetched_history(
    history: FlinkHistory,
    spec: JobSpec,
    days: float,
    interval_s: int,
    *,
    name: str | None = None,
    now_s: float | None = None,
    on_chunk: Callable[[int, int], None] | None = None,
) -> JobHistory:
    """The last days of a job.

    Args:
        history: of the job.
        spec: its job file.
        days: how far back.
        interval_s: seconds between decisions.
        name: of the job; None: Flink's.
        now_s: Unix seconds; None: now.
        on_chunk: called with the chunks done and their number.

    Returns:
        The history, with what is odd about it as notes.

    Raises:
        FlinkError: Prometheus refuses, or knows no such job.
        MetricsError: It knows the job, but not what it took.
    """
    until_s = time.time() if now_s is None else now_s
    since_s = (until_s - days * 86_400.0) // interval_s * interval_s
    passing = _Passing(spec, interval_s)
    history.graphs(since_s, until_s)
    for chunk in history.chunks(since_s, until_s, on_chunk):
        if chunk.rows:
            passing.take(chunk.samples().between(since_s, until_s))
    slots, deployed = passing.ended()
    notes = [remark.sentence for remark in history.remarks]
    found = name or history.job_name
    if not slots or not deployed:
        raise MetricsError(
            f"job '{found}': Prometheus has no time of the last {days:g} days in which every "
            "vertex reported",
            remedy=" ".join(notes) or "Take more days.",
        )
    return slots_history(
        found, spec, SampledSlots.joined(slots), deployed, interval_s, notes=notes, is_dated=True
    )


class _Passing:
    """Chunks of samples on a grid, one after the other."""

    def __init__(self, spec: JobSpec, interval_s: int) -> None:
        self._spec, self._interval_s = spec, interval_s
        self._next_s = math.inf  # the first slot begins with the first sample of all tasks
        self._carried = Samples.of(())
        self._slots: list[SampledSlots] = []
        self._ran: list[RunningTime] = []
        self._scrape_s = 0.0

    def take(self, samples: Samples) -> None:
        """Take in the next samples; slots that end after the last of them wait for more."""
        if not len(samples):
            return
        self._scrape_s = max(self._scrape_s, interval_of(samples))
        both = self._carried.followed_by(samples)
        for one in running_in(self._spec, samples):
            self._take_run(one, both)
        whole = int((float(both.t_s[-1]) - self._next_s) / self._interval_s) if self._ran else 0
        if whole > 0:
            stops_s = (one.until_s for one in self._ran)
            edges = slot_edges(self._next_s, whole, self._interval_s, stops_s)
            self._slots.append(sampled_slots(self._spec, both, edges))
            self._next_s = float(edges[-1])
        self._carried = both.between(self._next_s - CARRIED_S, math.inf)

    def _take_run(self, one: RunningTime, samples: Samples) -> None:
        """Take in a run, with the times at which tasks reported last and came up."""
        before = self._ran[-1] if self._ran else None
        if before is None or one.restarted or one.parallelism != before.parallelism:
            if before is None:
                self._next_s = one.since_s
                up_s = _up_since(self._spec, samples.between(-math.inf, one.since_s + 1.0))
                up_s = up_s if math.isfinite(up_s) else -math.inf
            else:
                stopped_s, up_s = _restart(self._spec, samples, before, one, self._scrape_s)
                self._ran[-1] = replace(before, until_s=stopped_s)
            one = replace(one, since_s=up_s)
        self._ran.append(one)

    def ended(self) -> tuple[list[SampledSlots], list[Deployed]]:
        """The slots, and the configurations that were deployed."""
        return self._slots, _deployed(self._spec, self._ran, self._scrape_s)


def _restart(
    spec: JobSpec, samples: Samples, before: RunningTime, after: RunningTime, scrape_s: float
) -> tuple[float, float]:
    """Find the last scrape of a run, and when the tasks of the next one came up, s.

    Runs are known to two scrapes, in which a backlog grows by far more than while the job is down.
    """
    near = samples.between(before.until_s - 3 * scrape_s, after.since_s + 3 * scrape_s)
    counted = [near.grid(vertex.name, "records_out_total") for vertex in spec.vertices]
    scrapes = np.concatenate([times for times, _, _ in counted])
    begun = np.concatenate([_begun(times, counts, scrape_s) for times, _, counts in counted])
    old = scrapes[scrapes < begun.min(initial=math.inf)]
    if not len(begun) or not len(old):
        return before.until_s, after.since_s
    stopped_s, first_s = float(old.max()), float(begun.min())
    up_s = _up_since(spec, near.between(stopped_s, first_s + scrape_s))
    return stopped_s, min(max(up_s, stopped_s), first_s)


def _begun(times: Floats, counts: Floats, scrape_s: float) -> Floats:
    """Find the first samples of new tasks: their counts fall, or begin later than all others."""
    found = [np.empty(0)]
    for column in counts.T:
        known = np.flatnonzero(np.isfinite(column))
        is_new = np.diff(column[known], prepend=column[known[:1]]) < 0
        is_new[:1] = times[known[:1]] > times[0] + 1.5 * scrape_s
        found.append(times[known[is_new]])
    return np.concatenate(found)


def _up_since(spec: JobSpec, samples: Samples) -> float:
    """Compute since when tasks are up, from the times that they accumulated; inf: not told."""
    found = [math.inf]
    for vertex in spec.vertices:
        grids = [samples.grid(vertex.name, f"{share}_ms_total") for share in _SHARES]
        if all(len(times) for times, _, _ in grids):
            up_ms = sum(float(np.nanmax(values[0])) for _, _, values in grids)
            found.append(float(grids[0][0][0]) - 1e-3 * up_ms)
    return min(found)


def _deployed(spec: JobSpec, ran: Sequence[RunningTime], scrape_s: float) -> list[Deployed]:
    """Configurations one after the other; what lies between two of them is a rescale's outage."""
    levels = Configuration.of_spec(spec).memory_level
    found: list[Deployed] = []
    before: RunningTime | None = None
    for one in ran:
        gap_s = math.inf if before is None else one.since_s - before.until_s
        same = before is not None and before.parallelism == one.parallelism
        if not same or one.restarted:  # else scrapes failed, or a chunk ended
            timed = (same or scrape_s <= FINE_S) and gap_s <= LONGEST_OUTAGE_S
            down_s = before.until_s if timed and before is not None else math.nan
            found.append(Deployed(one.since_s, Configuration(one.parallelism, levels), down_s))
        before = one
    return found
