"""The control loop on a real job: decides, writes down every step, and outlives what goes wrong.

It is `ControlLoop`, with its two ends and its policy wrapped so that everything that passes is
journaled, and that a policy or a cluster in trouble leads to a held configuration and not to an
end.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsp_gym.errors import FlinkError
from dsp_gym.live.jobs import LiveJobs
from dsp_gym.loop.control import ControlLoop
from dsp_gym.loop.decision import GuardedDecision, ScalingDecision
from dsp_gym.loop.journal import Journal, Kind
from dsp_gym.loop.outcome import Outcome
from dsp_gym.loop.protocols import Guardrail, Mask, Policy, State
from dsp_gym.loop.snapshot import MetricsSnapshot
from dsp_gym.loop.topology import Topology
from dsp_gym.loop.wire import decision_to_json, snapshot_to_json

__all__ = ["LiveRun", "Notes", "Turn", "outcome_to_json"]


@dataclass(frozen=True, slots=True)
class Turn:
    """One decision of a live run and what came of it."""

    number: int  # from 1
    t_s: float  # Unix seconds
    snapshot: MetricsSnapshot | None  # None: the job could not be looked at
    guarded: GuardedDecision | None  # None: nothing was decided
    held: str | None  # why nothing was asked of the job; None: nothing spoke against it
    applied: bool  # False: a dry run
    outcome: Outcome | None

    @property
    def changes(self) -> bool:
        """Whether the decision differs from what runs."""
        if self.snapshot is None or self.guarded is None:
            return False
        seen, topology = self.snapshot, self.snapshot.topology
        asked = ScalingDecision(self.guarded.parallelism, self.guarded.memory_level, ("",))
        return bool(asked.changes(seen.parallelism, seen.memory_level, topology.mask)[0])


class LiveRun:
    """One policy on one real job, decision by decision.

    Args:
        jobs: the job; it is the caller's to close.
        policy: decides.
        guardrails: what decisions pass through; None: nothing.
        notes: where everything is written.
        applied: whether the jobs' actuator is a real one; for the journal.
        interval_s: seconds between decisions.
        seed: of policies that draw.
        clock: Unix seconds.
        on_decision: called when something was decided, or held; its outcome is not known yet.
        on_turn: called when the interval after it has passed.
    """

    def __init__(
        self,
        jobs: LiveJobs,
        policy: Policy,
        guardrails: Guardrail | None,
        notes: Notes,
        *,
        applied: bool,
        interval_s: int = 60,
        seed: int = 0,
        clock: Callable[[], float] = time.time,
        on_decision: Callable[[Turn], None] | None = None,
        on_turn: Callable[[Turn], None] | None = None,
    ) -> None:
        self.jobs, self.notes, self.applied = jobs, notes, applied
        self._on_decision = on_decision
        self._ends = _NotedJobs(jobs, notes, applied, self._decided)
        self._policy = _NotedPolicy(policy, jobs, notes)
        self._loop = ControlLoop(self._ends, self._policy, guardrails, interval_s)
        self._clock, self._on_turn = clock, on_turn
        self._loop.reset(np.array([seed], np.int64))
        self.turns, self._began_s = 0, clock()

    def run(self, steps: int | None = None, duration_s: float | None = None) -> None:
        """Decide until so many decisions were made, or so long; for ever without either."""
        end_s = None if duration_s is None else self._clock() + duration_s
        while (steps is None or self.turns < steps) and (end_s is None or self._clock() < end_s):
            turn = self.turn()
            if self._on_turn is not None:
                self._on_turn(turn)

    def turn(self) -> Turn:
        """One decision, and the interval after it."""
        self.turns += 1
        self._began_s = self._clock()
        self._ends.forget()
        try:
            self._loop.step()
        except FlinkError as error:
            if self._ends.advanced:
                raise
            self.notes("error", {"stage": "collector", "reason": str(error)})
            self._ends.held = str(error)
            self._decided()
            self._ends.advance(self._loop.interval_s)
        return self._turn()

    def _turn(self) -> Turn:
        ends = self._ends
        return Turn(
            self.turns, self._began_s, ends.seen, ends.guarded, ends.held, self.applied,
            ends.outcome,
        )  # fmt: skip

    def _decided(self) -> None:
        if self._on_decision is not None:
            self._on_decision(self._turn())


class Notes:
    """Writes entries of one job and policy; the actuator's thread may, too.

    Args:
        journal: where to.
        job: what the job is called.
        policy: who decides.
        clock: Unix seconds.
    """

    def __init__(
        self, journal: Journal, job: str, policy: str, clock: Callable[[], float] = time.time
    ) -> None:
        self.job = job
        self._journal, self._policy, self._clock = journal, policy, clock
        self._lock = threading.Lock()

    def __call__(self, kind: Kind, body: Mapping[str, Any], t_s: float | None = None) -> None:
        """Write one entry."""
        with self._lock:
            self._journal.append(
                kind, self._clock() if t_s is None else t_s, self.job, self._policy, body
            )

    def step(self, event: str, body: dict[str, Any]) -> None:
        """Write one step of an actuator."""
        self("actuation", {"event": event, **body})


class _NotedJobs:
    """The loop's two ends; what passes them is journaled."""

    def __init__(
        self, jobs: LiveJobs, notes: Notes, applied: bool, decided: Callable[[], None]
    ) -> None:
        self.topology = jobs.topology
        self._jobs, self._notes, self._applied, self._decided = jobs, notes, applied, decided
        self.forget()

    def forget(self) -> None:
        """Begin another turn."""
        self.seen: MetricsSnapshot | None = None
        self.guarded: GuardedDecision | None = None
        self.held: str | None = None
        self.outcome: Outcome | None = None
        self.advanced = False

    def snapshot(self) -> MetricsSnapshot:
        self.seen = seen = self._jobs.snapshot()
        body = snapshot_to_json(seen.job(0), self._notes.job)
        self._notes("snapshot", body, float(seen.t_s[0]))
        if self._jobs.held is not None:
            self._notes("error", {"stage": "collector", "reason": self._jobs.held})
        return seen

    def apply(self, guarded: GuardedDecision) -> None:
        assert self.seen is not None
        self.guarded, job, key = guarded, self.seen.job(0), self._notes.job
        self._notes("decision", decision_to_json(guarded.proposed, job, key))
        answer = decision_to_json(guarded, job, key)
        self._notes("guard", answer)
        self.held = held = self._jobs.held
        asked = bool(answer["changed"]) and self._applied and held is None
        self._notes.step("decided", {"asked": asked, "applied": self._applied, "held": held})
        try:
            self._jobs.apply(guarded)
        except FlinkError as error:
            self.held = str(error)
            self._notes("error", {"stage": "actuator", "reason": str(error)})
        self._decided()

    def advance(self, seconds: int) -> Outcome | None:
        self.advanced = True
        try:
            self.outcome = self._jobs.advance(seconds)
        except FlinkError as error:
            self._notes("error", {"stage": "outcome", "reason": str(error)})
            return None
        self._notes("outcome", outcome_to_json(self.outcome))
        return self.outcome


class _NotedPolicy:
    """A policy whose failures keep the configuration as it runs."""

    def __init__(self, policy: Policy, jobs: LiveJobs, notes: Notes) -> None:
        self.name = policy.name
        self._policy, self._jobs, self._notes = policy, jobs, notes

    def reset(self, jobs: Topology, seeds: NDArray[np.int64], mask: Mask | None = None) -> None:
        self._policy.reset(jobs, seeds, mask)

    def decide(self, snapshot: MetricsSnapshot) -> ScalingDecision:
        try:
            return self._policy.decide(snapshot)
        except Exception as error:  # a policy may be anybody's code; the job is not to suffer
            reason = f"the policy failed: {type(error).__name__}: {error}"
            self._notes("error", {"stage": "policy", "reason": reason})
            self._jobs.hold(reason)
            return ScalingDecision(
                snapshot.parallelism.copy(), snapshot.memory_level.copy(), (reason,)
            )

    def state(self) -> State:
        return self._policy.state()

    def restore(self, state: State) -> None:
        self._policy.restore(state)


def outcome_to_json(outcome: Outcome) -> dict[str, float | None]:
    """What happened to the only job of an outcome; null is unknown."""
    return {
        name: float(values[0]) if np.isfinite(values[0]) else None
        for name, values in asdict(outcome).items()
    }
