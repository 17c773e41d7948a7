"""A fake Flink with jobs of any shape, with its REST interface as recorded from 2.1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.answering import Answering

__all__ = ["run_job"]

GRAPH: tuple[dict[str, Any], ...] = (
    {"name": "Source: bids -> Flat Map", "out": 500.0, "busy": 100.0,
     "metrics": ["a.pendingRecords", "a.split.0.watermark", "a.split.1.watermark"]},
    {"name": "session", "tasks": 2, "inputs": {0: "HASH"}, "in": 500.0, "out": 50.0, "busy": 400.0,
     "description": "Window(EventTimeSessionWindows(2000), EventTimeTrigger, Count)<br/>",
     "state_size": 2_000_000, "metrics": ["x.rocksdb_block_cache_hit"]},
    {"name": "Sink: out: Writer", "inputs": {1: "REBALANCE"}, "in": 50.0, "busy": 5.0},
)  # fmt: skip
"""Vertices; `inputs` are the upstream vertex's place and Flink's ship strategy."""
MIB = 2**20


def run_job(
    flink: Answering,
    name: str = "words",
    job_id: str = "a1",
    graph: Sequence[Mapping[str, Any]] = GRAPH,
    settings: Mapping[str, str] | None = None,
    managed_mib: Sequence[float] = (32.0, 32.0, 32.0),
    checkpoint: bool = True,
    ids: Sequence[str] | None = None,
) -> None:
    """Makes the server tell of one more running job."""
    answers = flink.answers
    started = {"jid": job_id, "name": name, "state": "RUNNING", "start-time": 1000, "end-time": -1}
    answers["/jobs/overview"]["jobs"].append(started)
    ids = ids or [f"{job_id}-{place}" for place in range(len(graph))]
    vertices, nodes, tasks = [], [], {}
    for vertex_id, one in zip(ids, graph, strict=True):
        vertices.append(
            {"id": vertex_id, "name": one["name"], "parallelism": one.get("tasks", 1),
             "maxParallelism": one.get("max", 128), "slotSharingGroupId": one.get("group", "g")}
        )  # fmt: skip
        read = [{"id": ids[k], "ship_strategy": how} for k, how in one.get("inputs", {}).items()]
        nodes.append({"id": vertex_id, "description": one.get("description", ""), "inputs": read})
        tasks[vertex_id] = {"state_size": one.get("state_size", 300)}
        metrics = [{"id": known} for known in ["numRecordsOut", *one.get("metrics", [])]]
        rates = {"numRecordsInPerSecond": one.get("in", 0.0), "busyTimeMsPerSecond": one["busy"],
                 "numRecordsOutPerSecond": one.get("out", 0.0), **one.get("told", {})}  # fmt: skip
        told = [{"id": key, "sum": value, "avg": value} for key, value in rates.items()]
        path = f"/jobs/{job_id}/vertices/{vertex_id}/subtasks/metrics"
        answers[path] = lambda query, metrics=metrics, told=told: told if query else metrics
    answers[f"/jobs/{job_id}"] = {
        "jid": job_id, "name": name, "state": "RUNNING", "vertices": vertices,
        "plan": {"nodes": nodes[::-1]},
    }  # fmt: skip
    last = {"id": 7} if checkpoint else None
    answers[f"/jobs/{job_id}/checkpoints"] = {"latest": {"completed": last}, "history": []}
    answers[f"/jobs/{job_id}/checkpoints/details/7"] = {"tasks": tasks}
    answers[f"/jobs/{job_id}/checkpoints/config"] = {"state_backend": "EmbeddedRocksDBStateBackend"}
    known = {"state.backend.type": "rocksdb"} | dict(settings or {})
    answers["/jobmanager/config"] = [{"key": k, "value": v} for k, v in known.items()]
    memory = {"totalProcessMemory": 2048 * MIB, "managedMemory": 256 * MIB, "taskHeap": 512 * MIB,
              "networkMemory": 64 * MIB}  # fmt: skip
    manager = {"id": "tm-1", "slotsNumber": 8, "memoryConfiguration": memory,
               "totalResource": {"cpuCores": 4.0}}  # fmt: skip
    slots = [
        {"jobId": job_id, "resource": {"managedMemory": mib, "taskHeapMemory": 64}}
        for mib in managed_mib
    ]
    answers["/taskmanagers"] = {"taskmanagers": [manager]}
    answers["/taskmanagers/tm-1"] = {**manager, "allocatedSlots": slots}
