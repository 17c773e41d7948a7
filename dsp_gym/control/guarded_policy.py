"""One policy beside others on a real job: asked in isolation, guarded by its own chain.

A policy may be anybody's code. One that raises, is late, or answers what no job can run is replaced
by its fallback for that decision, and asked again at the next. So may a guardrail: where one raises
or is late the running configuration is kept.
"""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol, TypeVar

import numpy as np

from dsp_gym.arrays import Floats, Floats32, Ints
from dsp_gym.backends.upstream.timed_calls import LateError, Worker, Workers
from dsp_gym.control.allowed_range import allowed_range, each_alone
from dsp_gym.errors import DspGymError, PolicyError
from dsp_gym.guardrails.chain import Chain
from dsp_gym.guardrails.fallback import Fallback
from dsp_gym.guardrails.shadow import ShadowPolicy
from dsp_gym.loop.decision import GuardedDecision, ScalingDecision
from dsp_gym.loop.forecast import Forecast
from dsp_gym.loop.per_job_state import RowMemory, all_of
from dsp_gym.loop.plausible import plausible
from dsp_gym.loop.protocols import Policy, State
from dsp_gym.loop.snapshot import MetricsSnapshot
from dsp_gym.loop.topology import Topology
from dsp_gym.loop.turn import guarded_turn, settle_turn
from dsp_gym.policies import capabilities_of
from dsp_gym.redaction import redacted

T = TypeVar("T")

_LOG = logging.getLogger(__name__)

BESIDE_S = 0.25
"""Least time for fallback, guardrails and what they are told afterwards, each, s. So a turn ends
within a second of the time limit, however late its policy was."""

START_S = 120.0
"""Longest wait for a policy, or its guardrails, to start on a job, s; code is compiled then."""

Cause = Literal["raised", "late", "invalid", "guardrails"]


class Failure(NamedTuple):
    """Why a policy's own decision was not taken."""

    cause: Cause
    reason: str
    replaced_by: str | None  # None: the running configuration is kept


class FaultCounts:
    """Failures beside decisions, which stand: of `forecast`, `plan` and `memory`, by policy."""

    def __init__(self) -> None:
        self._times: Counter[tuple[str, str]] = Counter()
        self._lock = threading.Lock()

    def add(self, policy: str, what: str, error: Exception) -> None:
        """Count one, and log the first, the tenth, the hundredth and so on."""
        with self._lock:
            self._times[policy, what] += 1
            times = self._times[policy, what]
        if str(times).strip("0") == "1":
            said = redacted(f"{type(error).__name__}: {error}")
            _LOG.warning(
                "%s: its %s failed, %d times so far; its decisions stand: %s",
                policy,
                what,
                times,
                said,
            )

    def times(self) -> dict[tuple[str, str], int]:
        """Count how often each failed.

        Returns:
            Number by policy and by `forecast`, `plan` or `memory`.
        """
        with self._lock:
            return dict(self._times)


FAULTS = FaultCounts()
"""Of this process."""


class Replacement(Protocol):
    """Decides in place of a policy; asked about every snapshot, so that its memory is current."""

    @property
    def name(self) -> str: ...

    def decided(self, snapshot: MetricsSnapshot) -> ScalingDecision:
        """Decide; the same for the same snapshot.

        Returns:
            The decision on the snapshot, (1, V).
        """


@dataclass(frozen=True, slots=True, eq=False)
class Judgement:
    """What one policy made of one snapshot of one job; arrays are (1, V)."""

    policy: str
    guarded: GuardedDecision  # its `proposed` is the uncapped decision
    lower: Ints  # the range the guardrails leave each vertex now
    upper: Ints
    confidence: Floats | Floats32 | None  # 0..1 per vertex, of a policy that states it
    failure: Failure | None
    seconds: float  # it took, guardrails included
    forecast: Forecast | None = None  # of the load, where it is asked for and the policy has one

    @property
    def unfamiliar(self) -> tuple[str, ...] | None:
        """Features outside the range of the training; None: there is none to compare with."""
        return next(iter(self.guarded.unfamiliar), None)

    @property
    def in_distribution(self) -> bool | None:
        """Whether the job looks like the training; None: there is none to compare with."""
        return None if self.unfamiliar is None else not self.unfamiliar

    @property
    def replaced_by(self) -> str | None:
        """The policy that decided instead, on account of a failure or a guardrail."""
        if self.failure is not None and self.failure.replaced_by is not None:
            return self.failure.replaced_by
        return next(iter(self.guarded.replaced_by), None)


class GuardedPolicy:
    """A policy, its guardrails, and who replaces it.

    Args:
        policy: decides.
        chain: what its decisions pass through; None: nothing.
        name: its name in journal, status and metrics; None: the policy's.
        replacement: decides for it when it fails; None: the fallback of its chain, or else the
            running configuration is kept.
        timeout_s: longest wait for the policy; None: no limit, and no thread but the caller's.
        turn_s: longest wait for policy, guardrails and replacement together, but for `BESIDE_S`,
            where guardrails or replacement may take long; None: as `timeout_s`.
        workers: threads in which they are asked; None: those of the process.
        tells_range: whether a judgement says what range the guardrails leave; otherwise it is what
            they allowed.
        answers: whether it answers requests. A judgement then carries the policy's forecast of
            the load, and a policy without a time limit plans when `plan` is called.
    """

    def __init__(
        self,
        policy: Policy,
        chain: Chain | None = None,
        *,
        name: str | None = None,
        replacement: ShadowPolicy | None = None,
        timeout_s: float | None = None,
        turn_s: float | None = None,
        workers: Workers | None = None,
        tells_range: bool = True,
        answers: bool = False,
    ) -> None:
        self._tells_range = tells_range
        self._can = can = capabilities_of(policy)
        self._foresees = can.forecast if answers else None
        self._planning = can.later_plans if answers and timeout_s is None else None
        if self._planning is not None:
            self._planning.plans_after = True
        self.policy, self.chain = policy, chain
        self._alone = None if chain is None else each_alone(chain)
        self.name = name or policy.name
        guardrails = () if chain is None else chain.guardrails
        self._own = replacement
        of_chain = [g.shadow for g in guardrails if isinstance(g, Fallback)]
        self._replacement: Replacement | None = replacement or next(iter(of_chain), None)
        self._timeout_s = timeout_s
        self._worker = None if timeout_s is None else Worker(self.name, workers)
        self._turn_s = timeout_s if turn_s is None else turn_s
        slow = () if chain is None else chain.may_take_long
        # Named after them, so that one that hangs beside several policies has few threads in all.
        self._guarding = self._beside_worker(" and ".join(slow), workers)
        own = "" if replacement is None else replacement.name
        self._replacing = self._beside_worker(own, workers)
        self._remembered: State | None = None

    def reset(self, jobs: Topology, seeds: Ints, within_s: float = START_S) -> None:
        """Start over; an error says that the policy does not fit the job.

        Args:
            jobs: the job.
            seeds: of policies that draw.
            within_s: longest wait for the policy, and for what stands beside it, s.

        Raises:
            PolicyError: One of them is late.
        """
        chain, own = self.chain, self._own
        self._start(self._worker, lambda: self.policy.reset(jobs, seeds), within_s)
        if chain is not None:
            self._start(self._guarding, lambda: chain.reset(jobs, seeds), within_s)
        if own is not None:
            self._start(self._replacing, lambda: own.reset(jobs, seeds), within_s)

    def start_over(self, jobs: Topology, seeds: Ints) -> Failure | None:
        """Reset within the time limit of a turn; never raises.

        Returns:
            What went wrong, if anything did. Who is late or has failed is asked again at the next
            decision, and replaced until it answers.
        """
        try:
            self.reset(jobs, seeds, BESIDE_S if self._turn_s is None else self._turn_s)
        except Exception as error:
            said = redacted(f"{type(error).__name__}: {error}")
            return Failure("raised", f"it did not start over: {said}", None)
        return None

    def set_forward(self, seconds: float) -> None:
        """Tell the guardrails that remember times that the clock was set forward; never raises."""
        chain = self.chain
        if chain is not None:
            self._in_a_moment("memory", lambda: chain.set_forward(seconds))

    def remembered(self) -> State | None:
        """Ask what the guardrails must remember over a restart; never raises.

        Returns:
            Their state, that of the last time where they are late or fail; None where there is
            none.
        """
        chain = self.chain

        def ask(chain: Chain) -> None:
            self._remembered = chain.state()

        if chain is not None:
            self._in_a_moment("memory", lambda: ask(chain))
        return self._remembered

    def recall(self, state: State) -> None:
        """Have the guardrails continue from what they remembered.

        Raises:
            PolicyError: They are late.
        """
        chain = self.chain
        if chain is not None:
            self._start(self._guarding, lambda: chain.restore(state), START_S)

    def _in_a_moment(self, what: str, function: Callable[[], None]) -> None:
        """Ask the guardrails for something beside decisions."""
        try:
            _within(self._guarding, function, 0.0)
        except Exception as error:
            FAULTS.add(self.name, what, error)

    def _start(self, worker: Worker | None, function: Callable[[], T], within_s: float) -> T:
        try:
            return _within(worker, function, time.perf_counter() + within_s)
        except LateError as error:
            raise self._late(worker, error) from error

    def _late(self, worker: Worker | None, error: LateError) -> PolicyError:
        """Name who does not start."""
        who = f"the policy {self.name}"
        if worker is self._guarding:
            who = self._who_guards()
        elif worker is self._replacing:
            who = f"the fallback of {self.name}"
        return PolicyError(
            f"{who} does not start: {error}",
            remedy="Look at what it waits for in reset, state, restore or its first decision.",
        )

    def memories(self) -> tuple[RowMemory, ...] | None:
        """List the per-job memories of policy, guardrails and replacement.

        Returns:
            The memories; None where not all are known, or a decision may take long.
        """
        if self._worker is not None or self._can.memories is None:
            return None
        return all_of(self._can.memories(), self._beside)

    @property
    def is_prompt(self) -> bool:
        """Whether policy, guardrails and replacement decide in a moment and wait for nothing."""
        quick = self._worker is None and self._can.memories is not None
        return quick and self._beside is not None

    @property
    def _beside(self) -> tuple[RowMemory, ...] | None:
        """What guardrails and replacement remember, where that is rows."""
        chain = () if self.chain is None else self.chain.memories()
        own = () if self._own is None else self._own.memories()
        return all_of(chain, own)

    def warm_up(self, snapshot: MetricsSnapshot) -> None:
        """Decide with time to compile; to be reset afterwards.

        Raises:
            DspGymError: The policy or a guardrail does not fit the job, or is late.
        """
        chain, own = self.chain, self._own

        def allowed(chain: Chain, decision: ScalingDecision) -> None:
            guarded = chain.allow(snapshot, decision)
            allowed_range(chain, snapshot, guarded, self._alone)

        try:
            decision = self._start(self._worker, lambda: self.policy.decide(snapshot), START_S)
            if own is not None:
                self._start(self._replacing, lambda: own.decided(snapshot), START_S)
            if chain is not None:
                self._start(self._guarding, lambda: allowed(chain, decision), START_S)
        except DspGymError:
            raise
        except Exception:
            return  # at run time it is replaced, counted and reported

    def decide(self, snapshot: MetricsSnapshot) -> Judgement:
        """Ask the policy and its guardrails about a snapshot, before `settle`; never raises.

        Returns:
            What the policy wants and may have. Where it failed its fallback decides; where its
            guardrails failed the running configuration is kept.
        """
        begun = time.perf_counter()
        snapshot = plausible(snapshot)
        end_s = begun + (math.inf if self._turn_s is None else self._turn_s)
        wanted, failure = self._decision(snapshot, end_s)
        self._keep_replacement_current(snapshot, end_s)

        def guarded_and_range() -> tuple[GuardedDecision, Ints, Ints]:
            guarded = guarded_turn(snapshot, lambda _: wanted, self.chain)
            if not self._tells_range:
                return guarded, guarded.parallelism, guarded.parallelism
            return guarded, *allowed_range(self.chain, snapshot, guarded, self._alone)

        try:
            guarded, lower, upper = _within(self._guarding, guarded_and_range, end_s)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # guardrails name policies, too
            failure = Failure("guardrails", self._guardrails_failed(error), None)
            guarded = GuardedDecision.unchanged(kept(snapshot, failure.reason))
            lower = upper = snapshot.parallelism
        return Judgement(
            self.name,
            guarded,
            lower,
            upper,
            self._confidence(snapshot) if failure is None else None,
            failure,
            time.perf_counter() - begun,
            self._forecast() if failure is None else None,
        )

    def settle(
        self, snapshot: MetricsSnapshot, judged: Judgement, *, enacted: bool
    ) -> Failure | None:
        """Tell the guardrails what became of the last decision; never raises.

        Args:
            snapshot: that was decided on.
            judged: the decision; of guardrails that failed nothing is asked again.
            enacted: whether it was; in shadow mode none is.

        Returns:
            What went wrong, if anything did.
        """
        if judged.failure is not None and judged.failure.cause == "guardrails":
            return None
        left_s = math.inf if self._turn_s is None else self._turn_s - judged.seconds
        told = judged.guarded if enacted else None
        try:
            _within(
                self._guarding,
                lambda: settle_turn(snapshot, told, self.chain),
                time.perf_counter() + left_s,
            )
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # guardrails name policies, too
            return Failure("guardrails", self._guardrails_failed(error), None)
        return None

    @property
    def has_plan(self) -> bool:
        """Whether the next decision needs no plan, or finds one."""
        return self._planning is None or self._planning.has_plan

    @property
    def is_due(self) -> bool:
        """Whether the policy has to plan before its next decision."""
        return self._planning is not None and self._planning.is_due

    def plan(self, snapshot: MetricsSnapshot) -> None:
        """Have the policy plan, where `is_due`; never raises.

        Args:
            snapshot: that was decided on last.
        """
        if self._planning is not None:
            try:
                self._planning.plan(snapshot)
            except Exception as error:  # the last plan is a plan
                FAULTS.add(self.name, "plan", error)

    def _beside_worker(self, name: str, workers: Workers | None) -> Worker | None:
        """A thread for what may take long beside the policy; None where nothing may."""
        if not name or self._turn_s is None or self._beside is not None:
            return None
        return Worker(name, workers)

    def _keep_replacement_current(self, snapshot: MetricsSnapshot, end_s: float) -> None:
        own = self._own
        if own is not None:
            with contextlib.suppress(Exception):  # reported when it is needed
                _within(self._replacing, lambda: own.decided(snapshot), end_s)

    def _decision(
        self, snapshot: MetricsSnapshot, end_s: float
    ) -> tuple[ScalingDecision, Failure | None]:
        cause: Cause
        try:
            decision = self._asked(snapshot)
            wrong = _fault(decision, snapshot)
            if wrong is None:
                return decision, None
            cause, reason = "invalid", f"the policy answered nonsense: {wrong}"
        except LateError as error:
            cause, reason = "late", f"the policy is late: {error}"
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            said = redacted(f"{type(error).__name__}: {error}")
            cause, reason = "raised", f"the policy failed: {said}"
        return self._replaced(snapshot, end_s, cause, reason)

    def _guardrails_failed(self, error: BaseException) -> str:
        """Say which guardrail is late, or what one raised."""
        if not isinstance(error, LateError):
            return redacted(f"the guardrails failed: {type(error).__name__}: {error}")
        who = self._who_guards()
        return f"{who} {'are' if who.endswith('s') else 'is'} late: {error}"

    def _who_guards(self) -> str:
        """Name the guardrail that is being asked."""
        under_way = [one.under_way for one in (self.chain, self._alone) if one is not None]
        name = next(filter(None, under_way), None)
        return "the guardrails" if name is None else f"the guardrail '{name}'"

    def _asked(self, snapshot: MetricsSnapshot) -> ScalingDecision:
        if self._worker is None or self._timeout_s is None:
            return self.policy.decide(snapshot)
        answer: ScalingDecision = self._worker.call(
            lambda: self.policy.decide(snapshot), self._timeout_s
        )
        return answer

    def _confidence(self, snapshot: MetricsSnapshot) -> Floats | Floats32 | None:
        """Read how sure the policy is of each vertex; None where it cannot say."""
        values = None if self._can.confidence is None else self._can.confidence()
        if not isinstance(values, np.ndarray) or values.shape != snapshot.parallelism.shape:
            return None
        return values if bool(np.isfinite(values).all()) else None

    def _forecast(self) -> Forecast | None:
        """Read what the policy expects, after a decision that it gave in time."""
        if self._foresees is None:
            return None
        try:
            return self._foresees()
        except Exception as error:  # a decision without a forecast is as good
            FAULTS.add(self.name, "forecast", error)
            return None

    def _replaced(
        self, snapshot: MetricsSnapshot, end_s: float, cause: Cause, reason: str
    ) -> tuple[ScalingDecision, Failure]:
        replacement = self._replacement
        if replacement is not None:
            worker = self._guarding if self._own is None else self._replacing
            try:
                decision = _within(worker, lambda: replacement.decided(snapshot), end_s)
            except Exception as error:
                why = redacted(f"{type(error).__name__}: {error}")
                reason = f"{reason}; its fallback failed, too: {why}"
            else:
                name = replacement.name
                if _fault(decision, snapshot) is None:
                    said = (f"{name} decides: {reason}",)
                    wanted = ScalingDecision(decision.parallelism, decision.memory_level, said)
                    return wanted, Failure(cause, reason, name)
                reason = f"{reason}; its fallback {name} answered nonsense, too"
        return kept(snapshot, reason), Failure(cause, reason, None)


def kept(snapshot: MetricsSnapshot, reason: str) -> ScalingDecision:
    """Decide to keep the running configuration.

    Returns:
        The running configuration as a decision, (1, V), with the reason given.
    """
    return ScalingDecision(snapshot.parallelism.copy(), snapshot.memory_level.copy(), (reason,))


def _fault(decision: object, snapshot: MetricsSnapshot) -> str | None:
    """Find what makes it no decision on this job; None where nothing does."""
    shape = snapshot.parallelism.shape
    found: list[Ints] = []
    for name in ("parallelism", "memory_level"):
        values = getattr(decision, name, None)
        if not isinstance(values, np.ndarray):
            return f"its {name} is {type(values).__name__}, expected an array"
        if values.shape != shape:
            return f"its {name} has shape {values.shape}, expected {shape}"
        if values.dtype.kind not in "iu":
            return f"its {name} is of type {values.dtype}, expected whole numbers"
        found.append(values)
    job = snapshot.topology
    groups, levels = job.tables.key_groups[job.row], job.tables.levels[job.row][:, None]
    tasks, level = found
    for said, values, least, most in (
        ("{} tasks", tasks, 1, groups),
        ("memory level {}", level, -1, np.broadcast_to(levels - 1, shape)),
    ):
        outside = job.mask & ((values < least) | (values > most))
        if outside.any():
            j, v = np.argwhere(outside)[0].tolist()
            what = f"{said.format(values[j, v])} for vertex {job.names(j)[v]!r}"
            return f"{what}, which may have {least}..{most[j, v]}"
    reasons = getattr(decision, "reasons", None)
    if not isinstance(reasons, tuple) or len(reasons) != len(snapshot):
        return f"its reasons are {reasons!r}, expected one sentence"
    return None


def _within(worker: Worker | None, function: Callable[[], T], end_s: float) -> T:
    """Call what stands beside a policy, until `end_s` of `perf_counter` or a moment longer.

    Returns:
        The answer of the function.

    Raises:
        LateError: It did not answer in time, or has not answered an earlier call.
        BaseException: What the function raised.
    """
    if worker is None:
        return function()
    return worker.call(function, max(BESIDE_S, end_s - time.perf_counter()))
