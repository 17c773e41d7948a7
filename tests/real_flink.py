"""What tests of a real Flink share: their marks, and a word count that two tasks cannot carry."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from dsp_gym.errors import FlinkError
from dsp_gym.flink.cluster import LocalCluster
from dsp_gym.flink.submission import Submission
from dsp_gym.job.spec import JobSpec

__all__ = ["REAL_FLINK", "WORDS", "WORD_COUNT", "has_jdk", "running"]


def has_jdk() -> bool:
    """Whether JAVA_HOME, or else the PATH, has the compiler that `make flink-jobs` uses."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which("javac", path=None if home is None else str(Path(home, "bin"))) is not None


REAL_FLINK = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not has_jdk() and "CI" not in os.environ,
        reason="no JDK: neither JAVA_HOME nor the PATH has a javac",
    ),
]
"""For `pytestmark`. In CI a missing JDK is a failure."""

WORDS = 10
WORD_COUNT: dict[str, Any] = {
    "job": "words",
    "source": {"rate_per_s": 300},
    "vertices": [
        {"name": "source", "kind": "source", "cpu_us_per_record": 1},
        {
            "name": "flatmap",
            "inputs": [{"from": "source", "ship": "REBALANCE"}],
            "selectivity": WORDS,
            "cpu_us_per_record": 4000,
        },
        {
            "name": "count",
            "kind": "sink",
            "inputs": [{"from": "flatmap", "ship": "HASH"}],
            "cpu_us_per_record": 50,
            "state": {"reads": 1, "writes": 1, "keys": 1000, "value_bytes": 16},
        },
    ],
    "memory": {"base_mib": 8, "levels": 2},
    "max_parallelism_per_vertex": 4,
    "flink": {
        "program": "wordcount",
        "arguments": {"cpu-us": "flatmap=4000,count=50", "words": WORDS, "keys": 1000},
    },
}


def running(cluster: LocalCluster, spec: JobSpec, name: str = "words") -> dict[str, int]:
    """Tasks by vertex; zeros where no job has the name, as between savepoint and submission."""
    try:
        job = cluster.rest.find_job(name)
    except FlinkError:
        return dict.fromkeys((vertex.name for vertex in spec.vertices), 0)
    return dict(Submission.of_running(cluster.rest, job.id, spec)[1].parallelism)
