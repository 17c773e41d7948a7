"""Runs of espa's autoscalers in the simulator, under the load that was recorded."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dsp_gym.arrays import Floats
from dsp_gym.backends.simulated.jobs import SimulatedJobs
from dsp_gym.calibration.scaled_fit import outages_of
from dsp_gym.calibration.scaled_runs import ScaledRun, changes_of
from dsp_gym.control.loop import ControlLoop
from dsp_gym.errors import ConfigError
from dsp_gym.job.spec import JobSpec
from dsp_gym.loop.snapshot import RUNNING
from dsp_gym.loop.topology import Topology
from dsp_gym.policies.config import PolicyConfig, with_params
from dsp_gym.policies.registry import make
from dsp_gym.simulation.options import Measurement, SimulationOptions
from dsp_gym.simulation.state import TRACE, X
from dsp_gym.studies.reproduce.closed_loop import age_s

LATE_S = 2.0
"""End-to-end latency above which a sample is late."""
SEEDS = (0, 1, 2, 3, 4)
TURN_S = 5
"""The loop turns as often as Prometheus scrapes; each policy keeps its own interval."""
STARTS_S = 60.0
"""Time in which a run's backlog at the start shows."""
LEAST_S = 2 * STARTS_S
"""Shortest run that is repeated."""
MEASUREMENT = Measurement(window_s=60, stabilization_s=0)


class CourseFigures(NamedTuple):
    """What is compared of a run."""

    mean_taskmanagers: float
    peak_taskmanagers: float
    changes: float
    p95_latency_s: float
    late_share: float  # of samples above LATE_S, or missing


@dataclass(frozen=True, slots=True)
class Course:
    """A run's course, a sample per row; (T,) each, NaN while the job is down."""

    t_s: Floats
    taskmanagers: Floats
    lag_records: Floats
    latency_s: Floats
    outages_s: tuple[float, ...]  # from the peak of the lag after each change

    def figures(self) -> CourseFigures:
        """What is compared of it.

        Returns:
            Means, counts and quantiles over all samples.
        """
        known = self.latency_s[np.isfinite(self.latency_s)]
        late = ~np.isfinite(self.latency_s) | (self.latency_s > LATE_S)
        return CourseFigures(
            float(np.nanmean(self.taskmanagers)),
            float(np.nanmax(self.taskmanagers)),
            float(len(changes_of(self.taskmanagers))),
            float(np.quantile(known, 0.95)) if len(known) else math.nan,
            float(np.mean(late)) if len(known) else math.nan,
        )


@dataclass(frozen=True, slots=True)
class RepeatedRun:
    """A recorded run and the same policy in the simulator, once per seed."""

    run: ScaledRun
    real: Course
    simulated: tuple[Course, ...]

    def figures(self) -> tuple[CourseFigures, CourseFigures]:
        """Of the real run, and the median over the seeds of the simulated one.

        Returns:
            Both.
        """
        drawn = np.array([course.figures() for course in self.simulated])
        return self.real.figures(), CourseFigures(*np.nanmedian(drawn, axis=0).tolist())

    def to_json(self) -> dict[str, object]:
        """Plain values for JSON.

        Returns:
            Name of the run, query, policy and setting, and both figures by name.
        """
        real, simulated = self.figures()
        run = self.run
        return {
            "run": run.run,
            "query": run.query,
            "policy": run.policy,
            "setting": setting_of(run),
            "real": _plain(real),
            "simulated": _plain(simulated),
        }


def _plain(figures: CourseFigures) -> dict[str, float | None]:
    return {
        name: round(value, 6) if math.isfinite(value) else None
        for name, value in figures._asdict().items()
    }


def setting_of(run: ScaledRun) -> float:
    """The setting under which a run was recorded.

    Returns:
        Such as 70 for `70` and for `70%`.

    Raises:
        ConfigError: It is no number.
    """
    try:
        found = float(run.setting.removesuffix("%"))
    except ValueError:
        found = math.nan
    if not math.isfinite(found):
        raise ConfigError(f"its setting {run.setting!r} is no number")
    return found


def refuse_too_little(run: ScaledRun) -> None:
    """Refuse a run that says too little to be repeated.

    Raises:
        ConfigError: It is too short, or its number of TaskManagers at the start is unknown.
    """
    lasts = float(run.t_s[-1] - run.t_s[0])
    if lasts < LEAST_S:
        raise ConfigError(f"it lasts {lasts:g} s, of at least {LEAST_S:g} s")
    if not np.any(_at_start(run, run.taskmanagers) >= 1):
        raise ConfigError(f"no TaskManager is registered in its first {STARTS_S:g} s")


def _at_start(run: ScaledRun, gauge: Floats) -> Floats:
    """Its samples in which the backlog of the start shows."""
    return gauge[: 1 + round(STARTS_S / run.step_s)]


def recorded(run: ScaledRun) -> Course:
    """The course of a recorded run.

    Returns:
        As sampled.
    """
    return Course(
        run.t_s - run.t_s[0],
        run.taskmanagers,
        run.lag_records,
        run.latency_s,
        tuple(outages_of(run)),
    )


def simulated(
    run: ScaledRun, spec: JobSpec, policy: PolicyConfig, seeds: Sequence[int] = SEEDS
) -> tuple[Course, ...]:
    """Let a policy scale the simulated job under a run's load.

    Args:
        run: gives the load, the TaskManagers at the start and when samples were taken.
        spec: the job.
        policy: as it ran.
        seeds: of the simulation's noise and outages.

    Returns:
        A course per seed, sampled as the run was.
    """
    offered = run.every_second()
    topology = Topology.of([spec] * len(seeds))
    options = SimulationOptions(measurement=MEASUREMENT, trace=True, threads=1)
    jobs = SimulatedJobs(topology, options)
    # TaskManagers register one after another.
    start = int(np.nanmax(_at_start(run, run.taskmanagers)))
    parallelism = np.full_like(topology.tables.start_parallelism[topology.row], start)
    drawn = np.array(seeds)
    jobs.reset(drawn, np.tile(offered, (len(seeds), 1)), parallelism=parallelism)
    jobs.state.vertex[:, 0, X.pending] = backlog_at_start(run)
    loop = ControlLoop(jobs, make(as_on_this_job(policy)), None, TURN_S)
    loop.reset(drawn)
    turns = len(offered) // TURN_S
    counts, up = np.empty((turns, len(seeds))), np.empty((turns, len(seeds)), bool)
    for turn in range(turns):
        loop.step()
        counts[turn], up[turn] = jobs.state.tm_count, jobs.state.status <= RUNNING
    places = np.round((run.t_s - run.t_s[0]) / TURN_S).astype(int)
    places = np.minimum(places, turns - 1)
    seconds = np.minimum((places + 1) * TURN_S, len(offered)) - 1
    found = []
    for j in range(len(seeds)):
        pending = jobs.trace[j, : turns * TURN_S, TRACE.pending]
        age = age_s(offered[: len(pending)], pending)[seconds]
        lag = pending[seconds]
        shown = _as_recorded(run, counts[places, j], lag)
        found.append(
            Course(
                run.t_s - run.t_s[0],
                counts[places, j],
                lag,
                _carried(np.where(up[places, j], age, np.nan)),
                tuple(outages_of(shown)),
            )
        )
    return tuple(found)


def _carried(values: Floats) -> Floats:
    """A gauge whose job is down shows its last value: the table of real runs has no gap either."""
    known = np.flatnonzero(np.isfinite(values))
    if len(known) == 0:
        return values
    return np.asarray(
        values[known][np.maximum(np.searchsorted(known, np.arange(len(values)), "right") - 1, 0)]
    )


def backlog_at_start(run: ScaledRun) -> float:
    """The records that waited when the recording began: its first samples show them late.

    Returns:
        Records.
    """
    lag = _at_start(run, run.lag_records)
    return float(np.max(lag[np.isfinite(lag)], initial=0.0))


def as_on_this_job(policy: PolicyConfig) -> PolicyConfig:
    """A policy for jobs whose operators are vertices and whose topic stands for their source.

    Varga's utilisation counts the sources: here they are the operator `read`.

    Returns:
        The same policy, which leaves out the topic.
    """
    if "counts_sources" not in policy.params:
        return policy
    return PolicyConfig(
        policy=policy.policy, params=with_params(policy.params, {"counts_sources": False})
    )


def _as_recorded(run: ScaledRun, taskmanagers: Floats, lag: Floats) -> ScaledRun:
    """The simulated run as a table would have it."""
    unknown = np.full(len(run), np.nan)
    return ScaledRun(
        run.run,
        run.query,
        run.policy,
        run.setting,
        run.t_s,
        run.input_per_s,
        unknown,
        lag,
        unknown,
        taskmanagers,
        *(unknown,) * 4,
    )
