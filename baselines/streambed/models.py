"""The three models of throughput over slots and memory, and their errors.

StreamBed, section 6, equations 6 to 8: a f(M) + b f(slots) + c, f = identity, log or square root.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
from pydantic import Field

from dsp_gym.arrays import Floats
from dsp_gym.config.model import ConfigModel

ModelForm = Literal["linear", "log", "sqrt"]

FORMS: dict[ModelForm, Callable[[Floats], Floats]] = {
    "linear": lambda x: np.asarray(x, dtype=np.float64),
    "log": np.log,
    "sqrt": np.sqrt,
}
"""Equations 6, 7 and 8."""

Point = tuple[float, float, float]
"""Slots, memory of a slot (MiB), and the throughput measured there (records/s)."""


class Surface(ConfigModel):
    """One fitted model: capacity = a f(memory) + b f(slots) + c."""

    form: ModelForm = Field(description="f: linear (equation 6), log (7) or sqrt (8)")
    a: float = Field(description="slope over memory of a slot in MiB, after f")
    b: float = Field(description="slope over slots, after f")
    c: float = Field(description="intercept, records/s")

    def predict(self, slots: Floats | float, memory_mib: Floats | float) -> Floats:
        """Predict the throughput of slots of one memory size.

        Returns:
            Records/s.
        """
        f = FORMS[self.form]
        return np.asarray(
            self.a * f(np.asarray(memory_mib, dtype=np.float64))
            + self.b * f(np.asarray(slots, dtype=np.float64))
            + self.c
        )

    def slots_for(self, rate_per_s: float, memory_mib: float, least: int = 1) -> float:
        """Invert the model.

        Returns:
            Slots that reach the rate, `least` or more, fractional; infinite where none do.
        """
        if float(self.predict(least, memory_mib)) >= rate_per_s:
            return float(least)
        missing = rate_per_s - self.c - self.a * float(FORMS[self.form](np.array(memory_mib)))
        if self.b <= 0:
            return math.inf
        value = missing / self.b
        match self.form:
            case "linear":
                return value
            case "log":
                return math.exp(value) if value < 700 else math.inf
            case "sqrt":
                return max(value, 0.0) ** 2


def fit(points: Sequence[Point], form: ModelForm) -> Surface:
    """Fit a form by least squares; a feature that does not vary gets no slope.

    Returns:
        The fitted surface.
    """
    slots, memory, rate = np.array(points, dtype=np.float64).T
    f = FORMS[form]
    # Standardised columns keep the least squares well conditioned: MiB and slots differ by 100.
    columns = np.column_stack([f(memory), f(slots)])
    centre = columns.mean(axis=0)
    spread = columns.std(axis=0)
    varies = spread > 1e-12 * np.maximum(np.abs(centre), 1.0)
    slopes = np.zeros(2)
    if varies.any():
        scaled = (columns[:, varies] - centre[varies]) / spread[varies]
        found, *_ = np.linalg.lstsq(scaled, rate - rate.mean(), rcond=None)
        slopes[varies] = found / spread[varies]
    a, b = slopes.tolist()
    return Surface(form=form, a=a, b=b, c=float(rate.mean() - slopes @ centre))


def loocv(points: Sequence[Point], form: ModelForm) -> float:
    """Leave each point out of the fit once and predict it.

    Returns:
        Root mean squared error, records/s.
    """
    errors = []
    for i, (slots, memory, rate) in enumerate(points):
        surface = fit([*points[:i], *points[i + 1 :]], form)
        errors.append(float(surface.predict(slots, memory)) - rate)
    return math.sqrt(float(np.mean(np.square(errors))))


def extrapolation_error(points: Sequence[Point], form: ModelForm) -> float:
    """Predict the half with most slots by a fit to the half with fewest.

    Section 6, model selection: the 50/50 split. An odd point goes to the training half, which needs
    three points for three coefficients.

    Returns:
        Root mean squared error, records/s.
    """
    ordered = sorted(points)
    half = (len(ordered) + 1) // 2
    surface = fit(ordered[:half], form)
    test = np.array(ordered[half:])
    errors = surface.predict(test[:, 0], test[:, 1]) - test[:, 2]
    return math.sqrt(float(np.mean(np.square(errors))))
