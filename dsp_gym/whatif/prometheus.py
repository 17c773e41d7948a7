"""The history of a job from Prometheus, chunk by chunk: two weeks do not fit in memory at once."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from dsp_gym.backends.flink.history import FlinkHistory
from dsp_gym.errors import ConfigError, MetricsError
from dsp_gym.job.catalog import load_job
from dsp_gym.job.spec import JobSpec
from dsp_gym.loop.configuration import Configuration
from dsp_gym.metrics.restarts import goes_on, restart_between, up_since_s
from dsp_gym.metrics.running import RunningTime, interval_of, last_counts, running_in
from dsp_gym.metrics.samples import Samples
from dsp_gym.whatif.history import JobHistory
from dsp_gym.whatif.sampled_history import Deployed, slots_history
from dsp_gym.whatif.slots import SampledSlots, sampled_slots, slot_edges

CARRIED_S = 600.0
"""Samples of the chunk before that are looked at again, so that no increase is lost between two."""


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
        self._counts: dict[tuple[str, int], float] = {}  # at each subtask's last sample
        self._slots: list[SampledSlots] = []
        self._ran: list[RunningTime] = []
        self._scraped: list[Mapping[str, int]] = []  # tasks of each run that were scraped
        self._begun = 0  # the first run of these tasks
        self._scrape_s = 0.0

    def take(self, samples: Samples) -> None:
        """Take in the next samples; slots that end after the last of them wait for more."""
        if not len(samples):
            return
        self._scrape_s = max(self._scrape_s, interval_of(samples))
        both = self._carried.followed_by(samples)
        for one in running_in(self._spec, samples, self._counts):
            self._take_run(one, both)
        self._counts |= last_counts(self._spec, samples)
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
        scraped = one.parallelism
        if before is None:
            self._next_s = one.since_s
            up_s = up_since_s(self._spec, samples.between(-math.inf, one.since_s + 1.0))
            one = replace(one, since_s=up_s if math.isfinite(up_s) else -math.inf)
        elif goes_on(self._spec, samples, before, one, self._scrape_s):
            one = self._as_before(one)
        elif one.restarted or one.parallelism != before.parallelism:
            found = restart_between(self._spec, samples, before, one, self._scrape_s)
            self._ran[-1] = replace(before, until_s=found.stopped_s)
            one = replace(one, since_s=found.up_s)
            self._begun = len(self._ran)
        self._ran.append(one)
        self._scraped.append(scraped)

    def _as_before(self, one: RunningTime) -> RunningTime:
        """The same tasks run on: as many as were scraped at once at any time."""
        known = self._ran[-1].parallelism
        tasks = {name: max(count, known[name]) for name, count in one.parallelism.items()}
        same = [replace(run, parallelism=tasks) for run in self._ran[self._begun :]]
        self._ran[self._begun :] = same
        return replace(one, parallelism=tasks)

    def ended(self) -> tuple[list[SampledSlots], list[Deployed]]:
        """The slots, and the configurations that were deployed.

        Where tasks were not scraped, the load is not known.
        """
        for slots in self._slots:
            ends_s = slots.begin_s + self._interval_s
            for one, scraped in zip(self._ran, self._scraped, strict=True):
                if scraped != one.parallelism:
                    slots.known[(slots.begin_s < one.until_s) & (ends_s > one.since_s)] = False
        return self._slots, _deployed(self._spec, self._ran)


def _deployed(spec: JobSpec, ran: Sequence[RunningTime]) -> list[Deployed]:
    """Configurations one after the other; between two of them the job was gone."""
    levels = Configuration.of_spec(spec).memory_level
    found: list[Deployed] = []
    before: RunningTime | None = None
    for one in ran:
        same = before is not None and before.parallelism == one.parallelism
        if not same or one.restarted:  # else scrapes failed, or a chunk ended
            down_s = math.nan if before is None else before.until_s
            found.append(Deployed(one.since_s, Configuration(one.parallelism, levels), down_s))
        before = one
    return found
