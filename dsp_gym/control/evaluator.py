"""The second step of a turn: ask every policy, with its guardrails, about the same snapshot."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dsp_gym.backends.base import Backend
from dsp_gym.control.event_handler import EventHandler, TurnFailure
from dsp_gym.control.guarded_policy import GuardedPolicy, Judgement
from dsp_gym.loop.snapshot import MetricsSnapshot


class PolicyEvaluator:
    """Asks the policies in order; each starts on the job of the backend.

    Args:
        backend: the job.
        policies: with their guardrails.
        events: receives what goes wrong.
        seed: of policies that draw.
    """

    def __init__(
        self, backend: Backend, policies: Sequence[GuardedPolicy], events: EventHandler, seed: int
    ) -> None:
        self._backend, self._policies, self._events = backend, policies, events
        self._seeds = np.array([seed], np.int64)
        self.reset()

    def reset(self) -> None:
        """Start every policy and its guardrails over."""
        for policy in self._policies:
            policy.reset(self._backend.collector.topology, self._seeds)

    def start_over(self) -> None:
        """Start every policy over in a turn; whatever is late or fails is reported."""
        for policy in self._policies:
            failure = policy.start_over(self._backend.collector.topology, self._seeds)
            if failure is not None:
                failed = TurnFailure("policy", failure.reason)
                self._events.fail(failed, policy.name, cause=failure.cause)

    def set_forward(self, seconds: float) -> None:
        """Let what the guardrails hold back be held back as long, though the clock was set."""
        for policy in self._policies:
            policy.set_forward(seconds)

    def warm_up(self, seen: MetricsSnapshot) -> None:
        """Decide once and forget it: compiled code is loaded before a time limit holds.

        Raises:
            DspGymError: A policy or guardrail does not fit the job.
        """
        for policy in self._policies:
            policy.warm_up(seen)
        self.reset()

    def evaluate(self, seen: MetricsSnapshot) -> tuple[Judgement, ...]:
        """Ask every policy.

        Returns:
            What each wants and may have, in order.
        """
        return tuple(policy.decide(seen) for policy in self._policies)

    def settle(
        self, seen: MetricsSnapshot, judged: Sequence[Judgement], enacted: str | None
    ) -> None:
        """Tell every policy's guardrails whether its decision was enacted.

        Args:
            seen: what was decided on.
            judged: the decisions; none in mode off.
            enacted: name of the policy whose decision was; None: none was.
        """
        for policy, one in zip(self._policies, judged, strict=False):
            failure = policy.settle(seen, one, enacted=one.policy == enacted)
            if failure is not None:
                failed = TurnFailure("policy", failure.reason)
                self._events.fail(failed, one.policy, cause=failure.cause)
