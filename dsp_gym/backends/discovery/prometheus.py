"""What a Prometheus alone says of running jobs: everything but the edges of their graphs.

Flink's metrics do not say which vertex reads which. A vertex that takes as many records as another
gives out probably reads it; that is a guess, and the job file says so.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

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
from dsp_gym.backends.flink.submissions import shown
from dsp_gym.errors import FlinkError, did_you_mean
from dsp_gym.job.spec import MAX_INPUTS
from dsp_gym.metrics.flink import BY_NAME, cleaned, prometheus_names

_TASK = "flink_taskmanager_job_task_"
_ALIVE = "[2m]"
_OVER = "[5m]"
_CLOSE = 0.2
"""Relative difference of two rates that may be one edge."""
_MIB = 2.0**20
_Key = tuple[str, str]  # id of the job, id of the task


@dataclass
class _Task:
    """What the series of one vertex say."""

    name: str
    job_name: str
    tasks: int
    numbers: dict[str, float] = field(default_factory=dict)


def found_by_prometheus(
    source: PatientSamples,
    at_s: float,
    names: Sequence[str] = (),
    ids: Sequence[str] = (),
) -> list[FoundJob]:
    """Look at the jobs whose tasks were scraped in the last two minutes.

    Args:
        source: the server.
        at_s: Unix seconds.
        names: Flink's names of the wanted jobs; none: all.
        ids: Flink's ids of the wanted jobs; none: all.

    Returns:
        The jobs in the order of their names.

    Raises:
        FlinkError: Prometheus does not answer, or has no such job.
    """
    tasks = _tasks(source, at_s)
    wanted = {name for one in names for name in (one, cleaned(one))}
    jobs = {job_id: task.job_name for (job_id, _), task in tasks.items()}
    kept = {
        job_id: name
        for job_id, name in jobs.items()
        if (not names or name in wanted) and (not ids or job_id in ids)
    }
    if not kept:
        said = f"a job {' or '.join(map(repr, map(shown, (*names, *ids))))}" if names or ids else ""
        known = set(map(shown, jobs.values()))
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
    for job_id, name in sorted(kept.items(), key=lambda one: (one[1], one[0])):
        own = {key[1]: task for key, task in tasks.items() if key[0] == job_id}
        found.append(_job(source, at_s, job_id, name, own))
    return found


def _tasks(source: PatientSamples, at_s: float) -> dict[_Key, _Task]:
    by = source.labels
    every = f"{by.job_id},{by.job_name},{by.task_id},{by.task_name}"
    counted = f"{_TASK}numRecordsOut"
    found: dict[_Key, _Task] = {}
    with source.reading():
        asked = f"count by ({every}) (last_over_time({counted}{_ALIVE}))"
        for labels, value in source.values(asked, at_s):
            if not {by.job_id, by.job_name, by.task_name} <= labels.keys():
                continue  # of a reporter with other labels
            name = str(labels[by.task_name])
            key = str(labels[by.job_id]), str(labels.get(by.task_id, name))
            found[key] = _Task(name, str(labels[by.job_name]), int(value))
        for what, expression in _NUMBERS.items():
            for labels, value in source.values(
                f"{expression[0]} by ({every}) ({expression[1]})", at_s
            ):
                name = str(labels.get(by.task_name, ""))
                key = str(labels.get(by.job_id, "")), str(labels.get(by.task_id, name))
                if key in found and math.isfinite(value):
                    found[key].numbers[what] = value
    return found


def _named(metric: str) -> str:
    return f"{{__name__=~{json.dumps(prometheus_names(BY_NAME[metric]))}}}"


_NUMBERS = {
    "in": ("sum", f"rate({_TASK}numRecordsIn{_OVER})"),
    "out": ("sum", f"rate({_TASK}numRecordsOut{_OVER})"),
    "busy": ("avg", f"avg_over_time({_TASK}busyTimeMsPerSecond{_OVER})"),
    "pending": ("count", f"last_over_time({_named('pending_records')}{_ALIVE})"),
    "state": ("sum", f"last_over_time({_named('state_bytes')}{_ALIVE})"),
    "cache": ("count", f"last_over_time({_named('cache_hits_total')}{_ALIVE})"),
}
"""An aggregation over subtasks, and of what."""


def _job(
    source: PatientSamples, at_s: float, job_id: str, name: str, tasks: Mapping[str, _Task]
) -> FoundJob:
    vertices = [_vertex(task_id, task) for task_id, task in sorted(tasks.items())]
    edged, doubtful = _with_edges(vertices)
    keeps_state = any(vertex.has_rocksdb for vertex in vertices)
    text = "Prometheus does not tell which vertex reads which: the edges are guessed from rates"
    if doubtful:
        text += f", badly at {', '.join(repr(shown(one)) for one in doubtful)}"
    text += "; look at the job's graph in Flink's web page, or discover it there: --flink URL"
    return FoundJob(
        name=name,
        job_id=job_id,
        seen_at=source.url,
        vertices=tuple(edged),
        place=_place(source, at_s, job_id),
        backend="rocksdb" if keeps_state else None,
        notes=(
            Note("vertices", text),
            Note("rescale", "the scheduler is not in Prometheus: jobmanager.scheduler; redeploy "
                 "is assumed, adaptive rescales in place"),
        ),
    )  # fmt: skip


def _vertex(task_id: str, task: _Task) -> FoundVertex:
    busy, window = task.numbers.get("busy"), window_in(task.name)
    state = task.numbers.get("state")
    return FoundVertex(
        id=task_id,
        task_name=task.name,
        parallelism=max(1, task.tasks),
        window=window,
        says_window=window is None and says_window(task.name),
        busy_share=None if busy is None else min(1.0, max(0.0, busy / 1000.0)),
        in_per_s=task.numbers.get("in"),
        out_per_s=task.numbers.get("out"),
        state_bytes=state if state else None,
        has_rocksdb="state" in task.numbers or "cache" in task.numbers,
        pending="pending" in task.numbers,
    )


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


def _place(source: PatientSamples, at_s: float, job_id: str) -> FoundPlace:
    """TaskManagers of the job, and slots where there is one cluster."""
    by = source.labels
    hosts = source.values(
        f"count by ({by.tm_id}) (last_over_time({_TASK}numRecordsOut"
        f"{{{by.job_id}={json.dumps(job_id)}}}{_ALIVE}))",
        at_s,
    )
    ids = "|".join(re.escape(str(labels.get(by.tm_id, ""))) for labels, _ in hosts)
    managed = source.values(
        "last_over_time(flink_taskmanager_Status_Flink_Memory_Managed_Total"
        f"{{{by.tm_id}=~{json.dumps(ids)}}}{_ALIVE})",
        at_s,
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
    found = source.values(f"last_over_time({metric}{_ALIVE})", at_s)
    return found[0][1] if len(found) == 1 else None
