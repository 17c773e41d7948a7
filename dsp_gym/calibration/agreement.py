"""Does the model order configurations as the real job does?

Pairs of saturated configurations whose measured rates differ by more than twice the repeat spread.
A third of them trade parallelism against memory (one has more tasks, the other more memory each):
the pairs a model without memory cannot get right. Kendall's tau over the pairs: those ordered
alike less those ordered otherwise, over all; a tie counts as neither.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dsp_gym.calibration.errors import Compared

__all__ = ["Agreement", "agreement", "linear_model"]

SEED = 0
"""Of the draw of pairs that do not trade: as many are taken as make trades a third."""

RateOf = Callable[[Compared], float]


@dataclass(frozen=True, slots=True)
class Agreement:
    """Kendall's tau of the model and of the linear one over the same pairs."""

    pairs: int
    trades: int
    tau: float
    tau_trades: float
    linear_tau: float
    linear_tau_trades: float


def linear_model(compared: Sequence[Compared]) -> RateOf:
    """Builds DS2's view: capacity in proportion to the tasks, memory without effect.

    The single-task run is the fitted one with the fewest tasks; of several, that with most memory.

    Returns:
        A function that predicts the rate of a configuration, records/s.
    """
    base = min(
        (c for c in compared if c.in_fit and c.seen.saturated),
        key=lambda c: (_tasks(c), -_memory(c)),
    )
    p = base.seen.parallelism
    scaled = [v for v in p if len({c.seen.parallelism[v] for c in compared}) > 1]
    return lambda c: (
        base.seen.rate_per_s * min((c.seen.parallelism[v] / p[v] for v in scaled), default=1.0)
    )


def agreement(
    groups: Sequence[Sequence[Compared]], repeat_cv: float, linear: Sequence[RateOf]
) -> Agreement | None:
    """Agreement over the pairs within each group; None where no pair differs enough.

    Args:
        groups: comparisons of one job each; pairs of two fitted runs are left out.
        repeat_cv: relative spread of repeats.
        linear: the linear model of each group.

    Returns:
        Kendall's tau and the pairs it counts; None if no pair differs enough.
    """
    trades: list[tuple[float, float, float]] = []
    others: list[tuple[float, float, float]] = []
    for compared, simple in zip(groups, linear, strict=True):
        saturated = [c for c in compared if c.seen.saturated and c.seen.start_s == 0]
        for a, b in itertools.combinations(saturated, 2):
            measured = math.log(a.seen.rate_per_s / b.seen.rate_per_s)
            if abs(measured) <= 2.0 * repeat_cv or (a.in_fit and b.in_fit):
                continue
            said = math.log(a.predicted.rate_per_s / b.predicted.rate_per_s)
            row = (measured, said, math.log(simple(a) / simple(b)))
            trading = (_tasks(a) - _tasks(b)) * (_memory(a) - _memory(b)) < 0
            (trades if trading else others).append(row)
    count = min(len(others), 2 * len(trades)) if trades else len(others)
    drawn = random.Random(SEED).sample(others, count)
    kept = trades + drawn
    if not kept:
        return None
    return Agreement(
        len(kept), len(trades), _tau(kept, 1), _tau(trades, 1), _tau(kept, 2), _tau(trades, 2)
    )


def _tau(rows: Sequence[tuple[float, float, float]], column: int) -> float:
    if not rows:
        return float("nan")
    signs = [
        0.0 if abs(row[column]) < 1e-9 else math.copysign(1.0, row[0] * row[column]) for row in rows
    ]
    return sum(signs) / len(signs)


def _tasks(c: Compared) -> int:
    return sum(c.seen.parallelism.values())


def _memory(c: Compared) -> float:
    return c.seen.memory
