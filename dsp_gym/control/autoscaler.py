"""The autoscaler beside a job: it collects, evaluates, executes and realizes, turn by turn.

Every policy is asked about the same snapshot; the acting one's guarded decision is what the mode
lets pass. A policy, a cluster or a disk in trouble leads to a held configuration, not to an end.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from dsp_gym.backends.base import Backend
from dsp_gym.control.collector import JobCollector
from dsp_gym.control.evaluator import PolicyEvaluator
from dsp_gym.control.event_handler import EventHandler, TurnFailure
from dsp_gym.control.executor import ScalingExecutor, Verdict
from dsp_gym.control.guarded_policy import GuardedPolicy, Judgement
from dsp_gym.control.journal_writer import JournalWriter
from dsp_gym.control.modes import INCUMBENT
from dsp_gym.control.permission import Permission
from dsp_gym.control.realizer import ScalingRealizer
from dsp_gym.control.restraint import Restraint
from dsp_gym.control.roll_back import RollBack
from dsp_gym.control.state_store import StateStore
from dsp_gym.control.turn import Hooks, Turn
from dsp_gym.job.spec import JobSpec
from dsp_gym.loop.snapshot import MetricsSnapshot


class JobAutoscaler:
    """Several policies on one job, of which one may act.

    Args:
        backend: the job; it is the caller's to close.
        policies: with their guardrails, asked in this order.
        writer: where everything is written.
        acting: name of the policy whose decision counts; None: the first but the incumbent.
        permission: how far it may go; None: it decides and nothing is enacted.
        roll_back: takes changes back; None: as configured by default.
        restraint: stops a policy whose changes lead nowhere; None: as configured by default.
        store: keeps what must outlive the process; None: nothing must.
        interval_s: seconds between decisions.
        seed: of policies that draw.
        hooks: receive its turns, and end it.
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
        restraint: Restraint | None = None,
        store: StateStore | None = None,
        interval_s: int = 60,
        seed: int = 0,
        hooks: Hooks | None = None,
    ) -> None:
        self.backend, self.policies, self.writer = backend, tuple(policies), writer
        self.acting = acting or next(one.name for one in policies if one.name != INCUMBENT)
        self.permission = permission = permission or Permission()
        self.roll_back = roll_back = roll_back or RollBack()
        self.restraint = restraint = restraint or Restraint()
        self.interval_s, self.turns = interval_s, 0
        self.held: str | None = None  # why nothing was asked of the job at the last decision
        self._store, self._hooks = store, hooks or Hooks()
        self._events = EventHandler(writer, self.acting)
        self._collector = JobCollector(backend, self._events, interval_s)
        self._evaluator = PolicyEvaluator(backend, self.policies, self._events, seed)
        self._executor = ScalingExecutor(backend, permission, roll_back, restraint)
        self._realizer = ScalingRealizer(
            backend, permission, roll_back, restraint, self._events, store
        )

    @property
    def spec(self) -> JobSpec:
        """The job."""
        return self.backend.collector.topology.spec(0)

    def warm_up(self, seen: MetricsSnapshot) -> None:
        """Warm up the policies, see `PolicyEvaluator.warm_up`; then restore what was stored."""
        self._evaluator.warm_up(seen)
        if self.permission.is_acting:
            self.roll_back.carried.warm_up(seen)
        if self._store is not None:
            self._store.restore(self.backend.now_s())

    def run(self, steps: int | None = None, duration_s: float | None = None) -> None:
        """Decide until so many decisions were made, or so long; for ever without either."""
        end_s = None if duration_s is None else self.backend.now_s() + duration_s
        while self.goes_on(steps, end_s):
            self.turn()

    def goes_on(self, steps: int | None = None, end_s: float | None = None) -> bool:
        """Find out whether there is another decision to make.

        Args:
            steps: decisions in all; None: no bound.
            end_s: the backend's time at which the run ends, s; None: never.

        Returns:
            False once the run was stopped, its job is over, or a bound is reached.

        Raises:
            DspGymError: The platform says that nothing may go on.
        """
        if (error := self.backend.platform.must_end()) is not None:
            self._events.fail(TurnFailure.of_api("account", error))
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

    def decide(self) -> Turn:
        """Decide once, without waiting for the interval.

        Returns:
            The decision; its outcome is None.
        """
        self.turns += 1
        self._events.begin()
        began_s = self.backend.now_s()
        seen = self._collector.collect()
        if seen is not None:
            turn = self._scale(began_s, seen)
        else:
            turn = self._turn_of(began_s, None, Verdict(self._collector.held))
        self.held = turn.held
        self._realizer.show(turn)
        if self._store is not None:
            self._store.save(turn.t_s)
        self._hooks.on_decision(turn)
        return turn

    def _scale(self, began_s: float, seen: MetricsSnapshot) -> Turn:
        if self._collector.set_back_s:  # policies and guardrails remember times
            self._evaluator.start_over()
            self.permission.set_back(self._collector.set_back_s)
            self.roll_back.set_back(self._collector.set_back_s)
            self.restraint.set_back(self._collector.set_back_s)
        elif self._collector.set_forward_s:  # a rest, and a watch, last as long as before
            self._evaluator.set_forward(self._collector.set_forward_s)
            self.permission.set_back(-self._collector.set_forward_s)
            self.roll_back.set_back(-self._collector.set_forward_s)
            self.restraint.set_back(-self._collector.set_forward_s)
        self._executor.look_at_others()
        if self._store is not None:
            self._store.take_over(float(seen.t_s[0]))
        begun = time.perf_counter()
        judged = () if self.permission.mode == "off" else self._evaluator.evaluate(seen)
        acting = next((one for one in judged if one.policy == self.acting), None)
        verdict = self._executor.decide(seen, acting, self._collector.held)
        verdict = self._write_ahead(seen, judged, verdict)
        seconds = time.perf_counter() - begun
        if acting is not None and self.permission.is_acting:
            verdict = self._realizer.realize(seen, acting.guarded, verdict)
        enacts = self.permission.is_acting and verdict.held is None
        self._evaluator.settle(seen, judged, self.acting if enacts else None)
        return self._turn_of(began_s, seen, verdict, judged, seconds)

    def _write_ahead(
        self, seen: MetricsSnapshot, judged: Sequence[Judgement], verdict: Verdict
    ) -> Verdict:
        """Write all about a decision to disk; a change that nobody can read of is not asked for."""
        held, acts, mode = verdict.held, self.permission.is_acting, self.permission.mode
        said = {"asked": verdict.asks, "applied": acts, "held": held and held.reason, "mode": mode}
        number = self._events.write(seen, judged, said)
        if not verdict.acts:
            return verdict
        self.writer.decided = number
        if self.writer.trouble is None:
            return verdict
        reason = f"the journal cannot be written: {self.writer.trouble}"
        self._events.fail(TurnFailure("journal", reason), written=False)
        return self._executor.withhold(verdict, reason)

    def finish(self, decided: Turn, wait_s: int = 0) -> Turn:
        """Look at the outcome of the last decision, whose interval lasts `wait_s` seconds more.

        Returns:
            The decision with its outcome.
        """
        outcome = None
        try:
            outcome = self.backend.advance(wait_s)
        except Exception as error:
            self._events.fail(TurnFailure.of_api("outcome", error))
        if outcome is not None:
            self._events.write_outcome(outcome, self.backend.collector)
            self.roll_back.happened(self.backend.now_s(), outcome)
        turn = replace(
            decided,
            outcome=outcome,
            failures=tuple(self._events.failures),
            unwritten=self.writer.trouble,
            missing=self.writer.missing,
        )
        self._hooks.on_turn(turn)
        return turn

    def _turn_of(
        self,
        began_s: float,
        seen: MetricsSnapshot | None,
        verdict: Verdict,
        judged: tuple[Judgement, ...] = (),
        seconds: float = 0.0,
    ) -> Turn:
        held = verdict.held
        return Turn(
            number=self.turns,
            t_s=began_s,
            snapshot=seen,
            guarded=next((one.guarded for one in judged if one.policy == self.acting), None),
            held=held and held.reason,
            held_code=held and held.code,
            applied=self.permission.is_acting,
            asked=verdict.asks,
            judgements=judged,
            failures=tuple(self._events.failures),
            seconds=seconds,
            unwritten=self.writer.trouble,
            missing=self.writer.missing,
        )
