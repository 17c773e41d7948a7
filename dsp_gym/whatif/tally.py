"""What policies cost and how late they were: sums over intervals, and the figures made of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from dsp_gym.arrays import Floats

__all__ = ["SUMMED", "ObservedTally", "Tally"]

SUMMED = ("seconds", "cost", "slo_s", "rescales", "pending_s", "latency_p95_s")


@dataclass(slots=True)
class Tally:
    """Sums over the intervals of one policy's jobs, (S,) each: one value per seed."""

    sums: dict[str, Floats]
    slots: int = 0
    looked_s: float = 0.0  # sum of the mean backlog, where the observed one is known

    @classmethod
    def of(cls, seeds: int) -> Tally:
        """An empty one.

        Returns:
            Zeros.
        """
        return cls({name: np.zeros(seeds) for name in SUMMED})

    def add(self, outcome: Mapping[str, Floats], *, looked: bool) -> None:
        """Take in an interval.

        Args:
            outcome: values by quantity, (S,) each.
            looked: whether the backlog of the observed job is known.
        """
        for name, total in self.sums.items():
            total += outcome[name]
        self.slots += 1
        if looked:
            self.looked_s += float(outcome["pending_s"].mean())

    def join(self, other: Tally) -> None:
        """Take in later intervals."""
        for name, total in self.sums.items():
            total += other.sums[name]
        self.slots += other.slots
        self.looked_s += other.looked_s

    def figures(self) -> dict[str, Floats]:
        """Figures of the time so far.

        Returns:
            Cost per hour, late share of the time, rescales per day, lag and p95 latency in s, each
            (S,).
        """
        total = self.sums
        return {
            "cost_per_h": 3600 * total["cost"] / total["seconds"],
            "slo_share": total["slo_s"] / total["seconds"],
            "rescales_per_day": 86_400 * total["rescales"] / total["seconds"],
            "lag_s": total["pending_s"] / self.slots,
            "latency_p95_s": total["latency_p95_s"] / self.slots,
        }


@dataclass(slots=True)
class ObservedTally:
    """The same of the observed job; what is not known counts as nothing."""

    sums: dict[str, float] = field(default_factory=lambda: dict.fromkeys(SUMMED, 0.0))
    looked: int = 0  # intervals with a known backlog

    def add(self, outcome: Mapping[str, float]) -> None:
        """Take in an interval: values by quantity, NaN where one is not known."""
        for name in self.sums:
            self.sums[name] += float(np.nan_to_num(outcome[name]))
        self.looked += bool(np.isfinite(outcome["pending_s"]))

    def join(self, other: ObservedTally) -> None:
        """Take in later intervals."""
        for name in self.sums:
            self.sums[name] += other.sums[name]
        self.looked += other.looked
