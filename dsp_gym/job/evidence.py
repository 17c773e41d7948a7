"""The data a job file's numbers were fitted to, and the error of the fit outside them.

The section `fitted` of a job file. A calibration writes it; a job without a fit has none. It says
nothing about how the job behaves, so it is no part of the job's identity.
"""

from __future__ import annotations

import math
from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from dsp_gym.config.model import ConfigModel

LEVEL = 0.9
"""Share of true values that an interval is to hold."""


def _rises(pair: tuple[float, float]) -> tuple[float, float]:
    if pair[0] > pair[1]:
        raise ValueError(f"must be [smallest, largest], found [{pair[0]:g}, {pair[1]:g}]")
    if pair[0] <= 0:
        raise ValueError(f"must be above 0, found {pair[0]:g}")
    return pair


Range = Annotated[tuple[float, float], AfterValidator(_rises)]
"""Smallest and largest value in the fitted data."""
CountRange = Annotated[tuple[int, int], AfterValidator(_rises)]
"""Smallest and largest count in the fitted data."""


class FitError(ConfigModel):
    """Error of predictions of measured rates that the fit had not seen, by distance.

    Median and p90 are over predictions whose memory lies in the range of their fit, and of those
    over the ones of which one number of tasks, one memory or runs were left out. Errors are
    absolute natural logarithms of predicted over measured: 0.1 is about 10 %.
    """

    left_out: str = Field(
        min_length=1, description="what each fit left out: slot counts, parallelisms, runs"
    )
    predictions: int = Field(ge=1, description="number of predictions of what was left out")
    median: float = Field(ge=0, description="median error, logarithm of predicted over measured")
    p90: float = Field(ge=0, description="error that 90 % of them stay below, logarithm")
    within: float = Field(
        ge=0, description="half of the 90 % interval inside the fitted ranges, logarithm of a rate"
    )
    per_doubling: float = Field(
        0.0,
        ge=0,
        description="how much wider half of it is with each doubling of slots, tasks, rate or skew "
        "beyond its range (the farthest of them), logarithm",
    )
    per_memory_doubling: float = Field(
        0.0,
        ge=0,
        description="how much wider with each doubling of managed memory beyond its range, "
        "logarithm",
    )

    @model_validator(mode="after")
    def _quantiles_rise(self) -> FitError:
        if self.p90 < self.median:
            raise ValueError(f"p90 ({self.p90:g}) is below the median ({self.median:g})")
        return self


class Evidence(ConfigModel):
    """Configurations and rates that a fit saw, as smallest and largest, and its error."""

    command: str = Field(min_length=1, description="command that made the fit and this section")
    runs: int = Field(ge=1, description="measured runs that were fitted")
    slots: CountRange | None = Field(None, description="task slots in use, sources left out")
    parallelism: dict[str, CountRange] = Field(
        default_factory=dict, description="tasks by vertex, sources left out"
    )
    managed_memory_mib: Range | None = Field(
        None, description="managed memory of one task with state, MiB"
    )
    rate_per_s: Range | None = Field(None, description="records/s over all sources, as measured")
    skew: dict[str, Range] = Field(
        default_factory=dict, description="by vertex, input of its fullest task over the mean"
    )
    error: FitError | None = Field(
        None, description="error on what was left out; none: no fit was tested so"
    )

    def sentences(self) -> list[str]:
        """Say what the fit saw and how far predictions were off, for people.

        Returns:
            One sentence each, without a full stop.
        """
        seen = [f"{self.runs} runs"]
        if self.slots is not None:
            seen.append(f"{_span(self.slots)} slots")
        if self.managed_memory_mib is not None:
            seen.append(f"{_span(self.managed_memory_mib)} MiB of managed memory per task")
        if self.rate_per_s is not None:
            seen.append(f"{_span(self.rate_per_s)} records/s")
        found = [f"fitted on {', '.join(seen)}"]
        error = self.error
        if error is None:
            return [*found, "no error was measured on what the fit left out"]
        return [
            *found,
            f"left out ({error.left_out}; {error.predictions} predictions): median error "
            f"{math.expm1(error.median):.1%}, p90 {math.expm1(error.p90):.1%}",
            f"90 % interval of a rate: a factor of {math.exp(error.within):.2f} inside these "
            f"ranges, {math.exp(error.per_doubling):.2f} more with each doubling beyond",
        ]


def _span(pair: tuple[float, float]) -> str:
    low, high = (f"{value:,.0f}" if value >= 10 else f"{value:.3g}" for value in pair)
    return low if low == high else f"{low} to {high}"
