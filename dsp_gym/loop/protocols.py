"""The interfaces inside the loop, policy and guardrail: protocols, not base classes.

All of them work on a batch of J jobs, and a batch of n gives the same as n batches of 1. None reads
the wall clock: time is `t_s` of the snapshot.
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
    """A policy decides on a configuration from a snapshot.

    History comes from the configurations observed running in snapshots, never from earlier
    requests.
    """

    name: str

    def reset(self, jobs: Topology, seeds: Ints, mask: Mask | None = None) -> None:
        """Start again on these jobs; with a mask only the rows where it is True."""

    def decide(self, snapshot: MetricsSnapshot) -> ScalingDecision:
        """Return the wanted configuration of every job.

        Returns:
            Tasks and memory level per vertex, (J, V), and one reason per job.
        """

    def state(self) -> State:
        """Return everything the next decision depends on, as JSON values.

        Returns:
            JSON values; `restore` of them continues exactly.
        """

    def restore(self, state: State) -> None:
        """Continue from the values of `state()`."""


@runtime_checkable
class RemembersTimes(Protocol):
    """A guardrail that holds back until some time: it is told when the clock is set forward."""

    def set_forward(self, seconds: float) -> None:
        """Move what it remembers by so much, so that it holds back as long as before."""


@runtime_checkable
class Guardrail(Protocol):
    """A guardrail turns a decision into an allowed one. Idempotent; pure within a tick."""

    name: str

    def reset(self, jobs: Topology, seeds: Ints, mask: Mask | None = None) -> None:
        """Start again on these jobs; with a mask only the rows where it is True."""

    def allow(self, snapshot: MetricsSnapshot, decision: ScalingDecision) -> GuardedDecision:
        """Return the nearest allowed decision, every change named and explained.

        Returns:
            The allowed configuration, (J, V), with the proposed one and the interventions.
        """

    def commit(self, snapshot: MetricsSnapshot, guarded: GuardedDecision) -> None:
        """Advance counters by the decision that was enacted."""

    def watch(self, snapshot: MetricsSnapshot) -> None:
        """Remember a snapshot; called in place of `commit` where no decision was enacted."""

    def state(self) -> State:
        """Return everything the next call depends on, as JSON values.

        Returns:
            JSON values; `restore` of them continues exactly.
        """

    def restore(self, state: State) -> None:
        """Continue from the values of `state()`."""
