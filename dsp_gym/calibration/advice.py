"""Which run would fix a number that the fitted runs cannot.

Every candidate is a saturated run of a configuration; the model says what it would show, and how
that depends on each fitted number (Fisher information, linear in the numbers). Named is the run
that fixes most of the open numbers, then the one that fixes most of the rest.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dsp_gym.arrays import Floats
from dsp_gym.calibration.fit import IDENTIFIED, Fit, Point
from dsp_gym.calibration.model import JobModel, Measured
from dsp_gym.calibration.observations import SteadyPart
from dsp_gym.calibration.parameters import READ_SPREAD, with_parameters
from dsp_gym.job.spec import JobSpec

STEP = 1e-3
"""Change of a number, on the scale of the fit and in units of its prior, for a derivative."""
HELPS = 0.9
"""A run that leaves more than this of a number's deviation does not help."""


@dataclass(frozen=True, slots=True)
class Advice:
    """One run to record, and what it would fix; without a run, what none would."""

    numbers: tuple[str, ...]
    vertex: str | None  # None: no saturated run shows these numbers
    tasks: int
    managed_mib: float | None  # None: it does not matter, or the vertex has no state
    beyond: tuple[bool, bool]  # more tasks than any fitted run; less memory
    least_mib: float | None  # least memory of a fitted run

    @property
    def sentence(self) -> str:
        """What to record, such as "record one saturated run at 4 tasks of 'state' or more"."""
        names = ", ".join(self.numbers)
        if self.vertex is None:
            return (
                f"{names}: no run of this job would fix it, its effect is too small; "
                "give it in the job file"
            )
        more = " or more" if self.beyond[0] else ""
        memory = ""
        if self.managed_mib is not None and self.least_mib is not None and self.beyond[1]:
            memory = f" with less than {self.least_mib:g} MiB"
        elif self.managed_mib is not None:
            memory = f" with {self.managed_mib:g} MiB"
        return (
            f"record a saturated run at {self.tasks} {'task' if self.tasks == 1 else 'tasks'} of "
            f"'{self.vertex}'{more}{memory}: it would fix {names}"
        )


@dataclass(frozen=True, slots=True)
class _Candidate:
    vertex: str
    tasks: int
    part: SteadyPart


def advice(found: Fit, seen: Sequence[SteadyPart]) -> list[Advice]:
    """Find a run for every number that was not identified.

    Args:
        found: a fit.
        seen: the parts it was fitted to.

    Returns:
        One entry per run to record; empty where everything was identified.
    """
    point = found.point
    open_ = [p.name for p in found.parameters if not p.identified]
    # Spread of a histogram: of the measurement, nobody asks for it.
    open_ = [name for name in open_ if not name.endswith(READ_SPREAD)]
    if point is None or not open_ or not seen:
        return []
    names = [p.name for p in point.parameters]
    prior = np.array([p.sd for p in point.parameters])
    candidates = _candidates(found.spec, seen)
    jacobians = _jacobians(found.spec, point, [c.part for c in candidates])
    left = np.array([_deviation(point.covariance, jacobian) for jacobian in jacobians])
    now = np.minimum(np.sqrt(np.maximum(np.diag(point.covariance), 0.0)), prior)
    waiting = [names.index(name) for name in open_]
    groups: list[tuple[int | None, list[int]]] = []
    while waiting:
        fixed = left[:, waiting] < IDENTIFIED * prior[waiting]
        if not fixed.any():
            break
        # The run that fixes most numbers; of several the smallest.
        sizes = [(sum(c.part.parallelism.values()), -c.part.memory) for c in candidates]
        best = min(range(len(candidates)), key=lambda i: (-fixed[i].sum(), sizes[i]))
        groups.append((best, [c for c, yes in zip(waiting, fixed[best], strict=True) if yes]))
        waiting = [c for c in waiting if c not in groups[-1][1]]
    for column in waiting:  # no run fixes it, one may help
        near = int(np.argmin(left[:, column]))
        helps = left[near, column] < HELPS * now[column]
        groups.append((near if helps else None, [column]))
    return [
        _advice(found.spec, seen, candidates, best, tuple(names[c] for c in columns))
        for best, columns in groups
    ]


def _advice(
    spec: JobSpec,
    seen: Sequence[SteadyPart],
    candidates: Sequence[_Candidate],
    best: int | None,
    names: tuple[str, ...],
) -> Advice:
    if best is None:
        return Advice(names, None, 0, None, (False, False), None)
    one = candidates[best]
    most = max(o.parallelism.get(one.vertex, 1) for o in seen)
    if spec.vertex(one.vertex).state is None:
        return Advice(names, one.vertex, one.tasks, None, (one.tasks > most, False), None)
    mib = one.part.managed_mib(one.vertex, spec.memory.base_mib)
    known = [m for o in seen if (m := o.managed_mib(one.vertex, spec.memory.base_mib)) > 0]
    least = min(known) if known else None
    less = least is not None and mib < least
    return Advice(names, one.vertex, one.tasks, mib, (one.tasks > most, less), least)


def _candidates(spec: JobSpec, seen: Sequence[SteadyPart]) -> list[_Candidate]:
    """Saturated runs: one vertex at several tasks and memories, the others at their most.

    Tasks go up to twice, and memory down to a quarter of, what was seen.
    """
    most = {
        v.name: max(o.parallelism.get(v.name, v.parallelism) for o in seen) for v in spec.vertices
    }
    base = min((o.base_mib or spec.memory.base_mib) for o in seen)
    found = []
    for vertex in spec.topological_order():
        scaled = vertex.kind != "source" and vertex.scalable
        cap = min(vertex.max_parallelism, spec.max_parallelism_per_vertex)
        tasks = {most[vertex.name]}
        if scaled:
            tasks = {p for p in (1, 2, 4, most[vertex.name], 2 * most[vertex.name]) if p <= cap}
        levels = [0] if vertex.state is None else list(range(-2, spec.memory.levels))
        for p in sorted(tasks):
            for level in levels:
                found.append(
                    _Candidate(vertex.name, p, _run(spec, seen, most, base, vertex.name, p, level))
                )
    return found


def _run(
    spec: JobSpec,
    seen: Sequence[SteadyPart],
    most: Mapping[str, int],
    base: float,
    vertex: str,
    tasks: int,
    level: int,
) -> SteadyPart:
    """A saturated run that reports what the fitted runs did."""
    # Half and a quarter of level 0 are levels of a smaller base.
    shift = max(0, -level)
    roomy = spec.memory.levels - 1
    levels = {
        v.name: -1 if v.state is None else (level if v.name == vertex else roomy) + shift
        for v in spec.vertices
    }

    def ones(field: str) -> dict[str, float]:
        return dict.fromkeys({name for o in seen for name in getattr(o, field)}, 1.0)

    return SteadyPart(
        "candidate",
        0.0,
        60.0,
        dict(most) | {vertex: tasks},
        levels,
        math.inf,
        1.0,
        0.0,
        0.0,
        True,
        ones("busy"),
        ones("hit"),
        ones("read_us"),
        ones("write_us"),
        latency=seen[0].latency,
        base_mib=base / 2**shift,
    )


def _jacobians(spec: JobSpec, point: Point, parts: Sequence[SteadyPart]) -> list[Floats]:
    """How each candidate's residuals depend on the numbers, (R, P) each."""
    measured = Measured(spec, parts)

    def shown(change: int, sign: float) -> Floats:
        values = {}
        for i, p in enumerate(point.parameters):
            x = point.x[i] + (sign * STEP * p.sd if i == change else 0.0)
            values[p] = p.decode(float(x))
        return measured.residuals(JobModel(*with_parameters(spec, values, point.form)))

    columns = []
    for i, p in enumerate(point.parameters):
        up, down = shown(i, 1.0), shown(i, -1.0)
        x = point.x[i]
        width = p.encode(p.decode(x + STEP * p.sd)) - p.encode(p.decode(x - STEP * p.sd))
        columns.append((up - down) / max(width, 1e-12))
    return np.split(np.stack(columns, axis=1), np.cumsum(measured.of_part)[:-1])


def _deviation(covariance: Floats, jacobian: Floats) -> Floats:
    """Standard deviations of the numbers after one more run, (P,)."""
    gain = covariance @ jacobian.T
    inner = np.eye(len(jacobian)) + jacobian @ gain
    after = covariance - gain @ np.linalg.solve(inner, gain.T)
    return np.asarray(np.sqrt(np.maximum(np.diag(after), 0.0)))
