"""The seams inside the loop: policy and guardrail. Protocols, not base classes.

All of them work on a batch of J jobs, and a batch of n gives what n batches of 1 give. Nothing
reads the wall clock: time is `t_s` of the snapshot.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Protocol, runtime_checkable

from dsp_gym.arrays import Bools, Ints
from dsp_gym.loop.decision import GuardedDecision, ScalingDecision
from dsp_gym.loop.snapshot import MetricsSnapshot
from dsp_gym.loop.topology import Topology

State = dict[str, Any]
"""JSON-able state of a policy or guardrail."""

Mask = Bools


class ActuatorStatus(IntEnum):
    """What became of the last request to scale a job; a batch holds an array of them."""

    IDLE = 0  # nothing was asked
    PENDING = 1
    REACHED = 2
    FAILED = 3  # refused, or given up with the job as it was
    TIMED_OUT = 4  # nothing is known in time; the request may still come about


@runtime_checkable
class Policy(Protocol):
    """Decides a configuration from a snapshot.

    History comes from the configuration observed running in the snapshot, never from what was
    asked for.
    """

    name: str

    def reset(self, jobs: Topology, seeds: Ints, mask: Mask | None = None) -> None:
        """Start anew on these jobs; with a mask only the rows where it is True."""

    def decide(self, snapshot: MetricsSnapshot) -> ScalingDecision:
        """The wanted configuration of every job.

        Returns:
            Tasks and memory level per vertex, (J, V), and one reason per job.
        """

    def state(self) -> State:
        """Everything the next decision depends on, as JSON values.

        Returns:
            JSON values; `restore` of them continues exactly.
        """

    def restore(self, state: State) -> None:
        """Continue from the values of `state()`."""


@runtime_checkable
class Guardrail(Protocol):
    """Turns a decision into one that is allowed. Idempotent; pure within a tick."""

    name: str

    def reset(self, jobs: Topology, seeds: Ints, mask: Mask | None = None) -> None:
        """Start anew on these jobs; with a mask only the rows where it is True."""

    def allow(self, snapshot: MetricsSnapshot, decision: ScalingDecision) -> GuardedDecision:
        """The nearest allowed decision, every change named and explained.

        Returns:
            The allowed configuration, (J, V), with the proposed one and the interventions.
        """

    def commit(self, snapshot: MetricsSnapshot, guarded: GuardedDecision) -> None:
        """The decision that was enacted: advance counters."""

    def watch(self, snapshot: MetricsSnapshot) -> None:
        """Called in place of `commit` where nothing was enacted: no excess is the policy's."""

    def state(self) -> State:
        """Everything the next call depends on, as JSON values.

        Returns:
            JSON values; `restore` of them continues exactly.
        """

    def restore(self, state: State) -> None:
        """Continue from the values of `state()`."""
