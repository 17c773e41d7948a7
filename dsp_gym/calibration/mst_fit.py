"""Fits a throughput model to the measured cells of one query.

What operators cost comes from their true rates; a factor on those that come near their limit, and
the loss with parallelism, from the measured throughput: maximum a posteriori, the same weak priors
for every query. Which form the loss has is chosen by leaving out one slot count of the fit at a
time; the default form stays unless another is clearly better at that. Memory enters only where
cells of the fit show that less of it costs throughput.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dsp_gym.arrays import Floats
from dsp_gym.calibration.mst_model import (
    SCALING_FORMS,
    MemoryEffect,
    MstModel,
    ScalingForm,
    behind_windows,
    cache_mib,
    keyed,
)
from dsp_gym.calibration.mst_tables import Measurements, MstCell, MstRun, gather
from dsp_gym.errors import ConfigError, MissingExtraError

MODEL_ERROR, REPEAT_ERROR = 0.04, 0.06
"""Relative errors of a cell: of any model, and of one repeat (StreamBed: about 5.7 %)."""
STARVED_ERROR = 0.3
"""Relative error of a cell whose state does not fit: repeats differ by a factor of two."""
NEAR_LIMIT = 0.5
"""An operator at least this busy, relative to the busiest, has its cost adjusted to throughput."""
STARVED = 0.6
"""Below this share of what more memory carries, a slot has too little."""
CLEARLY_BETTER = 0.8
"""Cross-validation error over the default form's from which another form is taken."""
ENOUGH_GROUPS = 3
"""Slot counts (runs of one task per operator count as one) from which a form is chosen."""
WORKING_SET = 0.97
"""Working set over the smallest cache that is enough: just fits, all that can be said."""

_PRIORS: dict[str, tuple[float, float]] = {
    "scale": (0.0, 0.15),  # logarithm; true rates and throughput are measured differently
    # ContTune's map operator: a = 0.034 from 26 tasks (nexmark_q1_mapper_scaling.csv).
    "contention_a": (0.03, 0.03),
    "usl_a": (0.03, 0.03),
    "usl_b": (0.0, 0.001),
    "power_a": (0.1, 0.15),
    "taskmanager": (0.0, 0.015),
    # One firing's records go to one subtask but for what buffers hold, a quarter of them or so.
    "few_keys_a": (0.77, 0.1),
    "memory_a": (0.5, 0.3),
    "miss": (0.0, 1.5),  # logarithm, relative to what one task would need to explain the loss
}
_BOUNDS: dict[str, tuple[float, float]] = {
    "scale": (-1.0, 1.0),
    "contention_a": (0.0, 1.0),
    "usl_a": (0.0, 1.0),
    "usl_b": (0.0, 0.01),
    "power_a": (0.0, 0.9),
    "taskmanager": (0.0, 0.06),
    "few_keys_a": (0.0, 1.0),
    "memory_a": (0.0, 1.0),
    "miss": (-4.0, 4.0),
}


@dataclass(frozen=True, slots=True)
class Choice:
    """A form, and how well it predicts slot counts left out of the fit."""

    form: ScalingForm
    error: float | None  # mean absolute log error over the groups; None: too few to tell


@dataclass(frozen=True, slots=True)
class MstFit:
    """A fitted query."""

    measurements: Measurements
    model: MstModel
    choices: tuple[Choice, ...]
    enough_mib: float  # smallest measured memory per slot that is enough


def fit_measurements(measurements: Measurements, slots_per_taskmanager: int = 16) -> MstFit:
    """Fit the model of a query: memory that is enough, the form, then everything together.

    Returns:
        The model, the forms that were compared, and the memory per slot that is enough, MiB.
    """
    enough = _enough_mib(measurements, slots_per_taskmanager)
    fed = [run for run in measurements.runs if run.memory_mib >= enough]
    choices = _choices(measurements, fed, slots_per_taskmanager)
    form = _chosen(choices)
    model = fit_model(measurements, fed, form, slots_per_taskmanager)
    starved = [run for run in measurements.runs if run.memory_mib < enough]
    if starved:
        model = _with_memory(measurements, model, enough)
    return MstFit(measurements, model, tuple(choices), enough)


def refit(found: MstFit, runs: Sequence[MstRun]) -> MstModel:
    """The model of a fit's form and its memory that is enough, fitted to some of its runs.

    Returns:
        The model; without an effect of memory where none of the runs has too little.
    """
    measurements = replace(found.measurements, runs=tuple(runs))
    fed = [run for run in runs if run.memory_mib >= found.enough_mib]
    slots = found.model.slots_per_taskmanager
    model = fit_model(measurements, fed, found.model.form, slots)
    if len(fed) == len(runs) or found.model.memory is None:
        return model
    return _with_memory(measurements, model, found.enough_mib)


def fit_model(
    measurements: Measurements,
    runs: Sequence[MstRun],
    form: ScalingForm,
    slots_per_taskmanager: int = 16,
) -> MstModel:
    """The model of one form, without an effect of memory.

    Returns:
        The model with the fitted seconds per record and the parameters of the form; `memory` is
        None.
    """
    start = _from_rates(measurements, runs, form, slots_per_taskmanager)
    near = _near_limit(measurements, runs)
    names = [*("scale" for _ in near), *_form_parameters(form, bool(start.few_keys))]

    def model(x: Floats) -> MstModel:
        seconds = list(start.seconds)
        for v, scale in zip(near, x, strict=False):
            seconds[v] *= math.exp(-scale)
        found = {name: float(x[names.index(name)]) for name in names[len(near) :]}
        return replace(
            start,
            seconds=tuple(seconds),
            a=found.get(f"{form.efficiency}_a", 0.0),
            b=found.get("usl_b", 0.0),
            few_keys_a=found.get("few_keys_a", 0.0),
            contention=found.get("taskmanager", 0.0),
        )

    return model(_minimize(names, model, gather(runs), math.inf))


def _from_rates(
    measurements: Measurements, runs: Sequence[MstRun], form: ScalingForm, slots: int
) -> MstModel:
    """Costs by the true rates at the smallest parallelism each operator was seen at."""
    seconds, ratios = [], []
    for v in range(len(measurements.operators)):
        least = min(run.parallelism[v] for run in runs)
        rates = [
            r
            for run in runs
            if run.parallelism[v] == least and not math.isnan(r := run.true_rate_per_s[v])
        ]
        rates = rates or [r for run in runs if not math.isnan(r := run.true_rate_per_s[v])]
        seconds.append(1 / statistics.median(rates) if rates else 0.0)
        ratios.append(statistics.median(run.input_ratio[v] for run in runs))
    if not any(seconds[v] * ratios[v] > 0 for v in measurements.working):
        raise ConfigError(
            f"no operator of query '{measurements.query}' has a true processing rate",
            key="true_rate_per_task_events_per_s",
            remedy="Give operator rates of at least one run under load.",
        )
    few = behind_windows(measurements) if form.few_keys else ()
    return MstModel(
        form, measurements.working, few, tuple(seconds), tuple(ratios), slots_per_taskmanager=slots
    )


def _near_limit(measurements: Measurements, runs: Sequence[MstRun]) -> list[int]:
    """Operators whose busiest run comes near that of the busiest operator."""
    busy = {
        v: max(
            (
                run.mst_per_s * run.input_ratio[v] / run.parallelism[v] / run.true_rate_per_s[v]
                for run in runs
                if not math.isnan(run.true_rate_per_s[v])
            ),
            default=0.0,
        )
        for v in measurements.working
    }
    return [v for v, share in busy.items() if share > NEAR_LIMIT * max(busy.values())]


def _form_parameters(form: ScalingForm, few_keys: bool) -> list[str]:
    names = {
        "contention": ["contention_a"],
        "usl": ["usl_a", "usl_b"],
        "power": ["power_a"],
        "linear": [],
    }[form.efficiency]
    return [
        *names,
        *(["taskmanager"] if form.contention else []),
        *(["few_keys_a"] if few_keys else []),
    ]


def _choices(measurements: Measurements, runs: Sequence[MstRun], slots: int) -> list[Choice]:
    groups: dict[int, list[MstRun]] = {}
    for run in runs:
        single = all(run.parallelism[v] == 1 for v in measurements.working)
        groups.setdefault(0 if single else run.slots, []).append(run)
    forms = [form for form in SCALING_FORMS if not form.few_keys or behind_windows(measurements)]
    if len(groups) < ENOUGH_GROUPS:
        return [Choice(SCALING_FORMS[0], None)]
    return [Choice(form, _left_out(measurements, groups, form, slots)) for form in forms]


def _left_out(
    measurements: Measurements, groups: dict[int, list[MstRun]], form: ScalingForm, slots: int
) -> float:
    errors = []
    for left_out, cells in ((key, gather(runs)) for key, runs in groups.items()):
        rest = [run for key, runs in groups.items() if key != left_out for run in runs]
        model = fit_model(measurements, rest, form, slots)
        errors.append(statistics.mean(abs(_log_error(model, cell)) for cell in cells))
    return statistics.mean(errors)


def _chosen(choices: Sequence[Choice]) -> ScalingForm:
    default = choices[0]
    best = min(choices, key=lambda choice: choice.error or 0.0)
    if default.error is None or best.error is None:
        return default.form
    return best.form if best.error < CLEARLY_BETTER * default.error else default.form


def _enough_mib(measurements: Measurements, slots: int) -> float:
    """Smallest memory, from the largest down, that carries what more memory carries."""
    memories = sorted({run.memory_mib for run in measurements.runs}, reverse=True)
    enough = memories[0]
    for memory in memories[1:]:
        fed = [run for run in measurements.runs if run.memory_mib >= enough]
        model = fit_model(measurements, fed, SCALING_FORMS[0], slots)
        cells = gather([run for run in measurements.runs if run.memory_mib == memory])
        if statistics.median(_log_error(model, cell) for cell in cells) > -math.log(STARVED):
            break
        enough = memory
    return enough


def _with_memory(measurements: Measurements, base: MstModel, enough_mib: float) -> MstModel:
    """The model with the state that does not fit in the operator that explains the cells best."""
    cells = gather(measurements.runs)
    starved = [cell for cell in cells if cell.memory_mib < enough_mib]
    slots = base.slots_per_taskmanager
    working_set = WORKING_SET * cache_mib(enough_mib, slots)
    candidates = [
        v
        for v in base.working
        if keyed(measurements.operators[v]) and base.seconds[v] * base.ratio[v] > 0
    ]
    if not candidates or working_set <= 0:
        return base

    def fitted(v: int) -> MstModel:
        one_task_s = statistics.median(1 / (cell.mst_per_s * base.ratio[v]) for cell in starved)

        def model(x: Floats) -> MstModel:
            effect = MemoryEffect(v, working_set, one_task_s * math.exp(x[1]), float(x[0]))
            return replace(base, memory=effect)

        return model(_minimize(["memory_a", "miss"], model, cells, enough_mib))

    def cost(model: MstModel) -> float:
        return sum(_residual(model, cell, enough_mib) ** 2 for cell in cells)

    return min(map(fitted, candidates), key=cost)


def _log_error(model: MstModel, cell: MstCell) -> float:
    return math.log(model.mst_per_s(cell.parallelism, cell.memory_mib) / cell.mst_per_s)


def _residual(model: MstModel, cell: MstCell, enough_mib: float) -> float:
    if cell.memory_mib < enough_mib < math.inf:
        return _log_error(model, cell) / STARVED_ERROR
    return _log_error(model, cell) / math.hypot(MODEL_ERROR, REPEAT_ERROR / len(cell.runs) ** 0.5)


def _minimize(
    names: Sequence[str],
    model: Callable[[Floats], MstModel],
    cells: Sequence[MstCell],
    enough_mib: float,
) -> Floats:
    """Least squares of the cells' errors and the priors, from three starts."""
    try:
        from scipy.optimize import least_squares
    except ModuleNotFoundError:
        raise MissingExtraError("plan", "fitting a job file") from None
    mean = np.array([_PRIORS[name][0] for name in names])
    spread = np.array([_PRIORS[name][1] for name in names])
    low, high = (np.array([_BOUNDS[name][side] for name in names]) for side in (0, 1))

    def residuals(x: Floats) -> Floats:
        fitted = model(x)
        errors = [_residual(fitted, cell, enough_mib) for cell in cells]
        return np.concatenate([errors, (x - mean) / spread])

    if not names:
        return np.array([])
    results = []
    for offset in (0.0, 1.0, -0.7):  # the least of several operators has kinks
        start = np.clip(mean + offset * spread, low + 1e-6, high - 1e-6)
        results.append(
            least_squares(
                residuals, start, bounds=(low, high), x_scale=spread, diff_step=1e-3, max_nfev=100
            )
        )
    return np.asarray(min(results, key=lambda result: result.cost).x)
