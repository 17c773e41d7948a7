"""What a live loop has counted since it started, for its metrics."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field

from dsp_gym.control.modes import INCUMBENT
from dsp_gym.control.turn import Turn

BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 1.0, 2.5)
"""Buckets of the time a decision takes, s; 20 ms is what it may take with four policies."""

DECIDED = ("asked", "refused", "rolled_back")
"""What can become of a change in the turn that decides on it."""


@dataclass(slots=True)
class Took:
    """How long decisions took, by bucket; the last one holds what is longer than all."""

    buckets: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS_S) + 1))
    total: float = 0.0

    def add(self, seconds: float) -> None:
        """Count one more decision."""
        self.buckets[bisect_left(BUCKETS_S, seconds)] += 1
        self.total += seconds


class Counts:
    """Counters of one loop, by the labels they are exported with."""

    def __init__(self) -> None:
        self.decisions: Counter[str] = Counter()  # policy
        self.held: Counter[str] = Counter()  # reason, a word
        self.trips: Counter[tuple[str, str]] = Counter()  # policy, guardrail
        self.failures: Counter[tuple[str, str]] = Counter()  # policy, cause
        self.api_errors: Counter[tuple[str, str]] = Counter()  # api, reason
        self.writes: Counter[str] = Counter()  # outcome
        self.seconds: dict[str, Took] = {}  # policy

    def add(self, turn: Turn) -> None:
        """Take in a decision."""
        if turn.held_code is not None:
            self.held[turn.held_code] += 1
        for one in turn.judgements:
            if one.policy != INCUMBENT:
                self.decisions[one.policy] += 1
                self.seconds.setdefault(one.policy, Took()).add(one.seconds)
            for guardrail in {found.guardrail for found in one.guarded.interventions}:
                self.trips[one.policy, guardrail] += 1
            if one.failure is not None:
                self.failures[one.policy, one.failure.cause] += 1
        for failed in turn.failures:
            if failed.api is not None:
                self.api_errors[failed.api, failed.kind or "Other"] += 1
        if turn.asked:
            self.writes["asked"] += 1
        elif turn.held_code == "actuator":
            self.writes["refused"] += 1
        elif turn.held_code == "rolled_back":
            self.writes["rolled_back"] += 1

    def failures_of(self, policy: str) -> int:
        """Count how often a policy's own decision could not be taken.

        Returns:
            Number of failed decisions since the start.
        """
        return sum(n for (name, _), n in self.failures.items() if name == policy)
