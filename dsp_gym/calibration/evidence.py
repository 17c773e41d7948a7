"""What a fit saw and how far it is off where it had not: the section `fitted` of a job file.

The error comes from fits that leave something out: each number of tasks, each memory, and
everything above or below one, so that there are predictions at several distances; and a few runs of
all numbers and memories. `within` is never less than what nine in ten of those stay below where one
number, one memory or runs were left out: of tables that no choice had seen, 7 of 18 rates were in
intervals that came from predictions inside the fit alone. Predictions beyond a fit give the line by
which the error grows with the distance.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from dsp_gym.arrays import Floats, Ints
from dsp_gym.config.strict_yaml import dump_yaml
from dsp_gym.job.evidence import LEVEL, Evidence, FitError
from dsp_gym.job.spec import JobSpec
from dsp_gym.job.validity import Distances, distances_at, slots_taken

LEAST_WITHIN = 0.05
"""Least half-width of an interval, logarithm: repeats of a run differ by about as much."""
PER_DOUBLING, PER_MEMORY_DOUBLING = 0.2, 0.6
"""Growth per doubling beyond the seen ranges: of slots, tasks, rate and skew the least, of memory
where no prediction could be tested. Read off fits of StreamBed's q1, q5 and q11 to few slot counts:
nine in ten predictions beyond them needed at most about 0.05 (q1, q11) and 0.6 (q5, whose join
loses), 0.1 in the geometric mean; q5's production run on 1,069 slots needs 0.18. A query whose own
predictions happen not to get worse is no proof of the next doubling. `dsp-gym reproduce intervals`
tests what share of measurements such intervals hold, each query with the growth of the other two.
"""
LEAST_GROWTH = 0.03
"""Least growth per doubling of memory."""
RUN_FOLDS = 5
"""Fits that leave runs out, whatever their tasks and memory; each leaves out a fifth of them."""


@dataclass(frozen=True, slots=True)
class SeenRate:
    """One measured rate at the capacity of a configuration."""

    parallelism: Mapping[str, int]
    managed_mib: Mapping[str, float]  # of vertices with state
    rate_per_s: float
    hottest: Mapping[str, float] = field(default_factory=dict)  # fullest task over the mean
    starved: bool = False  # too little memory for its state: no part of the fitted ranges


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A prediction of a measured rate by a fit that had not seen it."""

    far: float  # doublings of slots, tasks, rate and skew beyond what the fit had seen
    memory: float  # doublings of managed memory
    log_error: float  # natural logarithm of predicted over measured
    left_out: Literal["span", "value", "runs"] = "span"
    """Everything above or below a value; one number of tasks, or one memory; runs of any."""


Refit = Callable[[Sequence[int]], Callable[[int], float]]
"""Fits to the measured rates of these indices; the answer predicts the rate of any index."""


def ranges_of(spec: JobSpec, seen: Sequence[SeenRate], command: str) -> Evidence:
    """The ranges of the measured rates, without an error.

    Args:
        spec: the job.
        seen: measured rates, at least one.
        command: what made the fit.

    Returns:
        Smallest and largest of every quantity, rounded to four digits.
    """
    order = [v for v in spec.topological_order() if v.kind != "source"]
    runs, seen = len(seen), [one for one in seen if not one.starved]
    slots = slots_taken(spec, _parallelism(spec, seen))
    mib = [value for one in seen for value in one.managed_mib.values() if value > 0]
    hot = {
        v.name: [one.hottest[v.name] for one in seen if v.name in one.hottest]
        for v in order
        if any(edge.ship == "HASH" for edge in v.inputs)
    }
    return Evidence(
        command=command,
        runs=runs,
        slots=(int(slots.min()), int(slots.max())),
        parallelism={v.name: _counts([one.parallelism[v.name] for one in seen]) for v in order},
        managed_memory_mib=_span(mib) if mib else None,
        rate_per_s=_span([one.rate_per_s for one in seen]),
        skew={name: _span(values) for name, values in hot.items() if values},
    )


def folds(seen: Sequence[SeenRate], fewest: int = 2) -> list[tuple[int, ...]]:
    """Which measured rates to fit to, each time leaving others out.

    Along the number of tasks, and along memory: each value left out, and everything above or below
    a value. Where all rates are of one number of tasks and one memory, each rate is left out.

    Args:
        seen: measured rates.
        fewest: values that a fit needs to see a trend.

    Returns:
        Indices that are kept, each set once, in a fixed order.
    """
    tasks = [float(sum(one.parallelism.values())) for one in seen]
    memory = [round(sum(one.managed_mib.values()), 3) for one in seen]
    found: dict[tuple[int, ...], None] = {}
    for along in (tasks, memory):
        values = sorted(set(along))
        least = min(fewest, len(values) - 1)
        kept_values = [set(values) - {value} for value in values]
        for cut in range(least, len(values)):
            kept_values += [set(values[:cut]), set(values[-cut:])]
        for kept in kept_values:
            rows = tuple(i for i, value in enumerate(along) if value in kept)
            if len(rows) < len(seen) and any(not seen[i].starved for i in rows):
                found.setdefault(rows)
    if not found:
        every = range(len(seen))
        return [tuple(i for i in every if i != out) for out in every if len(seen) > 1]
    return list(found)


def run_folds(seen: Sequence[SeenRate]) -> list[tuple[int, ...]]:
    """Which measured rates to fit to, each time leaving out every fifth, whatever it ran on.

    Returns:
        Indices that are kept, each set once, without those of `folds`.
    """
    every, known = range(len(seen)), set(folds(seen))
    kept = [tuple(i for i in every if i % RUN_FOLDS != out) for out in range(RUN_FOLDS)]
    return [
        rows
        for rows in dict.fromkeys(kept)
        if rows not in known and len(rows) < len(seen) and any(not seen[i].starved for i in rows)
    ]


def what_folds_leave_out(seen: Sequence[SeenRate]) -> str:
    """What `folds` leaves out, in words.

    Returns:
        A noun phrase.
    """
    tasks = len({sum(one.parallelism.values()) for one in seen}) > 1
    memory = len({round(sum(one.managed_mib.values()), 3) for one in seen}) > 1
    both = " and ".join(
        name for name, is_there in (("numbers of tasks", tasks), ("memories", memory)) if is_there
    )
    if not both:
        return "runs, each"
    runs = "; a fifth of the runs" if run_folds(seen) else ""
    return f"{both}: each, and all above or below one{runs}"


def predictions_left_out(
    spec: JobSpec,
    seen: Sequence[SeenRate],
    refit: Refit,
    kept: Iterable[Sequence[int]],
    *,
    by_run: bool = False,
) -> list[LeftOut]:
    """Predict what each fit had not seen.

    Args:
        spec: the job: its graph counts, its numbers do not.
        seen: measured rates.
        refit: fits to some of them.
        kept: for each fit the indices it sees.
        by_run: whether these are `run_folds`.

    Returns:
        One prediction per fit and rate left out.
    """
    found = []
    for rows in kept:
        predict = refit(rows)
        others = [i for i in range(len(seen)) if i not in set(rows)]
        left_out: Literal["span", "value", "runs"] = "span"
        if by_run or _is_one_value(seen, others):
            left_out = "runs" if by_run else "value"
        predicted = [predict(i) for i in others]
        distance = distances_from(
            spec, [seen[i] for i in rows], [seen[i] for i in others], predicted
        )
        found += [
            LeftOut(float(far), float(memory), math.log(rate / seen[i].rate_per_s), left_out)
            for i, rate, far, memory in zip(
                others, predicted, distance.far, distance.memory, strict=True
            )
        ]
    return found


def _is_one_value(seen: Sequence[SeenRate], others: Sequence[int]) -> bool:
    """Whether one number of tasks, or one memory, was left out."""
    tasks = [sum(one.parallelism.values()) for one in seen]
    memory = [round(sum(one.managed_mib.values()), 3) for one in seen]
    return any(
        len(set(along)) > 1 and len({along[i] for i in others}) == 1 for along in (tasks, memory)
    )


def error_of(
    predictions: Sequence[LeftOut],
    what: str,
    growth: tuple[float, float] = (PER_DOUBLING, PER_MEMORY_DOUBLING),
    fitted: Sequence[float] = (),
) -> FitError | None:
    """The line that nine in ten predictions of what was left out stay below.

    Quantiles are those of split conformal prediction: of n errors the one of rank 0.9 (n + 1), the
    largest where n is too small for that.

    Args:
        predictions: of what the fits had not seen.
        what: what was left out, in words.
        growth: of half the interval per doubling, at least; and per doubling of memory, where
            none of them lies beyond what its fit saw.
        fitted: log errors on the rates that the whole fit saw: what it has not seen it predicts no
            better, however few predictions happen to say so.

    Returns:
        The error, rounded to three digits; None without predictions.
    """
    if not predictions:
        return None
    error = np.abs([one.log_error for one in predictions])
    far = np.array([one.far for one in predictions])
    memory = np.array([one.memory for one in predictions])
    kind = np.array([one.left_out for one in predictions])
    # Runs that are like others of the fit are predicted well: they would make the rest look so.
    inside = (far == 0) & (memory == 0) & (kind != "runs")
    fed = memory == 0 if (memory == 0).any() else memory >= 0
    # With none inside, those nearest to it: the distance is to explain nothing of them.
    nearest = far + memory == (far + memory).min()
    near = max(LEAST_WITHIN, _quantile(error[inside if inside.any() else nearest]))
    if fitted:
        near = max(near, float(np.quantile(np.abs(fitted), LEVEL)))
    per_doubling, per_memory_doubling = growth
    beyond = (far > 0) & (memory == 0)
    if beyond.any():
        growths = np.maximum(error[beyond] - near, 0.0) / far[beyond]
        per_doubling = max(per_doubling, _quantile(growths))
    tails = [error[fed & (kind == one)] for one in ("value", "runs")]
    p90 = max([float(np.quantile(tail, LEVEL)) for tail in tails if len(tail)], default=None)
    within = near if p90 is None else max(near, p90)
    told = error[fed] if p90 is None else np.concatenate(tails)
    starved = memory > 0
    if starved.any():
        rest = error[starved] - within - per_doubling * far[starved]
        growths = np.maximum(rest, 0.0) / memory[starved]
        per_memory_doubling = max(LEAST_GROWTH, _quantile(growths))
    return FitError(
        left_out=what,
        predictions=len(predictions),
        median=_rounded(float(np.median(told))),
        p90=_rounded(float(np.quantile(told, LEVEL)) if p90 is None else p90),
        within=_rounded(within),
        per_doubling=_rounded(per_doubling),
        per_memory_doubling=_rounded(per_memory_doubling),
    )


def section(evidence: Evidence) -> str:
    """The section as YAML, one line per quantity.

    Returns:
        Text that ends with a newline.
    """
    document = evidence.model_dump(mode="json", exclude_defaults=True)
    return dump_yaml({"fitted": document}, flow=None)


def with_section(text: str, evidence: Evidence) -> str:
    """A job file with its section `fitted` put in place, everything else as it was written.

    Returns:
        The text, the section at its end.
    """
    without = re.sub(r"^fitted:.*\n(?: .*\n|\n(?= ))*", "", text, flags=re.MULTILINE)
    return without.rstrip("\n") + "\n" + section(evidence)


def distances_from(
    spec: JobSpec,
    kept: Sequence[SeenRate],
    others: Sequence[SeenRate],
    rate_per_s: Sequence[float],
) -> Distances:
    """Distances of some configurations and rates from what a fit to others saw.

    Returns:
        One row for each of the others.
    """
    return distances_of(spec, ranges_of(spec, kept, "left out"), others, rate_per_s)


def distances_of(
    spec: JobSpec, ranges: Evidence, others: Sequence[SeenRate], rate_per_s: Sequence[float]
) -> Distances:
    """Distances of some configurations and rates from given ranges.

    Returns:
        One row for each of the others.
    """
    seen = spec.model_copy(update={"fitted": ranges})
    names = [v.name for v in spec.topological_order()]
    mib = np.array([[one.managed_mib.get(name, 0.0) for name in names] for one in others])
    return distances_at(seen, _parallelism(spec, others), mib, np.array(rate_per_s))


def _parallelism(spec: JobSpec, seen: Sequence[SeenRate]) -> Ints:
    names = [v.name for v in spec.topological_order()]
    return np.array([[one.parallelism[name] for name in names] for one in seen], np.int64)


def _quantile(values: Floats) -> float:
    """The value of rank 0.9 (n + 1), the largest where there is none."""
    rank = math.ceil(LEVEL * (len(values) + 1))
    return float(np.sort(values)[min(rank, len(values)) - 1])


def _counts(values: Sequence[int]) -> tuple[int, int]:
    return min(values), max(values)


def _span(values: Sequence[float]) -> tuple[float, float]:
    return _rounded(min(values)), _rounded(max(values))


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")
