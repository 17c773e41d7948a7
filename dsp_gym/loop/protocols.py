"""The interfaces inside the loop, policy and guardrail: protocols, not base classes.

All of them work on a batch of J jobs, and a batch of n gives the same as n batches of 1. None reads
the wall clock: time is `t_s` of the snapshot.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from dsp_gym.arrays import Bools, Floats, Floats32, Ints
from dsp_gym.loop.decision import GuardedDecision, ScalingDecision
from dsp_gym.loop.snapshot import MetricsSnapshot
from dsp_gym.loop.topology import Topology

State = dict[str, Any]
"""JSON-able state of a policy or guardrail."""

Mask = Bools

IDLE, PENDING, REACHED, REFUSED, TIMED_OUT = 0, 1, 2, 3, 4
"""Actuator status per job: idle; under way; done; failed; gave up."""


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
class Explaining(Protocol):
    """A policy that can leave out the words of its reasons, which cost time in a large batch."""

    explain: bool


@runtime_checkable
class Confident(Protocol):
    """A policy that states its confidence in the last decision."""

    @property
    def confidence(self) -> Floats | Floats32 | None:
        """0..1 per vertex, (J, V); None before the first decision."""


@runtime_checkable
class Sharing(Protocol):
    """A policy that shares large parts with others of its kind."""

    @property
    def shared(self) -> tuple[object, ...]:
        """Objects that other policies hold, too; they count for none of them."""


@runtime_checkable
class Answering(Protocol):
    """A policy that also answers documents in a format of its distribution."""

    def answer(self, document: State, kind: str = "decision") -> State:
        """Answer one document; `kind` is "decision" or "trace".

        Returns:
            A JSON-able document in the policy's own format.

        Raises:
            SchemaError: The document is not in the policy's format.
        """


def without_words(policy: Policy) -> Policy:
    """Make a policy leave out the words of its reasons where it can.

    Returns:
        The policy it was given.
    """
    # The attribute is part of the protocol: a policy without it always explains.
    if isinstance(policy, Explaining):
        policy.explain = False
    return policy


@runtime_checkable
class Planning(Protocol):
    """A policy that plans now and then, and can do so after it has answered.

    It plans afterwards only where it has no time limit; see `Rowwise`.
    """

    plans_after: bool
    """Decide with the last plan where there is one, and leave a new one to `plan`."""

    @property
    def has_plan(self) -> bool:
        """Whether there is a plan to decide with; otherwise the next decision may make one."""

    @property
    def is_due(self) -> bool:
        """Whether the last decision was taken with a plan that is out of date."""

    def plan(self, snapshot: MetricsSnapshot) -> None:
        """Make a new plan, on the snapshot of the last decision."""


@runtime_checkable
class Watching(Protocol):
    """A guardrail that remembers snapshots, whether a decision on them was enacted or not."""

    def watch(self, snapshot: MetricsSnapshot) -> None:
        """Remember a snapshot; called in place of `commit` where no decision was enacted."""


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

    def state(self) -> State:
        """Return everything the next call depends on, as JSON values.

        Returns:
            JSON values; `restore` of them continues exactly.
        """

    def restore(self, state: State) -> None:
        """Continue from the values of `state()`."""
