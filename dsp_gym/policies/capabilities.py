"""What a policy can do beyond deciding: one record that it returns, and nothing that is guessed.

A policy with `reset`, `decide`, `state` and `restore` is complete. One that can do more returns a
`Capabilities` from its method `capabilities`, with a function for each thing that it can do.
Callers ask `capabilities_of`; a policy without the method has the empty record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

from dsp_gym.arrays import Floats, Floats32, Ints
from dsp_gym.loop.forecast import Forecast
from dsp_gym.loop.per_job_state import RowMemory
from dsp_gym.loop.protocols import Policy, State
from dsp_gym.loop.snapshot import MetricsSnapshot
from dsp_gym.loop.topology import Topology
from dsp_gym.policies.planner import CapacityPlan, PlanRequest

P = TypeVar("P", bound=Policy)


class FutureLoad(NamedTuple):
    """The load of every job of a batch, second by second from the start of the episode."""

    rates_per_s: Floats  # (J, T) records/s offered to the whole job
    interval_s: int  # seconds between decisions
    same_law: Floats | None = None
    """(N, minutes) loads of other seeds of the same law, as multiples of a job's reference rate:
    all that can be learned of a law, without the dice. None: nobody has drawn any."""


class CostBounds(NamedTuple):
    """Between which costs a policy can move, (J,), money over the whole episode."""

    bound: Floats  # no policy that serves every arrival in time costs less
    peak: Floats  # the cheapest fixed configuration that carries the peak


class Requirement(NamedTuple):
    """Configuration needed for the observed demand, (J, V); the running one where unknown."""

    parallelism: Ints
    memory_level: Ints
    horizontal: Ints  # parallelism needed if memory stays unchanged


class CapacityModel(Protocol):
    """Says what is needed without deciding to rescale."""

    def required(self, snapshot: MetricsSnapshot) -> Requirement:
        """Compute what is needed now: no interval, warm-up, activation or utilisation band.

        Returns:
            Configurations (J, V).
        """

    def observe(self, snapshot: MetricsSnapshot) -> None:
        """Remember what is seen, as `decide` does, without deciding."""


class CompiledModel(NamedTuple):
    """A capacity model as functions that compiled code calls, on a graphics card as well."""

    offered: bool  # whether its rates are those of the offered load, as the environment's
    rules: tuple[Any, ...]  # its configuration, a `NamedTuple`
    memory: RowMemory  # not the one the policy decides with
    table: type  # the `NamedTuple` of the memory's arrays
    require: Callable[..., None]
    """Takes jobs, snapshot, rates, whether these are filled, rules, handle of the memory,
    `Requirement`, flags (J,) that are True, and room (V,)."""
    observe: Callable[..., None]
    """Takes jobs, snapshot, rates of one task, and handle of the memory."""


class LaterPlans(Protocol):
    """Plans now and then, and can do so after the answer."""

    plans_after: bool
    """Decide with the last plan where there is one, and leave a new one to `plan`."""

    @property
    def has_plan(self) -> bool:
        """Whether there is a plan to decide with; otherwise the next decision may make one."""

    @property
    def is_due(self) -> bool:
        """Whether the last decision was taken with a plan that is out of date."""

    def plan(self, snapshot: MetricsSnapshot) -> None:
        """Make a new plan, on the snapshot that was decided on last."""


class TrainingRange(Protocol):
    """Keeps the range of every feature that the policy was trained on."""

    @property
    def training_box(self) -> Mapping[str, tuple[float, float]]:
        """Lowest and highest value by feature."""

    def features(self, snapshot: MetricsSnapshot) -> Mapping[str, Floats | Floats32]:
        """Compute the same features of a snapshot.

        Returns:
            Values by feature, (J,) or (J, V) each.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What a policy can do beyond deciding; None: it cannot."""

    leave_out_reasons: Callable[[], None] | None = None
    """Decide without the words of the reasons, which cost time in a large batch."""

    confidence: Callable[[], Floats | Floats32 | None] | None = None
    """How sure it is of its last decision: 0..1 per vertex, (J, V); None: it does not know."""

    memories: Callable[[], tuple[RowMemory, ...] | None] | None = None
    """It decides in a moment, with arrays and compiled code, and gets neither a thread nor a time
    limit. Where the next decision depends on these rows of memory and on nothing else, rows may be
    moved between batches; the memories come in the same order from every object that was made the
    same way. None instead of memories: a part is not rows, so each job is decided on alone."""

    shared: Callable[[], tuple[object, ...]] | None = None
    """Large objects that other policies of the same kind hold, too; they count for none of them."""

    answer: Callable[[State, str], State] | None = None
    """Answer a document in the policy's own format; the second argument is "decision" or "trace".
    Raises `SchemaError` where the document has another format."""

    later_plans: LaterPlans | None = None
    """Plan after the answer; only where a decision has no time limit, see `memories`."""

    forecast: Callable[[], Forecast | None] | None = None
    """The load expected after the last snapshot, a row per job; None before the first decision."""

    know_future: Callable[[Topology, FutureLoad], None] | None = None
    """It must be told the load to come, or its law, before it is reset. An evaluation knows it; a
    live loop does not, so such a policy can be neither fallback, floor nor teacher."""

    price_lateness: Callable[[Floats], None] | None = None
    """Decide by other prices of a late minute, (J,), in minutes of the reference configuration; a
    teacher shows by it what each price that an agent is trained on asks for."""

    cost_bounds: Callable[[], CostBounds] | None = None
    """What there is to save on the load to come."""

    capacity: CapacityModel | None = None
    """What a job needs now, whether or not the policy would act on it; for a capacity floor."""

    compiled_model: Callable[[], CompiledModel] | None = None
    """The same as functions; without them the floor stays on the CPU."""

    training: TrainingRange | None = None
    """The range of the features in training, for the out-of-distribution guardrail."""

    plan_capacity: Callable[[PlanRequest], CapacityPlan] | None = None
    """Learn how throughput grows with resources, and plan for a rate; `dsp-gym plan` asks for it.
    Raises `ConfigError` where no budget reaches the rate or the graph does not fit."""


@runtime_checkable
class _Capable(Protocol):
    def capabilities(self) -> Capabilities: ...


def capabilities_of(policy: Policy) -> Capabilities:
    """Return what a policy can do beyond deciding.

    Returns:
        Its record; the empty one of a policy without the method `capabilities`.
    """
    return policy.capabilities() if isinstance(policy, _Capable) else Capabilities()


def without_reasons(policy: P) -> P:
    """Have a policy leave out the words of its reasons where it can.

    Returns:
        The policy it was given.
    """
    if (leave_out := capabilities_of(policy).leave_out_reasons) is not None:
        leave_out()
    return policy


class ExplainingPolicy:
    """The part that policies with reasons in words share: they can leave the words out."""

    explain = True

    def leave_out_reasons(self) -> None:
        """Decide without words from now on."""
        self.explain = False

    def capabilities(self) -> Capabilities:
        """Return what the policy can do beyond deciding.

        Returns:
            The record; classes with more replace its fields.
        """
        return Capabilities(leave_out_reasons=self.leave_out_reasons)
