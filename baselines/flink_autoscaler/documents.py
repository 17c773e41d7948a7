"""Documents of the real autoscaler's inputs: vertices, samples and memory.

NaN and infinities are texts; missing values are NaN.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from baselines.flink_autoscaler.collector import Vertex
from baselines.flink_autoscaler.job import Job, TaskManagers
from baselines.flink_autoscaler.scaler import delay
from baselines.flink_autoscaler.state import GLOBALS, SCALING_METRICS, Memory
from baselines.flink_autoscaler.units import memory_bytes

Document = Mapping[str, Any]
"""A JSON object as `dsp-gym decide` reads it."""

Answer = dict[str, Any]
"""A JSON object as it is written in reply."""

NEVER_MS = 2**62
"""An interval that never passes."""


def vertices_of(documents: Iterable[Document]) -> list[Vertex]:
    """Read the vertices of a document.

    Returns:
        The vertices in the document's order.
    """
    return [
        Vertex(
            name=v["name"],
            inputs=v.get("inputs") or {},
            parallelism=int(v["parallelism"]),
            max_parallelism=int(v["max_parallelism"]),
            partitions=int(v.get("num_source_partitions") or 0),
            slot_sharing_group=v.get("slot_sharing_group"),
            finished=bool(v.get("finished")) or v.get("status") == "FINISHED",
            records_in=number((v.get("io_metrics") or {}).get("num_records_in", 0)),
            records_out=number((v.get("io_metrics") or {}).get("num_records_out", 0)),
            busy_ms=number((v.get("io_metrics") or {}).get("accumulated_busy_time_ms", 0)),
        )
        for v in documents
    ]


def task_managers(document: Document) -> TaskManagers:
    """Read the resource of a TaskManager.

    Returns:
        Cores and bytes; 0 where the document does not know them.
    """
    memory = document.get("tm_memory")
    return TaskManagers(
        float(document.get("tm_cpu") or 0.0),
        0 if memory is None else memory_bytes(str(memory), "tm_memory"),
    )


def fill_window(job: Job, history: Sequence[Document]) -> None:
    """Put the samples of a document into the window."""
    window = job.memory.window
    # Samples in any order; the window needs the oldest first.
    for sample in sorted(history, key=lambda s: int(s["ts_ms"])):
        job.memory.room()
        window = job.memory.window
        i = int(window.size[0])
        window.ts_ms[0, i] = int(sample["ts_ms"])
        for v, name in enumerate(job.names):
            metrics = sample.get("vertex_metrics", {}).get(name, {})
            window.vertex[0, i, v] = [number(metrics.get(m, "NaN")) for m in SCALING_METRICS]
        values = sample.get("global_metrics") or {}
        window.job[0, i, 0] = [number(values.get(m, "NaN")) for m in GLOBALS]
        window.size[0] = i + 1


def fill_history(job: Job, given: Document) -> None:
    """Remember past scalings."""
    longest = max((len(entries) for entries in given.values()), default=0)
    # Room for the given scalings and one that this pass may add.
    kept = job.memory.history.ts_ms.shape[2]
    if longest + 2 > kept:
        fresh = Memory(1, len(job.names), longest + 2, job.steps)
        job.memory.history = fresh.history
    h = job.memory.history
    for v, name in enumerate(job.names):
        for i, entry in enumerate(sorted(given.get(name, []), key=lambda e: int(e["ts_ms"]))):
            h.ts_ms[0, v, i] = int(entry["ts_ms"])
            h.before[0, v, i] = int(entry["current_parallelism"])
            h.after[0, v, i] = int(entry["new_parallelism"])
            h.rate[0, v, i] = number(entry.get("true_processing_rate"))
            h.expected[0, v, i] = number(entry.get("expected_processing_rate"))
            h.size[0, v] = i + 1


def fill_tracking(job: Job, given: Sequence[Document]) -> None:
    """Remember past restarts."""
    kept = max(job.memory.tracking.ts_ms.shape[1], len(given) + 2)
    job.memory.tracking = Memory(1, 1, kept, 1).tracking
    t = job.memory.tracking
    for i, record in enumerate(sorted(given, key=lambda r: int(r["ts_ms"]))):
        t.ts_ms[0, i] = int(record["ts_ms"])
        t.duration_s[0, i] = number(record.get("duration_s"))
        t.size[0] = i + 1


def number(value: float | str | None) -> float:
    """Read a number of a document: NaN and infinities are texts.

    >>> number("Infinity"), number(3)
    (inf, 3.0)

    Returns:
        The number; NaN for None.
    """
    return float("nan") if value is None else float(value)


def written(value: float) -> float | int | str:
    """Write a number as documents do: whole ones without a point.

    Returns:
        A number, or `NaN`, `Infinity`, `-Infinity`.
    """
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return int(value) if value.is_integer() else value


def add_delayed(job: Job, v: int, entry: Document) -> None:
    """Record an earlier trigger of a waiting scale-down."""
    delay(
        job.memory.delayed,
        0,
        v,
        int(entry["ts_ms"]),
        NEVER_MS,
        int(entry["parallelism"]),
        bool(entry["outside_utilization_bound"]),
    )
