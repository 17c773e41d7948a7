"""One policy beside others on a real job: asked in isolation, guarded by a chain of its own.

A policy may be anybody's code. One that raises, is late, or answers what no job can run is replaced
by its fallback for that decision, and asked again at the next.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np

from dsp_gym.arrays import Floats, Ints
from dsp_gym.control.bounds import allowed_range
from dsp_gym.control.worker import LateError, Worker
from dsp_gym.errors import DspGymError
from dsp_gym.guardrails.chain import Chain
from dsp_gym.guardrails.excess_budget import ExcessBudget
from dsp_gym.guardrails.fallback import Fallback
from dsp_gym.guardrails.out_of_distribution import OutOfDistribution
from dsp_gym.guardrails.shadow import ShadowPolicy
from dsp_gym.loop.decision import GuardedDecision, ScalingDecision
from dsp_gym.loop.protocols import Policy
from dsp_gym.loop.snapshot import MetricsSnapshot
from dsp_gym.loop.topology import Topology

__all__ = ["Cause", "Failure", "Judgement", "Replacement", "Seat", "held"]

Cause = Literal["raised", "late", "invalid", "guardrails"]


class Failure(NamedTuple):
    """Why a policy's own decision was not taken."""

    cause: Cause
    reason: str
    replaced_by: str | None  # None: what runs is kept


class Replacement(Protocol):
    """Decides in place of a policy; asked about every snapshot, so that its memory is current."""

    @property
    def name(self) -> str: ...

    def decided(self, snapshot: MetricsSnapshot) -> ScalingDecision:
        """Its decision; the same for the same snapshot."""


@dataclass(frozen=True, slots=True, eq=False)
class Judgement:
    """What one policy made of one snapshot of one job; arrays are (1, V)."""

    policy: str
    guarded: GuardedDecision  # its `proposed` is the uncapped decision
    lower: Ints  # the range the guardrails leave each vertex now
    upper: Ints
    confidence: Floats | None  # 0..1 per vertex, of a policy that can tell
    in_distribution: bool | None  # None: nothing to compare with
    is_replaced: bool  # by another policy, on account of a guardrail or a failure
    failure: Failure | None
    seconds: float  # it took, guardrails included


class Seat:
    """A policy, its guardrails, and who replaces it.

    Args:
        policy: decides.
        chain: what its decisions pass through; None: nothing.
        name: what it is called; None: the policy's name.
        replacement: decides for it when it fails; None: the fallback of its chain, else what runs
            is kept.
        timeout_s: longest wait for a decision; None: it is asked in the caller's thread, for ever.
    """

    def __init__(
        self,
        policy: Policy,
        chain: Chain | None = None,
        *,
        name: str | None = None,
        replacement: ShadowPolicy | None = None,
        timeout_s: float | None = None,
    ) -> None:
        self.policy, self.chain = policy, chain
        self.name = name or policy.name
        guardrails = () if chain is None else chain.guardrails
        self._own = replacement
        of_chain = [g.shadow for g in guardrails if isinstance(g, Fallback)]
        self._replacement: Replacement | None = replacement or next(iter(of_chain), None)
        self._box = next((g for g in guardrails if isinstance(g, OutOfDistribution)), None)
        self._timeout_s = timeout_s
        self._worker = Worker(f"dsp-gym policy {self.name}") if timeout_s is not None else None

    def reset(self, jobs: Topology, seeds: Ints) -> None:
        """Start anew; an error says that the policy does not fit the job."""
        self.policy.reset(jobs, seeds)
        if self.chain is not None:
            self.chain.reset(jobs, seeds)
        if self._own is not None:
            self._own.reset(jobs, seeds)

    def warm_up(self, snapshot: MetricsSnapshot) -> None:
        """Decide without a time limit; to be reset afterwards.

        Raises:
            DspGymError: The policy or a guardrail does not fit the job.
        """
        try:
            decision = self.policy.decide(snapshot)
            if self._own is not None:
                self._own.decided(snapshot)
            if self.chain is not None:
                allowed_range(self.chain, snapshot, self.chain.allow(snapshot, decision))
        except DspGymError:
            raise
        except Exception:
            return  # at run time it is replaced, counted and told

    def decide(self, snapshot: MetricsSnapshot) -> Judgement:
        """What it wants and may have; never raises."""
        begun = time.perf_counter()
        decision, failure = self._decision(snapshot)
        lower = upper = snapshot.parallelism
        guarded, in_distribution = GuardedDecision.unchanged(decision), None
        is_replaced = failure is not None and failure.replaced_by is not None
        self._keep_replacement_current(snapshot)
        try:
            if self._box is not None and self._box.config.bounds:
                in_distribution = not bool(self._box.demands(snapshot)[0])
            is_replaced |= self._hands_over(snapshot)
            if self.chain is not None:
                guarded = self.chain.allow(snapshot, decision)
            lower, upper = allowed_range(self.chain, snapshot, guarded)
            if self.chain is not None:
                self.chain.commit(snapshot, guarded)
        except Exception as error:  # guardrails name policies, too
            reason = f"the guardrails failed: {type(error).__name__}: {error}"
            failure = Failure("guardrails", reason, None)
            guarded = GuardedDecision.unchanged(held(snapshot, reason))
            lower = upper = snapshot.parallelism
        return Judgement(
            self.name,
            guarded,
            lower,
            upper,
            None if failure is not None else _confidence(self.policy, snapshot),
            in_distribution,
            is_replaced,
            failure,
            time.perf_counter() - begun,
        )

    def close(self) -> None:
        """Let its thread end."""
        if self._worker is not None:
            self._worker.close()

    def _keep_replacement_current(self, snapshot: MetricsSnapshot) -> None:
        if self._own is not None:
            with contextlib.suppress(Exception):  # told when it is needed
                self._own.decided(snapshot)

    def _hands_over(self, snapshot: MetricsSnapshot) -> bool:
        """Whether a guardrail lets another policy decide; asked before the decision counts."""
        for guardrail in () if self.chain is None else self.chain.guardrails:
            if isinstance(guardrail, Fallback) and guardrail.asked(snapshot)[0]:
                return True
            if isinstance(guardrail, ExcessBudget):
                cost, outage = guardrail.spent(snapshot)
                if cost[0] >= 1 or outage[0] >= 1:
                    return True
        return False

    def _decision(self, snapshot: MetricsSnapshot) -> tuple[ScalingDecision, Failure | None]:
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
            cause, reason = "raised", f"the policy failed: {type(error).__name__}: {error}"
        return self._replaced(snapshot, cause, reason)

    def _asked(self, snapshot: MetricsSnapshot) -> ScalingDecision:
        if self._worker is None or self._timeout_s is None:
            return self.policy.decide(snapshot)
        answer: ScalingDecision = self._worker.call(
            lambda: self.policy.decide(snapshot), self._timeout_s
        )
        return answer

    def _replaced(
        self, snapshot: MetricsSnapshot, cause: Any, reason: str
    ) -> tuple[ScalingDecision, Failure]:
        if self._replacement is not None:
            try:
                decision = self._replacement.decided(snapshot)
            except Exception as error:
                reason = f"{reason}; its fallback failed, too: {type(error).__name__}: {error}"
            else:
                name = self._replacement.name
                if _fault(decision, snapshot) is None:
                    said = (f"{name} decides: {reason}",)
                    wanted = ScalingDecision(decision.parallelism, decision.memory_level, said)
                    return wanted, Failure(cause, reason, name)
                reason = f"{reason}; its fallback {name} answered nonsense, too"
        return held(snapshot, reason), Failure(cause, reason, None)


def held(snapshot: MetricsSnapshot, reason: str) -> ScalingDecision:
    """The decision that what runs is kept."""
    return ScalingDecision(snapshot.parallelism.copy(), snapshot.memory_level.copy(), (reason,))


def _fault(decision: Any, snapshot: MetricsSnapshot) -> str | None:
    """What makes it no decision on this job; None where nothing does."""
    shape = snapshot.parallelism.shape
    mask = snapshot.topology.mask
    for name in ("parallelism", "memory_level"):
        values = getattr(decision, name, None)
        if not isinstance(values, np.ndarray):
            return f"its {name} is {type(values).__name__}, expected an array"
        if values.shape != shape:
            return f"its {name} has shape {values.shape}, expected {shape}"
        if not np.issubdtype(values.dtype, np.integer):
            return f"its {name} is of type {values.dtype}, expected whole numbers"
    tables, row = snapshot.topology.tables, snapshot.topology.row
    tasks, level = decision.parallelism, decision.memory_level
    outside = mask & ((tasks < 1) | (tasks > tables.key_groups[row]))
    if outside.any():
        v = int(np.flatnonzero(outside[0])[0])
        name = snapshot.topology.names(0)[v]
        most = tables.key_groups[row][0, v]
        return f"{tasks[0, v]} tasks for vertex {name!r}, which may have 1..{most}"
    levels = tables.levels[row][:, None]
    outside = mask & ((level < -1) | (level >= levels))
    if outside.any():
        v = int(np.flatnonzero(outside[0])[0])
        name = snapshot.topology.names(0)[v]
        return (
            f"memory level {level[0, v]} for vertex {name!r}, which may have -1..{levels[0, 0] - 1}"
        )
    reasons = getattr(decision, "reasons", None)
    if not isinstance(reasons, tuple) or len(reasons) != len(snapshot):
        return f"its reasons are {reasons!r}, expected one sentence"
    return None


def _confidence(policy: Policy, snapshot: MetricsSnapshot) -> Floats | None:
    """How sure the policy says it is of each vertex; None where it cannot tell."""
    values = getattr(policy, "confidence", None)
    if not isinstance(values, np.ndarray) or values.shape != snapshot.parallelism.shape:
        return None
    return values if bool(np.isfinite(values).all()) else None
