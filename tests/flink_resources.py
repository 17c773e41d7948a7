"""FlinkDeployments as they stand in tests."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from dsp_gym.backends.kubernetes.admission import list_text
from dsp_gym.backends.kubernetes.overrides import KEY, text_of
from dsp_gym.backends.kubernetes.resources import VERTICES

__all__ = ["LISTED", "MAP", "SINK", "SOURCE", "deployment", "stable"]

Document = dict[str, Any]

SOURCE, MAP, SINK = "bc764cd8ddf7a0cff126f51c16239658", "0a448493b4782967b150582570326227", (
    "ea632d67b7d595e5b851708ae9ad79d6"
)  # fmt: skip
"""Vertex ids as Flink makes them."""

_PRETENDED = ("v-source", "v-map", "v-sink")  # ids of the fake Flink

LISTED = {VERTICES: list_text(dict.fromkeys((SOURCE, MAP, SINK, *_PRETENDED), (1, 128)))}
"""The annotation with which the owner of a job lets its vertices be rescaled."""


def deployment(
    name: str = "words",
    overrides: Mapping[str, int] | None = None,
    *,
    labels: Mapping[str, str] | None = None,
    configuration: Mapping[str, Any] | None = None,
    vertices: Iterable[str] = (),
    **spec: Any,
) -> Document:
    """A FlinkDeployment; its status is another thing, see `stable`.

    Its owner lets the vertices above be rescaled, or those of a real job that are given.
    """
    listed = LISTED if not vertices else {VERTICES: list_text(dict.fromkeys(vertices, (1, 128)))}
    options: Document = {"taskmanager.numberOfTaskSlots": "2", "jobmanager.scheduler": "adaptive"}
    options |= configuration or {}
    if overrides is not None:
        options[KEY] = text_of(overrides)
    return {
        "apiVersion": "flink.apache.org/v1beta1",
        "kind": "FlinkDeployment",
        "metadata": {
            "name": name, "namespace": "jobs", "labels": dict(labels or {}),
            "annotations": dict(listed),
        },
        "spec": {
            "image": "flink:2.1",
            "flinkVersion": "v2_1",
            "mode": "native",
            "flinkConfiguration": options,
            "taskManager": {"resource": {"cpu": 1, "memory": "2048m"}},
            "job": {
                "jarURI": "local:///opt/flink/job.jar", "parallelism": 1,
                "upgradeMode": "last-state", "state": "running",
            },
            **spec,
        },
    }  # fmt: skip


def stable(body: Document, generation: int = 1, job_id: str = "a" * 32) -> Document:
    """The status the operator gives a spec it has taken in."""
    return {
        "lifecycleState": "STABLE",
        "observedGeneration": generation,
        "jobStatus": {
            "jobId": job_id, "state": "RUNNING", "startTime": "1700000000000",
            "updateTime": "1700000001000",
        },
        "reconciliationStatus": {
            "state": "DEPLOYED",
            "lastReconciledSpec": json.dumps(
                {
                    "spec": body["spec"],
                    "resource_metadata": {"metadata": {"generation": generation}},
                }
            ),
        },
    }  # fmt: skip
