"""The seams inside the loop: policy and guardrail. Protocols, not base classes.

All of them work on a batch of J jobs, and a batch of n gives what n batches of 1 give. Nothing
reads the wall clock: time is `t_s` of the snapshot.
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
"""Actuator status per job: nothing asked; under way; done; failed; gave up."""


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
class Explaining(Protocol):
    """A policy that can leave out the words of its reasons, which cost time in a large batch."""

    explain: bool


@runtime_checkable
class Confident(Protocol):
    """A policy that says how sure it is of its last decision."""

    @property
    def confidence(self) -> Floats | Floats32 | None:
        """0..1 per vertex, (J, V); None before the first decision."""


@runtime_checkable
class Sharing(Protocol):
    """A policy that shares what is large with others of its kind."""

    @property
    def shared(self) -> tuple[object, ...]:
        """What other policies hold, too; it counts for none of them."""


@runtime_checkable
class Answering(Protocol):
    """A policy that also answers documents in a format of its own."""

    def answer(self, document: State, kind: str = "decision") -> State:
        """The policy's answer to one document; `kind` is "decision" or "trace".

        Returns:
            A JSON-able document in the policy's own format.

        Raises:
            SchemaError: The document is not in the policy's format.
        """


def without_words(policy: Policy) -> Policy:
    """The same policy, told to leave out the words of its reasons where it can.

    Returns:
        The policy it was given.
    """
    if isinstance(policy, Explaining):
        policy.explain = False
    return policy


@runtime_checkable
class Planning(Protocol):
    """A policy that plans now and then, and can do so after it has answered.

    It plans afterwards only in a seat without a time limit; see `Rowwise`.
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
        """Plan anew, on the snapshot that was decided on last."""


@runtime_checkable
class Watching(Protocol):
    """A guardrail that remembers snapshots, whether a decision on them was enacted or not."""

    def watch(self, snapshot: MetricsSnapshot) -> None:
        """Called in place of `commit` where nothing was enacted: no excess is the policy's."""


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

    def state(self) -> State:
        """Everything the next call depends on, as JSON values.

        Returns:
            JSON values; `restore` of them continues exactly.
        """

    def restore(self, state: State) -> None:
        """Continue from the values of `state()`."""
