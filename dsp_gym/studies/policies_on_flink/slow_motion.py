"""A job in slow motion: everything that is a time takes so many times as long.

A policy of ours or of others has constants in seconds and minutes, tuned to jobs that take a day
for a day's load. Under a load that passes twelve times as fast it must not be asked with those
constants. So the policy sees the job, its file and its metrics, slowed down until the load is as
fast as it was recorded: times twelve times as long, rates a twelfth, shares, counts and costs of a
run as they are. Nothing of the policy is changed, and its guardrails are asked in the same clock.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

import numpy as np

from dsp_gym.arrays import Ints
from dsp_gym.config.model import ConfigModel
from dsp_gym.control.guarded_policy import START_S, Failure, GuardedPolicy, Judgement
from dsp_gym.guardrails.chain import Chain
from dsp_gym.job.spec import JobSpec, Vertex
from dsp_gym.loop.decision import ScalingDecision
from dsp_gym.loop.protocols import Policy
from dsp_gym.loop.snapshot import (
    JOB,
    JOB_FLOATS,
    MOMENTS,
    SNAPSHOT_METRICS,
    VERTEX_FLOATS,
    MetricsSnapshot,
    SnapshotArrays,
    snapshot_of_arrays,
)
from dsp_gym.loop.topology import Topology

Section = TypeVar("Section", bound=ConfigModel)

_TIMES_OF_STATE = ("read_hit_us", "read_miss_us", "write_us", "compaction_us")
_POWER = {"s": 1, "ms": 1, "records/s": -1}
"""Power of the slow-down by unit; a share of time (ms/s), a count or a size stays as it is."""

_UNITS = {name: column.unit for name, _, column in SNAPSHOT_METRICS}


_JOB_POWERS, _VERTEX_POWERS = (
    np.array([float(_POWER.get(_UNITS[name], 0)) for name in names])
    for names in (JOB_FLOATS, VERTEX_FLOATS)
)


def slowed(spec: JobSpec, times: float) -> JobSpec:
    """Return a job `times` as slow, under a load `times` as slow.

    Its capacity is that many times less, and each configuration carries the same share of the load.
    An hour of it costs that many times less, so that a run costs the same.

    Args:
        spec: The job.
        times: How many times as long everything takes.

    Returns:
        The job file in slow motion, without the evidence of its fit, which counts in real seconds.
    """
    rescale = spec.rescale
    outage_s = tuple(times * second for second in rescale.outage_s)
    return spec.model_copy(
        update={
            "source": _scaled(spec.source, 1 / times, "rate_per_s"),
            "vertices": tuple(_slowed_vertex(vertex, times) for vertex in spec.vertices),
            "rescale": _scaled(
                rescale, 1 / times, "savepoint_mib_per_s", "restore_mib_per_s"
            ).model_copy(update={"outage_s": outage_s}),
            "slo": _scaled(spec.slo, times, "latency_s"),
            "prices": _scaled(spec.prices, 1 / times, "core_hour", "gib_hour"),
            "fitted": None,
        }
    )


def _slowed_vertex(vertex: Vertex, times: float) -> Vertex:
    made, state = _scaled(vertex, times, "cpu_us_per_record"), vertex.state
    if state is None:
        return made
    window = None if state.window is None else _scaled(state.window, times, "length_s", "slide_s")
    slow = _scaled(state, times, *_TIMES_OF_STATE).model_copy(update={"window": window})
    return made.model_copy(update={"state": slow})


def _scaled(section: Section, times: float, *fields: str) -> Section:
    """Return a section of the job file with some numbers `times` as large, unless they are none."""
    given = {field: getattr(section, field) for field in fields}
    return section.model_copy(
        update={field: times * float(x) for field, x in given.items() if x is not None}
    )


def slowed_snapshot(
    seen: MetricsSnapshot, jobs: Topology, times: float, origin_s: float
) -> MetricsSnapshot:
    """Say what was seen, in slow motion.

    Args:
        seen: A snapshot in real seconds.
        jobs: The same jobs slowed, see `slowed`.
        times: How many times as long everything takes.
        origin_s: The moment that counts as second 0, on the clock of `seen`.

    Returns:
        A snapshot of `jobs`, a copy.
    """
    arrays = seen.arrays
    job = arrays.job * times ** _JOB_POWERS[:, None]
    for name in MOMENTS:
        place = getattr(JOB, name)
        job[place] = times * (arrays.job[place] - origin_s)
    vertex = arrays.vertex * times ** _VERTEX_POWERS[:, None, None]
    return snapshot_of_arrays(jobs, SnapshotArrays(*arrays[:3], job, vertex))


class SlowGuardedPolicy(GuardedPolicy):
    """A policy and its guardrails, asked about a job in slow motion.

    Args:
        spec: The job's file, as the policy is told of it.
        policy: Decides.
        chain: What its decisions pass through; None: nothing.
        name: Its name in the journal.
        times: How many times as long everything takes.
        origin_s: The moment that counts as second 0, on the clock of the snapshots.
        keeps_memory: Memory levels stay as they run, as under the adaptive scheduler.
    """

    def __init__(
        self,
        spec: JobSpec,
        policy: Policy,
        chain: Chain | None,
        *,
        name: str,
        times: float,
        origin_s: float,
        keeps_memory: bool = False,
    ) -> None:
        super().__init__(_KeepsMemory(policy) if keeps_memory else policy, chain, name=name)
        self._times, self._origin_s = times, origin_s
        self._job = Topology.of([slowed(spec, times)])

    def reset(self, jobs: Topology, seeds: Ints, within_s: float = START_S) -> None:
        """Start again on the job's file, slowed, whatever is known of `jobs`."""
        super().reset(self._job, seeds, within_s)

    def warm_up(self, snapshot: MetricsSnapshot) -> None:
        """Decide on a snapshot, slowed; to be reset afterwards."""
        super().warm_up(self._slow(snapshot))

    def decide(self, snapshot: MetricsSnapshot) -> Judgement:
        """Ask about a snapshot, slowed.

        Returns:
            The judgement; a configuration is the same in any clock.
        """
        return super().decide(self._slow(snapshot))

    def settle(
        self, snapshot: MetricsSnapshot, judged: Judgement, *, enacted: bool
    ) -> Failure | None:
        """Tell the guardrails, slowed, what became of the last decision.

        Returns:
            What went wrong, if anything did.
        """
        return super().settle(self._slow(snapshot), judged, enacted=enacted)

    def _slow(self, snapshot: MetricsSnapshot) -> MetricsSnapshot:
        return slowed_snapshot(snapshot, self._job, self._times, self._origin_s)


class _KeepsMemory:
    """A policy whose wishes for memory are left out; everything else is the policy's own."""

    def __init__(self, policy: Policy) -> None:
        self.name, self._policy = policy.name, policy
        self.reset, self.state, self.restore = policy.reset, policy.state, policy.restore

    def decide(self, snapshot: MetricsSnapshot) -> ScalingDecision:
        wanted = self._policy.decide(snapshot)
        return replace(wanted, memory_level=snapshot.memory_level.copy())
