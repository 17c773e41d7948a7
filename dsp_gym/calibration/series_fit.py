"""Fits a job of one main vertex to a series of a run without rescales, and to profiles.

What each number comes from:

- capacity: the highest throughput of the series, which it reaches while it catches up;
- loss with slots: how the throughput of saturated profiles grows with the cores they could use;
- warm-up: CPU time per record in the first minutes of the series over that of the steady job;
- what it costs after a redeploy, where outages of such runs are given: how long catching up took.

A restarted job's code is cold: each record costs more until enough were processed.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dsp_gym.arrays import Floats
from dsp_gym.calibration.series_tables import MeasuredSeries, Profile, RecordedOutage
from dsp_gym.errors import ConfigError, MissingExtraError

FEW_OUTAGES = 10
"""Outages below which their quantiles are little more than the smallest and the largest."""
SATURATED_S = 5.0
"""Latency above which a profile was saturated: keeping up takes about a second."""
ENOUGH_PROFILES = 8
DEFAULT_LOSS = 0.05
"""Exponent of the loss with slots where too few profiles are saturated."""
START_ROWS, STEADY_ROWS = 10, slice(20, 60)
"""Rows of the series that show the warm-up, and the steady job after it."""
CATCH_UP_S = 1200


@dataclass(frozen=True, slots=True)
class WarmUp:
    """What a record costs more after a start: 1 + extra * exp(-n / records), per subtask."""

    extra: float
    records: float


@dataclass(frozen=True, slots=True)
class SeriesFit:
    """A calibrated job."""

    slots: int
    capacity_per_s: float  # warm, with all slots
    loss: float  # capacity grows as slots ** (1 - loss)
    warm_up: WarmUp
    base_latency_s: float  # end to end while nothing queues
    base_lag_s: float  # seconds of load that are always on the way
    outage_s: tuple[float, float, float] | None
    reference_rate_per_s: float
    warnings: tuple[str, ...]
    load_factor: float = 1.0  # records read over records offered, see `load_factor`

    def capacity_at(self, slots: Floats | float) -> Floats:
        """Warm capacity of a number of slots, records/s.

        Returns:
            Records/s, of the shape of `slots`.
        """
        return np.asarray(self.capacity_per_s * (np.asarray(slots) / self.slots) ** (1 - self.loss))


def fit_series(series: MeasuredSeries, profiles: Sequence[Profile]) -> SeriesFit:
    """Fit a job to a series and profiles.

    Returns:
        The fit, without outages.
    """
    slots = int(np.nanmax(np.round(series.slots)))
    warnings: list[str] = []
    factor = load_factor(series)
    loss = _loss(profiles, warnings)
    lag_s = series.lag_records * slots / series.throughput_per_s  # one partition per slot
    return SeriesFit(
        slots,
        float(np.nanmax(series.throughput_per_s)),
        loss,
        _warm_up(series, factor, slots, warnings),
        float(np.nanmedian(series.latency_s)),
        float(np.nanmedian(lag_s)),
        None,
        float(np.nanmedian(series.offered_per_s)) * factor,
        tuple(warnings),
        factor,
    )


def load_factor(series: MeasuredSeries) -> float:
    """Records read over records offered, over the whole series.

    The two need not be one: an offered load may be counted before it is duplicated or filtered.
    What an outage held up is read later, so totals are blind to outages and to catching up.

    Returns:
        The ratio, to a hundredth: offered and read are aligned no better; 1 where neither is known.
    """
    known = np.isfinite(series.offered_per_s)
    offered = float(np.sum(series.offered_per_s[known])) * series.step_s
    read = float(np.nansum((series.throughput_per_s * series.samples)[known]))
    return round(read / offered, 2) if offered > 0 and read > 0 else 1.0


def fit_warm_up_after_rescales(
    fit: SeriesFit, outages: Sequence[RecordedOutage], policy: str
) -> SeriesFit:
    """The fit with the warm-up that recorded times of catching up show, and their outages.

    Only rescales that were caught up before the next outage say how long it took.

    Returns:
        A copy of the fit with another `warm_up` and `outage_s`.
    """
    own = sorted((o for o in outages if o.policy == policy), key=lambda o: (o.run, o.t_s))
    if not own:
        known = sorted({o.policy for o in outages})
        raise ConfigError(
            "no outages of that policy", value=policy, remedy=f"There are: {', '.join(known)}."
        )
    after = {
        id(a): b.t_s - a.t_s - a.outage_s for a, b in itertools.pairwise(own) if a.run == b.run
    }
    rescales = [o for o in own if not o.failure_injected and o.slots_after > 0]
    if not rescales:
        raise ConfigError(
            "every outage of that policy was injected: there is no rescale", value=policy
        )
    caught = [o for o in rescales if 0 < o.catchup_s < after.get(id(o), math.inf)]
    quantiles = np.quantile([o.outage_s for o in rescales], [0.1, 0.5, 0.9])
    if not caught:
        why = "No rescale was caught up before the next: the warm-up is the series' own."
        fit = replace(fit, warnings=(*fit.warnings, why))
    if len(rescales) < FEW_OUTAGES:
        why = (
            f"{len(rescales)} rescale{'' if len(rescales) == 1 else 's'} of {policy}: p10 and p90 "
            f"of the outage are the extremes of so few; record {FEW_OUTAGES} or more."
        )
        fit = replace(fit, warnings=(*fit.warnings, why))
    return replace(
        fit,
        warm_up=_warm_up_of_catching_up(fit, caught) if caught else fit.warm_up,
        outage_s=(float(quantiles[0]), float(quantiles[1]), float(quantiles[2])),
    )


def catch_up_s(
    fit: SeriesFit, warm_up: WarmUp, load_per_s: Floats, outage_s: Floats, slots: Floats
) -> Floats:
    """Compute how long the log takes to be read after outages.

    Second by second: the fit is of a warm-up, in which the capacity rises with what has been read,
    so that `dsp_gym.sizing.recovery`, with its one capacity, does not apply.

    Returns:
        Seconds of each, in whole seconds; `CATCH_UP_S` if it is not read by then.
    """
    backlog, done = load_per_s * outage_s, np.zeros_like(load_per_s)
    taken_s = np.full(len(load_per_s), float(CATCH_UP_S))
    capacity = fit.capacity_at(slots)
    for second in range(CATCH_UP_S):
        carried = capacity / (1 + warm_up.extra * np.exp(-done / warm_up.records))
        read = np.minimum(backlog + load_per_s, carried)
        backlog = backlog + load_per_s - read
        done = done + read / slots
        caught = (backlog <= 0.5 * load_per_s) & (taken_s == CATCH_UP_S)
        taken_s[caught] = second + 1
        if np.all(taken_s < CATCH_UP_S):
            break
    return taken_s


def saturated_profiles(profiles: Sequence[Profile]) -> list[Profile]:
    """The profiles that show a capacity.

    Returns:
        Those whose latency says that they did not keep up, in the same order.
    """
    return [p for p in profiles if p.latency_s > SATURATED_S and p.throughput_per_s > 0]


def profile_row(p: Profile) -> list[float]:
    """What the logarithm of a profile's throughput is regressed on.

    Returns:
        One, and the logarithms of its cores, slots per core and MiB per slot.
    """
    return [
        1.0,
        math.log(p.cores),
        math.log(p.parallelism / p.cores),
        math.log(p.memory_per_slot_mib),
    ]


def _loss(profiles: Sequence[Profile], warnings: list[str]) -> float:
    """1 - the exponent of throughput over cores, slots per core and memory held equal."""
    saturated = saturated_profiles(profiles)
    if len(saturated) < ENOUGH_PROFILES or len({p.cores for p in saturated}) < 3:
        warnings.append(
            f"{len(saturated)} saturated profiles are too few: the loss with slots is assumed."
        )
        return DEFAULT_LOSS
    x = np.array([profile_row(p) for p in saturated])
    y = np.log([p.throughput_per_s for p in saturated])
    exponent = float(np.linalg.lstsq(x, y, rcond=None)[0][1])
    return min(max(1 - exponent, 0.0), 0.5)


def _warm_up(series: MeasuredSeries, factor: float, slots: int, warnings: list[str]) -> WarmUp:
    """Cost of a record in the first rows over the steady job's; the load is known in each."""
    load = series.offered_per_s * factor
    cost = series.cpu_load * series.slots / load
    steady = np.nanmedian(cost[STEADY_ROWS]) if len(cost) > STEADY_ROWS.start else np.nan
    first = cost[:START_ROWS] / steady
    if not np.all(np.isfinite(first)) or first[0] <= 1:
        warnings.append("The series does not show a start: no warm-up.")
        return WarmUp(0.0, 1.0)
    per_slot = float(np.nanmedian(load[:START_ROWS])) / slots
    t_s = series.t_s[:START_ROWS] - series.t_s[0] + series.step_s / 2
    x = _least_squares(
        lambda x: 1 + math.exp(x[0]) * np.exp(-t_s / math.exp(x[1])) - first,
        [(0.0, math.log(60.0))],
    )
    return WarmUp(math.exp(x[0]), math.exp(x[1]) * per_slot)


def _warm_up_of_catching_up(fit: SeriesFit, caught: Sequence[RecordedOutage]) -> WarmUp:
    load = np.array([o.offered_per_s for o in caught]) * fit.load_factor
    outage = np.array([float(o.outage_s) for o in caught])
    slots = np.array([float(o.slots_after) for o in caught])
    recorded = np.log([o.catchup_s for o in caught])
    start = math.log(fit.warm_up.records) if fit.warm_up.extra > 0 else math.log(1e5)

    def residuals(x: Floats) -> Floats:
        warm_up = WarmUp(math.exp(x[0]), math.exp(x[1]))
        errors = np.log(catch_up_s(fit, warm_up, load, outage, slots)) - recorded
        # How many records it takes is hardly seen: stay near what the start showed.
        return np.append(np.clip(errors, -1.5, 1.5), (x[1] - start) / 2)

    x = _least_squares(residuals, [(math.log(2.0), start), (math.log(8.0), start)])
    return WarmUp(math.exp(x[0]), math.exp(x[1]))


def _least_squares(
    residuals: Callable[[Floats], Floats], starts: Sequence[tuple[float, float]]
) -> Floats:
    try:
        from scipy.optimize import least_squares
    except ModuleNotFoundError:
        raise MissingExtraError("plan", "calibrating from a series") from None
    results = [least_squares(residuals, start, diff_step=0.05, loss="soft_l1") for start in starts]
    return np.asarray(min(results, key=lambda result: result.cost).x)
