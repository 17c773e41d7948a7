"""A job of the Flink Kubernetes Operator as an environment: somebody's job, under its own load.

Nothing is submitted and nothing is cancelled. An episode is a stretch of time of the job as it
runs: it begins with the configuration that runs then, and with an empty metrics window.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from dsp_gym.arrays import Bools, Floats32, Ints
from dsp_gym.backends.flink.slots import bounded
from dsp_gym.backends.kubernetes.config import KubernetesPlace
from dsp_gym.backends.kubernetes.connection import KubernetesJobs, watched_on_kubernetes
from dsp_gym.config import files
from dsp_gym.envs.config import EnvConfig
from dsp_gym.envs.core import BatchStep, MeasuredEnv, SteppedJobs
from dsp_gym.errors import ConfigError
from dsp_gym.guardrails.chain import build
from dsp_gym.guardrails.config import GuardrailsConfig
from dsp_gym.job.spec import JobSpec
from dsp_gym.loop.outcome import Outcome
from dsp_gym.loop.protocols import PENDING
from dsp_gym.loop.snapshot import Status
from dsp_gym.loop.topology import Topology
from dsp_gym.metrics.window import WindowConfig

__all__ = ["KubernetesEnv", "KubernetesEnvPlace", "kubernetes_place"]


class KubernetesEnvPlace(KubernetesPlace):
    """Where the environment's job runs, and how much of it may be used."""

    max_slots: int | None = Field(
        None, ge=1, description="most task slots the job may use; none: only the job file bounds it"
    )
    apply: bool = Field(
        False,
        description="whether actions reach the job; false: they are noted, as in shadow mode, with "
        "an account that can only read",
    )


def kubernetes_place(where: str | Path | Mapping[str, Any] | None) -> KubernetesEnvPlace:
    """The place meant by the keyword `where`.

    Raises:
        ConfigError: It is no mapping, or names nothing.
    """
    if not isinstance(where, Mapping):
        raise ConfigError(
            "the backend 'kubernetes' needs to know the resource",
            key="where",
            value=where if where is None else str(where),
            remedy="Pass where={'namespace': ..., 'name': ..., 'prometheus_url': ...}.",
        )
    return files.parse(KubernetesEnvPlace, dict(where), "where")


class KubernetesEnv(MeasuredEnv):
    """One environment over a job that is there already.

    Args:
        spec: the job.
        config: clock, reward; of the simulation only how metrics are averaged.
        guardrails: name, path or content of the guardrails inside the environment.
        place: the resource.
    """

    def __init__(
        self,
        spec: JobSpec,
        config: EnvConfig,
        guardrails: str | GuardrailsConfig | None,
        place: KubernetesEnvPlace,
    ) -> None:
        super().__init__(Topology.of([spec]), config)
        self.spec, self.place = spec, place
        if place.max_slots is not None:
            guardrails = bounded(guardrails, spec, place.max_slots)
        elif isinstance(guardrails, str):
            guardrails = files.load_model(GuardrailsConfig, "guardrails", guardrails)
        if guardrails is not None:
            chain = build(guardrails)
            self.guardrails = chain if chain.names else None
        seen = config.simulation.measurement
        self._window = WindowConfig(window_s=seen.window_s, stabilization_s=seen.stabilization_s)
        self._seeds = np.random.default_rng(0)
        self._open: list[KubernetesJobs] = []
        # An environment that nobody closes gives its lease back when it, or the program, ends.
        self._undo = weakref.finalize(self, _close, self._open)

    @property
    def stepped(self) -> SteppedJobs:
        if not self._open:
            raise RuntimeError("reset() comes first")
        return self._open[0]

    def seed(self, seeds: Ints, mask: Bools | None = None) -> None:
        self._seeds = np.random.default_rng(int(seeds[0]))

    def reset(self, mask: Bools | None = None) -> Floats32:
        _close(self._open)
        began_s = time.time()
        jobs = watched_on_kubernetes(self.place, self.spec, self._window, apply=self.place.apply)
        jobs.job.not_before_s = began_s
        self._open.append(jobs)
        self.load_labels = [f"as it comes to {self.place.namespace}/{jobs.job.name}"]
        return self._begin(np.arange(1), self._seeds.integers(0, 2**31, 1), None)

    def info(self, step: BatchStep, job: int) -> dict[str, Any]:
        return super().info(step, job) | {"enacted": self.place.apply}

    def close(self) -> None:
        """Wait for what is under way; the job runs on."""
        _close(self._open)

    def _ended(self, outcome: Outcome) -> tuple[Bools, Bools]:
        terminated, truncated = super()._ended(outcome)
        jobs = self._open[0]
        is_lost = self.snapshot.status[0] == Status.FAILED and jobs.status()[0] != PENDING
        return terminated | is_lost, truncated


def _close(open_jobs: list[KubernetesJobs]) -> None:
    while open_jobs:
        open_jobs.pop().close()
