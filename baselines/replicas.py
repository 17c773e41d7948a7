"""Kubernetes' horizontal controller: from recommended replicas to replicas.

Semantics of autoscaling/v2 (`normalizeDesiredReplicasWithBehaviors` of kube-controller-manager):
recommendations are stabilised over a window, then limited by the behaviour policies, which count
the pods added and removed within their period. The metrics behind the recommendations are in `hpa`,
`varga` and `keda`.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal, NamedTuple

import numpy as np
from pydantic import AfterValidator, Field, model_validator

from dsp_gym.arrays import Bools, Floats, Ints
from dsp_gym.compiling import njit
from dsp_gym.config.model import ConfigModel
from dsp_gym.loop.due import is_due
from dsp_gym.loop.per_job_state import Kept, Parts, RowMemory
from dsp_gym.loop.protocols import Mask
from dsp_gym.loop.snapshot import JOB, RUNNING, MetricsSnapshot, SnapshotArrays
from dsp_gym.loop.topology import JobFacts, Topology

Select = Literal["Max", "Min", "Disabled"]

NOTHING = -1
"""No recommendation: metrics are missing, and Kubernetes leaves the replicas alone."""

ROUND_OFF = 1e-9
"""Part of a replica that is arithmetic, not demand: 3.0000000001 replicas are three."""

_MAX, _MIN, _DISABLED = range(3)
_SELECT = {"Max": _MAX, "Min": _MIN, "Disabled": _DISABLED}
_UP, _DOWN = 1, -1
MOST = float(np.iinfo(np.int32).max)
"""More replicas than any target has; demand without bound would overflow an integer."""


class ScalingPolicy(ConfigModel):
    """The largest change within a period (`HPAScalingPolicy`)."""

    type: Literal["Pods", "Percent"] = Field(description="unit of the value, as Kubernetes says it")
    value: int = Field(gt=0, description="pods, or share of the pods at the period's start in %")
    period_s: float = Field(gt=0, le=1800, description="period the change is counted over, s")


def _some(policies: tuple[ScalingPolicy, ...]) -> tuple[ScalingPolicy, ...]:
    if not policies:
        raise ValueError("name at least one policy; select_policy: Disabled turns a direction off")
    return policies


ScalingPolicies = Annotated[tuple[ScalingPolicy, ...], AfterValidator(_some)]

_PODS = ScalingPolicy(type="Pods", value=4, period_s=15)
_PERCENT = ScalingPolicy(type="Percent", value=100, period_s=15)


class ScaleUp(ConfigModel):
    """Rules for adding replicas; the defaults are Kubernetes'."""

    stabilization_window_s: float = Field(
        0.0, ge=0, le=3600, description="the lowest recommendation of this window counts, s"
    )
    policies: ScalingPolicies = Field(
        (_PODS, _PERCENT),
        description="limits of the change per period (Kubernetes: 4 pods and 100 % in 15 s)",
    )
    select_policy: Select = Field(
        "Max", description="which limit holds: the one that allows most, least, or no scale-up"
    )


class ScaleDown(ConfigModel):
    """Rules for removing replicas; the defaults are Kubernetes'."""

    stabilization_window_s: float = Field(
        300.0, ge=0, le=3600, description="the highest recommendation of this window counts, s"
    )
    policies: ScalingPolicies = Field(
        (_PERCENT,),
        description="limits of the change per period (Kubernetes: 100 % in 15 s)",
    )
    select_policy: Select = Field(
        "Max", description="which limit holds: the one that allows most, least, or no scale-down"
    )


class Behavior(ConfigModel):
    """`spec.behavior` of a HorizontalPodAutoscaler."""

    scale_up: ScaleUp = Field(default_factory=ScaleUp, description="rules for adding replicas")
    scale_down: ScaleDown = Field(
        default_factory=ScaleDown, description="rules for removing replicas"
    )

    @model_validator(mode="after")
    def _moves(self) -> Behavior:
        if self.scale_up.select_policy == self.scale_down.select_policy == "Disabled":
            raise ValueError(
                "scale_up and scale_down are both Disabled, so the controller would never scale; "
                "enable one, or use the policy 'static'"
            )
        return self


class BehaviourLimits(NamedTuple):
    """The behaviour policies of one direction, as the compiled code takes them."""

    percent: Bools
    value: Ints
    period_s: Floats
    select: int


class Rules(NamedTuple):
    """The controller's options, as the compiled code takes them."""

    sync_s: float  # time between evaluations
    readiness_s: float  # time after a start without usable metrics
    restarts_pods: bool  # a rescale starts all pods anew
    up_window_s: float
    down_window_s: float
    up: BehaviourLimits
    down: BehaviourLimits


class Now(NamedTuple):
    """Memory of the last snapshot and evaluation."""

    evaluated_s: Floats  # (J,)
    seen_s: Floats  # (J,)
    written: Ints  # (J,) recommendations written so far
    events: Ints  # (J, V) changes written so far
    replicas: Ints  # (J, V)


class Remembered(NamedTuple):
    """Memory of the controller: R recommendations and E changes of each target, as rings."""

    now: Now
    recommended: Ints  # (J, V, R)
    recommended_s: Floats  # (J, R)
    change: Ints  # (J, V, E) replicas added, negative: removed
    change_s: Floats  # (J, V, E)


class HorizontalController(Kept):
    """A controller of the replicas of every vertex, or of one count for the job.

    A vertex is a scale target and its subtasks are pods. Only observed changes count as added and
    removed pods, never requests.
    """

    def __init__(
        self,
        behavior: Behavior,
        *,
        sync_period_s: float,
        per_vertex: bool,
        readiness_s: float = 0,
        restarts_pods: bool = True,
    ) -> None:
        self._per_vertex = per_vertex
        up, down = behavior.scale_up, behavior.scale_down
        self._rules = Rules(
            sync_period_s,
            float(readiness_s),
            restarts_pods,
            up.stabilization_window_s,
            down.stabilization_window_s,
            _limits(up.policies, up.select_policy),
            _limits(down.policies, down.select_policy),
        )
        longest_s = max(up.stabilization_window_s, down.stabilization_window_s)
        kept = math.ceil(longest_s / sync_period_s) + 2
        period = max(policy.period_s for policy in (*up.policies, *down.policies))
        if not restarts_pods:
            period = max(period, readiness_s)  # the age of added pods is read from the changes
        events = math.ceil(period / sync_period_s) + 2
        self._now = RowMemory(
            {
                "evaluated_s": ("job", -1e18),
                "seen_s": ("job", -1e18),
                "written": ("job", 0),
                "events": ("vertex", 0),
                "replicas": ("vertex", NOTHING),
            }
        )
        self._recommended = RowMemory({"replicas": ("vertex", NOTHING)}, depth=kept)
        self._recommended_s = RowMemory({"at_s": ("job", -1e18)}, depth=kept)
        self._events = RowMemory({"change": ("vertex", 0), "at_s": ("vertex", -1e18)}, depth=events)
        self._memories = {
            "now": self._now,
            "recommended": self._recommended,
            "recommended_s": self._recommended_s,
            "events": self._events,
        }
        self._kept = Parts(**self._memories)

    def reset(self, jobs: Topology, mask: Mask | None = None) -> None:
        for memory in self._memories.values():
            memory.reset(jobs, mask)

    def current(self, snapshot: MetricsSnapshot) -> Ints:
        """Count the replicas of each scale target: those of the vertex, or the job's largest.

        Returns:
            (J, V).
        """
        if self._per_vertex:
            return snapshot.parallelism
        scalable = can_scale(snapshot.topology)
        largest = np.where(scalable, snapshot.parallelism, 0).max(axis=1)
        return np.where(scalable, largest[:, None], snapshot.parallelism)

    def replicas(self, snapshot: MetricsSnapshot, current: Ints, recommended: Ints) -> Ints:
        """Apply stabilisation, behaviour policies and the job's bounds.

        Args:
            snapshot: The metrics.
            current: (J, V) replicas as `current` returns them.
            recommended: (J, V) replicas by the metrics; `NOTHING` where they are unknown.

        Returns:
            (J, V) parallelism.
        """
        pods = snapshot.parallelism.copy()
        _normalise(
            snapshot.topology.facts,
            snapshot.arrays,
            np.ascontiguousarray(current),
            recommended,
            self._rules,
            self._remembered,
            pods,
        )
        return pods

    def without_metrics(self, snapshot: MetricsSnapshot, current: Ints) -> Ints:
        """Count the replicas that were added too recently to have metrics.

        Args:
            snapshot: The metrics.
            current: (J, V) replicas as `current` returns them.

        Returns:
            (J, V); none where a rescale starts all pods anew, since the controller waits then.
        """
        fresh = np.zeros(current.shape, np.int64)
        if not self._rules.restarts_pods:
            _count_fresh(
                snapshot.arrays,
                np.ascontiguousarray(current),
                self._rules.readiness_s,
                self._remembered,
                fresh,
            )
        return fresh

    @property
    def _remembered(self) -> Remembered:
        return Remembered(
            self._now.arrays(Now),
            self._recommended["replicas"],
            self._recommended_s["at_s"],
            self._events["change"],
            self._events["at_s"],
        )


def can_scale(jobs: Topology) -> Bools:
    """Mark the vertices with room between their bounds.

    Returns:
        (J, V) flags.
    """
    tables = jobs.tables
    scalable = (tables.kind >= 0) & (tables.min_parallelism < tables.max_parallelism)
    return np.asarray(scalable[jobs.row])


@njit(cache=True, nogil=True)
def recommend(current: int, ratio: float, tolerance: float, without: int = 0) -> int:
    """Scale replicas by the ratio of a metric to its target.

    Replicas without a metric count as idle where the others call for more, and as on target where
    they call for fewer; if that turns the answer around, the replicas stay (Kubernetes'
    `calcPlainMetricReplicas`).

    >>> recommend(4, 1.5, 0.1), recommend(4, 1.05, 0.1), recommend(4, float("nan"), 0.1)
    (6, 4, -1)
    >>> recommend(4, 1.5, 0.1, 1), recommend(4, 2.0, 0.1, 1), recommend(4, 0.2, 0.1, 1)
    (5, 6, 2)

    Returns:
        ceil(current * ratio): `current` within the tolerance, `NOTHING` where the ratio is NaN.
    """
    if np.isnan(ratio):
        return NOTHING
    if 0 < without < current:
        others = ratio * (current - without) + (without if ratio < 1.0 else 0)
        known, ratio = ratio, others / current
        if (known - 1.0) * (ratio - 1.0) <= 0.0:
            return current
    if abs(ratio - 1.0) <= tolerance:
        return current
    return int(min(max(np.ceil(current * ratio - ROUND_OFF), 0.0), MOST))


@njit(cache=True, nogil=True)
def recommend_all(current: Ints, ratio: Floats, tolerance: float, without: Ints) -> Ints:
    """Recommend replicas for every vertex of every job, see `recommend`.

    Returns:
        (J, V) replicas.
    """
    wanted = np.empty(current.shape, dtype=np.int64)
    for j in range(current.shape[0]):
        for v in range(current.shape[1]):
            wanted[j, v] = recommend(current[j, v], ratio[j, v], tolerance, without[j, v])
    return wanted


def _limits(policies: tuple[ScalingPolicy, ...], select: Select) -> BehaviourLimits:
    return BehaviourLimits(
        np.array([policy.type == "Percent" for policy in policies]),
        np.array([policy.value for policy in policies], dtype=np.int64),
        np.array([policy.period_s for policy in policies], dtype=np.float64),
        _SELECT[select],
    )


@njit(cache=True, nogil=True)
def _limit(
    current: int, now: float, sign: int, limits: BehaviourLimits, change: Ints, at_s: Floats
) -> int:
    """Return the replicas that the policies of one direction allow; sign 1 for up, -1 for down."""
    if limits.select == _DISABLED:
        return current
    best = 0
    for i in range(len(limits.value)):
        # Each policy limits from the count at its period's start: take back the changes since.
        moved = 0
        for e in range(len(change)):
            if now - at_s[e] < limits.period_s[i]:
                moved += change[e]
        start, value = current - moved, limits.value[i]
        if not limits.percent[i]:
            proposed = start + sign * value
        elif sign > 0:
            proposed = int(np.ceil(start * (1.0 + value / 100.0) - ROUND_OFF))
        else:
            proposed = int(np.floor(start * (1.0 - value / 100.0) + ROUND_OFF))
        # Max is the larger change, in either direction.
        larger = proposed > best if sign > 0 else proposed < best
        if i == 0 or larger == (limits.select == _MAX):
            best = proposed
    return max(best, current) if sign > 0 else min(best, current)


@njit(cache=True, nogil=True)
def _note(j: int, current: Ints, when: float, m: Remembered) -> None:
    """Remember the replicas of row j, and the changes since the last snapshot as of a time."""
    running = m.now.replicas
    for v in range(running.shape[1]):
        if running[j, v] >= 0 and running[j, v] != current[j, v]:
            at = m.now.events[j, v] % m.change_s.shape[2]
            m.change[j, v, at], m.change_s[j, v, at] = current[j, v] - running[j, v], when
            m.now.events[j, v] += 1
        running[j, v] = current[j, v]


@njit(cache=True, nogil=True)
def _notice(seen: SnapshotArrays, j: int, current: Ints, m: Remembered) -> None:
    """Remember the replicas of a running job, row j.

    A rescale first seen now took place when the job came up, if that is since the last snapshot.
    """
    now, since = seen.job[JOB.t_s, j], seen.job[JOB.running_since_s, j]
    _note(j, current, since if since > m.now.seen_s[j] else now, m)
    m.now.seen_s[j] = now


@njit(cache=True, nogil=True)
def _count_fresh(
    seen: SnapshotArrays, current: Ints, readiness_s: float, m: Remembered, fresh: Ints
) -> None:
    """Count the replicas of every running job (row j) that were added within a time.

    Args:
        seen: The snapshot.
        current: (J, V) replicas.
        readiness_s: The time.
        m: Memory, changed in place.
        fresh: (J, V) set to the count.
    """
    for j in range(current.shape[0]):
        if seen.status[j] != RUNNING:
            continue
        _notice(seen, j, current, m)
        for v in range(current.shape[1]):
            for e in range(m.change.shape[2]):
                if seen.job[JOB.t_s, j] - m.change_s[j, v, e] < readiness_s:
                    # Fewer replicas take away those added last.
                    fresh[j, v] = max(0, fresh[j, v] + m.change[j, v, e])


@njit(cache=True, nogil=True)
def _stabilised(fresh: int, now: float, kept: Ints, kept_s: Floats, c: Rules) -> tuple[int, int]:
    """Return the lowest recommendation of the up window and the highest of the down window."""
    lowest = highest = fresh
    for i in range(len(kept)):
        age = now - kept_s[i]
        if kept[i] >= 0 and age < c.up_window_s:
            lowest = min(lowest, kept[i])
        if kept[i] >= 0 and age < c.down_window_s:
            highest = max(highest, kept[i])
    return lowest, highest


@njit(cache=True, nogil=True)
def _normalise(
    t: JobFacts,
    seen: SnapshotArrays,
    current: Ints,
    recommended: Ints,
    c: Rules,
    m: Remembered,
    pods: Ints,
) -> None:
    """Stabilise and limit recommendations (`normalizeDesiredReplicasWithBehaviors`).

    j is a job's row, k its job file, v a vertex.

    Args:
        t: The jobs.
        seen: The snapshot.
        current: (J, V) replicas.
        recommended: (J, V) replicas by the metrics; `NOTHING` where they are unknown.
        c: The options.
        m: Memory, changed in place.
        pods: (J, V) parallelism, changed where the controller scales.
    """
    jobs, vertices = pods.shape
    size, kept = m.recommended_s.shape[1], m.recommended
    for j in range(jobs):
        k, now, since = t.row[j], seen.job[JOB.t_s, j], seen.job[JOB.running_since_s, j]
        if seen.status[j] != RUNNING:
            continue
        _notice(seen, j, current, m)
        wait_s = c.readiness_s if c.restarts_pods else 0.0
        if now - since < wait_s or not is_due(now, m.now.evaluated_s[j], c.sync_s):
            continue
        m.now.evaluated_s[j] = now
        if m.now.written[j] == 0:  # the controller starts with the current count
            for v in range(vertices):
                kept[j, v, 0] = current[j, v]
            m.recommended_s[j, 0] = now
            m.now.written[j] = 1
        slot = m.now.written[j] % size
        m.recommended_s[j, slot] = now
        m.now.written[j] += 1
        for v in range(vertices):
            fresh, here = recommended[j, v], current[j, v]
            low, high = t.min_parallelism[k, v], t.max_parallelism[k, v]
            kept[j, v, slot] = fresh
            if fresh < 0 or t.kind[k, v] < 0 or low == high:
                continue
            # Stabilisation: never below the lowest recommendation of the up window, nor above the
            # highest of the down window.
            lowest, highest = _stabilised(fresh, now, kept[j, v], m.recommended_s[j], c)
            wanted = min(max(here, lowest), highest)
            change, change_s = m.change[j, v], m.change_s[j, v]
            if wanted > here:
                wanted = min(wanted, _limit(here, now, _UP, c.up, change, change_s))
            elif wanted < here:
                wanted = max(wanted, _limit(here, now, _DOWN, c.down, change, change_s))
            pods[j, v] = min(max(wanted, low), high)
