"""A Flink Kubernetes Operator over the fake API server, and a job that only pretends to run.

The operator does what the real one is known to do with an override: it takes in a new generation,
sets the job's parallelism, and says in the status how far it is. Which job it is set on is another
matter: one that pretends, or one of a real Flink.
"""

from __future__ import annotations

import copy
import json
import threading
import time
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from dsp_gym.backends.flink.rescale import AdaptiveActuator
from dsp_gym.backends.flink.rest import FlinkRest
from dsp_gym.backends.kubernetes.collector import RunningVertices
from dsp_gym.backends.kubernetes.overrides import Override
from dsp_gym.errors import FlinkError
from dsp_gym.job.spec import JobSpec
from tests.fakes.kubernetes_api import FakeKubernetes
from tests.simulating import wanted

__all__ = ["FlinkOperator", "ManagedJob", "PretendedJob", "RealJob"]

Document = dict[str, Any]


class ManagedJob(Protocol):
    """What the operator manages."""

    job_id: str

    def realize(self, overrides: Mapping[str, int], arguments: list[str]) -> None:
        """Run with that parallelism by vertex id; returns when asked for, not when reached."""

    def state(self) -> str:
        """Flink's word."""


class PretendedJob:
    """Vertices whose tasks come about after a while; or do not."""

    def __init__(self, ids: Mapping[str, str], parallelism: Mapping[str, int]) -> None:
        self.ids, self.tasks = dict(ids), dict(parallelism)
        self.job_id, self.word = "a" * 32, "RUNNING"
        self.delay_s = 0.0
        self.most = 10_000  # tasks there are resources for
        self.silent = False  # Flink is out of reach
        self.realized: list[dict[str, int]] = []
        self._coming: tuple[float, dict[str, int]] | None = None

    def realize(self, overrides: Mapping[str, int], arguments: list[str]) -> None:
        self.realized.append(dict(overrides))
        by_name = {name: overrides[i] for name, i in self.ids.items() if i in overrides}
        self._coming = (time.monotonic() + self.delay_s, self.tasks | by_name)

    def state(self) -> str:
        return self.word

    def running(self) -> dict[str, int]:
        """Tasks by vertex now."""
        if self._coming is not None and time.monotonic() >= self._coming[0]:
            wanted, self._coming = self._coming[1], None
            self.tasks = {name: min(n, self.most) for name, n in wanted.items()}
        return dict(self.tasks)

    def look(self) -> RunningVertices:
        if self.silent:
            raise FlinkError("Flink does not answer")
        return RunningVertices(self.job_id, self.word, self.ids, self.running(), True)


class FlinkOperator:
    """Reconciles one FlinkDeployment in a thread; use it as a context manager."""

    def __init__(self, fake: FakeKubernetes, name: str, job: ManagedJob) -> None:
        self.fake, self.name, self.job = fake, name, job
        self.heeds = True  # whether it looks at new generations
        self.fails = False  # whether the job does not come back from the next change
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._reconcile)

    def __enter__(self) -> FlinkOperator:
        self._take_in(self._body())
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ending.set()
        self._thread.join()

    def _body(self) -> Document:
        return self.fake.object("FlinkDeployment", self.name)

    def _reconcile(self) -> None:
        while not self._ending.wait(0.02):
            body = self._body()
            seen = (body.get("status") or {}).get("observedGeneration")
            if self.heeds and seen != body["metadata"]["generation"]:
                self._upgrade(body)
            elif seen == body["metadata"]["generation"]:
                self._heartbeat(body)

    def _upgrade(self, body: Document) -> None:
        self._tell({"lifecycleState": "UPGRADING"})
        if self.fails:
            self.fails = False
            self.job.word = "FAILED"  # type: ignore[attr-defined]
            self._take_in(body, lifecycle="FAILED")
            return
        spec = body["spec"]
        overrides = Override.of(spec.get("flinkConfiguration") or {}).values
        self.job.realize(overrides, list(spec["job"].get("args") or []))
        if self.job.state() == "FAILED":
            self.job.word = "RUNNING"  # type: ignore[attr-defined]
        self._take_in(body)

    def _take_in(self, body: Document, lifecycle: str = "STABLE") -> None:
        generation = body["metadata"]["generation"]
        last = {
            "spec": copy.deepcopy(body["spec"]),
            "resource_metadata": {"metadata": {"generation": generation}},
        }
        self._tell(
            {
                "lifecycleState": lifecycle,
                "observedGeneration": generation,
                "jobStatus": {"jobId": self.job.job_id, "state": self.job.state(),
                              "startTime": "1700000000000"},
                "reconciliationStatus": {"state": "DEPLOYED",
                                         "lastReconciledSpec": json.dumps(last)},
            }
        )  # fmt: skip

    def _heartbeat(self, body: Document) -> None:
        told = body["status"]["jobStatus"]
        now = {**told, "jobId": self.job.job_id, "state": self.job.state()}
        if now != told:
            self._tell({"jobStatus": now})

    def _tell(self, status: Document) -> None:
        self.fake.set_status("FlinkDeployment", self.name, status)


class RealJob:
    """A job of a real Flink with the adaptive scheduler, scaled in place as the operator does."""

    def __init__(self, rest: FlinkRest, name: str, spec: JobSpec) -> None:
        self.rest, self.spec = rest, spec
        self.job_id = rest.find_job(name).id
        self._actuator = AdaptiveActuator(rest, name, spec, timeout_s=30)

    def realize(self, overrides: Mapping[str, int], arguments: list[str]) -> None:
        job = self._actuator._read()
        by_name = {n: overrides.get(i, job.configuration.parallelism[n])
                   for n, i in job.vertex_ids.items()}  # fmt: skip
        names = [vertex.name for vertex in self.spec.vertices]
        self._actuator.apply(
            wanted(
                np.array([[by_name[name] for name in names]]),
                np.array([[job.configuration.memory_level[name] for name in names]]),
            )
        )

    def state(self) -> str:
        return str(self.rest.get(f"/jobs/{self.job_id}/status")["status"])

    def close(self) -> None:
        self._actuator.close()
