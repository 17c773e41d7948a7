"""The last step of a turn: ask it of the job, and show it there."""

from __future__ import annotations

from dsp_gym.backends.base import Backend
from dsp_gym.control.event_handler import EventHandler, TurnFailure, words
from dsp_gym.control.executor import STANDBY, Verdict
from dsp_gym.control.modes import WRITING
from dsp_gym.control.permission import Held, Permission
from dsp_gym.control.restraint import Restraint
from dsp_gym.control.roll_back import RollBack, TakeBack
from dsp_gym.control.state_store import StateStore
from dsp_gym.control.turn import Turn
from dsp_gym.loop.decision import GuardedDecision
from dsp_gym.loop.snapshot import MetricsSnapshot


class ScalingRealizer:
    """Asks changes of a job; what must be remembered of one is stored first.

    Args:
        backend: the job.
        permission: rests after a roll-back.
        roll_back: watches what was asked for.
        restraint: counts what was asked for.
        events: receives what goes wrong.
        store: keeps what must outlive the process; None: nothing must.
    """

    def __init__(
        self,
        backend: Backend,
        permission: Permission,
        roll_back: RollBack,
        restraint: Restraint,
        events: EventHandler,
        store: StateStore | None = None,
    ) -> None:
        self._backend, self._permission, self._roll_back = backend, permission, roll_back
        self._restraint, self._events, self._store = restraint, events, store

    def realize(self, seen: MetricsSnapshot, guarded: GuardedDecision, verdict: Verdict) -> Verdict:
        """Ask the job for what a mode that acts has decided; never raises.

        Args:
            seen: what was decided on.
            guarded: the acting policy's decision.
            verdict: what is to be asked of the job.

        Returns:
            What was asked of it; nothing where the actuator refused.
        """
        if verdict.rolls_back is not None:
            self._take_back(float(seen.t_s[0]), verdict.rolls_back)
        elif verdict.asks:
            return self._ask(seen, guarded, verdict)
        elif verdict.held is None:  # stay as it is; another request may be under way
            self._apply(guarded)
        return verdict

    def _ask(self, seen: MetricsSnapshot, guarded: GuardedDecision, verdict: Verdict) -> Verdict:
        before, counted = self._roll_back.state(), self._restraint.state()
        self._roll_back.asked(seen)
        self._restraint.asked(seen, increases=verdict.increases)
        self._save(float(seen.t_s[0]))
        try:
            self._apply(guarded)
        except Exception as error:
            self._roll_back.restore(before, is_watched=True)
            self._restraint.restore(counted)
            self._events.fail(TurnFailure.of_api("actuator", error))
            return Verdict(Held("actuator", words(error)))
        return verdict

    def _apply(self, guarded: GuardedDecision) -> None:
        if self._backend.actuator is not None:
            self._backend.actuator.apply(guarded)

    def _take_back(self, t_s: float, due: TakeBack) -> None:
        before, reason, is_down, rest_s = due
        self._events.step("rolled_back", {"reason": reason})
        self._permission.rest(t_s, rest_s, even_late=is_down)
        self._save(t_s)
        try:
            if self._backend.actuator is not None:
                self._backend.actuator.roll_back(before, reason)
        except Exception as error:
            self._events.fail(TurnFailure.of_api("actuator", error))

    def _save(self, t_s: float) -> None:
        if self._store is not None:
            self._store.save(t_s)

    def show(self, turn: Turn) -> None:
        """Show a change on the job itself, if the mode writes there."""
        seen, guarded, mode = turn.snapshot, turn.guarded, self._permission.mode
        if seen is None or guarded is None or mode not in WRITING or not turn.changes:
            return
        if turn.held_code == STANDBY:
            return  # the process that acts says so
        try:
            self._backend.platform.tell(seen, guarded, enacted=turn.asked, mode=mode)
        except Exception as error:
            self._events.fail(TurnFailure("report", words(error)))
