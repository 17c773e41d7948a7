"""What a live loop has counted since it started, for its metrics."""

from __future__ import annotations

from collections import Counter

from dsp_gym.live.modes import INCUMBENT
from dsp_gym.live.run import Turn

__all__ = ["Counts"]


class Counts:
    """Counters of one loop, by the labels they are exported with."""

    def __init__(self) -> None:
        self.decisions: Counter[str] = Counter()  # policy
        self.held: Counter[str] = Counter()  # reason, a word
        self.trips: Counter[tuple[str, str]] = Counter()  # policy, guardrail
        self.failures: Counter[tuple[str, str]] = Counter()  # policy, cause
        self.api_errors: Counter[tuple[str, str]] = Counter()  # api, reason
        self.writes: Counter[str] = Counter()  # outcome

    def add(self, turn: Turn) -> None:
        """Take in a decision."""
        if turn.held_code is not None:
            self.held[turn.held_code] += 1
        for one in turn.judgements:
            if one.policy != INCUMBENT:
                self.decisions[one.policy] += 1
            for guardrail in {found.guardrail for found in one.guarded.interventions}:
                self.trips[one.policy, guardrail] += 1
            if one.failure is not None:
                self.failures[one.policy, one.failure.cause] += 1
        for stage, reason in turn.failures:
            if stage in ("collector", "outcome", "actuator"):
                self.api_errors[api_of(reason), reason_of(reason)] += 1
        if turn.asked:
            self.writes["asked"] += 1
        elif turn.held_code == "actuator":
            self.writes["refused"] += 1
        elif turn.held_code == "rolled_back":
            self.writes["rolled_back"] += 1

    def failures_of(self, policy: str) -> int:
        """How often a policy's own decision could not be taken."""
        return sum(n for (name, _), n in self.failures.items() if name == policy)


def api_of(reason: str) -> str:
    """Whose failure a sentence is about: kubernetes, prometheus, or flink."""
    lowered = reason.lower()
    if "prometheus" in lowered or "metrics" in lowered:
        return "prometheus"
    return "kubernetes" if "kubernetes" in lowered or "api server" in lowered else "flink"


def reason_of(reason: str) -> str:
    """What kind of failure a sentence is about, in a word."""
    lowered = reason.lower()
    if "within" in lowered or "timed out" in lowered or "timeout" in lowered:
        return "Timeout"
    if "no metrics" in lowered or "no fresh metrics" in lowered:
        return "NoMetrics"
    if "refused" in lowered or "not reachable" in lowered or "cannot be reached" in lowered:
        return "Unreachable"
    if "failed, or is gone" in lowered or "no job" in lowered:
        return "NotFound"
    return "Other"
