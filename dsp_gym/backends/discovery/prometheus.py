"""What a Prometheus alone says of running jobs: everything but the edges of their graphs.

Flink's metrics do not say which vertex reads which. A vertex that takes as many records as another
gives out probably reads it; that is a guess, and the job file says so.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np

from dsp_gym.backends.discovery.found import (
    Edge,
    FoundJob,
    FoundPlace,
    FoundVertex,
    Note,
    says_window,
    window_in,
)
from dsp_gym.backends.flink.patient import PatientSamples
from dsp_gym.backends.flink.prometheus_api import promql_label
from dsp_gym.backends.flink.submissions import shown
from dsp_gym.errors import FlinkError, did_you_mean
from dsp_gym.job.spec import MAX_INPUTS
from dsp_gym.metrics.columns import interval_between
from dsp_gym.metrics.flink import BY_NAME, cleaned, prometheus_names
from dsp_gym.metrics.identity import Task
from dsp_gym.metrics.samples import Samples
from dsp_gym.metrics.window import increase

_ALIVE = "[2m]"
_OVER_S = 300.0
"""The rates of a job are means over this time, or since its last restart."""
_INSTANT_S = 1e-3
"""Less than between two samples."""
_LEAST_ALIVE_S = 15.0
"""A subtask without a sample for so long, and for two scrapes, is gone."""
_CLOSE = 0.2
"""Relative difference of two rates that may be one edge."""
_MIB = 2.0**20


def found_by_prometheus(
    source: PatientSamples,
    at_s: float,
    names: Sequence[str] = (),
    ids: Sequence[str] = (),
    *,
    failed: list[FlinkError] | None = None,
) -> list[FoundJob]:
    """Look at the jobs whose tasks were scraped in the last two minutes.

    Args:
        source: the server.
        at_s: Unix seconds.
        names: Flink's names of the wanted jobs; none: all.
        ids: Flink's ids of the wanted jobs; none: all.
        failed: takes the errors of jobs that cannot be described; None: the first is raised.

    Returns:
        The jobs in the order of their names.

    Raises:
        FlinkError: Prometheus does not answer, or has no such job.
    """
    wanted = {name for one in names for name in (one, cleaned(one))}
    jobs = _jobs(source, at_s)
    kept = [
        (name, job_id)
        for job_id, name in jobs
        if (not names or name in wanted) and (not ids or job_id in ids)
    ]
    if not jobs:
        with source.reading():
            _, wrong = source.misnamed(("job_id", "job_name"), at_s)
        if wrong is not None:
            raise wrong
    if not kept:
        said = f"a job {' or '.join(map(repr, map(shown, (*names, *ids))))}" if names or ids else ""
        known = {shown(name) for _, name in jobs}
        raise FlinkError(
            f"{source.url}: Prometheus has no task of {said or 'any job'} in the last two minutes",
            api="prometheus",
            reason="NoMetrics",
            remedy=did_you_mean(shown(names[0]), known)
            if names and known
            else "Does it scrape the TaskManagers? If its labels differ from Flink's, say which: "
            "--labels job_name=THEIRS",
        )
    found = []
    for name, job_id in sorted(kept):
        try:
            found.append(_job(source, at_s, job_id, name))
        except FlinkError as error:
            if failed is None:
                raise
            failed.append(error)
    return found


def _jobs(source: PatientSamples, at_s: float) -> list[tuple[str, str]]:
    """Id and name of the jobs with a fresh task; the jobs of two clusters may have one id."""
    by = source.labels
    labels = [label for label in (by.job_id, by.job_name) if label]
    selector = by.selector(prometheus_names(BY_NAME["records_out_total"]))
    asked = f"count by ({','.join(map(promql_label, labels))}) (last_over_time({selector}{_ALIVE}))"
    with source.reading():
        return sorted(
            (str(one.get(by.job_id, "")), str(one.get(by.job_name, "")))
            for one, _ in source.values(asked, at_s)
            if labels and {*labels} <= one.keys()  # else of a reporter with other labels
        )


def _job(source: PatientSamples, at_s: float, job_id: str, name: str) -> FoundJob:
    tasks, samples, folded = source.of_job(job_id, name, at_s - _OVER_S, at_s)
    # Older than the newest of the job is what has ended, a bounded branch for one.
    newest_s = float(samples.t_s[-1]) if len(samples) else at_s
    vertices = [_vertex(task, samples, str(place), newest_s) for place, task in enumerate(tasks)]
    edged, doubtful = _with_edges([vertex for vertex in vertices if vertex.parallelism > 0])
    keeps_state = any(vertex.has_rocksdb for vertex in vertices)
    text = "Prometheus does not tell which vertex reads which: the edges are guessed from rates"
    if doubtful:
        text += f", badly at {', '.join(repr(shown(one)) for one in doubtful)}"
    text += "; look at the job's graph in Flink's web page, or discover it there: --flink URL"
    copies = f"series that differ in {', '.join(sorted(folded))} alone were counted once"
    return FoundJob(
        name=name,
        job_id=job_id,
        seen_at=source.url,
        vertices=tuple(edged),
        place=_place(source, at_s, job_id, name),
        backend="rocksdb" if keeps_state else None,
        notes=(
            Note("vertices", text),
            Note("rescale", "the scheduler is not in Prometheus: jobmanager.scheduler; redeploy "
                 "is assumed, adaptive rescales in place"),
            *([Note("source", copies)] if folded else ()),
        ),
    )  # fmt: skip


def _vertex(task: Task, samples: Samples, place: str, newest_s: float) -> FoundVertex:
    window, tasks = window_in(task.name), _alive(samples, place, newest_s)

    def newest(metric: str) -> float | None:
        _, _, values = samples.grid(place, metric)
        last = [column[np.isfinite(column)][-1:] for column in values.T[:tasks]]
        return float(np.concatenate(last).sum()) if last else None

    busy = _busy(samples, place)
    into, out = (_per_s(samples, place, f"records_{way}_total") for way in ("in", "out"))
    return FoundVertex(
        id=task.id or task.name,
        task_name=task.name,
        parallelism=tasks,
        window=window,
        says_window=window is None and says_window(task.name),
        busy_share=None if busy is None else min(1.0, max(0.0, busy)),
        in_per_s=into,
        out_per_s=out,
        state_bytes=newest("state_bytes") or None,
        has_rocksdb=newest("state_bytes") is not None or newest("cache_hits_total") is not None,
        pending=newest("pending_records") is not None,
        arrived_per_s=_arrived_per_s(samples, place),
    )


def _alive(samples: Samples, place: str, newest_s: float) -> int:
    """Count the subtasks that still report, as of the newest sample of their job."""
    times, _, values = samples.grid(place, "records_out_total")
    if not len(times):
        return 0
    last = np.array([times[np.isfinite(column)][-1] for column in values.T])
    gap_s = interval_between(times, values)
    return int((last >= newest_s - max(_LEAST_ALIVE_S, 2.5 * gap_s)).sum())


def _per_s(samples: Samples, place: str, counter: str) -> float | None:
    times, _, values = samples.grid(place, counter)
    rose, seconds = increase(times, values)
    known = seconds > 0
    return float((rose[known] / seconds[known]).sum()) if known.any() else None


def _arrived_per_s(samples: Samples, place: str) -> float | None:
    """Records/s that a source has read and that wait longer and longer; None: not known.

    Both over the time in which records are known to wait: before, a source may have caught up.
    """
    times, _, values = samples.grid(place, "pending_records")
    rises = []
    for column in values.T:
        known = np.flatnonzero(np.isfinite(column))
        if len(known) > 1:
            first, last = known[[0, -1]]
            rises.append((column[last] - column[first]) / (times[last] - times[first]))
    if not rises:
        return None
    meanwhile = samples.between(float(times[0]) - _INSTANT_S, float(times[-1]))
    into, out = (_per_s(meanwhile, place, f"records_{way}_total") for way in ("in", "out"))
    read = into or out
    return None if read is None else max(0.0, read + sum(rises))


def _busy(samples: Samples, place: str) -> float | None:
    """Mean share of time that the subtasks were busy."""
    _, _, values = samples.grid(place, "busy_ms_per_s")
    known = values[np.isfinite(values)]
    return float(known.mean()) / 1000.0 if known.size else None


def _with_edges(vertices: Sequence[FoundVertex]) -> tuple[list[FoundVertex], list[str]]:
    """Vertices in the order of the graph, each with its inputs; and those badly guessed."""
    placed = [v for v in vertices if _is_source(v)]
    waiting = [v for v in vertices if not _is_source(v)]
    if not placed and waiting:
        placed, waiting = waiting[:1], waiting[1:]
    doubtful = []
    while waiting:
        error, vertex, inputs = min(
            (_best(vertex, placed) for vertex in waiting),
            key=lambda one: (one[0], not one[1].out_per_s, one[1].task_name),
        )
        ship = "HASH" if vertex.has_rocksdb or vertex.window else "REBALANCE"
        placed.append(replace(vertex, inputs=tuple(Edge(one.id, ship) for one in inputs)))
        waiting.remove(vertex)
        if error > _CLOSE:
            doubtful.append(vertex.task_name)
    return placed, doubtful


def _is_source(vertex: FoundVertex) -> bool:
    named = re.match(r"Source:[ _]", vertex.task_name) is not None
    return named or bool(vertex.pending)


def _best(
    vertex: FoundVertex, placed: Sequence[FoundVertex]
) -> tuple[float, FoundVertex, tuple[FoundVertex, ...]]:
    """The inputs that give out most nearly what the vertex takes in, and how far off they are."""
    into = vertex.in_per_s or 0.0
    givers = [one for one in placed if (one.out_per_s or 0.0) > 0]
    if not into or not givers:
        return math.inf, vertex, tuple(placed[-1:])
    few = givers[::-1][:12]  # of equals the last: most graphs are chains
    choices: Iterable[tuple[FoundVertex, ...]] = (
        some for size in range(1, min(3, MAX_INPUTS) + 1) for some in combinations(few, size)
    )

    def off(some: tuple[FoundVertex, ...]) -> float:
        given = sum(one.out_per_s or 0.0 for one in some)
        return round(abs(given / into - 1.0), 2) + 0.02 * (len(some) - 1)

    chosen = min(choices, key=off)
    return off(chosen), vertex, chosen


def _place(source: PatientSamples, at_s: float, job_id: str, name: str) -> FoundPlace:
    """TaskManagers of the job, and slots where there is one cluster."""
    by = source.labels
    whose = [(by.job_id, re.escape(job_id)), (by.job_name, re.escape(name))]
    counted = prometheus_names(BY_NAME["records_out_total"])
    selector = by.selector(counted, *(one for one in whose if one[0] and one[1]))
    ids = ""
    if by.tm_id:
        asked = f"count by ({promql_label(by.tm_id)}) (last_over_time({selector}{_ALIVE}))"
        hosts = source.values(asked, at_s)
        ids = "|".join(re.escape(str(labels.get(by.tm_id, ""))) for labels, _ in hosts)
    managed = (
        source.values(
            "last_over_time("
            + by.selector("flink_taskmanager_Status_Flink_Memory_Managed_Total", (by.tm_id, ids))
            + f"{_ALIVE})",
            at_s,
        )
        if ids
        else []
    )
    total = _only(source, "flink_jobmanager_taskSlotsTotal", at_s)
    managers = _only(source, "flink_jobmanager_numRegisteredTaskManagers", at_s)
    slots = round(total / managers) if total and managers else None
    mib = max((value for _, value in managed), default=0.0) / _MIB
    return FoundPlace(
        slots=slots,
        managed_mib=(mib / slots,) if slots and mib > 0 else (),
        slots_total=None if total is None else round(total),
    )


def _only(source: PatientSamples, metric: str, at_s: float) -> float | None:
    """The value of a metric of JobManagers; None where several clusters are scraped, or none."""
    found = source.values(f"last_over_time({source.labels.selector(metric)}{_ALIVE})", at_s)
    return found[0][1] if len(found) == 1 else None
