"""The fit of the model to the measurements, with a prior on every number.

Nonlinear least squares on residuals in units of their expected size, rates and latencies as
logarithms, under a soft loss so that one bad run cannot drag the rest. A run that drifted or
scattered counts by its uncertainty, one that never became steady for next to nothing. Priors are
residuals too, so that a number the runs cannot fix stays where the job file has it, and is reported
as such.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dsp_gym.arrays import Floats
from dsp_gym.calibration.model import RATE_SD, JobModel, Measured, doubt
from dsp_gym.calibration.observations import SteadyPart
from dsp_gym.calibration.parameters import (
    EFFICIENCY_FORMS,
    EfficiencyForm,
    Parameter,
    free_parameters,
    with_parameters,
)
from dsp_gym.errors import MetricsError, MissingExtraError
from dsp_gym.job.spec import JobSpec

SOFT = 2.0
"""Residual, in units of its size, from which it counts linearly."""
IDENTIFIED = 0.7
"""A number is identified where the data narrow its prior to less than this."""
MADE_UP = 2.0
"""Rise of the cost, in residuals of the usual size, up to which the others make up for numbers that
are held at their priors."""
OUTLIER, OUTLIER_LOG = 6.0, 0.3
"""A run whose rate is this many typical residuals, and this far in log, from the fit is left out:
an aborted measurement."""


@dataclass(frozen=True, slots=True)
class Fitted:
    """One number of the job file after the fit."""

    name: str  # vertex.field
    unit: str
    prior: float
    value: float
    low: float  # 95 % interval
    high: float
    identified: bool  # false: the runs cannot fix it, it keeps its prior


@dataclass(frozen=True, slots=True, eq=False)
class Point:
    """Where the search with everything free ended."""

    parameters: tuple[Parameter, ...]  # P
    x: Floats  # (P,) on the scale of the fit
    covariance: Floats  # (P, P), priors included
    form: EfficiencyForm


@dataclass(frozen=True, slots=True)
class Fit:
    """A calibrated job."""

    spec: JobSpec
    read_spread: dict[str, float]
    form: EfficiencyForm
    parameters: tuple[Fitted, ...]
    outliers: tuple[str, ...]  # runs the fit left out
    point: Point | None = field(default=None, compare=False, repr=False)

    def model(self) -> JobModel:
        """The model of the fitted job.

        Returns:
            A model with the fitted values and the fitted spread of reads over the caches.
        """
        return JobModel(self.spec, self.read_spread)


def fit(spec: JobSpec, seen: Sequence[SteadyPart]) -> Fit:
    """Fit a job's numbers to its measured parts.

    The form of the efficiency curve is the one with the least cost, two more charged for its
    parameter (Akaike). Aborted runs are found by their residual and left out once.

    Returns:
        The fitted job, each number with its interval, and the runs left out.

    Raises:
        MetricsError: No measurement is left to fit to.
    """
    if not seen:
        raise MetricsError(
            "no steady part of any run to fit to",
            remedy="Record runs of at least 30 s, or name more of them in the calibration.",
        )
    spec = _with_selectivity(spec, seen)
    best = _fit(spec, seen)
    outliers = _outliers(best, seen)
    if not outliers:
        return best
    kept = _fit(spec, [o for o in seen if o.run not in outliers])
    return dataclasses.replace(kept, outliers=outliers)


def _with_selectivity(spec: JobSpec, seen: Sequence[SteadyPart]) -> JobSpec:
    """Selectivity is measured, not fitted: the median over runs of records out per record in."""
    vertices = []
    for vertex in spec.vertices:
        values = [o.selectivity[vertex.name] for o in seen if vertex.name in o.selectivity]
        ratio = float(f"{np.median(values):.4g}") if values else vertex.selectivity
        vertices.append(vertex.model_copy(update={"selectivity": ratio}))
    return spec.model_copy(update={"vertices": tuple(vertices)})


def _fit(spec: JobSpec, seen: Sequence[SteadyPart]) -> Fit:
    """Twice: with everything free, which shows what the runs can fix; then that alone.

    Curvature speaks of one point only, and near a bound by chance: a number stays free, too, where
    the others cannot make up for holding it.
    """
    form, free, first = min(
        _searches(spec, seen),
        key=lambda one: float(one[2].cost) + sum(p.field == "efficiency.a" for p in one[1]),
    )
    scale = _scale(first.fun[: -len(free)])
    covariance = _covariance(first.jac, scale)
    spread = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    deviation = dict(zip(free, (float(one) for one in spread), strict=True))
    reached = dict(zip(free, (float(x) for x in first.x), strict=True))
    known = [p for p in free if deviation[p] < IDENTIFIED * p.sd]
    held = sorted((p for p in free if p not in known), key=lambda p: deviation[p] / p.sd)
    values = {p: p.prior for p in held}
    while known:
        fixed = {p: p.prior for p in held}
        second = _solve(spec, form, seen, known, fixed, [reached[p] for p in known])
        values = fixed | {p: p.decode(float(x)) for p, x in zip(known, second.x, strict=True)}
        if not held or second.cost <= first.cost + MADE_UP * scale**2:
            break
        known.append(held.pop(0))
    fitted_spec, read_spread = with_parameters(spec, values, form)
    return Fit(
        fitted_spec,
        read_spread,
        form if any(p.field == "efficiency.a" for p in known) else "linear",
        tuple(_fitted(p, values[p], deviation[p], p in known) for p in free),
        (),
        Point(tuple(free), np.array([p.encode(values[p]) for p in free]), covariance, form),
    )


def _searches(
    spec: JobSpec, seen: Sequence[SteadyPart]
) -> Iterator[tuple[EfficiencyForm, list[Parameter], Any]]:
    """The search with every number free, for each form that the parts can tell from the first."""
    for form in EFFICIENCY_FORMS:
        free = free_parameters(spec, form, seen)
        if form == EFFICIENCY_FORMS[0] or any(p.field == "efficiency.a" for p in free):
            yield form, free, _solve(spec, form, seen, free, {}, [p.encode(p.prior) for p in free])


def _solve(
    spec: JobSpec,
    form: EfficiencyForm,
    seen: Sequence[SteadyPart],
    free: Sequence[Parameter],
    fixed: dict[Parameter, float],
    begin: Sequence[float],
) -> Any:
    """SciPy's result of a search over `free`."""
    try:
        from scipy.optimize import least_squares
    except ModuleNotFoundError:
        raise MissingExtraError("plan", "calibrating a job") from None
    prior = np.array([p.encode(p.prior) for p in free])
    low = np.array([p.encode(p.low) for p in free])
    high = np.array([p.encode(p.high) for p in free])
    sd = np.array([p.sd for p in free])
    measured = Measured(spec, seen)

    def residuals(x: Floats) -> Floats:
        values = fixed | {p: p.decode(float(value)) for p, value in zip(free, x, strict=True)}
        model = JobModel(*with_parameters(spec, values, form))
        return np.concatenate([measured.residuals(model), (x - prior) / sd])

    return least_squares(
        residuals,
        np.clip(begin, low + 1e-3, high - 1e-3),
        bounds=(low, high),
        loss="soft_l1",
        f_scale=SOFT,
        x_scale=sd,
        diff_step=1e-4,
    )


def _scale(data: Floats) -> float:
    """Size of the residuals, as a multiple of the expected one; at least 1."""
    return max(1.0, float(np.median(np.abs(data))) / 0.6745)


def _covariance(jacobian: Floats, scale: float) -> Floats:
    """From curvature; wider where the residuals are larger than expected."""
    return np.asarray(np.linalg.pinv(jacobian.T @ jacobian) * scale**2)


def _fitted(p: Parameter, value: float, deviation: float, known: bool) -> Fitted:
    x, spread = p.encode(value), min(deviation, p.sd)
    low, high = p.decode(x - 1.96 * spread), p.decode(x + 1.96 * spread)
    return Fitted(p.name, p.unit, p.prior, value, low, high, known)


def _outliers(found: Fit, seen: Sequence[SteadyPart]) -> tuple[str, ...]:
    """Runs far from a fit that the others agree with; none where there are too few to tell."""
    model = found.model()
    off = {o.run: math.log(o.rate_per_s / model.predict(o).rate_per_s) / doubt(o) for o in seen}
    if len(off) < 4:
        return ()
    typical = max(RATE_SD, float(np.median(np.abs(list(off.values())))) / 0.6745)
    far = [run for run, value in off.items() if abs(value) > max(OUTLIER * typical, OUTLIER_LOG)]
    return tuple(sorted(far)) if len(far) <= len(off) // 3 else ()
