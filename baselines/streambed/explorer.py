"""The resource explorer: the choice of budgets to measure, and of the model.

StreamBed, section 6: corners of slots x memory first, then the budget where a Gaussian process
expects the largest improvement of the best model's cross-validation error, until that error rises
again.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np
from pydantic import Field

from baselines.streambed.models import (
    FORMS,
    ModelForm,
    Point,
    Surface,
    extrapolation_error,
    fit,
    loocv,
)
from dsp_gym.arrays import Floats
from dsp_gym.config.model import ConfigModel
from dsp_gym.errors import MissingExtraError

XI = 0.01
"""Least improvement that counts, in standard deviations of the errors seen (scikit-optimize)."""


class ExplorerConfig(ConfigModel):
    """Settings of the exploration; defaults are StreamBed's."""

    min_after_corners: int = Field(3, ge=0, description="measurements after the corners, at least")
    max_measurements: int = Field(20, ge=4, description="measurements in all, corners counted")
    stop_rise: float = Field(
        0.1,
        gt=0,
        description="rise of the best model's error between two measurements that ends "
        "the search, as a share",
    )
    seed: int = Field(42, ge=0, description="of the Gaussian process (StreamBed's code: 42)")


@dataclass(frozen=True, slots=True)
class BudgetGrid:
    """Every number of slots in a range, times memory profiles (MiB of a slot, rising)."""

    slots_low: int
    slots_high: int
    memory_mib: tuple[float, ...]

    def corners(self) -> list[tuple[int, float]]:
        """List fewest and most slots with least and most memory.

        Returns:
            Slots and MiB per slot; two pairs where there is one profile.
        """
        slots = dict.fromkeys((self.slots_low, self.slots_high))
        memory = dict.fromkeys((self.memory_mib[0], self.memory_mib[-1]))
        return list(itertools.product(slots, memory))

    def all(self) -> list[tuple[int, float]]:
        """List every budget.

        Returns:
            Slots and MiB per slot.
        """
        slots = range(self.slots_low, self.slots_high + 1)
        return list(itertools.product(slots, self.memory_mib))


class Budget(Protocol):
    """A measured budget, with the values that the explorer reads."""

    @property
    def slots(self) -> int: ...

    @property
    def slot_mib(self) -> float: ...

    @property
    def mst_per_s(self) -> float: ...


M = TypeVar("M", bound=Budget)


@dataclass(frozen=True, slots=True)
class Exploration(Generic[M]):
    """The measurements, in order, and the chosen model."""

    measured: tuple[M, ...]
    surface: Surface  # fitted to all measurements
    loocv_per_s: dict[ModelForm, float]
    extrapolation_per_s: dict[ModelForm, float]  # error of the 50/50 test
    errors_per_s: tuple[float, ...]  # equation 9 after each measurement from the corners on


def explore(
    space: BudgetGrid,
    measure: Callable[[int, float], M],
    config: ExplorerConfig | None = None,
) -> Exploration[M]:
    """Measure budgets until the model is good enough.

    Args:
        space: Budgets that may be measured.
        measure: Returns the throughput of so many slots of that memory (MiB).
        config: Number of measurements, and the end of the search.

    Returns:
        The measured budgets and the fitted model.

    Raises:
        MissingExtraError: scikit-learn is not installed.
    """
    c = config or ExplorerConfig()
    corners = space.corners()
    everywhere = space.all()
    if len(corners) < 4:  # one profile: two corners cannot fit a line and also test it
        quarter = (space.slots_high - space.slots_low) / 4
        between = (space.slots_low + round(2 * quarter), space.slots_low + round(3 * quarter))
        corners = list(dict.fromkeys([*corners, *((b, space.memory_mib[0]) for b in between)]))
    if len(corners) == 1:
        corners *= 2  # the only budget: its error is the difference of two measurements
    measured = [measure(*corner) for corner in corners]
    asked = list(corners)
    errors = [_best_loocv(_points(measured))]
    # The corners share one error: there is none before the last of them.
    costs = [errors[0]] * len(corners)
    while len(measured) < c.max_measurements:
        chosen = _next(everywhere, asked, costs, c.seed)
        measured.append(measure(*chosen))
        asked.append(chosen)
        errors.append(_best_loocv(_points(measured)))
        costs.append(errors[-1])
        rose = errors[-1] > (1 + c.stop_rise) * errors[-2]
        if rose and len(measured) - len(corners) >= c.min_after_corners:
            break
    return _chosen(measured, tuple(errors))


def _chosen(measured: Sequence[M], errors: tuple[float, ...]) -> Exploration[M]:
    """Choose the form that extrapolates best, fitted to all measurements."""
    points = _points(measured)
    tested = {form: extrapolation_error(points, form) for form in FORMS}
    best = min(tested, key=lambda form: tested[form])
    scores = {form: loocv(points, form) for form in FORMS}
    return Exploration(tuple(measured), fit(points, best), scores, tested, errors)


def _points(measured: Sequence[Budget]) -> list[Point]:
    return [(float(m.slots), m.slot_mib, m.mst_per_s) for m in measured]


def _best_loocv(points: Sequence[Point]) -> float:
    """Return the error of the best of the three models (equation 9)."""
    return min(loocv(points, form) for form in FORMS)


def _next(
    everywhere: Sequence[tuple[int, float]],
    asked: Sequence[tuple[int, float]],
    costs: Sequence[float],
    seed: int,
) -> tuple[int, float]:
    """Choose the budget with the largest expected improvement; a measured one may come again."""
    # Slots and memory scaled to the unit square, so that length scales are comparable.
    space = np.array(everywhere, dtype=np.float64)
    low, span = space.min(axis=0), np.maximum(np.ptp(space, axis=0), 1e-9)
    process = _process(seed)
    with warnings.catch_warnings():
        # Few points leave a length scale at its bound, which is no concern of the user.
        warnings.simplefilter("ignore")
        process.fit((np.array(asked) - low) / span, np.array(costs))
        mean, deviation = process.predict((space - low) / span, return_std=True)
    return everywhere[int(np.argmax(expected_improvement(mean, deviation, min(costs))))]


def expected_improvement(mean: Floats, deviation: Floats, best: float) -> Floats:
    """Compute how far a cost is expected to fall below the best one so far.

    >>> expected_improvement(np.array([1.0]), np.array([0.0]), 3.0).round(6).tolist()
    [2.0]

    Returns:
        One value per cost, 0 or more.
    """
    gain = best - XI * float(np.std(mean)) - mean
    sure = deviation < 1e-12
    # Of a Gaussian: gain x P(improvement) + deviation x density (Jones et al., 1998).
    z = np.where(sure, 0.0, gain / np.where(sure, 1.0, deviation))
    density = np.exp(-0.5 * z**2) / math.sqrt(2 * math.pi)
    below = 0.5 * (1 + np.vectorize(math.erf)(z / math.sqrt(2)))
    return np.asarray(np.where(sure, np.maximum(gain, 0.0), gain * below + deviation * density))


class _Process(Protocol):
    """A Gaussian process with scikit-learn's interface."""

    def fit(self, at: Floats, values: Floats) -> object: ...

    def predict(self, at: Floats, *, return_std: bool) -> tuple[Floats, Floats]: ...


def _process(seed: int) -> _Process:
    """Build a Gaussian process over the unit square: Matérn 5/2, its scales and its noise fitted.

    Costs of the corners are equal. A length scale no longer than the square then makes the process
    least certain, and the search begin, far from them; bounded noise keeps it from repeating
    itself.
    """
    try:
        from sklearn.gaussian_process import GaussianProcessRegressor
        from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel
    except ModuleNotFoundError:
        raise MissingExtraError("plan", "exploring budgets") from None
    shape = Matern(length_scale=[0.5, 0.5], length_scale_bounds=(0.1, 1.0), nu=2.5)
    kernel = ConstantKernel(1.0, (0.1, 100.0)) * shape + WhiteKernel(0.01, (1e-4, 0.1))
    process: _Process = GaussianProcessRegressor(
        kernel, normalize_y=True, n_restarts_optimizer=1, random_state=seed
    )
    return process
