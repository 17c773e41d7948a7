"""The stored state of Flink's autoscaler, as the operator and its JDBC store write it."""

from __future__ import annotations

import base64
import gzip
import json
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

__all__ = ["BEGIN_S", "IDS", "config_map", "database", "state"]

BEGIN_S = 1_772_326_800.0
IDS = tuple(f"{'bc764cd8ddf7a0cff126f51c16239658'[:-1]}{digit}" for digit in "abc")
"""Of a source, an operator and a sink."""


def moment(t_s: float) -> str:
    return datetime.fromtimestamp(t_s, UTC).isoformat().replace("+00:00", "Z")


def state(
    minutes: int = 15,
    per_s: float = 500.0,
    tasks: Sequence[int] = (1, 2, 1),
    lag: float = 0.0,
    restarts_s: Sequence[float] = (),
    ids: Sequence[str] = IDS,
) -> dict[str, Any]:
    """A job that takes a constant load: each key's value before it is packed."""
    collected = {}
    for minute in range(minutes):
        seconds = 60.0 * minute
        records = per_s * seconds
        measured = {
            key: {
                "NUM_RECORDS_IN": records if place else 0.0,
                "NUM_RECORDS_OUT": records if place < 2 else 0.0,
                "ACCUMULATED_BUSY_TIME": 400.0 * seconds * tasks[place],
                "LOAD": 0.7,
                "OBSERVED_TPR": "NaN" if place else 1000.0,
            }
            for place, key in enumerate(ids)
        }
        measured[ids[0]] |= {"LAG": lag, "NUM_RECORDS_IN": records}
        at = moment(BEGIN_S + seconds)
        collected[at] = {"vertexMetrics": measured, "globalMetrics": {"GC_PRESSURE": 0.0}}
    summary = {"currentParallelism": 1, "newParallelism": tasks[1], "metrics": {}}
    records_of = {
        moment(BEGIN_S - 3600.0 * k): {"restartDuration": seconds}
        for k, seconds in enumerate(restarts_s)
    }
    return {
        "collectedMetrics": collected,
        "scalingHistory": {ids[1]: {moment(BEGIN_S - 60.0): summary}},
        "scalingTracking": {"scalingRecords": records_of},
        "parallelismOverrides": ",".join(f"{k}:{p}" for k, p in zip(ids, tasks, strict=True)),
    }


def config_map(name: str, stored: Mapping[str, Any], namespace: str = "jobs") -> dict[str, Any]:
    """The operator's ConfigMap."""
    data = {
        key: value if isinstance(value, str) else packed(yaml.safe_dump(value, explicit_start=True))
        for key, value in stored.items()
    }
    labels = {"component": "autoscaler", "app": name}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": f"autoscaler-{name}", "namespace": namespace, "labels": labels},
        "data": data,
    }


def packed(text: str) -> str:
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


def database(file: Path, jobs: Mapping[str, Mapping[str, Any]]) -> Path:
    """The table of the standalone autoscaler."""
    with closing(sqlite3.connect(file)) as written, written:
        written.execute(
            "create table t_flink_autoscaler_state_store (id integer primary key, update_time text,"
            " job_key varchar(191), state_type varchar(100), state_value text)"
        )
        written.executemany(
            "insert into t_flink_autoscaler_state_store (update_time, job_key, state_type,"
            " state_value) values ('2026-03-01', ?, ?, ?)",
            [
                (job, key, value if isinstance(value, str) else json.dumps(value))
                for job, stored in jobs.items()
                for key, value in stored.items()
            ],
        )
    written.close()
    return file
