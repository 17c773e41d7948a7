"""The submissions of a job that a Prometheus knows: which had the graph of the job file.

Flink gives a job another id at every submission, and a vertex the same id as long as its operator
keeps its uid. So a vertex that was renamed is found by its id, and a submission that lacks a vertex
of the job file was of another graph: what it shows is of another job.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from dsp_gym.backends.flink.patient import PatientSamples
from dsp_gym.backends.flink.prometheus_api import promql_label
from dsp_gym.errors import FlinkError, did_you_mean
from dsp_gym.job.spec import JobSpec
from dsp_gym.metrics.flink import BY_NAME, cleaned, prometheus_names
from dsp_gym.metrics.identity import Task, tasks_by_vertex

RemarkKind = Literal["renamed", "other_graph", "no_rocksdb", "shorter", "gaps", "restarts"]
_SHOWN = 60
"""Characters of a name in a sentence."""


@dataclass(frozen=True, slots=True)
class Remark:
    """Something that a reader of a history must know."""

    kind: RemarkKind
    sentence: str


@dataclass(frozen=True, slots=True)
class Graphs:
    """What Prometheus knows of the submissions of one job."""

    ids: tuple[str, ...]  # of submissions with every vertex of the job file
    renamed: Mapping[Task, str]  # vertex by former task
    other: Mapping[str, tuple[str, ...]]  # tasks of submissions of another graph, by job id
    remarks: tuple[Remark, ...]


def moment(t_s: float) -> str:
    """A moment as text.

    Returns:
        Date and time, UTC.

    >>> moment(1_772_326_800)
    '2026-03-01 01:00:00'
    """
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(t_s))


def shown(name: str) -> str:
    """A name from a cluster as a sentence takes it: no control characters, and not too long.

    Returns:
        One line of printable text.
    """
    text = "".join(c if c.isprintable() else "?" for c in name)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def graphs_of(
    source: PatientSamples, job_name: str, spec: JobSpec, since_s: float, until_s: float
) -> Graphs:
    """Ask for the tasks of every submission of a job.

    Args:
        source: the server.
        job_name: Flink's name of the job.
        spec: its job file.
        since_s: Unix seconds.
        until_s: Unix seconds.

    Returns:
        The submissions, those of another graph apart.

    Raises:
        FlinkError: No series bears the job's name, or none with the vertices of the job file.
    """
    labels, every = source.labels, prometheus_names(BY_NAME["records_out_total"])
    # The reporter replaces some characters in a name; what collects its series need not.
    names = dict.fromkeys((job_name, cleaned(job_name)))
    selector = labels.selector(every, (labels.job_name, "|".join(map(re.escape, names))))
    tasks: dict[str, set[Task]] = {}  # by id of the job
    with source.reading():
        for one in source.tasks(selector, since_s, until_s):
            task = Task(str(one.get(labels.task_id, "")), str(one.get(labels.task_name, "")))
            tasks.setdefault(str(one.get(labels.job_id, job_name)), set()).add(task)
    if not tasks:
        raise _silent(source, job_name, since_s, until_s)
    return _sorted_out(source, job_name, spec, tasks)


def _sorted_out(
    source: PatientSamples, job_name: str, spec: JobSpec, tasks: Mapping[str, set[Task]]
) -> Graphs:
    names = [vertex.name for vertex in spec.vertices]
    known = {job_id: tasks_by_vertex(spec, sorted(of_job)) for job_id, of_job in tasks.items()}
    by_id = {task.id: vertex for found in known.values() for vertex, task in found.items()}
    renamed: dict[Task, str] = {}
    besides: dict[str, set[Task]] = {}  # tasks that are no vertex's, of submissions that have all
    other: dict[str, tuple[Task, ...]] = {}
    for job_id, of_job in sorted(tasks.items()):
        rest = of_job - {*known[job_id].values()}
        formerly = {
            task: by_id[task.id]
            for task in rest
            if task.id and by_id.get(task.id, "") not in {"", *known[job_id]}
        }
        if {*known[job_id], *formerly.values()} == set(names):
            besides[job_id] = rest - {*formerly}
            renamed |= formerly
        else:
            other[job_id] = tuple(sorted(of_job))
    fewest = min(map(len, besides.values()), default=0)
    ids = [job_id for job_id, rest in besides.items() if len(rest) == fewest]
    other |= {one: tuple(sorted(tasks[one])) for one in besides if one not in ids}
    if not ids:
        had = ", ".join(sorted({shown(task.name) for found in other.values() for task in found}))
        raise FlinkError(
            f"{source.url}: the job '{shown(job_name)}' never had the vertices of the job file "
            f"({', '.join(map(shown, names))}); it had: {had}",
            api="prometheus",
            reason="Invalid",
            remedy="Name the job file that describes it, or write one: dsp-gym discover --help",
        )
    remarks = _remarks(names, renamed, other, known)
    left_out = {one: tuple(sorted(task.name for task in had)) for one, had in other.items()}
    return Graphs(tuple(ids), renamed, left_out, remarks)


def _remarks(
    names: Sequence[str],
    renamed: Mapping[Task, str],
    other: Mapping[str, tuple[Task, ...]],
    known: Mapping[str, Mapping[str, Task]],
) -> tuple[Remark, ...]:
    found = [
        Remark(
            "renamed",
            f"'{shown(vertex)}' was called '{shown(former.name)}' before: its id is the same",
        )
        for former, vertex in sorted(renamed.items(), key=lambda one: one[1])
    ]
    for job_id, tasks in other.items():
        lacks = [repr(shown(name)) for name in names if name not in known[job_id]]
        vertices = {*known[job_id].values()}
        has = [repr(shown(task.name)) for task in tasks if task not in vertices]
        told = [f"without {', '.join(lacks)}"] * bool(lacks) + [f"with {', '.join(has)}"] * bool(
            has
        )
        found.append(
            Remark(
                "other_graph",
                f"submission {shown(job_id)} had another graph, {' and '.join(told)}: the history "
                "is split there, and what that submission shows is left out",
            )
        )
    return tuple(found)


def _silent(source: PatientSamples, job_name: str, since_s: float, until_s: float) -> FlinkError:
    """The error for a job that no series names; it offers the jobs there are."""
    label = source.labels.job_name
    every = prometheus_names(BY_NAME["records_out_total"])
    asked = (
        f"count by ({promql_label(label)}) (last_over_time({source.labels.selector(every)}[1h]))"
    )
    known = [one.get(label, "") for one, _ in source.values(asked, until_s)]
    remedy = did_you_mean(job_name, map(shown, filter(None, known)))
    if not any(known):
        remedy = (
            f"It has no task of any job under the label '{label}' either: does it scrape the "
            "TaskManagers? If it has other labels than Flink's, say which: --labels job_name=THEIRS"
        )
    return FlinkError(
        f"{source.url}: Prometheus has no sample of a job '{shown(job_name)}' from "
        f"{moment(since_s)} to {moment(until_s)}",
        api="prometheus",
        reason="NoMetrics",
        remedy=remedy,
    )
