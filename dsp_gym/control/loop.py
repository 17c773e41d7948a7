"""The loop itself: what a policy sees, decides, may do, and what comes of it."""

from __future__ import annotations

from typing import NamedTuple

from dsp_gym.arrays import Ints
from dsp_gym.backends.base import Backend
from dsp_gym.loop.decision import GuardedDecision, ScalingDecision
from dsp_gym.loop.outcome import Outcome
from dsp_gym.loop.plausible import plausible
from dsp_gym.loop.protocols import Guardrail, Policy
from dsp_gym.loop.snapshot import MetricsSnapshot
from dsp_gym.loop.turn import take_turn


class LoopStep(NamedTuple):
    """One turn of the loop."""

    snapshot: MetricsSnapshot
    decision: ScalingDecision
    guarded: GuardedDecision
    outcome: Outcome


class ControlLoop:
    """Snapshot, policy, guardrails, actuator, once per decision interval.

    Args:
        jobs: the backend; started by the caller.
        policy: decides.
        guardrails: one guardrail or a chain; None: none.
        interval_s: seconds between decisions.
    """

    def __init__(
        self,
        jobs: Backend,
        policy: Policy,
        guardrails: Guardrail | None = None,
        interval_s: int = 60,
    ) -> None:
        self.jobs = jobs
        self.policy = policy
        self.guardrails = guardrails
        self.interval_s = interval_s

    def reset(self, seeds: Ints) -> None:
        """Start policy and guardrails over; the jobs are the caller's to start."""
        topology = self.jobs.collector.topology
        self.policy.reset(topology, seeds)
        if self.guardrails is not None:
            self.guardrails.reset(topology, seeds)

    def step(self) -> LoopStep:
        """Decide once and let the jobs run for one interval.

        Returns:
            Snapshot, decision, guarded decision and its outcome.
        """
        snapshot = plausible(self.jobs.collector.snapshot())
        guarded = take_turn(snapshot, self.policy.decide, self.guardrails)
        if self.jobs.actuator is not None:
            self.jobs.actuator.apply(guarded)
        return LoopStep(snapshot, guarded.proposed, guarded, self.jobs.advance(self.interval_s))
