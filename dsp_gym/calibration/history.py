"""A job's history in Prometheus as observations: what a running job shows of itself.

Nobody offered the job a known load, so it is read as a dataset's windows are: two minutes each, in
which nothing was restarted or missing. Of weeks, a few dozen parts are kept: of every configuration
some at each load, those at capacity first.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np

from dsp_gym.backends.flink.history import FlinkHistory, keep_folder
from dsp_gym.backends.flink.prometheus_api import Labels
from dsp_gym.backends.flink.submissions import moment
from dsp_gym.calibration.checks import Problem
from dsp_gym.calibration.config import PrometheusHistory
from dsp_gym.calibration.datasets import MeasuredDataset, TransitionRow, steady_parts
from dsp_gym.calibration.observations import MeasuredRun, SteadyPart
from dsp_gym.calibration.rescale import RescaleTimes
from dsp_gym.errors import MetricsError
from dsp_gym.job.spec import JobSpec
from dsp_gym.loop.configuration import Configuration
from dsp_gym.loop.snapshot import Status
from dsp_gym.loop.topology import Topology
from dsp_gym.metrics.restarts import LONGEST_OUTAGE_S, goes_on, restart_between
from dsp_gym.metrics.running import RunningTime, interval_of, last_counts, running_in
from dsp_gym.metrics.samples import Samples
from dsp_gym.metrics.window import Observed, WindowConfig, snapshot_of

WINDOW_S = 120
"""Seconds of one window, as in a dataset."""
SETTLE_S = 60.0
"""After a restart: cold caches, and gauges that are means of a minute."""
MOST_PARTS = 40
"""Of a fit: it takes seconds, and beyond them the same load comes again."""
LEAST_BUSY = 0.05
"""A job that was never busier shows nothing of its capacity."""
_COLUMNS = (
    "records_in_per_s",
    "records_out_per_s",
    "busy_ms_per_s",
    "backpressured_ms_per_s",
    "cache_hit_rate",
    "state_read_latency_ms",
    "state_write_latency_ms",
    "pending_growth_per_s",
    "pending_records",
)


@dataclass
class _Story:
    """What comes together over the chunks."""

    windows: dict[float, dict[str, TransitionRow]] = field(default_factory=dict)
    ran: list[RunningTime] = field(default_factory=list)
    first_s: float = math.inf
    last_s: float = -math.inf
    interval_s: float = 0.0
    restarts: int = 0  # with the same tasks as before
    outages_s: list[float] = field(default_factory=list)  # of rescales
    metrics: set[tuple[str, str]] = field(default_factory=set)
    counts: dict[tuple[str, int], float] = field(default_factory=dict)  # at the last sample


def opened_history(config: PrometheusHistory, spec: JobSpec) -> FlinkHistory:
    """The history that a calibration names.

    Args:
        config: where it is.
        spec: the job file.

    Returns:
        The history; nothing is asked of the server yet.
    """
    labels, name = Labels.parse(config.labels), config.job_name or spec.job
    keep = keep_folder(config.keep, config.url, name, spec, labels)
    return FlinkHistory(config.url, name, spec, keep=keep, labels=labels, account=config.account)


def measured_history(
    history: FlinkHistory,
    spec: JobSpec,
    days: float,
    on_chunk: Callable[[int, int], None] | None = None,
    now_s: float | None = None,
) -> MeasuredDataset:
    """Go through the last days of a job.

    Args:
        history: of the job.
        spec: its job file.
        days: how far back.
        on_chunk: called with the chunks done and their number.
        now_s: Unix seconds; None: now.

    Returns:
        Its steady parts, its rescales, and what is odd about the history.

    Raises:
        FlinkError: Prometheus refuses, or knows no such job.
        MetricsError: The history shows nothing that a fit could use.
    """
    until_s = time.time() if now_s is None else now_s
    since_s = until_s - days * 86_400.0
    history.graphs(since_s, until_s)
    story, topology = _Story(), Topology.of([spec])
    for chunk in history.chunks(since_s, until_s, on_chunk):
        if chunk.rows:
            _take_in(story, topology, spec, chunk.samples().between(since_s, until_s))
    seen = steady_parts(spec, story.windows, float(WINDOW_S), "median")
    told = (Problem(one.kind, (), one.sentence) for one in history.remarks)
    problems = (*told, *_of_story(story, spec, since_s, until_s))
    _refuse(spec, story, seen, [one.sentence for one in problems])
    kept = thinned(seen)
    runs = tuple(MeasuredRun.of_part(spec, o) for o in kept)
    return MeasuredDataset(runs, tuple(kept), _rescale(story), problems)


def not_identifiable(spec: JobSpec, seen: Sequence[SteadyPart]) -> list[Problem]:
    """What no fit can find from these parts, each with the reason.

    Args:
        spec: the job.
        seen: its steady parts.

    Returns:
        One problem for each quantity that the history cannot give.
    """
    found = []
    for vertex in spec.topological_order():
        if vertex.kind == "source" or not vertex.scalable:
            continue
        most = max(o.parallelism[vertex.name] for o in seen)
        tasks = {o.parallelism[vertex.name] for o in seen}
        only = "only ran with" if len(tasks) == 1 else "never ran with more than"
        noun = "task" if most == 1 else "tasks"
        text = f"the job {only} {most} {noun} of '{vertex.name}': "
        text += "how it scales is not identified" if len(tasks) == 1 else "beyond is extrapolated"
        found.append(Problem("tasks", (), text))
    busy = {name: max(o.busy.get(name, 0.0) for o in seen) for name in seen[0].busy}
    if not any(o.saturated for o in seen) and busy:
        hot = max(busy, key=lambda name: busy[name])
        found.append(
            Problem(
                "capacity",
                (),
                f"the job was never at its capacity ('{hot}' was busy {100 * busy[hot]:.0f} % at "
                "the most): what it can take is extrapolated from its busy time",
            )
        )
    stateful = [v.name for v in spec.vertices if v.state is not None and v.state.reads > 0]
    if stateful:
        found.append(
            Problem(
                "memory",
                (),
                f"managed memory never changed: what more or less of it does to "
                f"{', '.join(map(repr, stateful))} is not identified",
            )
        )
    return found


def _take_in(story: _Story, topology: Topology, spec: JobSpec, samples: Samples) -> None:
    if not len(samples):
        return
    story.first_s = min(story.first_s, float(samples.t_s[0]))
    story.last_s = max(story.last_s, float(samples.t_s[-1]))
    story.interval_s = max(story.interval_s, interval_of(samples))
    story.metrics |= set(zip(samples.vertex.tolist(), samples.metric.tolist(), strict=True))
    levels = Configuration.of_spec(spec).memory_level
    for number, running in enumerate(running_in(spec, samples, story.counts)):
        before = story.ran[-1] if story.ran else None
        if before is not None and before.parallelism != running.parallelism:
            if goes_on(spec, samples, before, running, story.interval_s):
                running = replace(running, parallelism=_most(before, running))
            elif number > 0:
                found = restart_between(spec, samples, before, running, story.interval_s)
                story.outages_s.append(found.up_s - found.stopped_s)
        near = (
            before is not None
            and running.since_s - before.until_s <= _gap_s(story)
            and before.parallelism == running.parallelism
        )
        is_cut = near and number == 0 and not running.restarted  # by the end of a chunk alone
        story.restarts += near and not is_cut
        begin_s = running.since_s + (0.0 if is_cut else SETTLE_S)
        story.ran.append(running)
        for end_s in np.arange(begin_s + WINDOW_S, running.until_s + 1e-6, WINDOW_S):
            rows = _rows(topology, spec, samples, float(end_s), running, levels)
            if rows is not None:
                story.windows[float(end_s)] = rows
    story.counts |= last_counts(spec, samples)


def _most(before: RunningTime, after: RunningTime) -> dict[str, int]:
    """The tasks of a job that runs on, not all of which were scraped in either run.

    A vertex of which not all tasks report has no rate, so that nothing is read of that time.
    """
    return {name: max(n, before.parallelism[name]) for name, n in after.parallelism.items()}


def _gap_s(story: _Story) -> float:
    """Longest time without samples that is no gap: a restart takes some scrapes."""
    return max(60.0, 4.0 * story.interval_s)


def _rows(
    topology: Topology,
    spec: JobSpec,
    samples: Samples,
    end_s: float,
    running: RunningTime,
    levels: Mapping[str, int],
) -> dict[str, TransitionRow] | None:
    """All vertices over one window; None where one of them did not report throughout."""
    known = Observed(end_s, Status.RUNNING, running.since_s, running.parallelism, levels)
    near = samples.between(end_s - 2 * WINDOW_S, end_s)
    seen = snapshot_of(
        topology, [known], [near], WindowConfig(window_s=WINDOW_S, stabilization_s=0)
    )
    # A vertex that does not report leaves the window to the others; a fit needs all of them.
    if not seen.window_fill[0] > 0 or np.isnan(seen.busy_ms_per_s[0]).any():
        return None
    found: dict[str, TransitionRow] = {}
    for column, vertex in enumerate(spec.topological_order()):
        row = {name: float(getattr(seen, name)[0, column]) for name in _COLUMNS}
        into = row["records_in_per_s"]
        found[vertex.name] = {
            **row,
            "seconds": float(WINDOW_S),
            "parallelism": running.parallelism[vertex.name],
            "memory_level": levels.get(vertex.name, -1),
            "selectivity": row["records_out_per_s"] / into if into > 0 else math.nan,
        }
    return found


def thinned(seen: Sequence[SteadyPart]) -> list[SteadyPart]:
    """Choose parts for a fit: of every configuration, at capacity and below, spread over loads.

    Args:
        seen: steady parts of one job.

    Returns:
        At most `MOST_PARTS`, in the order of time; all of them where they are few.
    """
    groups: dict[object, list[SteadyPart]] = {}
    for o in seen:
        groups.setdefault((o.configuration, o.saturated), []).append(o)
    share = max(2, MOST_PARTS // max(1, len(groups)))
    kept = []
    order = sorted(groups.values(), key=lambda some: -sum(o.end_s - o.start_s for o in some))
    for some in order[: MOST_PARTS // 2]:
        some = sorted(some, key=lambda o: o.rate_per_s)
        chosen = np.unique(np.linspace(0, len(some) - 1, min(share, len(some))).round())
        kept += [some[int(i)] for i in chosen]
    return sorted(kept, key=lambda o: o.start_s)


def _rescale(story: _Story) -> RescaleTimes:
    """Outages between two configurations."""
    down = [one for one in story.outages_s if 0 < one <= LONGEST_OUTAGE_S]
    return RescaleTimes.of_outages(down)


def _of_story(story: _Story, spec: JobSpec, since_s: float, until_s: float) -> list[Problem]:
    if not story.last_s > story.first_s:
        return []
    found = []
    if story.first_s - since_s > 3600.0:
        has, asked = _span(story.last_s - story.first_s), _span(until_s - since_s)
        text = (
            f"Prometheus has {has} of the {asked} asked for: nothing before "
            f"{moment(story.first_s)} UTC; see its retention, or the age of the job"
        )
        found.append(Problem("shorter", (), text))
    gaps = []
    for before, after in pairwise(story.ran):
        gap_s = after.since_s - before.until_s
        same = before.parallelism == after.parallelism
        if gap_s > _gap_s(story) and same:
            gaps.append((gap_s, before.until_s))
    if story.restarts:
        text = (
            f"its counters restarted {_times(story.restarts)} with the same tasks: the job failed, "
            "or was submitted again; nothing is read across a restart, nor the minute after it"
        )
        found.append(Problem("restarts", (), text))
    if gaps:
        longest_s, at_s = max(gaps)
        total_s = sum(gap_s for gap_s, _ in gaps)
        text = (
            f"samples are missing {_times(len(gaps))}, for {_span(total_s)} in all, the longest "
            f"for {_span(longest_s)} from {moment(at_s)} UTC: the job was down, or not scraped; "
            "nothing is read across a gap"
        )
        found.append(Problem("gaps", (), text))
    silent = [
        v.name
        for v in spec.vertices
        if v.state is not None
        and v.state.reads > 0
        and (v.name, "cache_hits_total") not in story.metrics
    ]
    if silent:
        text = (
            f"no RocksDB metrics of {', '.join(map(repr, silent))}: hit rates are not fitted; turn "
            "on state.backend.rocksdb.metrics.block-cache-hit and -miss, and for latencies "
            "state.latency-track.keyed-state-enabled"
        )
        found.append(Problem("no_rocksdb", (), text))
    return found


def _refuse(
    spec: JobSpec, story: _Story, seen: Sequence[SteadyPart], sentences: Sequence[str]
) -> None:
    why = None
    if not story.ran:
        names = sorted({vertex for vertex, _ in story.metrics} - {""})
        missing = [v.name for v in spec.vertices if v.name not in names]
        why = (
            f"vertex '{missing[0]}' never reported"
            if missing
            else "it never ran for two scrapes without a restart"
        )
    elif not seen:
        why = f"it never ran for {WINDOW_S + SETTLE_S:.0f} s without a restart, a gap or a change"
        why += " of its load, with records"
    elif max((b for o in seen for b in o.busy.values()), default=0.0) < LEAST_BUSY:
        why = f"it was never busy for more than {100 * LEAST_BUSY:.0f} % of the time"
    if why is not None:
        raise MetricsError(
            f"the history of '{spec.job}' has nothing to fit the model to: {why}",
            remedy=" ".join(f"{one[0].upper()}{one[1:]}." for one in sentences)
            or "Take more days, or fit it under more load.",
        )


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"


def _span(seconds: float) -> str:
    """A time in words: two units at the most."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:.1f} days"
