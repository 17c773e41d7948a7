"""Kubernetes' horizontal pod autoscaler on the busy share of a vertex's subtasks.

Semantics of autoscaling/v2: the ratio with its tolerance, conservative treatment of missing
metrics, stabilisation windows and behaviour policies. A subtask is taken for a pod and its busy
time for CPU, as in Varga et al., "Towards autoscaling of Apache Flink jobs".
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray
from pydantic import Field

from baselines import reasons
from dsp_gym.config.model import ConfigModel
from dsp_gym.loop.decision import ScalingDecision
from dsp_gym.loop.protocols import Mask, State
from dsp_gym.loop.row_memory import RowMemory
from dsp_gym.loop.snapshot import MetricsSnapshot
from dsp_gym.loop.topology import Topology

__all__ = ["HpaCpu", "HpaCpuConfig"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class HpaCpuConfig(ConfigModel):
    """Parameters of one HorizontalPodAutoscaler; the defaults are Kubernetes'."""

    target_utilization: float = Field(
        0.8, gt=0, le=1, description="busy share to aim at (Kubernetes: 80 % when not given)"
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
    scale_up_stabilization_s: float = Field(
        0.0, ge=0, le=3600, description="the lowest recommendation of this window counts, s"
    )
    scale_down_stabilization_s: float = Field(
        300.0, ge=0, le=3600, description="the highest recommendation of this window counts, s"
    )
    scale_up_pods: int = Field(
        4, ge=0, description="pods that may be added per decision; the larger of both is allowed"
    )
    scale_up_percent: float = Field(
        100.0, ge=0, description="share of the pods that may be added per decision, %"
    )
    scale_down_percent: float = Field(
        100.0, ge=0, le=100, description="share of the pods that may be removed per decision, %"
    )


class HpaCpu:
    """Kubernetes' HPA on busy time: tolerance, stabilisation windows, behaviour policies."""

    Config = HpaCpuConfig

    def __init__(self, config: HpaCpuConfig | None = None) -> None:
        self.name = "hpa-cpu"
        self.explain = True
        self.config = c = config or HpaCpuConfig()
        longest = max(c.scale_up_stabilization_s, c.scale_down_stabilization_s)
        kept = math.ceil(longest / c.sync_period_s) + 2
        self._times = RowMemory({"evaluated_s": ("job", -1e18), "written": ("job", 0)})
        self._recommended = RowMemory({"pods": ("vertex", 0)}, depth=kept)
        self._recommended_s = RowMemory({"at_s": ("job", -1e18)}, depth=kept)

    def reset(self, jobs: Topology, seeds: NDArray[np.int64], mask: Mask | None = None) -> None:
        for memory in (self._times, self._recommended, self._recommended_s):
            memory.reset(jobs, mask)

    def state(self) -> State:
        return {
            "times": self._times.state(),
            "recommended": self._recommended.state(),
            "recommended_s": self._recommended_s.state(),
        }

    def restore(self, state: State) -> None:
        self._times.restore(state["times"])
        self._recommended.restore(state["recommended"])
        self._recommended_s.restore(state["recommended_s"])

    def decide(self, snapshot: MetricsSnapshot) -> ScalingDecision:
        c, tables = self.config, snapshot.topology.tables
        pods = snapshot.parallelism.copy()
        busy = np.ascontiguousarray(snapshot.busy_now_ms_per_s)
        _scale(
            snapshot.topology.row, tables.kind, tables.min_parallelism, tables.max_parallelism,
            np.ascontiguousarray(snapshot.t_s), snapshot.status,
            np.ascontiguousarray(snapshot.running_since_s), busy, c.target_utilization,
            c.tolerance, c.per_vertex, c.sync_period_s, c.readiness_s, c.scale_up_stabilization_s,
            c.scale_down_stabilization_s, c.scale_up_pods, 1 + c.scale_up_percent / 100,
            1 - c.scale_down_percent / 100, self._times["evaluated_s"], self._times["written"],
            self._recommended["pods"], self._recommended_s["at_s"], pods,
        )  # fmt: skip
        target = 1000 * c.target_utilization

        def why(job: int, v: int) -> str:
            return f"busy {busy[job, v]:.0f} of {target:.0f} ms/s"

        return reasons.decision(
            snapshot, pods, snapshot.memory_level, why if self.explain else None
        )


@njit(cache=True, nogil=True)
def _recommendation(current: int, share: float, target: float, tolerance: float) -> int:
    """ceil(current * metric / target); current within the tolerance, and where nothing is known.

    With every pod's metric missing Kubernetes computes no recommendation and changes nothing.
    """
    ratio = share / target
    if np.isnan(ratio) or abs(ratio - 1.0) <= tolerance:
        return current
    return int(np.ceil(current * ratio - 1e-9))


@njit(cache=True, nogil=True)
def _scale(
    row: Ints, kind: Ints, low: Ints, high: Ints, t_s: Floats, status: Ints, since: Floats,
    busy: Floats, target: float, tolerance: float, per_vertex: bool, sync: float,
    readiness: float, up_window: float, down_window: float, up_pods: int, up_factor: float,
    down_factor: float, evaluated_s: Floats, written: Ints, kept: Ints, kept_s: Floats,
    pods: Ints,
) -> None:  # fmt: skip
    jobs, vertices = pods.shape
    size = kept_s.shape[1]
    wanted = np.empty(vertices, dtype=np.int64)
    for j in range(jobs):
        k = row[j]
        now = t_s[j]
        if status[j] != 0 or now - since[j] < readiness or now - evaluated_s[j] < sync - 1e-9:
            continue
        evaluated_s[j] = now
        whole, tasks, largest = 0.0, 0, 0
        for v in range(vertices):
            if low[k, v] < high[k, v]:
                tasks += pods[j, v]
                whole += busy[j, v] / 1000.0 * pods[j, v]
                largest = max(largest, pods[j, v])
        of_job = 0
        if not per_vertex and tasks > 0:
            of_job = _recommendation(largest, whole / tasks, target, tolerance)
        if written[j] == 0:  # the controller starts with the current count as recommendation
            for v in range(vertices):
                kept[j, v, 0] = pods[j, v] if per_vertex else largest
            kept_s[j, 0] = now
            written[j] = 1
        slot = written[j] % size
        kept_s[j, slot] = now
        written[j] += 1
        for v in range(vertices):
            wanted[v] = pods[j, v]
            if kind[k, v] < 0 or low[k, v] == high[k, v]:
                continue
            share = busy[j, v] / 1000.0
            current = pods[j, v] if per_vertex else largest
            fresh = _recommendation(current, share, target, tolerance) if per_vertex else of_job
            kept[j, v, slot] = fresh
            lowest = highest = fresh
            for i in range(size):
                if now - kept_s[j, i] < up_window:
                    lowest = min(lowest, kept[j, v, i])
                if now - kept_s[j, i] < down_window:
                    highest = max(highest, kept[j, v, i])
            stable = min(max(current, lowest), highest)
            most = max(current + up_pods, int(np.ceil(current * up_factor - 1e-9)))
            least = int(np.floor(current * down_factor + 1e-9))
            stable = min(max(stable, least), most)
            wanted[v] = min(max(stable, low[k, v]), high[k, v])
        for v in range(vertices):
            pods[j, v] = wanted[v]
