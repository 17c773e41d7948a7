"""The description of a load: a multiplier over time of a job's reference source rate.

A job file gives its reference rate in records per second; a load of 1.0 asks for exactly that, 0.5
for half. So one load serves every job. Forms compose: ``sum`` adds its parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Literal, Protocol, cast, get_args

import numpy as np
from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    SerializeAsAny,
    WrapValidator,
    model_validator,
)

from dsp_gym.arrays import Floats
from dsp_gym.config.model import ConfigModel
from dsp_gym.config.plugins import InstalledPart, Plugins
from dsp_gym.errors import LoadError

INSTALLED = Plugins("dsp_gym.loads", "form", "docs/guides/add-a-load.md", LoadError)
"""Forms of load that other distributions offer."""

Rate = Annotated[float, Field(ge=0)]


def _as_range(value: object) -> object:
    # A number alone stands for a range of this one value: it needs no draw.
    return (value, value) if isinstance(value, int | float) else value


def _ordered(value: tuple[float, float]) -> tuple[float, float]:
    low, high = value
    if not 0 <= low <= high:
        raise ValueError(f"expected 0 <= low <= high, found [{low:g}, {high:g}]")
    return value


Between = Annotated[tuple[float, float], BeforeValidator(_as_range), AfterValidator(_ordered)]
"""A number, or ``[low, high]`` to draw one uniformly for each seed."""


class _Form(ConfigModel):
    """The keys common to all forms."""

    scale: float = Field(
        1.0,
        gt=0,
        description="factor on the whole load, dimensionless; 1.0 keeps it relative to the "
        "job's reference rate as written",
    )
    noise_cv: float = Field(
        0.0,
        ge=0,
        le=2,
        description="coefficient of variation of a log-normal factor with mean 1; 0 because a "
        "form is exact without noise (published web traces: 0.03 to 0.1)",
    )
    noise_correlation_s: float = Field(
        60.0,
        ge=0,
        description="seconds until the noise's autocorrelation falls to 1/e, AR(1); 60 so that "
        "noise survives Flink's 60 s metric means; 0 is white noise",
    )


class Constant(_Form):
    """The same rate always."""

    form: Literal["constant"]
    rate: Rate = Field(1.0, description="multiplier; 1.0 is the job's reference rate")


class Step(_Form):
    """A rate that jumps at given times and holds in between."""

    form: Literal["step"]
    steps: tuple[tuple[float, Rate], ...] = Field(
        min_length=1,
        description="[t_s, rate] pairs: seconds since the load began, multiplier from then on; "
        "the first at 0",
    )

    @model_validator(mode="after")
    def _check_times(self) -> Step:
        times = [t_s for t_s, _ in self.steps]
        if times[0] != 0:
            # Strictly: two rates for one time would leave the load undefined.
            raise ValueError(f"the first step is at {times[0]:g} s, expected 0")
        if any(later <= earlier for earlier, later in pairwise(times)):
            raise ValueError(f"step times must increase, found {times}")
        return self


class Ramp(_Form):
    """A rate that goes evenly from one value to another, flat before and after."""

    form: Literal["ramp"]
    from_rate: Rate = Field(description="multiplier up to from_s")
    to_rate: Rate = Field(description="multiplier from to_s on")
    from_s: float = Field(0.0, ge=0, description="second the ramp begins; 0 is the load's start")
    to_s: float = Field(gt=0, description="second the ramp ends")

    @model_validator(mode="after")
    def _check_times(self) -> Ramp:
        if self.to_s <= self.from_s:
            raise ValueError(f"to_s is {self.to_s:g}, expected more than from_s {self.from_s:g}")
        return self


class Diurnal(_Form):
    """A day: ``mean - amplitude * cos(2 pi (t + phase) / period)``, lowest at phase 0."""

    form: Literal["diurnal"]
    mean: Rate = Field(0.6, description="mean multiplier; with amplitude 0.4 the peak is 1.0")
    amplitude: Rate = Field(
        0.4, description="half of peak minus trough, multiplier; peak over trough 5, as web traffic"
    )
    period_s: float = Field(
        86_400.0, gt=0, description="seconds in a day; less to compress a day into an episode"
    )
    phase_s: float | Literal["random"] = Field(
        "random",
        description="seconds into the day at which the load begins, 0 at the trough; random by "
        "default so that a policy cannot learn the clock",
    )

    @model_validator(mode="after")
    def _check_trough(self) -> Diurnal:
        if self.amplitude > self.mean:
            raise ValueError(
                f"amplitude {self.amplitude:g} exceeds mean {self.mean:g}: the rate would be "
                "negative at the trough"
            )
        return self


class Burst(_Form):
    """Bursts that come at random (Poisson) over a rate of zero; add them to another form."""

    form: Literal["burst"]
    rate_per_h: float = Field(2.0, ge=0, le=3600, description="bursts per hour, mean")
    magnitude: Between = Field((0.2, 0.5), description="multiplier added while a burst lasts")
    duration_s: Between = Field(
        (60.0, 300.0), description="seconds a burst lasts; about one to a few decision intervals"
    )
    shape: Literal["rectangular", "decaying"] = Field(
        "rectangular",
        description="decaying: falls exponentially to 5 % of its magnitude, then ends",
    )

    @model_validator(mode="after")
    def _check_duration(self) -> Burst:
        if self.duration_s[0] <= 0:
            raise ValueError(f"duration_s is {self.duration_s[0]:g}, expected more than 0")
        return self


class Peak(ConfigModel):
    """One sudden peak."""

    at_s: Between = Field(description="second of the peak since the load began, or a range")
    magnitude: Between = Field(description="multiplier added at the peak, or a range")
    rise_s: float = Field(
        60.0, gt=0, description="time constant of the exponential rise, s; a flash crowd's minute"
    )
    decay_s: float = Field(
        600.0, gt=0, description="time constant of the decay, s; interest fades slower than it came"
    )


class FlashCrowd(_Form):
    """Sudden peaks with exponential rise and decay over a base rate."""

    form: Literal["flash_crowd"]
    base: Rate = Field(0.0, description="multiplier between peaks; 0 to add peaks to another form")
    peaks: tuple[Peak, ...] = Field(min_length=1, description="the peaks; they add where they meet")


class MarkovState(ConfigModel):
    """One state of a modulating chain."""

    rate: Rate = Field(description="multiplier in this state")
    mean_sojourn_s: float = Field(gt=0, description="mean seconds in this state, exponential")


class MarkovModulated(_Form):
    """A rate that jumps between states; every other state is equally likely to be the next."""

    form: Literal["markov_modulated"]
    states: tuple[MarkovState, ...] = Field(min_length=2, description="the states of the chain")


class TraceColumns(ConfigModel):
    """Which columns of a CSV hold time and rate, as its header names them.

    A row without a rate is a time at which nothing was recorded, and is left out.
    """

    time: str = Field(
        min_length=1,
        description="ISO 8601 (UTC where no zone is given), seconds, or milliseconds since 1970; "
        "the first row becomes second 0",
    )
    rate: str = Field(min_length=1, description="numbers, 0 or more")


class TraceLoad(_Form):
    """A recorded load: a CSV with the columns ``t_seconds,rate``, or those that `columns` names."""

    form: Literal["trace"]
    path: str = Field(
        min_length=1,
        description="a file, or a name in the data folder (DSP_GYM_DATA), with or without .csv",
    )
    columns: TraceColumns | None = Field(
        None,
        exclude_if=lambda columns: columns is None,  # fingerprints from before do not have it
        description="columns of time and rate, for a CSV as another program writes it, such as "
        "Grafana; none: t_seconds and rate",
    )
    from_s: float = Field(0.0, ge=0, description="trace second the window begins")
    to_s: float | None = Field(None, gt=0, description="trace second the window ends; none: all")
    compress: float = Field(
        1.0,
        ge=1,
        description="trace seconds that pass in one second of load; 12 puts a day into two hours",
    )
    interpolation: Literal["linear", "hold"] = Field(
        "linear", description="between rows; linear because rows are samples of a smooth rate"
    )
    divide_by_peak: bool = Field(
        False,
        description="divide by the file's highest rate, for a CSV in records/s; off because a "
        "prepared trace is relative already",
    )
    start: Literal["beginning", "random"] = Field(
        "beginning",
        description="where in its window a load begins; random draws it by seed, for training",
    )

    @model_validator(mode="after")
    def _check_window(self) -> TraceLoad:
        if self.to_s is not None and self.to_s <= self.from_s:
            raise ValueError(f"to_s is {self.to_s:g}, expected more than from_s {self.from_s:g}")
        return self


class Sum(_Form):
    """The sum of its parts, each with its own random numbers."""

    form: Literal["sum"]
    parts: tuple[LoadSpec, ...] = Field(min_length=1, description="the loads that are added")


class InstalledLoad(InstalledPart, _Form):
    """A form that another distribution offers."""

    form: str = Field(description="name of its entry point in the group `dsp_gym.loads`")


class OwnLoad(Protocol):
    """The object that an entry point of `dsp_gym.loads` makes of its configuration."""

    seeded: bool
    """Whether the random numbers shape it."""

    def rates(self, t_s: Floats, random: np.random.Generator) -> Floats:
        """Return the load (n,) at the times t_s (n,), 0 or more; equal numbers give an equal load.

        Returns:
            Records/s or a factor, depending on the place of the load in its configuration.
        """


def own_load(spec: InstalledLoad) -> OwnLoad:
    """Make the load from a configuration of another distribution's form.

    Returns:
        The load, made from its checked configuration.
    """
    return cast(Callable[[ConfigModel], OwnLoad], INSTALLED.load(spec.form))(spec.config)


_Shipped = Constant | Step | Ramp | Diurnal | Burst | FlashCrowd | MarkovModulated | TraceLoad | Sum

FORMS = tuple(
    # The literal of each form's `form` field is its name.
    str(get_args(member.model_fields["form"].annotation)[0])
    for member in get_args(_Shipped)
)
"""Forms that ship with the library."""


def _made(form: str, keys: Mapping[str, object]) -> InstalledLoad:
    # Keys of all forms stay here; the rest belongs to the other distribution's configuration.
    shared = {name: one for name, one in keys.items() if name in _Form.model_fields}
    own = {name: one for name, one in keys.items() if name not in shared}
    return InstalledLoad.model_validate(
        {"form": form, "config": INSTALLED.config(form, own), **shared}
    )


_installed = INSTALLED.beside("form", FORMS, _made)

# The checker sees a plain union; pydantic needs the annotations at run time.
if TYPE_CHECKING:
    LoadSpec = _Shipped | InstalledLoad
else:
    LoadSpec = Annotated[
        _Shipped, Field(discriminator="form"), WrapValidator(_installed), SerializeAsAny()
    ]
"""Any form of load."""


class LoadConfig(ConfigModel):
    """A file of `configs/loads/`: a load with a sentence about it."""

    description: str = Field("", description="shape of the load, in words")
    load: LoadSpec = Field(description="the load itself")


# `Sum` contains itself through `LoadSpec`, which is complete only now.
Sum.model_rebuild()
LoadConfig.model_rebuild()


def nodes(spec: LoadSpec) -> Iterator[LoadSpec]:
    """Iterate over the load and all its parts, depth first; a node's place numbers its stream.

    Returns:
        An iterator over loads.
    """
    # The order is part of the format: a node's place selects its random numbers.
    yield spec
    if isinstance(spec, Sum):
        for part in spec.parts:
            yield from nodes(part)


def is_seeded(spec: LoadSpec) -> bool:
    """Return whether the seed shapes the load, beyond choosing the begin in a trace.

    Returns:
        True where another seed gives another load.
    """
    return any(
        node.noise_cv > 0
        or isinstance(node, MarkovModulated)
        or (isinstance(node, InstalledLoad) and own_load(node).seeded)
        or (isinstance(node, Burst) and node.rate_per_h > 0)
        or (isinstance(node, Diurnal) and node.phase_s == "random")
        or (isinstance(node, FlashCrowd) and any(_is_drawn(peak) for peak in node.peaks))
        for node in nodes(spec)
    )


def _is_drawn(peak: Peak) -> bool:
    # A range of one value is no draw.
    return peak.at_s[0] < peak.at_s[1] or peak.magnitude[0] < peak.magnitude[1]
