"""Errors of predictions, and the order of configurations they give.

Where a calibration holds no run out, its error is that of fits that each leave one run out and
predict it; of more than `FOLDS` runs, every fit leaves out several of them.

Agreement counts pairs of saturated configurations whose measured rates differ by more than twice
the repeat spread. A third of them trade parallelism against memory (one has more tasks, the other
more memory each): the pairs a model without memory cannot get right. Kendall's tau over the pairs:
those ordered alike less those ordered otherwise, over all; a tie counts as neither.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from dsp_gym.calibration.fit import fit
from dsp_gym.calibration.model import JobModel, Prediction
from dsp_gym.calibration.observations import SteadyPart
from dsp_gym.job.spec import JobSpec


@dataclass(frozen=True, slots=True)
class Compared:
    """One observation and the model's answer."""

    seen: SteadyPart
    predicted: Prediction
    in_fit: bool

    @property
    def rate_error(self) -> float:
        """Relative error of the sustained rate."""
        return self.predicted.rate_per_s / self.seen.rate_per_s - 1.0

    @property
    def at_capacity(self) -> bool:
        """The job is saturated, or the model says so; else the rate is simply what is offered."""
        return self.seen.saturated or self.predicted.rate_per_s < self.seen.offered_per_s


@dataclass(frozen=True, slots=True)
class Errors:
    """Errors over some runs; None where none of them shows the quantity."""

    parts: int  # steady parts of runs
    rate_median: float | None  # absolute relative error of the rate of parts at capacity
    rate_p90: float | None
    rate_count: int
    busy_mean: float | None  # mean absolute error, operators only, 0..1
    busy_count: int
    hit_mean: float | None  # mean absolute error, 0..1
    hit_count: int
    read_within_2: float | None  # share of median read latencies within a factor of 2
    read_count: int


def compare(model: JobModel, seen: Sequence[SteadyPart], fitted: frozenset[str]) -> list[Compared]:
    """Compare every steady part with the model.

    Returns:
        The parts with their predictions, in the same order.
    """
    return [Compared(o, model.predict(o), o.run in fitted) for o in seen]


def errors_of(spec: JobSpec, compared: Sequence[Compared]) -> Errors:
    """Add up comparisons.

    Sources and sinks are left out of busyness: they wait nearly always, which anything predicts.

    Returns:
        Errors of the rate, busyness, hit rate and read latency; None where nothing was measured.
    """
    operators = [v.name for v in spec.vertices if v.kind == "operator"]
    rate = [abs(c.rate_error) for c in compared if c.at_capacity]
    busy = [
        abs(c.predicted.busy[v] - c.seen.busy[v])
        for c in compared
        for v in operators
        if v in c.seen.busy
    ]
    hit = [
        abs(c.predicted.hit[v] - seen)
        for c in compared
        for v, seen in c.seen.hit.items()
        if v in c.predicted.hit
    ]
    read = [
        abs(np.log(c.predicted.read_us[v] / seen))
        for c in compared
        for v, seen in c.seen.read_us.items()
        if v in c.predicted.read_us
    ]
    return Errors(
        len(compared),
        float(np.median(rate)) if rate else None,
        float(np.quantile(rate, 0.9)) if rate else None,
        len(rate),
        float(np.mean(busy)) if busy else None,
        len(busy),
        float(np.mean(hit)) if hit else None,
        len(hit),
        float(np.mean(np.array(read) <= np.log(2.0))) if read else None,
        len(read),
    )


HELD_OUT, EACH_RUN = "runs held out", "each run left out in turn"
"""What the predicted runs of a report are."""

FOLDS = 12
"""Most fits that are made; each takes a second or a few."""


def left_out(spec: JobSpec, seen: Sequence[SteadyPart]) -> list[Compared]:
    """Predict every part by a fit to the other runs.

    Args:
        spec: the job, with its priors.
        seen: the parts that are fitted.

    Returns:
        One comparison per part, none of them in its fit; empty where there is a single run.
    """
    names = list(dict.fromkeys(o.run for o in seen))
    if len(names) < 2:
        return []
    found = []
    for fold in range(min(FOLDS, len(names))):
        chosen = frozenset(names[fold::FOLDS])
        rest = [o for o in seen if o.run not in chosen]
        model = fit(spec, rest).model()
        found += compare(model, [o for o in seen if o.run in chosen], frozenset())
    return found


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
    """Build DS2's view: capacity in proportion to the tasks, memory without effect.

    The single-task run is the fitted one with the fewest tasks; of several, that with most memory.

    Returns:
        A function that predicts the rate of a configuration, records/s.
    """
    base = min(
        (c for c in compared if c.in_fit and c.seen.saturated),
        key=lambda c: (_tasks(c), -c.seen.memory),
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
            trading = (_tasks(a) - _tasks(b)) * (a.seen.memory - b.seen.memory) < 0
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
