"""Kubernetes' horizontal pod autoscaler on the busy share of a vertex's subtasks, or on CPU.

Semantics of autoscaling/v2: the ratio with its tolerance, conservative treatment of missing
metrics; stabilisation windows and behaviour policies are in `replicas`. A subtask counts as a pod
and its busy time as CPU, as in Varga et al., "Towards autoscaling of Apache Flink jobs"; or a
TaskManager with one slot is a pod and has a CPU load, as in Flink's reactive mode.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field, model_validator

from baselines import reasons
from baselines.own_window import OwnWindow
from baselines.replicas import Behavior, HorizontalController, can_scale, recommend_all
from dsp_gym.arrays import Floats, Ints
from dsp_gym.config.model import ConfigModel
from dsp_gym.loop.decision import ScalingDecision
from dsp_gym.loop.lacking import needs
from dsp_gym.loop.per_job_state import Kept, Parts, Restorable
from dsp_gym.loop.protocols import Mask
from dsp_gym.loop.snapshot import MetricsSnapshot
from dsp_gym.loop.topology import Topology
from dsp_gym.loop.unknown import LastKnown
from dsp_gym.policies.capabilities import ExplainingPolicy

NEEDS = needs(("busy_now_ms_per_s", "busy_ms_per_s", "records_in_per_s"), (), demand=False)
"""The metrics that a decision on a vertex needs: those of its subtasks."""


class HpaCpuConfig(ConfigModel):
    """Parameters of one HorizontalPodAutoscaler; the defaults are Kubernetes'."""

    target_utilization: float = Field(
        0.8, gt=0, le=1, description="busy share to aim at (Kubernetes: 80 % when not given)"
    )
    metric: Literal["busy", "cpu"] = Field(
        "busy",
        description="busy: busy time of the subtasks, each a pod; cpu: CPU load of the "
        "TaskManagers, which is one for the job",
    )
    cpu_window_s: float | None = Field(
        None,
        gt=0,
        le=600,
        description="time over which the CPU load is averaged, s (metrics-server: between two "
        "scrapes); none: as the collector reports it",
    )
    tolerance: float = Field(0.1, ge=0, description="|metric / target - 1| that is left alone")
    per_vertex: bool = Field(
        True,
        description="one autoscaler per vertex; false: one for the job, whose count all vertices "
        "that can be scaled take, as with Flink's reactive mode",
    )
    sync_period_s: float = Field(15.0, gt=0, description="time between evaluations, s")
    readiness_s: float = Field(
        60.0, ge=0, description="seconds after a start in which pods have no usable CPU metric"
    )
    restarts_pods: bool = Field(
        True,
        description="true: a rescale starts all pods anew, and the controller waits for their "
        "metrics; false: it adds or removes pods and the others keep theirs, as in reactive mode",
    )
    behavior: Behavior = Field(
        default_factory=Behavior, description="stabilisation and limits of the change"
    )

    @model_validator(mode="after")
    def _fits_the_metric(self) -> HpaCpuConfig:
        if self.metric == "cpu" and self.per_vertex:
            raise ValueError(
                "metric: cpu is the load of TaskManagers, which tasks of all vertices share; "
                "set per_vertex: false, or use metric: busy"
            )
        if self.cpu_window_s is not None and self.metric != "cpu":
            raise ValueError("cpu_window_s averages the CPU load; set metric: cpu")
        return self


class HpaCpu(Kept, ExplainingPolicy):
    """Kubernetes' HPA on busy time: tolerance, stabilisation windows, behaviour policies."""

    Config = HpaCpuConfig

    def __init__(self, config: HpaCpuConfig | None = None) -> None:
        self.name = "hpa-cpu"
        self.config = c = config or HpaCpuConfig()
        self._controller = HorizontalController(
            c.behavior,
            sync_period_s=c.sync_period_s,
            per_vertex=c.per_vertex,
            readiness_s=c.readiness_s,
            restarts_pods=c.restarts_pods,
        )
        self._last_known = LastKnown(NEEDS)
        parts: dict[str, Restorable] = {
            "controller": self._controller,
            "last_known": self._last_known,
        }
        self._window = None if c.cpu_window_s is None else OwnWindow(c.cpu_window_s)
        if self._window is not None:
            parts["window"] = self._window
        self._kept = Parts(**parts)

    def reset(self, jobs: Topology, seeds: Ints, mask: Mask | None = None) -> None:
        self._controller.reset(jobs, mask)
        self._last_known.reset(jobs, mask)
        if self._window is not None:
            self._window.reset(jobs, mask)

    def decide(self, snapshot: MetricsSnapshot) -> ScalingDecision:
        c = self.config
        if self._window is not None:
            snapshot = self._window.seen(snapshot)
        snapshot = self._last_known.filled(snapshot)
        share = snapshot.busy_now_ms_per_s / 1000
        # One count for the job: the mean over all tasks stands for every vertex.
        if not c.per_vertex:
            share = _of_job(snapshot, share)
        if c.metric == "cpu":
            share = np.broadcast_to(snapshot.tm_cpu_load[:, None], share.shape)
        # The HPA formula: replicas x metric / target, within the tolerance unchanged.
        current = self._controller.current(snapshot)
        without = self._controller.without_metrics(snapshot, current)
        wanted = recommend_all(current, share / c.target_utilization, c.tolerance, without)
        pods = self._controller.replicas(snapshot, current, wanted)

        def why(job: int, v: int) -> str:
            if c.metric == "cpu":
                return f"CPU {share[job, v]:.0%}, target {c.target_utilization:.0%}"
            busy, target = 1000 * share[job, v], 1000 * c.target_utilization
            return f"busy {busy:.0f} ms/s, target {target:.0f} ms/s"

        return reasons.decision(
            snapshot, pods, snapshot.memory_level, why if self.explain else None
        )


def _of_job(snapshot: MetricsSnapshot, share: Floats) -> Floats:
    """Return the mean over the tasks of all scalable vertices; (J, V) with one value per job."""
    tasks = np.where(can_scale(snapshot.topology), snapshot.parallelism, 0)
    whole = np.where(tasks > 0, share * tasks, 0.0).sum(axis=1)
    with np.errstate(invalid="ignore"):
        mean = whole / tasks.sum(axis=1)
    return np.broadcast_to(mean[:, None], share.shape)
