"""Demeter CARS: the published autoscalers as policies on the calibrated job, 18 h each.

Nothing of a recorded run is replayed but its load; the failures are those injected into the static
run. Reactive mode's rescales and all failures restart from the last checkpoint and read half an
interval again; redeploys start from a savepoint.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from dsp_gym.arrays import Bools, Floats, Ints
from dsp_gym.backends.base import SelfContained
from dsp_gym.backends.simulated.jobs import SimulatedJobs
from dsp_gym.calibration.series import END_TO_END_SLO_S
from dsp_gym.calibration.series_fit import load_factor
from dsp_gym.calibration.series_tables import (
    MeasuredSeries,
    RecordedOutage,
    read_outages,
    read_series,
)
from dsp_gym.control.loop import ControlLoop
from dsp_gym.job.catalog import load_job
from dsp_gym.job.spec import JobSpec
from dsp_gym.loop.decision import GuardedDecision
from dsp_gym.loop.outcome import Outcome
from dsp_gym.loop.snapshot import RESTARTING, RUNNING, MetricsSnapshot
from dsp_gym.loop.topology import Topology
from dsp_gym.policies.config import PolicyConfig
from dsp_gym.policies.registry import make, resolve
from dsp_gym.simulation.options import Measurement, SimulationOptions
from dsp_gym.simulation.state import TRACE, X
from dsp_gym.studies.reproduce.closed_loop import age_s
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
from dsp_gym.studies.reproduce.registry import Check, needs

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
    slots: tuple[tuple[float, int], ...]  # since when, and how many
    restarts: int  # rescales of any vertex and failures
    offered_per_s: Floats
    processed_per_s: Floats

    def rescales(self, failures_s: tuple[int, ...] = ()) -> int:
        """Changes of the slots, without those within a minute of an injected failure.

        Returns:
            A count; the start is none.
        """
        return sum(
            not any(0 <= t - failure <= NEAR_FAILURE_S for failure in failures_s)
            for t, _ in self.slots[1:]
        )


class FailingJobs(SelfContained):
    """A simulated job with failures at given seconds, and records read again after restarts."""

    def __init__(
        self,
        jobs: SimulatedJobs,
        failures: list[tuple[int, int]],
        failure_s: float,
        rescale_s: float,
    ) -> None:
        """Wrap a started job.

        Args:
            jobs: one job.
            failures: when, and for how many seconds it is down, in order.
            failure_s: seconds of load read again after a failure.
            rescale_s: the same after a rescale.
        """
        self.topology = jobs.topology
        self._jobs, self._failures = jobs, list(failures)
        self._failure_s, self._rescale_s = failure_s, rescale_s
        self._now_s = 0

    def snapshot(self) -> MetricsSnapshot:
        """What is seen now.

        Returns:
            The jobs' metrics.
        """
        return self._jobs.snapshot()

    def apply(self, guarded: GuardedDecision) -> None:
        """Ask for a configuration."""
        was_up = self._jobs.state.status[0] == RUNNING
        self._jobs.apply(guarded)
        if was_up and self._jobs.state.status[0] != RUNNING:
            self._read_again(self._rescale_s)

    def status(self) -> Ints:
        """State of the last request.

        Returns:
            (J,) codes of a request's state, as every actuator's `status` gives them.
        """
        return self._jobs.status()

    def advance(self, seconds: int) -> Outcome:
        """Let the job run, and fail when it must.

        Returns:
            The outcome of the whole interval, failures included.
        """
        end, parts = self._now_s + seconds, []
        while self._now_s < end:
            until = min(end, self._failures[0][0]) if self._failures else end
            if until > self._now_s:
                parts.append(self._jobs.advance(until - self._now_s))
                self._now_s = until
            if self._failures and self._failures[0][0] <= self._now_s:
                self._fail(self._failures.pop(0)[1])
        return Outcome.joined(parts)

    def _fail(self, outage_s: int) -> None:
        state = self._jobs.state
        if state.status[0] == RESTARTING:
            return
        if state.status[0] == RUNNING:
            state.next_parallelism[0] = state.parallelism[0]
        state.status[0], state.outage_begun[0] = RESTARTING, self._now_s
        state.phase_left_s[0] = outage_s
        self._read_again(self._failure_s)

    def _read_again(self, seconds: float) -> None:
        rates = self._jobs.rates[0]
        again = seconds * float(rates[min(self._now_s, len(rates) - 1)])
        self._jobs.state.vertex[0, 0, X.pending] += again


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
    jobs = SimulatedJobs(
        Topology.of([spec]), SimulationOptions(trace=True, measurement=setup.measurement)
    )
    jobs.reset(np.array([seed]), offered[None, :])
    failing = FailingJobs(
        jobs,
        [(o.t_s, o.outage_s) for o in _injected(outages)],
        injected_reread_s(outages, spec.max_parallelism_per_vertex, factor),
        CHECKPOINT_S / 2 if setup.from_checkpoint else 0.0,
    )
    loop = ControlLoop(failing, make(policy or setup.policy), None, setup.interval_s)
    loop.reset(np.array([seed]))
    slots: list[tuple[float, int]] = []
    starts = set()
    for _ in range(len(offered) // setup.interval_s):
        seen = loop.step().snapshot
        if not seen.running[0]:
            continue
        starts.add(float(seen.running_since_s[0]))
        now = int(seen.parallelism[0, 1:].max())  # of all but the source
        if not slots or slots[-1][1] != now:
            slots.append((float(seen.running_since_s[0]), now))
    return _day(spec, jobs, recorded, offered, slots, len(starts) - 1)


@needs(
    "demeter_cars_static24.csv",
    "demeter-autoscalers/late",
    SOURCE,
    "published autoscalers as policies on the calibrated job",
    "3 runs of 18 h",
)
def demeter_autoscalers(data: Path) -> list[Check]:
    """Check published autoscalers, as policies, on the calibrated job.

    Returns:
        The checks of each setup, then the one of the default delay.
    """
    delayed = _with_the_default_delay(data)
    checks = []
    for name, setup in SETUPS.items():
        days = [simulate(setup, data, seed) for seed in SEEDS]
        found = _checks(name, setup, data, days)
        if name == "operator":  # which of two releases it stands for decides the outcome: say so
            about = f"scale-downs not delayed, as in 1.6; by 1.15.0's default: {delayed.ours}"
            found = [replace(check, note=f"{check.note}; {about}") for check in found]
        checks += found
    return [*checks, delayed]


def _day(
    spec: JobSpec,
    jobs: SimulatedJobs,
    recorded: MeasuredSeries,
    offered: Floats,
    slots: list[tuple[float, int]],
    restarts: int,
) -> SimulatedDay:
    trace = jobs.trace[0, : len(offered)]
    down = (trace[:, TRACE.processed] <= 0) & (trace[:, TRACE.pending] > 0)
    age = np.where(down, np.nan, age_s(offered, trace[:, TRACE.pending]))
    # The SLO is what is left of 2 s once nothing queues.
    row_age_s = row_means(age, recorded.step_s)
    late = np.isnan(row_age_s) | (row_age_s > spec.slo.latency_s)
    return SimulatedDay(late, tuple(slots), restarts, offered, trace[:, TRACE.processed])


def _injected(outages: list[RecordedOutage]) -> list[RecordedOutage]:
    """Failures of the static run, which nothing else interrupts."""
    own = [o for o in outages if (o.policy, o.run) == (STATIC, CHECKED_RUN) and o.failure_injected]
    return sorted(own, key=lambda o: o.t_s)


def _checks(name: str, setup: Setup, data: Path, days: list[SimulatedDay]) -> list[Check]:
    late = float(
        read_series(data / f"demeter_cars_{setup.recorded}.csv").late(END_TO_END_SLO_S).mean()
    )
    ours = [float(day.late.mean()) for day in days]
    found = [
        Check(
            f"demeter-autoscalers/{name}-late",
            SOURCE,
            f"{name}: share of 30 s rows above 2 s or empty, median of {len(days)} seeds",
            round(late, 3),
            round(statistics.median(ours), 3),
            f"within {LATE_BAR:g}",
            abs(statistics.median(ours) - late) <= LATE_BAR,
            used_in_fit=name == "static",
            note=f"{min(ours):.3f} to {max(ours):.3f} over the seeds",
        )
    ]
    if name == "static":
        return found
    outages = read_outages(data / "demeter_cars_outages.csv")
    own = [o for o in outages if (o.policy, o.run) == (setup.recorded, CHECKED_RUN)]
    moves = [o for o in own if o.slots_before != o.slots_after or o.slots_before == 0]
    failures = tuple(o.t_s for o in _injected(outages))
    counts = {
        "": (len(moves), [day.rescales() for day in days]),
        "-without-failures": (
            sum(not o.failure_injected for o in moves),
            [day.rescales(failures) for day in days],
        ),
    }
    about = f"{name}: changes of the slots in 18 h"
    for suffix, (published, counted) in counts.items():
        middle = statistics.median(counted)
        factor = max(published / max(middle, 1), middle / published)
        found.append(
            Check(
                f"demeter-autoscalers/{name}-rescales{suffix}",
                SOURCE,
                about + (", a minute after injected failures left out" if suffix else ""),
                published,
                middle,
                f"within a factor {RESCALES_FACTOR:g}",
                factor <= RESCALES_FACTOR,
                used_in_fit=False,
                note=f"{min(counted)} to {max(counted)} over the seeds",
            )
        )
    return found


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
        used_in_fit=False,
        note="1.6 delays no scale-down, but allows none within an hour after a scale-up",
    )
