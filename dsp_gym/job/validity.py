"""The distance of a configuration and a rate from the data a job's model was fitted to.

Distances are doublings (log2 of a ratio) beyond the fitted range, 0 inside it. The 90 % interval of
a predicted rate widens with them, along a line measured on predictions that the fit had not seen:

    |ln(predicted / true)| <= within + per_doubling * d + per_memory_doubling * d_memory

where d is the largest distance of slots, tasks, rate and skew. Memory has a separate slope: where a
state no longer fits, throughput falls off a cliff.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dsp_gym.arrays import Floats, Ints
from dsp_gym.job.capacity import starting_configuration
from dsp_gym.job.evidence import LEVEL, FitError
from dsp_gym.job.memory import level_mib
from dsp_gym.job.scaling import hottest_share
from dsp_gym.job.spec import JobSpec

LEAST_MIB = 1.0
"""Managed memory that smaller levels count as, MiB, so that no memory at all has a distance."""
NEAR = float(np.log2(1.05))
"""Doublings that count as no distance: 5 % beyond a range is as good as its end."""
MEMORY = "managed_memory_mib"
"""Name of the quantity with a separate slope."""
NAMED = 3
"""Most quantities beyond the fit that sentences name."""
ONE_SIDED = ("rate_per_s", "skew")
"""Quantities that are inside below their range: less load and less skew are easier."""


@dataclass(frozen=True, slots=True)
class Beyond:
    """One quantity outside its fitted range."""

    quantity: str  # slots, parallelism, managed_memory_mib, rate_per_s or skew
    vertex: str | None  # None: of the job
    asked: float
    low: float
    high: float
    doublings: float  # log2 of the ratio to the nearer end

    @property
    def sentence(self) -> str:
        """A sentence like "179 slots; fitted on 1 to 48 (3.7 times the largest)"."""
        seen = f"fitted on {_number(self.low)}"
        if self.high > self.low:
            seen += f" to {_number(self.high)}"
        if self.asked > self.high:
            how = f"{_ratio(self.asked / self.high)} the largest"
        else:
            how = f"{self.asked / self.low:.2g} of the smallest"
        return f"{self._asked}; {seen} ({how})"

    @property
    def _asked(self) -> str:
        number = _number(self.asked)
        at = f" at '{self.vertex}'" if self.vertex is not None else ""
        return {
            "slots": "1 slot" if self.asked == 1 else f"{number} slots",
            "parallelism": ("1 task" if self.asked == 1 else f"{number} tasks") + at,
            "managed_memory_mib": f"{number} MiB of managed memory per task",
            "rate_per_s": f"{number} records/s",
            "skew": f"{number} times the mean on the fullest task{at}",
        }[self.quantity]


@dataclass(frozen=True, slots=True, eq=False)
class Distances:
    """Distances of N configurations in Q quantities."""

    quantities: tuple[tuple[str, str | None], ...]  # (Q,) with the vertex where it has one
    asked: Floats  # (N, Q)
    low: Floats  # (Q,)
    high: Floats  # (Q,)
    doublings: Floats  # (N, Q), 0 inside the range

    @property
    def worst(self) -> Floats:
        """Largest distance of each configuration, (N,) doublings."""
        return np.asarray(self.doublings.max(axis=1, initial=0.0))

    @property
    def far(self) -> Floats:
        """Largest distance of slots, tasks, rate and skew, (N,) doublings."""
        return self._largest([name != MEMORY for name, _ in self.quantities])

    @property
    def memory(self) -> Floats:
        """Distance of managed memory, (N,) doublings."""
        return self._largest([name == MEMORY for name, _ in self.quantities])

    def _largest(self, which: Sequence[bool]) -> Floats:
        kept = self.doublings[:, np.array(which, np.bool_)]
        return np.asarray(kept.max(axis=1, initial=0.0))

    def beyond(self, row: int) -> tuple[Beyond, ...]:
        """List the quantities of one configuration that lie outside, the farthest first.

        Returns:
            Empty where everything lies inside.
        """
        found = [
            Beyond(
                quantity,
                vertex,
                float(self.asked[row, q]),
                float(self.low[q]),
                float(self.high[q]),
                float(self.doublings[row, q]),
            )
            for q, (quantity, vertex) in enumerate(self.quantities)
            if self.doublings[row, q] > 0
        ]
        return tuple(sorted(found, key=lambda one: -one.doublings))

    def validity(self, spec: JobSpec, row: int) -> Validity:
        """Describe the evidence behind a prediction for one configuration.

        Returns:
            Everything outside the fit of the job, and the interval's width there.
        """
        error = None if spec.fitted is None else spec.fitted.error
        width = None if error is None else half_width(error, self.far, self.memory)
        return Validity(
            spec.job,
            spec.fitted is not None,
            self.beyond(row),
            error,
            None if width is None else float(width[row]),
        )


@dataclass(frozen=True, slots=True)
class Validity:
    """The evidence behind one prediction."""

    job: str
    fitted: bool  # false: the job file says nothing about a fit
    beyond: tuple[Beyond, ...]  # the farthest first; empty: inside, or not known
    error: FitError | None
    half_width: float | None  # of the 90 % interval of a rate, natural logarithm

    @property
    def factor(self) -> float | None:
        """Half of the 90 % interval of a rate as a factor; None where no error was measured."""
        return None if self.half_width is None else math.exp(self.half_width)

    @property
    def doublings(self) -> float:
        """Distance of the farthest quantity."""
        return self.beyond[0].doublings if self.beyond else 0.0

    def interval(self, rate: float) -> tuple[float, float] | None:
        """Return the 90 % interval of a predicted rate.

        Returns:
            Its ends in the unit of the rate; None where no error was measured.
        """
        return None if self.factor is None else (rate / self.factor, rate * self.factor)

    def sentences(self) -> list[str]:
        """Say what a reader must know: everything outside the fit, the farthest first.

        Returns:
            Sentences without a full stop; empty inside the fit.
        """
        if not self.fitted:
            return [f"no evidence of a fit in the job file of '{self.job}': no interval is known"]
        found = [f"beyond the fit: {one.sentence}" for one in self.beyond[:NAMED]]
        if len(self.beyond) > NAMED:
            found.append(f"beyond the fit: {len(self.beyond) - NAMED} more, none of them farther")
        if self.error is None:
            found.append("no error was measured on what the fit left out: no interval is known")
        return found

    def to_json(self, rate: float | None = None) -> dict[str, object]:
        """Return plain values; with a rate, its interval.

        Returns:
            Keys `fitted`, `doublings`, `beyond`, `sentences` and `interval`.
        """
        ends = None if rate is None else self.interval(rate)
        return {
            "fitted": self.fitted,
            "doublings": self.doublings,
            "beyond": [
                {
                    "quantity": one.quantity,
                    "vertex": one.vertex,
                    "asked": one.asked,
                    "fitted": [one.low, one.high],
                    "doublings": one.doublings,
                }
                for one in self.beyond
            ],
            "sentences": self.sentences(),
            "interval": None
            if ends is None
            else {"level": LEVEL, "low_per_s": ends[0], "high_per_s": ends[1]},
        }


def distances(
    spec: JobSpec, parallelism: Ints, level: Ints, rate_per_s: Floats | None = None
) -> Distances:
    """Measure the distances of configurations from the data the job was fitted to.

    Args:
        spec: the job.
        parallelism: (N, V) tasks, vertices in topological order.
        level: (N, V) memory levels, -1 for none.
        rate_per_s: (N,) records/s over all sources; None: left out.

    Returns:
        As `distances_at`.
    """
    sizes = [level_mib(spec.memory.base_mib, x) for x in range(-1, spec.memory.levels)]
    return distances_at(spec, parallelism, np.array(sizes)[level + 1], rate_per_s)


def distances_at(
    spec: JobSpec, parallelism: Ints, managed_mib: Floats, rate_per_s: Floats | None = None
) -> Distances:
    """Measure the distances of configurations whose memory is given in MiB.

    Args:
        spec: the job.
        parallelism: (N, V) tasks, vertices in topological order.
        managed_mib: (N, V) managed memory of one task, 0 for none.
        rate_per_s: (N,) records/s over all sources; None: left out.

    Returns:
        (N, Q) for the quantities that the job file's section `fitted` names; none without one.
        Rates and skew count above their range only.
    """
    return _distances(spec, slots_taken(spec, parallelism), parallelism, managed_mib, rate_per_s)


def _distances(
    spec: JobSpec, slots: Floats, parallelism: Ints, managed_mib: Floats, rate_per_s: Floats | None
) -> Distances:
    """Do the same as `distances_at`, given the slots in use, (N,)."""
    seen = spec.fitted
    order = spec.topological_order()
    column = {vertex.name: v for v, vertex in enumerate(order)}
    names: list[tuple[str, str | None]] = []
    asked: list[Floats] = []
    spans: list[tuple[float, float]] = []

    def add(quantity: str, vertex: str | None, values: Floats, span: tuple[float, float]) -> None:
        names.append((quantity, vertex))
        asked.append(np.asarray(values, np.float64))
        spans.append(span)

    if seen is not None:
        if seen.slots is not None:
            add("slots", None, slots, seen.slots)
        for name, tasks in seen.parallelism.items():
            add("parallelism", name, parallelism[:, column[name]].astype(float), tasks)
        stateful = [v for v, vertex in enumerate(order) if vertex.state is not None]
        if seen.managed_memory_mib is not None and stateful:
            memory = seen.managed_memory_mib
            add(MEMORY, None, _farthest(managed_mib[:, stateful], memory), memory)
        if seen.rate_per_s is not None and rate_per_s is not None:
            add("rate_per_s", None, rate_per_s, seen.rate_per_s)
        for name, span in seen.skew.items():
            p = parallelism[:, column[name]]
            hot = np.asarray(hottest_share(spec.vertex(name), np.arange(1, int(p.max()) + 1)))
            add("skew", name, hot[p - 1], span)
    low = np.array([span[0] for span in spans])
    high = np.array([span[1] for span in spans])
    values = np.stack(asked, axis=1) if asked else np.zeros((len(parallelism), 0))
    two_sided = np.array([quantity not in ONE_SIDED for quantity, _ in names], np.bool_)
    with np.errstate(divide="ignore"):  # a rate of 0
        above, below = np.log2(values / high), np.log2(low / values)
    # NEAR spares configurations just beyond a range, where rounding of a rate would decide.
    found = np.maximum(above, np.where(two_sided, below, 0.0))
    return Distances(tuple(names), values, low, high, np.where(found > NEAR, found, 0.0))


def validity_of(
    spec: JobSpec,
    parallelism: Mapping[str, int] | None = None,
    levels: Mapping[str, int] | None = None,
    rate_per_s: float | None = None,
) -> Validity:
    """Describe the evidence behind a prediction for one configuration and rate.

    Args:
        spec: the job.
        parallelism: tasks by vertex name; vertices left out keep the job file's.
        levels: memory level by vertex name; vertices left out keep the job file's.
        rate_per_s: records/s over all sources; None: left out.

    Returns:
        Everything outside the fit, and the error that was measured.
    """
    start_p, start_level = starting_configuration(spec)
    order = [vertex.name for vertex in spec.topological_order()]
    p, level = start_p | dict(parallelism or {}), start_level | dict(levels or {})
    found = distances(
        spec,
        np.array([[p[name] for name in order]]),
        np.array([[level[name] for name in order]]),
        None if rate_per_s is None else np.array([rate_per_s]),
    )
    return found.validity(spec, 0)


class Extremes:
    """Smallest and largest configuration and rate of J jobs over many steps.

    Every distance grows away from its range, so these alone determine how far the steps went.

    Args:
        specs: the jobs, one per row; rows may share one.
    """

    def __init__(self, specs: Sequence[JobSpec]) -> None:
        self.specs = specs
        width = max((len(spec.vertices) for spec in specs), default=0)
        self._counts = np.zeros((len(specs), width), np.bool_)
        for row, spec in enumerate(specs):
            for v, vertex in enumerate(spec.topological_order()):
                self._counts[row, v] = vertex.kind != "source"
        self._shared = np.array([spec.slot_sharing for spec in specs], np.bool_)
        self._ends: list[tuple[Floats, Floats]] = []

    def take(self, parallelism: Ints, level: Ints, rate_per_s: Floats) -> None:
        """Take in one step.

        Args:
            parallelism: (J, V) tasks, vertices in topological order.
            level: (J, V) memory levels.
            rate_per_s: (J,) records/s over all sources.
        """
        tasks = np.where(self._counts, parallelism[:, : self._counts.shape[1]], 0)
        slots = np.where(self._shared, tasks.max(axis=1, initial=0), tasks.sum(axis=1))
        now = [parallelism, level, rate_per_s, slots]
        if not self._ends:
            self._ends = [(np.array(one), np.array(one)) for one in now]
        for one, (low, high) in zip(now, self._ends, strict=True):
            np.minimum(low, one, out=low)
            np.maximum(high, one, out=high)

    def validity(self, rows: Ints) -> Validity:
        """Describe the evidence behind the steps of some rows of one job.

        Args:
            rows: (R,) rows of the job, at least one.

        Returns:
            Every quantity where it went farthest.
        """
        spec = self.specs[int(rows[0])]
        v = len(spec.vertices)
        both = [
            np.stack([low[rows].min(axis=0), high[rows].max(axis=0)]) for low, high in self._ends
        ]
        parallelism, level = both[0][:, :v].astype(np.int64), both[1][:, :v].astype(np.int64)
        sizes = [level_mib(spec.memory.base_mib, x) for x in range(-1, spec.memory.levels)]
        found = _distances(spec, both[3], parallelism, np.array(sizes)[level + 1], both[2])
        worst = found.doublings.argmax(axis=0)[None]
        return Distances(
            found.quantities,
            np.take_along_axis(found.asked, worst, axis=0),
            found.low,
            found.high,
            np.take_along_axis(found.doublings, worst, axis=0),
        ).validity(spec, 0)


def slots_taken(spec: JobSpec, parallelism: Ints) -> Floats:
    """Count the task slots of configurations, sources left out.

    Args:
        spec: the job.
        parallelism: (N, V) tasks, vertices in topological order.

    Returns:
        (N,) the sum over vertices, or the largest where they share slots.
    """
    counted = [v for v, one in enumerate(spec.topological_order()) if one.kind != "source"]
    tasks = parallelism[:, counted].astype(float)
    return np.asarray(tasks.max(axis=1) if spec.slot_sharing else tasks.sum(axis=1))


def half_width(error: FitError, far: Floats, memory: Floats) -> Floats:
    """Return half of the 90 % interval of a rate, natural logarithm.

    Args:
        error: the measured line.
        far: (N,) doublings of slots, tasks, rate and skew.
        memory: (N,) doublings of managed memory.

    Returns:
        (N,); it never falls with a distance.
    """
    line = error.within + error.per_doubling * far + error.per_memory_doubling * memory
    return np.asarray(line)


def _farthest(mib: Floats, span: tuple[float, float]) -> Floats:
    """Return, of each configuration's memories (N, S), the one farthest outside a range, (N,)."""
    some = np.maximum(mib, LEAST_MIB)
    outside = np.maximum(np.log2(some / span[1]), np.log2(span[0] / some))
    return np.asarray(some[np.arange(len(some)), outside.argmax(axis=1)])


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == round(value) else f"{value:.3g}"


def _ratio(value: float) -> str:
    return f"{value:.2f} times" if value < 2 else f"{value:,.1f} times"
