"""Demeter CARS: 18 h of a job that was rescaled, its recorded outages and slots replayed.

The job is calibrated on the static run and the profiles, and for rescales by redeploy also on how
long the policy's other two runs took to catch up; the run that is checked is in no fit.
"""

from __future__ import annotations

import math
import statistics
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dsp_gym.arrays import Floats
from dsp_gym.calibration.mst_job import job_spec
from dsp_gym.calibration.series import END_TO_END_SLO_S, job_text
from dsp_gym.calibration.series_fit import (
    SeriesFit,
    fit_series,
    fit_warm_up_after_rescales,
)
from dsp_gym.calibration.series_tables import (
    MeasuredSeries,
    RecordedOutage,
    read_outages,
    read_profiles,
    read_series,
)
from dsp_gym.studies.reproduce.closed_loop import ReplayedOutage, merge_outages, replay
from dsp_gym.studies.reproduce.registry import Check

SOURCE = "Demeter, results of CARS (demeter_cars_*.csv)"
REACTIVE, OPERATOR, STATIC = "reactive_hpa_cpu", "flink_operator_autoscaler", "static24"
CHECKED_RUN = 1
LATE_BAR, CONSUMED_BAR, LAG_BAR = 0.08, 0.05, 2.0
CHECKPOINT_S = 10
"""Checkpoint interval of the recorded job; a restart reads half of one again on average."""
UNLISTED_S = 3
"""Outage of a change of slots that left no gap of more than 5 s."""
SETTLING_S = (60, 30)
"""Seconds before and after a listed outage in which the mean of the slots says nothing."""


class Comparison(NamedTuple):
    """A recorded run and the same outages simulated: pairs of a recorded and a simulated value."""

    late: tuple[float, float]  # share of rows above 2 s or empty
    consumed: tuple[float, float]  # records of the load
    lag_records: tuple[float, float]  # median, of one partition


def demeter(data: Path) -> list[Check]:
    """Check the replay of a recorded day under two policies.

    Returns:
        One check per claim and autoscaler.
    """
    profiles = read_profiles(data / "demeter_cars_profiles.csv")
    fit = fit_series(read_series(data / f"demeter_cars_{STATIC}.csv"), profiles)
    outages = read_outages(data / "demeter_cars_outages.csv")
    others = [o for o in outages if o.run != CHECKED_RUN]
    redeployed = fit_warm_up_after_rescales(fit, others, OPERATOR)
    unchecked = compare(data, OPERATOR, fit, outages)
    return [
        *_checks("reactive", compare(data, REACTIVE, fit, outages), ""),
        *_checks(
            "operator",
            compare(data, OPERATOR, redeployed, outages),
            "warm-up after a redeploy fitted to the policy's other two runs",
        ),
        Check(
            "demeter/operator-late-without-warm-up-of-redeploys",
            SOURCE,
            "the same by a fit to the static run and the profiles alone, which show no redeploy",
            round(unchecked.late[0], 3),
            round(unchecked.late[1], 3),
            "reported",
            None,
        ),
    ]


def compare(
    data: Path, policy: str, fit: SeriesFit, outages: Sequence[RecordedOutage]
) -> Comparison:
    """Compare one recorded run with its replay.

    Returns:
        Late rows, consumed records and lag of both.
    """
    recorded = read_series(data / f"demeter_cars_{policy}.csv")
    own = [o for o in outages if (o.policy, o.run) == (policy, CHECKED_RUN)]
    injected_s = injected_reread_s(outages, fit.slots, fit.load_factor)
    # A redeploy starts from a savepoint, all other restarts from the last checkpoint.
    rescale_s = 0.0 if policy == OPERATOR else CHECKPOINT_S / 2
    listed = [
        ReplayedOutage(
            o.t_s,
            o.outage_s,
            o.slots_after or fit.slots,
            injected_s if o.failure_injected else rescale_s,
        )
        for o in own
    ]
    start, step = round(float(recorded.slots[0])), recorded.step_s
    unlisted = [] if policy == OPERATOR else _unlisted(recorded, listed, start)
    spec = job_spec(job_text(fit, "cars", ["demeter_cars_static24.csv"], 4096.0), "cars.yaml")
    offered = recorded.every_second(fit.load_factor)
    replayed = replay(spec, offered, start, merge_outages([*listed, *unlisted]))
    age_s = row_means(replayed.age_s, step) + fit.base_latency_s
    simulated_late = np.isnan(age_s) | (age_s > END_TO_END_SLO_S)
    on_the_way = replayed.backlog + fit.base_lag_s * offered
    lag = row_means(np.where(replayed.down, np.nan, on_the_way / fit.slots), step)
    return Comparison(
        (float(np.mean(recorded.late(END_TO_END_SLO_S))), float(np.mean(simulated_late))),
        # The load's records; what a restart reads again is not counted twice.
        (recorded.consumed, float(np.sum(offered) - replayed.backlog[-1])),
        (float(np.nanmedian(recorded.lag_records)), float(np.nanmedian(lag))),
    )


def injected_reread_s(
    outages: Sequence[RecordedOutage], partitions: int, load_factor: float
) -> float:
    """Seconds of load that are read again after an injected failure, from the static run.

    The peak of the lag is what came during the outage and since the last checkpoint, which the
    injected network delay held up.

    Returns:
        Seconds of load; the median over the failures.
    """
    return statistics.median(
        o.peak_lag_records * partitions / (o.offered_per_s * load_factor) - o.outage_s
        for o in outages
        if o.policy == STATIC and o.failure_injected and not math.isnan(o.peak_lag_records)
    )


def _unlisted(
    recorded: MeasuredSeries, listed: Sequence[ReplayedOutage], start: int
) -> list[ReplayedOutage]:
    """Changes of slots that left no gap in the throughput: short restarts.

    A row counts where its slots stay for the next one too and no listed outage is near.
    """
    slots = np.round(recorded.slots)
    order = sorted(listed, key=lambda o: o.t_s)
    found = []
    current: float | None = start
    for i in range(1, len(slots) - 1):
        t = int(recorded.t_s[i])
        if any(-SETTLING_S[0] <= t - o.t_s <= o.outage_s + SETTLING_S[1] for o in order):
            current = None
            continue
        if current is None:
            current = [o for o in order if o.t_s <= t][-1].slots
        if slots[i] == slots[i + 1] and slots[i] not in (current, 0):
            current = float(slots[i])
            found.append(ReplayedOutage(t, UNLISTED_S, int(current), CHECKPOINT_S / 2))
    return found


def row_means(values: Floats, step_s: int) -> Floats:
    """Means over rows, NaN ignored; NaN for a row without a value.

    Returns:
        One mean per `step_s` values, in order.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a row of an outage is all NaN
        return np.asarray(np.nanmean(values.reshape(-1, step_s), axis=1))


def _checks(name: str, found: Comparison, note: str) -> list[Check]:
    (late, our_late), (consumed, our_consumed), (lag, our_lag) = found
    return [
        Check(
            f"demeter/{name}-late",
            SOURCE,
            f"{name} run: share of 30 s rows above 2 s or empty",
            round(late, 3),
            round(our_late, 3),
            f"within {LATE_BAR:g}",
            abs(late - our_late) <= LATE_BAR,
            note=note or None,
        ),
        Check(
            f"demeter/{name}-consumed",
            SOURCE,
            f"{name} run: records consumed",
            round(consumed),
            round(our_consumed),
            f"within {CONSUMED_BAR:.0%}",
            abs(our_consumed / consumed - 1) <= CONSUMED_BAR,
        ),
        Check(
            f"demeter/{name}-lag",
            SOURCE,
            f"{name} run: median lag of a partition, records",
            round(lag),
            round(our_lag),
            f"within a factor {LAG_BAR:g}",
            max(lag / our_lag, our_lag / lag) <= LAG_BAR,
        ),
    ]
