"""Valid documents that several readers share."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from dsp_gym.job.catalog import load_job
from dsp_gym.loop.snapshot import unknown_snapshot
from dsp_gym.loop.topology import Topology
from dsp_gym.loop.wire import snapshot_to_json
from tests.answering import Answering, tell

__all__ = ["cluster", "series", "snapshot_document"]

TASK = "flink_taskmanager_job_task_"


@cache
def _topology() -> Topology:
    return Topology.of([load_job("flink-wordcount")])


def snapshot_document() -> dict[str, Any]:
    """A snapshot of the word count with all metrics known."""
    seen = unknown_snapshot(_topology())
    seen.t_s[:] = 1000.0
    seen.arrays.parallelism[:] = [[1, 2, 3]]
    seen.arrays.job[1:], seen.arrays.vertex[:] = (
        0.5,
        np.linspace(0, 1, seen.arrays.vertex[0].size),
    )
    return snapshot_to_json(seen.job(0))


def cluster() -> dict[str, Any]:
    """What a Flink with one job answers, by path."""
    told = Answering("http://flink")
    told.answers = {
        "/jobs/overview": {"jobs": []},
        "/overview": {
            "flink-version": "2.1.0",
            "slots-available": 8,
            "slots-total": 16,
            "taskmanagers": 2,
            "jobs-running": 1,
        },
        "/taskmanagers": {
            "taskmanagers": [
                {
                    "id": "one:1",
                    "slotsNumber": 8,
                    "memoryConfiguration": {"totalProcessMemory": 2**31},
                    "freeResource": {"managedMemory": 512},
                    "totalResource": {"managedMemory": 1024},
                },
            ]
        },
    }
    tell(told)
    job, answers = "/jobs/a1", told.answers
    answers[f"{job}/status"] = {"status": "RUNNING"}
    answers[f"{job}/exceptions"] = {
        "exceptionHistory": {"entries": [{"stacktrace": "a.B: late\n\tat x\nCaused by: c.D: slow"}]}
    }
    checkpoint = {
        "external_path": "file:///s/1",
        "state_size": 7,
        "is_savepoint": True,
        "checkpoint_type": "SYNC_SAVEPOINT",
        "status": "COMPLETED",
    }
    answers[f"{job}/checkpoints"] = {
        "history": [checkpoint],
        "latest": {"completed": checkpoint, "savepoint": checkpoint},
    }
    answers[f"{job}/savepoints/t1"] = {
        "status": {"id": "COMPLETED"},
        "operation": {"location": "file:///s/1"},
    }
    answers[f"{job}/stop"] = {"request-id": "t1"}
    answers[f"{job}/resource-requirements"] = {
        "v-map": {"parallelism": {"lowerBound": 1, "upperBound": 3}}
    }
    answers[f"{job}/justin"] = {"v-map": {"resourceProfile": {"managedMemory": {"bytes": 2**28}}}}
    answers["/jars"] = {"files": [{"name": "a.jar", "id": "j1"}]}
    answers["/jars/upload"] = {"filename": "/tmp/j1_a.jar"}
    answers["/jars/j1/run"] = {"jobid": "a1"}
    for name in ("source", "map", "sink"):
        vertex = f"{job}/vertices/v-{name}"
        answers[vertex] = {
            "subtasks": [
                {
                    "taskmanager-id": "one:1",
                    "start-time": 1_000_000,
                    "status-duration": {"DEPLOYING": 5, "INITIALIZING": 7},
                }
            ]
        }
        answers[f"{vertex}/metrics"] = [
            {"id": "0.numRecordsIn", "value": "7"},
            {"id": "0.busyTimeMsPerSecond", "value": "NaN"},
        ]
    answers["/taskmanagers/one:1/metrics"] = [{"id": "Status.JVM.Memory.Heap.Used", "value": "9"}]
    return answers


def series() -> dict[str, Any]:
    """What a Prometheus with samples of that job answers."""
    of_task = {
        "job_id": "a1",
        "tm_id": "one:1",
        "task_id": "v",
        "resourcens": "jobs",
        "task_name": "map",
        "subtask_index": "0",
    }
    rows = [
        ({"__name__": f"{TASK}numRecordsIn", "task_name": "map", "subtask_index": "0"}, 5),
        (
            {
                "__name__": f"{TASK}operator_pendingRecords",
                "task_name": "Source:_source",
                "subtask_index": "1",
            },
            7,
        ),
        ({"__name__": "flink_taskmanager_Status_JVM_Memory_Heap_Used"}, 3 * 2**20),
        (
            {
                "__name__": f"x_AutoScaler_jobVertexID_{'a' * 32}_RECOMMENDED_PARALLELISM_Current",
                "resourcename": "words",
            },
            3,
        ),
    ]
    result = [
        {"metric": {**of_task, **labels}, "values": [[10.25, str(value)], [15.25, str(value + 1)]]}
        for labels, value in rows
    ]
    return {"status": "success", "data": {"resultType": "matrix", "result": result}}
