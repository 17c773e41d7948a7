"""Demeter CARS: the published autoscalers as policies on the calibrated job, 18 h each.

Nothing of a recorded run is replayed but its load; the failures are those injected into the static
run. Reactive mode's rescales and all failures restart from the last checkpoint and read half an
interval again; redeploys start from a savepoint.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dsp_gym.arrays import Bools
from dsp_gym.calibration.series import END_TO_END_SLO_S
from dsp_gym.calibration.series_fit import load_factor
from dsp_gym.calibration.series_tables import RecordedOutage, read_outages, read_series
from dsp_gym.control.loop import ControlLoop
from dsp_gym.job.catalog import load_job
from dsp_gym.policies.config import PolicyConfig
from dsp_gym.policies.registry import make, resolve
from dsp_gym.simulation.options import Measurement, SimulationOptions
from dsp_gym.simulation.state import TRACE
from dsp_gym.studies.reproduce.closed_loop import InterruptedJobs, ReplayedOutage, age_s
from dsp_gym.studies.reproduce.demeter import (
    CHECKED_RUN,
    CHECKPOINT_S,
    OPERATOR,
    REACTIVE,
    SOURCE,
    STATIC,
    injected_reread_s,
    row_means,
)
from dsp_gym.studies.reproduce.registry import Check

SEEDS = (0, 1, 2, 3, 4)
LATE_BAR, RESCALES_FACTOR = 0.08, 1.5
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

    def rescales(self, failures_s: tuple[int, ...] = ()) -> int:
        """Changes of the slots, without those within a minute of an injected failure.

        Returns:
            A count; the start is none.
        """
        return sum(
            not any(0 <= t - failure <= NEAR_FAILURE_S for failure in failures_s)
            for t, _ in self.slots[1:]
        )


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
    outages = read_outages(data / "demeter_cars_outages.csv")
    recorded = read_series(data / f"demeter_cars_{setup.recorded}.csv")
    spec = load_job(setup.job)
    factor = load_factor(read_series(data / "demeter_cars_static24.csv"))
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
    for _ in range(len(offered) // setup.interval_s):
        seen = loop.step().snapshot
        now = int(seen.parallelism[0, 1:].max())
        if seen.running[0] and (not slots or slots[-1][1] != now):
            slots.append((float(seen.running_since_s[0]), now))
    processed, pending = (
        jobs.trace[0, : len(offered), at] for at in (TRACE.processed, TRACE.pending)
    )
    down = (processed <= 0) & (pending > 0)
    # The SLO is what is left of 2 s once nothing queues.
    row_age_s = row_means(np.where(down, np.nan, age_s(offered, pending)), recorded.step_s)
    late = np.isnan(row_age_s) | (row_age_s > spec.slo.latency_s)
    return SimulatedDay(late, tuple(slots))


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
    series = read_series(data / f"demeter_cars_{setup.recorded}.csv")
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
    outages = read_outages(data / "demeter_cars_outages.csv")
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
            f"within a factor {RESCALES_FACTOR:g}",
            max(published / max(middle, 1), middle / published) <= RESCALES_FACTOR,
            note=f"{min(counted)} to {max(counted)} over the seeds{about}",
        )


def _with_the_default_delay(data: Path) -> Check:
    """The operator's setup with 1.15.0's own delay of scale-downs, which 1.6 did not have."""
    setup = SETUPS["operator"]
    config = resolve(setup.policy)[1]
    published = dict(config.params["flink_configuration"])
    del published["kubernetes.operator.job.autoscaler.scale-down.interval"]
    config = PolicyConfig(policy=config.policy, params={"flink_configuration": published})
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
