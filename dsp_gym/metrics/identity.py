"""Which task of a running job is which vertex of its job file.

Flink knows a vertex by its id, which stays the same as long as its operator keeps its uid; names
only label it. They may be in any script, occur twice, or reach Prometheus as underscores alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from dsp_gym.errors import FlinkError
from dsp_gym.job.spec import JobSpec
from dsp_gym.metrics.flink import vertex_of


class Task(NamedTuple):
    """One vertex of a running job, as Flink or its metrics name it."""

    id: str  # Flink's of the vertex; "": not reported
    name: str


def tasks_by_vertex(spec: JobSpec, tasks: Iterable[Task]) -> Mapping[str, Task]:
    """Find the tasks of one running job that are the vertices of its job file.

    A task is found by the id in the job file, else by the name of one of its operators. Where
    several tasks are named after a vertex, as the writer and the committer of one sink are, the
    one without a committer is the vertex.

    Args:
        spec: the job file.
        tasks: all tasks of the job, each once.

    Returns:
        Task by name of its vertex; without the vertices that were not found.

    Raises:
        FlinkError: Several tasks of one name could be the vertex.
    """
    listed = tuple(dict.fromkeys(tasks))
    by_id = {task.id: task for task in listed if task.id}
    found = {
        v.name: by_id[v.vertex_id] for v in spec.vertices if v.vertex_id and v.vertex_id in by_id
    }
    names = tuple(v.name for v in spec.vertices if v.name not in found)
    taken = set(found.values())
    named: dict[str, list[Task]] = {}
    for task in listed:
        vertex = vertex_of(task.name, names) if task not in taken else None
        if vertex is not None:
            named.setdefault(vertex, []).append(task)
    return found | {vertex: _one(vertex, several) for vertex, several in named.items()}


def _one(vertex: str, several: list[Task]) -> Task:
    """Choose between tasks that are named after a vertex."""
    best = [task for task in several if "Committer" not in task.name] or several
    if len(best) > 1:
        whole = [task for task in best if task.name == vertex]
        best = whole or best
    if len(best) > 1:
        ids = ", ".join(sorted(task.id or repr(task.name) for task in best))
        raise FlinkError(
            f"{len(best)} vertices of the job are named after {vertex!r}: {ids}",
            reason="Conflict",
            remedy=f"Write into the job file which of them it is: vertex_id of {vertex!r}. "
            "dsp-gym discover writes the ids.",
        )
    return best[0]
