"""The loop itself: what a policy sees, decides, may do, and what comes of it."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from dsp_gym.arrays import Ints
from dsp_gym.loop.decision import GuardedDecision, ScalingDecision
from dsp_gym.loop.protocols import Guardrail, Policy
from dsp_gym.loop.snapshot import MetricsSnapshot
from dsp_gym.loop.topology import Topology
from dsp_gym.loop.turn import take_turn


class AdvancingJobs(Protocol):
    """Collector and actuator of jobs whose time this loop drives."""

    topology: Topology

    def snapshot(self) -> MetricsSnapshot:
        """What is seen now."""

    def apply(self, guarded: GuardedDecision) -> None:
        """Ask for the guarded configuration."""

    def advance(self, seconds: int) -> object:
        """Let the jobs run; returns what happened."""


class Step(NamedTuple):
    """One turn of the loop."""

    snapshot: MetricsSnapshot
    decision: ScalingDecision
    guarded: GuardedDecision
    outcome: object


class ControlLoop:
    """Snapshot, policy, guardrails, actuator, once per decision interval.

    Args:
        jobs: collector and actuator; started by the caller.
        policy: decides.
        guardrails: one guardrail or a chain; None: none.
        interval_s: seconds between decisions.
    """

    def __init__(
        self,
        jobs: AdvancingJobs,
        policy: Policy,
        guardrails: Guardrail | None = None,
        interval_s: int = 60,
    ) -> None:
        self.jobs = jobs
        self.policy = policy
        self.guardrails = guardrails
        self.interval_s = interval_s

    def reset(self, seeds: Ints) -> None:
        """Start policy and guardrails anew; the jobs are the caller's to start."""
        self.policy.reset(self.jobs.topology, seeds)
        if self.guardrails is not None:
            self.guardrails.reset(self.jobs.topology, seeds)

    def step(self) -> Step:
        """Decide once and let the jobs run for one interval."""
        snapshot = self.jobs.snapshot()
        guarded = take_turn(snapshot, self.policy.decide, self.guardrails)
        self.jobs.apply(guarded)
        return Step(snapshot, guarded.proposed, guarded, self.jobs.advance(self.interval_s))
