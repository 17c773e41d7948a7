"""Demeter CARS: 18 h of a job that was rescaled, replayed, and published autoscalers in its place.

A replay has the recorded outages and slots. The job is calibrated on the static run and the
profiles, and for rescales by redeploy also on how long the policy's other two runs took to catch
up; the run that is checked is in no fit.

Of the autoscalers' runs nothing is replayed but the load; the failures are those injected into the
static run. Reactive mode's rescales and all failures restart from the last checkpoint and read half
an interval again; redeploys start from a savepoint.
"""

from __future__ import annotations

import math
import statistics
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dsp_gym.arrays import Bools, Floats
from dsp_gym.calibration.mst_job import job_spec
from dsp_gym.calibration.series import END_TO_END_SLO_S, job_text
from dsp_gym.calibration.series_fit import (
    SeriesFit,
    fit_series,
    fit_warm_up_after_rescales,
    load_factor,
)
from dsp_gym.calibration.series_tables import (
    MeasuredSeries,
    RecordedOutage,
    read_outages,
    read_profiles,
    read_series,
)
from dsp_gym.control.loop import ControlLoop
from dsp_gym.job.catalog import load_job
from dsp_gym.policies.config import PolicyConfig
from dsp_gym.policies.registry import make, resolve
from dsp_gym.simulation.options import Measurement, SimulationOptions
from dsp_gym.simulation.state import TRACE
from dsp_gym.studies.reproduce.closed_loop import (
    InterruptedJobs,
    ReplayedOutage,
    age_s,
    merge_outages,
    replay,
)
from dsp_gym.studies.reproduce.registry import Check

SOURCE = "Demeter, results of CARS (demeter_cars_*.csv)"
REACTIVE, OPERATOR, STATIC = "reactive_hpa_cpu", "flink_operator_autoscaler", "static24"
SERIES, OUTAGES = "demeter_cars_{}.csv", "demeter_cars_outages.csv"
CHECKED_RUN = 1
LATE_BAR, CONSUMED_BAR, LAG_BAR, RESCALES_BAR = 0.08, 0.05, 2.0, 1.5
CHECKPOINT_S = 10
"""Checkpoint interval of the recorded job; a restart reads half of one again on average."""
UNLISTED_S = 3
"""Outage of a change of slots that left no gap of more than 5 s."""
SETTLING_S = (60, 30)
"""Seconds before and after a listed outage in which the mean of the slots says nothing."""
SEEDS = (0, 1, 2, 3, 4)
REDEPLOY_S = 30
"""Outage above which a gap is a redeploy: failures are over within 24 s, no redeploy within 42."""
NEAR_FAILURE_S = 60
"""A rescale this soon after an injected failure counts as injected, as in the recorded table."""


@dataclass(frozen=True, slots=True)
class Setup:
    """One published run: which policy scales which job, and how often it looks."""

    recorded: str
    job: str
    policy: str
    interval_s: int
    measurement: Measurement
    from_checkpoint: bool  # a rescale reads half a checkpoint interval again


SETUPS = {
    "static": Setup(STATIC, "demeter-cars", "static", 60, Measurement(), from_checkpoint=False),
    "reactive": Setup(
        # The kubelet's CPU is a mean of 15 s, the controller looks as often.
        REACTIVE,
        "demeter-cars",
        "demeter-reactive",
        15,
        Measurement(gauge_s=15, stabilization_s=0),
        from_checkpoint=True,
    ),
    "operator": Setup(
        # The operator asks every 10 s whether a job is up, and passes begin then.
        OPERATOR,
        "demeter-cars-unchained",
        "demeter-operator",
        10,
        Measurement(stabilization_s=0),
        from_checkpoint=False,
    ),
}


@dataclass(frozen=True, slots=True)
class SimulatedDay:
    """One simulated run."""

    late: Bools  # of each 30 s row
    slots: tuple[tuple[float, int], ...]  # since when, and how many, of all but the source
    redeploys: int  # changes of any vertex, also those that leave the slots as they are

    def rescales(self, failures_s: tuple[int, ...] = ()) -> int:
        """Changes of the slots, without those within a minute of an injected failure.

        Returns:
            A count; the start is none.
        """
        return sum(
            not any(0 <= t - failure <= NEAR_FAILURE_S for failure in failures_s)
            for t, _ in self.slots[1:]
        )


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
    fit = fit_series(
        read_series(data / SERIES.format(STATIC)), read_profiles(data / "demeter_cars_profiles.csv")
    )
    outages = read_outages(data / OUTAGES)
    others = [o for o in outages if o.run != CHECKED_RUN]
    redeployed = fit_warm_up_after_rescales(fit, others, OPERATOR)
    unchecked = compare(data, OPERATOR, fit, outages)
    return [
        *_replay_checks("reactive", compare(data, REACTIVE, fit, outages), ""),
        *_replay_checks(
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
    recorded = read_series(data / SERIES.format(policy))
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


def _replay_checks(name: str, found: Comparison, note: str) -> list[Check]:
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


def simulate(
    setup: Setup, data: Path, seed: int = 0, policy: PolicyConfig | None = None
) -> SimulatedDay:
    """One run of a published setup.

    Args:
        setup: which one.
        data: folder of measured data: the load, and when failures were injected.
        seed: of the simulation's noise and outages.
        policy: instead of the setup's own.

    Returns:
        Slots, late rows and rescales of the day.
    """
    outages = read_outages(data / OUTAGES)
    recorded = read_series(data / SERIES.format(setup.recorded))
    spec = load_job(setup.job)
    factor = load_factor(read_series(data / SERIES.format(STATIC)))
    offered = recorded.every_second(factor)
    reread_s = injected_reread_s(outages, spec.max_parallelism_per_vertex, factor)
    jobs = InterruptedJobs(
        spec,
        SimulationOptions(trace=True, measurement=setup.measurement),
        [ReplayedOutage(o.t_s, o.outage_s, None, reread_s) for o in _injected(outages)],
        CHECKPOINT_S / 2 if setup.from_checkpoint else 0.0,
    )
    seeds = np.array([seed])
    jobs.reset(seeds, offered[None, :])
    loop = ControlLoop(jobs, make(policy or setup.policy), None, setup.interval_s)
    loop.reset(seeds)
    slots: list[tuple[float, int]] = []
    deployed: list[list[int]] = []
    for _ in range(len(offered) // setup.interval_s):
        seen = loop.step().snapshot
        now = int(seen.parallelism[0, 1:].max())
        if seen.running[0] and (not slots or slots[-1][1] != now):
            slots.append((float(seen.running_since_s[0]), now))
        tasks = seen.parallelism[0].tolist()
        if seen.running[0] and (not deployed or deployed[-1] != tasks):
            deployed.append(tasks)
    processed, pending = (
        jobs.trace[0, : len(offered), at] for at in (TRACE.processed, TRACE.pending)
    )
    down = (processed <= 0) & (pending > 0)
    # The SLO is what is left of 2 s once nothing queues.
    row_age_s = row_means(np.where(down, np.nan, age_s(offered, pending)), recorded.step_s)
    late = np.isnan(row_age_s) | (row_age_s > spec.slo.latency_s)
    return SimulatedDay(late, tuple(slots), len(deployed) - 1)


def demeter_autoscalers(data: Path) -> list[Check]:
    """Check published autoscalers, as policies, on the calibrated job.

    Returns:
        The checks of each setup, then the one of the default delay.
    """
    delayed = _with_the_default_delay(data)
    # Which of two releases it stands for decides the outcome: say so.
    releases = f"; scale-downs not delayed, as in 1.6; by 1.15.0's default: {delayed.ours}"
    checks = [
        check
        for name in SETUPS
        for check in _checks(name, data, releases if name == "operator" else "")
    ]
    return [*checks, delayed]


def _injected(outages: list[RecordedOutage]) -> list[RecordedOutage]:
    """Failures of the static run, which nothing else interrupts."""
    own = [o for o in outages if (o.policy, o.run) == (STATIC, CHECKED_RUN) and o.failure_injected]
    return sorted(own, key=lambda o: o.t_s)


def _checks(name: str, data: Path, about: str) -> Iterator[Check]:
    setup = SETUPS[name]
    days = [simulate(setup, data, seed) for seed in SEEDS]
    outages = read_outages(data / OUTAGES)
    if name == "operator":
        redeploys = _redeploys(days, outages)
        # Late rows and changes of the slots follow from the number of redeploys.
        about += (
            f"; the cause: {redeploys.ours} redeploys where {redeploys.published} were recorded; "
            "with those replayed, demeter/operator-late is within its bar"
        )
    series = read_series(data / SERIES.format(setup.recorded))
    late, ours = float(series.late(END_TO_END_SLO_S).mean()), [float(d.late.mean()) for d in days]
    yield Check(
        f"demeter-autoscalers/{name}-late",
        SOURCE,
        f"{name}: share of 30 s rows above 2 s or empty, median of {len(days)} seeds",
        round(late, 3),
        round(statistics.median(ours), 3),
        f"within {LATE_BAR:g}",
        abs(statistics.median(ours) - late) <= LATE_BAR,
        used_in_fit=name == "static",
        note=f"{min(ours):.3f} to {max(ours):.3f} over the seeds{about}",
    )
    if name == "static":
        return
    own = [o for o in outages if (o.policy, o.run) == (setup.recorded, CHECKED_RUN)]
    moves = [o for o in own if o.slots_before != o.slots_after or o.slots_before == 0]
    failures = tuple(o.t_s for o in _injected(outages))
    for suffix, left_out, published, near in (
        ("", "", len(moves), ()),
        (
            "-without-failures",
            ", a minute after injected failures left out",
            sum(not o.failure_injected for o in moves),
            failures,
        ),
    ):
        counted = [day.rescales(near) for day in days]
        middle = statistics.median(counted)
        yield Check(
            f"demeter-autoscalers/{name}-rescales{suffix}",
            SOURCE,
            f"{name}: changes of the slots in 18 h{left_out}",
            published,
            middle,
            f"within a factor {RESCALES_BAR:g}",
            max(published / max(middle, 1), middle / published) <= RESCALES_BAR,
            note=f"{min(counted)} to {max(counted)} over the seeds{about}",
        )
    if name == "operator":
        yield redeploys


def _redeploys(days: Sequence[SimulatedDay], outages: Sequence[RecordedOutage]) -> Check:
    """Compare redeploys, most of which change a vertex and leave the job's slots as they are."""
    recorded: dict[int, list[RecordedOutage]] = {}
    for o in outages:
        if o.policy == OPERATOR and not o.failure_injected and o.outage_s > REDEPLOY_S:
            recorded.setdefault(o.run, []).append(o)
    counts = [len(own) for own in recorded.values()]
    own, ours = recorded[CHECKED_RUN], [day.redeploys for day in days]
    kept = sum(o.slots_before == o.slots_after for o in own)
    return Check(
        "demeter-autoscalers/operator-redeploys",
        SOURCE,
        "operator: redeploys in 18 h, also those that leave the slots as they are",
        len(own),
        statistics.median(ours),
        "reported",
        None,
        note=f"{min(ours)} to {max(ours)} over the seeds, {min(counts)} to {max(counts)} over the "
        f"three recorded runs; {kept} of the run's {len(own)} left the slots as they were",
    )


def _with_the_default_delay(data: Path) -> Check:
    """The operator's setup with 1.15.0's own delay of scale-downs, which 1.6 did not have."""
    setup = SETUPS["operator"]
    own = resolve(setup.policy)[1]
    delay = "kubernetes.operator.job.autoscaler.scale-down.interval"
    keys = {k: v for k, v in own.params["flink_configuration"].items() if k != delay}
    config = PolicyConfig(policy=own.policy, params={"flink_configuration": keys})
    days = [simulate(setup, data, seed, config) for seed in SEEDS[:3]]
    counted = statistics.median(day.rescales() for day in days)
    late = statistics.median(float(day.late.mean()) for day in days)
    return Check(
        "demeter-autoscalers/operator-default-delay",
        SOURCE,
        "operator with 1.15.0's default scale-down.interval of an hour",
        "35 rescales, 0.347 late (release 1.6)",
        f"{counted:g} rescales, {late:.3f} late",
        "reported",
        None,
        note="1.6 delays no scale-down, but allows none within an hour after a scale-up",
    )
