"""The control loop on a job: decides, writes down every step, and outlives what goes wrong.

Every policy is asked about the same snapshot; the acting one's guarded decision is what the mode
lets pass. A policy, a cluster or a disk in trouble leads to a held configuration, not to an end.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dsp_gym.backends.base import Backend, OnEvent, ignored, reason_to_hold
from dsp_gym.control.event_handler import TurnFailure, words
from dsp_gym.control.guarded_policy import GuardedPolicy, Judgement
from dsp_gym.control.journal_writer import JournalWriter, outcome_to_json
from dsp_gym.control.modes import INCUMBENT, WRITING
from dsp_gym.control.permission import Held, Permission, RollBack
from dsp_gym.job.spec import JobSpec
from dsp_gym.loop.decision import GuardedDecision, ScalingDecision
from dsp_gym.loop.outcome import Outcome
from dsp_gym.loop.snapshot import MetricsSnapshot
from dsp_gym.loop.wire import decision_to_json, snapshot_to_json

__all__ = [
    "STANDBY",
    "Hooks",
    "JobAutoscaler",
    "JournalWriter",
    "Turn",
    "TurnFailure",
    "outcome_to_json",
]

STANDBY = "standby"
"""Why nothing is asked of a job while another process acts on it, in a word."""

GAP_INTERVALS = 3.0
"""Intervals since the last decision above which a decision follows a gap."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One decision of a live run and its outcome."""

    number: int  # from 1
    t_s: float  # Unix seconds
    snapshot: MetricsSnapshot | None  # None: the job could not be looked at
    guarded: GuardedDecision | None  # of the acting policy; None: nothing was decided
    held: str | None  # why nothing was asked of the job; None: nothing spoke against it
    applied: bool  # False: the mode enacts nothing
    outcome: Outcome | None
    judgements: tuple[Judgement, ...] = ()  # of every policy, in order
    failures: tuple[TurnFailure, ...] = ()  # everything that went wrong
    seconds: float = 0.0  # from the snapshot to the decision
    held_code: str | None = None  # the same as `held` in a word
    asked: bool = False  # whether a change was asked of the job
    unwritten: str | None = None  # why the journal takes nothing
    missing: int = 0  # entries that the journal lacks by then

    @property
    def changes(self) -> bool:
        """Whether the decision differs from the running configuration."""
        if self.snapshot is None or self.guarded is None:
            return False
        return _differs(self.snapshot, self.guarded)


def ignored_time(t_s: float) -> None:
    """Take a time and do nothing."""


@dataclass(frozen=True, slots=True)
class Hooks:
    """What a run calls back, and what ends it."""

    on_decision: Callable[[Turn], None] | None = None
    """Receives every decision when it is made; its outcome is not known yet."""

    on_turn: Callable[[Turn], None] | None = None
    """Receives every decision when its interval has passed."""

    on_event: OnEvent = ignored
    """Receives every step of the actuator, from its thread."""

    before_decision: Callable[[float], None] = ignored_time
    """Called with the time of the job when it was looked at and nothing is decided yet."""

    before_change: Callable[[float], None] = ignored_time
    """Called with the time of the job when it is decided to change it and nothing is asked yet."""

    stopped: Callable[[], bool] = lambda: False
    """Asked before every turn; True: the run ends."""


class JobAutoscaler:
    """Several policies on one job, decision by decision.

    Args:
        backend: the job; it is the caller's to close.
        policies: the policies with their guardrails, asked in this order.
        writer: where everything is written.
        acting: name of the policy whose decision counts; None: the first but the incumbent.
        permission: how far it may go; None: it decides and nothing is enacted.
        roll_back: takes changes back; None: as configured by default.
        interval_s: seconds between decisions.
        seed: of policies that draw.
        hooks: what it calls back, and what ends it.
    """

    def __init__(
        self,
        backend: Backend,
        policies: Sequence[GuardedPolicy],
        writer: JournalWriter,
        *,
        acting: str | None = None,
        permission: Permission | None = None,
        roll_back: RollBack | None = None,
        interval_s: int = 60,
        seed: int = 0,
        hooks: Hooks | None = None,
    ) -> None:
        self.backend, self.policies, self.writer = backend, tuple(policies), writer
        self.acting = acting or next(s.name for s in policies if s.name != INCUMBENT)
        self.permission = permission or Permission()
        self.roll_back = roll_back or RollBack()
        self.interval_s = interval_s
        self.turns = 0
        self.held: str | None = None
        """Why nothing is asked of the job, since the last look at it; None: it may be scaled."""
        self._seeds = np.array([seed], np.int64)
        self._hooks = hooks or Hooks()
        self._failures: list[TurnFailure] = []
        self._has_asked = False
        self._due: tuple[GuardedDecision, str] | None = None  # a roll-back
        self._elsewhere: Held | None = None  # another process acts
        self._last_s = -math.inf
        self._reset()

    @property
    def spec(self) -> JobSpec:
        """The job."""
        return self.backend.collector.topology.spec(0)

    def run(self, steps: int | None = None, duration_s: float | None = None) -> None:
        """Decide until so many decisions were made, or so long; for ever without either."""
        end_s = None if duration_s is None else self.backend.now_s() + duration_s
        while self.goes_on(steps, end_s):
            self.turn()

    def goes_on(self, steps: int | None = None, end_s: float | None = None) -> bool:
        """Whether there is another decision to make.

        Args:
            steps: decisions in all; None: no bound.
            end_s: the backend's time at which the run ends, s; None: never.

        Returns:
            False once the run was stopped, its job is over, or a bound is reached.

        Raises:
            DspGymError: The platform says that nothing may go on.
        """
        if (error := self.backend.platform.must_end()) is not None:
            self._fail(TurnFailure.of_api("account", error))
            raise error
        return (
            not (self._hooks.stopped() or self.backend.is_over)
            and (steps is None or self.turns < steps)
            and (end_s is None or self.backend.now_s() < end_s)
        )

    def turn(self) -> Turn:
        """Decide once, and let the interval pass.

        Returns:
            The decision and its outcome.
        """
        return self.finish(self.decide(), self.interval_s)

    def finish(self, decided: Turn, wait_s: int = 0) -> Turn:
        """Look at the outcome of a decision.

        Args:
            decided: the last decision.
            wait_s: how long its interval still lasts, s; 0: the caller has waited.

        Returns:
            The decision with its outcome.
        """
        outcome = self._advance(wait_s)
        turn = replace(
            decided,
            outcome=outcome,
            failures=tuple(self._failures),
            unwritten=self.writer.trouble,
            missing=self.writer.missing,
        )
        if self._hooks.on_turn is not None:
            self._hooks.on_turn(turn)
        return turn

    def decide(self) -> Turn:
        """Decide once, without waiting for the interval.

        Returns:
            The decision; its outcome is None.
        """
        self.turns += 1
        self._failures, self._has_asked = [], False
        began_s = self.backend.now_s()
        seen = self._seen()
        held: Held | None
        if seen is None:
            held = Held("collector", self._failures[-1].reason)
            turn = self._turn(began_s, None, (), held, 0.0)
        else:
            self._elsewhere = self._standby()
            self._hooks.before_decision(float(seen.t_s[0]))
            begun = time.perf_counter()
            judged = () if self.permission.mode == "off" else self._judged(seen)
            held, asked = self._weighed(seen, judged)
            number = self._write(seen, judged, held, asked)
            held, asked = self._on_disk(held, asked, number)
            seconds = time.perf_counter() - begun
            held = self._enacted(seen, judged, held, asked)
            self._settle(seen, judged, held)
            turn = self._turn(began_s, seen, judged, held, seconds)
        self._tell(turn)
        if self._hooks.on_decision is not None:
            self._hooks.on_decision(turn)
        return turn

    def warm_up(self, seen: MetricsSnapshot) -> None:
        """Decide once and forget it: compiled code is loaded before a time limit holds.

        Raises:
            DspGymError: A policy or guardrail does not fit the job.
        """
        for policy in self.policies:
            policy.warm_up(seen)
        self._reset()

    def _reset(self) -> None:
        for policy in self.policies:
            policy.reset(self.backend.collector.topology, self._seeds)

    def _seen(self) -> MetricsSnapshot | None:
        """What is seen now; None, and why among the failures, where the job cannot be looked at."""
        try:
            seen = self.backend.collector.snapshot()
            trouble = reason_to_hold(self.backend, seen)
        except Exception as error:  # a server may answer anything
            self._fail(TurnFailure.of_api("collector", error))
            return None
        self.held = None if trouble is None else words(trouble)
        if trouble is not None:
            self._fail(TurnFailure.of_api("collector", trouble), noted=False)
        self._look_at_clock(float(seen.t_s[0]))
        return seen

    def _look_at_clock(self, t_s: float) -> None:
        """Policies and guardrails remember times: one that went back makes them start anew."""
        ahead_s = t_s - self._last_s
        if ahead_s <= 0:
            reason = f"the clock went back by {-ahead_s:.0f} s; policies and guardrails start anew"
            self._fail(TurnFailure("clock", reason), noted=False)
            self.held = reason
            self._reset()
            back_s = self.interval_s - ahead_s  # as if an interval had passed
            self.permission.set_back(back_s)
            self.roll_back.set_back(back_s)
        elif math.isfinite(ahead_s) and ahead_s > GAP_INTERVALS * self.interval_s:
            said = f"{ahead_s:.0f} s went by since the last decision"
            self._fail(TurnFailure("clock", said), noted=False)
        self._last_s = t_s

    def _judged(self, seen: MetricsSnapshot) -> tuple[Judgement, ...]:
        return tuple(policy.decide(seen) for policy in self.policies)

    def _weighed(
        self, seen: MetricsSnapshot, judged: Sequence[Judgement]
    ) -> tuple[Held | None, bool]:
        """What holds the acting policy's decision, and whether it is asked of the job."""
        held = None if self.held is None else Held(self._failures[0].stage, self.held)
        self._due = None
        one = self._acting(judged)
        if one is None:
            return held, False
        if self._elsewhere is not None:
            return self._elsewhere, False
        if self.permission.is_acting and (due := self.roll_back.due(seen)) is not None:
            self._due = due
            return Held("rolled_back", f"rolled back: {due[1]}"), False
        if one.failure is not None and one.failure.replaced_by is None and held is None:
            held = Held("policy", one.failure.reason)
            self.held = held.reason
        changes = _differs(seen, one.guarded)
        if held is None and self.permission.is_acting:
            held = self.permission.against(float(seen.t_s[0]), changes)
        return held, changes and self.permission.is_acting and held is None

    def _standby(self) -> Held | None:
        """Why another process acts in place of this one; None: none does."""
        leadership = self.backend.platform.leadership
        reason = (
            leadership.standby() if leadership is not None and self.permission.is_acting else None
        )
        return None if reason is None else Held(STANDBY, reason)

    def _write(
        self, seen: MetricsSnapshot, judged: Sequence[Judgement], held: Held | None, asked: bool
    ) -> int | None:
        """Everything about the decision, on disk before anything is asked of the job.

        Returns:
            The number of the entry that holds the decision; None where there is none.
        """
        job, key, number = seen.job(0), self.writer.job, None
        with self.writer.decision():
            self.writer("snapshot", snapshot_to_json(job, key), float(seen.t_s[0]))
            for failed in self._failures:
                self.writer("error", failed.document())
            for one in judged:
                if (failure := one.failure) is not None:
                    self._fail(
                        TurnFailure("policy", failure.reason),
                        one.policy,
                        cause=failure.cause,
                        replaced_by=failure.replaced_by,
                    )
                proposed = decision_to_json(one.guarded.proposed, job, key)
                self.writer("decision", proposed, policy=one.policy)
                self.writer("guard", decision_to_json(one.guarded, job, key), policy=one.policy)
            if judged:
                said = {
                    "asked": asked,
                    "applied": self.permission.is_acting,
                    "held": held and held.reason,
                    "mode": self.permission.mode,
                }
                number = self.writer.step("decided", said, self.acting)
        return number

    def _on_disk(
        self, held: Held | None, asked: bool, number: int | None
    ) -> tuple[Held | None, bool]:
        """Hold what is not on disk: a change that nobody can read of later is not asked for."""
        if not asked and self._due is None:
            return held, asked
        self.writer.decided = number
        if self.writer.trouble is None:
            return held, asked
        if self._due is not None:
            self.roll_back.put_off(self._due[0])
            self._due = None
        self.held = f"the journal cannot be written: {self.writer.trouble}"
        self._fail(TurnFailure("journal", self.held), noted=False)
        return Held("journal", self.held), False

    def _enacted(
        self, seen: MetricsSnapshot, judged: Sequence[Judgement], held: Held | None, asked: bool
    ) -> Held | None:
        """Asks for what the mode lets pass; returns why nothing was asked, if something held it."""
        one = self._acting(judged)
        if one is None or not self.permission.is_acting:
            return held
        if self._due is not None:
            self._roll_back(float(seen.t_s[0]), *self._due)
            return held
        if asked:
            return self._asked(seen, one.guarded)
        if held is None:
            self._apply(
                one.guarded
            )  # keeps the running configuration; another request may be under way
        return held

    def _settle(
        self, seen: MetricsSnapshot, judged: Sequence[Judgement], held: Held | None
    ) -> None:
        """Tells every policy's guardrails whether its decision was enacted: at most one was."""
        acts = self.permission.is_acting and held is None
        for policy, one in zip(
            self.policies, judged, strict=False
        ):  # without judgement in mode off
            failure = policy.settle(seen, one, enacted=acts and one.policy == self.acting)
            if failure is not None:
                self._fail(TurnFailure("policy", failure.reason), one.policy, cause=failure.cause)

    def _acting(self, judged: Sequence[Judgement]) -> Judgement | None:
        return next((one for one in judged if one.policy == self.acting), None)

    def _asked(self, seen: MetricsSnapshot, guarded: GuardedDecision) -> Held | None:
        before = self.roll_back.state()
        self.roll_back.asked(seen, guarded)
        self._hooks.before_change(float(seen.t_s[0]))
        try:
            self._apply(guarded)
        except Exception as error:
            self.roll_back.restore(before)
            self._fail(TurnFailure.of_api("actuator", error))
            return Held("actuator", words(error))
        self._has_asked = True
        return None

    def _apply(self, guarded: GuardedDecision) -> None:
        if self.backend.actuator is not None:
            self.backend.actuator.apply(guarded)

    def _roll_back(self, t_s: float, before: GuardedDecision, reason: str) -> None:
        self.writer.step("rolled_back", {"reason": reason}, self.acting)
        self.permission.rest(t_s, self.roll_back.config.cool_down_s)
        self._hooks.before_change(t_s)
        try:
            if self.backend.actuator is not None:
                self.backend.actuator.roll_back(before, reason)
        except Exception as error:
            self._fail(TurnFailure.of_api("actuator", error))

    def _advance(self, wait_s: int) -> Outcome | None:
        try:
            outcome = self.backend.advance(wait_s)
        except Exception as error:
            self._fail(TurnFailure.of_api("outcome", error))
            return None
        collector = self.backend.collector
        age_s = collector.age_s  # until then it was counted
        self.writer(
            "outcome",
            {
                **outcome_to_json(outcome),
                "data_age_s": age_s if math.isfinite(age_s) else None,
                "arrivals": list(collector.arrivals),
            },
        )
        self.roll_back.happened(self.backend.now_s(), outcome)
        return outcome

    def _tell(self, turn: Turn) -> None:
        """Show a change on the job itself, if the mode writes there."""
        seen, guarded, mode = turn.snapshot, turn.guarded, self.permission.mode
        if seen is None or guarded is None or mode not in WRITING or not turn.changes:
            return
        if turn.held_code == STANDBY:
            return  # the process that acts says so
        try:
            self.backend.platform.tell(seen, guarded, enacted=turn.asked, mode=mode)
        except Exception as error:
            self._fail(TurnFailure("report", words(error)))

    def _fail(
        self,
        failed: TurnFailure,
        policy: str | None = None,
        *,
        noted: bool = True,
        **more: str | None,
    ) -> None:
        self._failures.append(failed)
        if noted:
            self.writer("error", {**failed.document(), **more}, policy=policy)

    def _turn(
        self,
        began_s: float,
        seen: MetricsSnapshot | None,
        judged: tuple[Judgement, ...],
        held: Held | None,
        seconds: float,
    ) -> Turn:
        guarded = next((one.guarded for one in judged if one.policy == self.acting), None)
        return Turn(
            self.turns,
            began_s,
            seen,
            guarded,
            held and held.reason,
            self.permission.is_acting,
            None,
            judged,
            tuple(self._failures),
            seconds,
            held and held.code,
            self._has_asked,
            self.writer.trouble,
            self.writer.missing,
        )


def _differs(seen: MetricsSnapshot, guarded: GuardedDecision) -> bool:
    asked = ScalingDecision(guarded.parallelism, guarded.memory_level, ("",))
    return bool(asked.changes(seen.parallelism, seen.memory_level, seen.topology.mask)[0])
