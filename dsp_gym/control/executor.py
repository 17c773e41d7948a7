"""The third step of a turn: what is asked of the job, if anything is, and why not otherwise."""

from __future__ import annotations

from typing import NamedTuple

from dsp_gym.backends.base import Backend
from dsp_gym.backends.interference import Interference
from dsp_gym.control.guarded_policy import Judgement
from dsp_gym.control.permission import Held, Permission
from dsp_gym.control.restraint import Restraint
from dsp_gym.control.roll_back import RollBack, TakeBack
from dsp_gym.control.turn import changes
from dsp_gym.loop.backlog import behind
from dsp_gym.loop.snapshot import MetricsSnapshot

STANDBY = "standby"
"""Why nothing is asked of a job while another process acts on it, in a word."""


INTERFERENCE = "interference"
"""Why nothing is asked of a job that somebody else has changed, in a word."""


class Verdict(NamedTuple):
    """What is to be asked of the job."""

    held: Held | None  # why nothing is asked
    asks: bool = False  # for the acting policy's change
    increases: bool = False  # whether it carries more than the running configuration
    rolls_back: TakeBack | None = None

    @property
    def acts(self) -> bool:
        """Whether the job is about to change."""
        return self.asks or self.rolls_back is not None


class ScalingExecutor:
    """Decides what is asked of the job.

    Args:
        backend: the job.
        permission: how far the acting policy may go.
        roll_back: takes changes back.
        restraint: stops a policy whose changes lead nowhere.
    """

    def __init__(
        self, backend: Backend, permission: Permission, roll_back: RollBack, restraint: Restraint
    ) -> None:
        self._backend, self._permission, self._roll_back = backend, permission, roll_back
        self._restraint = restraint
        self._others: Held | None = None
        self._foreign: Interference | None = None

    def look_at_others(self) -> None:
        """Find out whether somebody else acts, or has; holds for the whole turn."""
        platform, self._others = self._backend.platform, None
        if not self._permission.is_acting:
            return
        if self._backend.collector.trouble is None:  # else it would not answer either
            self._foreign = platform.interference()
        leadership = platform.leadership
        if leadership is not None and (reason := leadership.standby()) is not None:
            self._others = Held(STANDBY, reason)
        elif self._foreign is not None:
            self._others = Held(INTERFERENCE, self._foreign.reason)

    def decide(self, seen: MetricsSnapshot, one: Judgement | None, held: Held | None) -> Verdict:
        """Decide what is asked of the job.

        Args:
            seen: what was decided on.
            one: the acting policy's decision; None in mode off.
            held: why nothing may be asked of the job, as the collector saw it.

        Returns:
            The change or the roll-back that is due, or what speaks against it.
        """
        if one is None:
            return Verdict(held)
        if self._others is not None:
            return Verdict(self._others)
        acting = self._permission.is_acting
        if acting and (due := self._roll_back.due(seen)) is not None:
            if (reason := self._permission.pause()) is not None:
                self._roll_back.put_off(due)
                return Verdict(Held("paused", f"{reason}; a roll-back waits: {due.reason}"))
            return Verdict(Held("rolled_back", f"rolled back: {due.reason}"), rolls_back=due)
        if held is None and one.failure is not None and one.failure.replaced_by is None:
            held = Held("policy", one.failure.reason)
        differs = changes(seen, one.guarded)
        if held is None and acting:
            increases = differs and self._roll_back.carried.is_less(seen, one.guarded)
            rescues = increases and bool(behind(seen).is_behind[0])
            held = self._permission.against(float(seen.t_s[0]), differs, rescues=rescues)
            if held is None and differs:
                held = self._restraint.against(seen, increases=increases)
            return Verdict(held, asks=differs and held is None, increases=increases)
        return Verdict(held)

    def withhold(self, verdict: Verdict, reason: str) -> Verdict:
        """Ask nothing of the job after all, for want of a record of it.

        Returns:
            The verdict without the change; a roll-back stays due.
        """
        if verdict.rolls_back is not None:
            self._roll_back.put_off(verdict.rolls_back)
        return Verdict(Held("journal", reason))
