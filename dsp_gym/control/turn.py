"""One turn beside a job: what was seen, decided and asked for, and what came of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dsp_gym.backends.base import OnEvent, ignored
from dsp_gym.control.event_handler import TurnFailure
from dsp_gym.control.guarded_policy import Judgement
from dsp_gym.loop.decision import GuardedDecision, ScalingDecision
from dsp_gym.loop.outcome import Outcome
from dsp_gym.loop.snapshot import MetricsSnapshot


def changes(seen: MetricsSnapshot, guarded: GuardedDecision) -> bool:
    """Compare a decision with the running configuration.

    Returns:
        Whether they differ.
    """
    asked = ScalingDecision(guarded.parallelism, guarded.memory_level, ("",))
    return bool(asked.changes(seen.parallelism, seen.memory_level, seen.topology.mask)[0])


@dataclass(frozen=True, slots=True)
class Turn:
    """One decision on a job and its outcome."""

    number: int  # from 1
    t_s: float  # Unix seconds
    snapshot: MetricsSnapshot | None  # None: the job could not be looked at
    guarded: GuardedDecision | None  # of the acting policy; None: nothing was decided
    held: str | None  # why nothing was asked of the job; None: nothing spoke against it
    applied: bool  # False: the mode enacts nothing
    outcome: Outcome | None = None  # not known before the interval has passed
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
        return changes(self.snapshot, self.guarded)


@dataclass(frozen=True, slots=True)
class Hooks:
    """What receives the turns of an autoscaler, and what ends it."""

    on_decision: Callable[[Turn], None] = lambda turn: None
    """Receives every decision when it is made; its outcome is not known yet."""

    on_turn: Callable[[Turn], None] = lambda turn: None
    """Receives every decision when its interval has passed."""

    on_event: OnEvent = ignored
    """Receives every step of the actuator, from its thread."""

    stopped: Callable[[], bool] = lambda: False
    """Asked before every turn; True: the run ends."""
