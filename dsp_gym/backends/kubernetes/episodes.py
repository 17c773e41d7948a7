"""Episodes of an environment beside a job of the Flink Kubernetes Operator, under its own load.

Nothing is submitted and nothing is cancelled. An episode is a stretch of time of the running job:
it begins with the running configuration and an empty metrics window.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Mapping
from pathlib import Path

from pydantic import Field

from dsp_gym.backends.base import Backend, Episode
from dsp_gym.backends.kubernetes.config import KubernetesPlace
from dsp_gym.backends.kubernetes.connection import connect
from dsp_gym.config import files
from dsp_gym.errors import ConfigError
from dsp_gym.job.deployment import kept_memory
from dsp_gym.job.spec import JobSpec
from dsp_gym.loop.configuration import Configuration
from dsp_gym.loop.topology import Topology
from dsp_gym.metrics.window import WindowConfig


class KubernetesEnvPlace(KubernetesPlace):
    """Where the environment's job runs, and how much of it may be used."""

    max_slots: int | None = Field(
        None, ge=1, description="most task slots the job may use; none: only the job file bounds it"
    )
    apply: bool = Field(
        False,
        description="whether actions reach the job; false: nothing is asked of it, as in shadow "
        "mode, and the account must only read",
    )


def kubernetes_place(where: str | Path | Mapping[str, object] | None) -> KubernetesEnvPlace:
    """The place meant by the keyword `where`.

    Returns:
        The checked settings: namespace, resource and address of Prometheus among them.

    Raises:
        ConfigError: `where` is no mapping, or a key is missing.
    """
    if not isinstance(where, Mapping):
        raise ConfigError(
            "the backend 'kubernetes' needs the name of a resource",
            key="where",
            value=where if where is None else str(where),
            remedy="Pass where={'namespace': ..., 'name': ..., 'prometheus_url': ...}.",
        )
    return files.parse(KubernetesEnvPlace, dict(where), "where")


class KubernetesEpisodes:
    """Watches the same job in every episode, and scales it if the place says so.

    Args:
        spec: the job.
        place: the resource.
        window: the metrics window, over which samples are averaged.
    """

    def __init__(self, spec: JobSpec, place: KubernetesEnvPlace, window: WindowConfig) -> None:
        self.topology = Topology.of([_as_started(spec, place)])
        self.place = place
        self._spec, self._window = spec, window
        self._open: list[Backend] = []
        # Episodes that are never closed give their lease back when they, or the program, end.
        self._undo = weakref.finalize(self, _close, self._open)

    def begin(self, seed: int) -> Episode:
        """Connect to the job again; nothing is left to chance.

        Returns:
            The running job and its slots.

        Raises:
            KubernetesError: The server is out of reach, refuses, or has no such resource.
            FlinkError: The metrics of the job cannot be had.
            ConfigError: Without a route for memory, the job runs at other levels than its file
                starts with.
        """
        _close(self._open)
        began_s = time.time()
        backend = connect(self.place, self._spec, self._window, apply=self.place.apply)
        job = backend.platform.job
        job.not_before_s = began_s
        self._open.append(backend)
        if backend.collector.topology.spec(0) != self.topology.spec(0):
            raise ConfigError(
                f"job '{self._spec.job}' runs at another memory level than its file starts with, "
                "and nothing can change it",
                key="where.memory_route",
                value="none",
                remedy="Set memory.start_level in the job file to the level that it runs at.",
            )
        load = f"as it comes to {self.place.namespace}/{job.name}"
        return Episode(backend, load, self.place.max_slots)

    def close(self) -> None:
        """Wait for the change under way; the job runs on."""
        _close(self._open)


def _as_started(spec: JobSpec, place: KubernetesPlace) -> JobSpec:
    """The job as policies see it while it runs as its file starts it."""
    if place.memory_route != "none":
        return spec
    return kept_memory(spec, Configuration.of_spec(spec).memory_level)


def _close(backends: list[Backend]) -> None:
    while backends:
        backends.pop().close()
