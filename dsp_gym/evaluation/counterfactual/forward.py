"""The calibrated model of a job run forward from what was observed, on the observed load."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np

from dsp_gym.arrays import Floats, Ints
from dsp_gym.backends.simulated.jobs import SimulatedJobs
from dsp_gym.control.loop import ControlLoop
from dsp_gym.evaluation.counterfactual.course import ObservedRun
from dsp_gym.evaluation.counterfactual.measured import MeasuredJobs
from dsp_gym.evaluation.counterfactual.rescales import down_share
from dsp_gym.job.spec import JobSpec
from dsp_gym.job.tables import SOURCE
from dsp_gym.loop.decision import ScalingDecision
from dsp_gym.loop.outcome import Outcome
from dsp_gym.loop.protocols import Guardrail, Mask, Policy, State
from dsp_gym.loop.snapshot import MetricsSnapshot
from dsp_gym.loop.topology import Topology
from dsp_gym.metrics.samples import SAMPLE_S
from dsp_gym.metrics.window import WindowConfig
from dsp_gym.simulation.options import Measurement, SimulationOptions
from dsp_gym.simulation.state import X

__all__ = ["IncumbentReplay", "Predicted", "arrival_rates", "forward"]


WARM_UP_S = 300
"""Longest run of the model, s, in the first configuration before the stretch: caches and windows
fill."""


@dataclass(frozen=True, slots=True)
class Predicted:
    """The prediction for K intervals with S seeds."""

    outcome: dict[str, Floats]  # (K, S)
    parallelism: Ints  # (K, S, V) as running
    memory_level: Ints


class IncumbentReplay:
    """The incumbent: decides the configuration observed next, if need be after an outage.

    Args:
        course: the observed run.
        part: the stretch to follow.
        outages_s: by slot, duration of the rescale that its decision asked for.
    """

    def __init__(
        self, course: ObservedRun, part: slice, outages_s: Mapping[int, float] | None = None
    ) -> None:
        self.name = "incumbent"
        last = len(course) - 1
        after = course.next_up()[[min(k + 1, last) for k in range(part.start, part.stop)]]
        self._parallelism = course.parallelism[after]  # vertices as on the wire: the model's order
        self._level = course.memory_level[after]
        self._outages_s = [(outages_s or {}).get(k) for k in range(part.start, part.stop)]
        self._at = 0

    @property
    def outage_s(self) -> float | None:
        """Duration of the rescale that the next decision asks for, s; None: not known."""
        return self._outages_s[self._at]

    def reset(self, jobs: Topology, seeds: Ints, mask: Mask | None = None) -> None:
        """Start from the first decision."""
        self._at = 0

    def decide(self, snapshot: MetricsSnapshot) -> ScalingDecision:
        at, self._at = self._at, self._at + 1
        shape = snapshot.parallelism.shape
        return ScalingDecision(
            np.broadcast_to(self._parallelism[at], shape).copy(),
            np.broadcast_to(self._level[at], shape).copy(),
            ("runs",) * len(snapshot),
        )

    def state(self) -> State:
        return {"at": self._at}

    def restore(self, state: State) -> None:
        self._at = int(state["at"])


def forward(
    spec: JobSpec,
    course: ObservedRun,
    part: slice,
    policy: Policy,
    guardrails: Guardrail | None,
    window: WindowConfig,
    seeds: int,
) -> Predicted:
    """One policy in charge of the model from the first slot of a stretch to its last.

    The policy sees the model's metrics, not the observed ones: after its first different decision
    the observed job is another one.

    Args:
        spec: the job's calibrated model.
        course: the observed run.
        part: a stretch without gaps, see `ObservedRun.segments`.
        policy: the policy in charge.
        guardrails: the guardrails around it.
        window: the samples that a snapshot averages, as in the run.
        seeds: number of predictions, each with other service times, outages and noise.

    Returns:
        Outcomes (K, S) and configurations (K, S, V) of every interval.
    """
    jobs = _started(spec, course, part, window, seeds)
    measured = (
        jobs
        if course.simulated
        else MeasuredJobs(
            jobs,
            ages_s=course.age_s[part],
            has_latency=course.tells_latency,
            down_share=down_share(course),
        )
    )
    numbers = np.arange(seeds, dtype=np.int64)
    loop = ControlLoop(measured, policy, guardrails)
    loop.reset(numbers)
    lengths = np.diff(slot_ends_s(course, part), prepend=0).tolist()
    names = [field.name for field in fields(Outcome)]
    outcome = {name: np.empty((len(lengths), seeds)) for name in names}
    shape = (len(lengths), *jobs.topology.mask.shape)
    running, level = np.empty(shape, np.int64), np.empty(shape, np.int64)
    for k, seconds in enumerate(lengths):
        loop.interval_s = max(1, seconds)
        outage_s = policy.outage_s if isinstance(policy, IncumbentReplay) else None
        if outage_s is not None and isinstance(measured, MeasuredJobs):
            measured.take(outage_s)
        step = loop.step()
        for name, values in outcome.items():
            values[k] = getattr(step.outcome, name)
        running[k], level[k] = step.snapshot.parallelism, step.snapshot.memory_level
    return Predicted(outcome, running, level)


def _started(
    spec: JobSpec, course: ObservedRun, part: slice, window: WindowConfig, seeds: int
) -> SimulatedJobs:
    """The model where the stretch begins: as long up as the job was, with the backlog it had."""
    measurement = Measurement(window_s=window.window_s, stabilization_s=window.stabilization_s)
    if not course.simulated:  # busy times come from Flink's counters, not from its gauges
        measurement = measurement.model_copy(update={"gauge_s": SAMPLE_S})
    jobs = SimulatedJobs(
        Topology.of([spec], [0] * seeds), SimulationOptions(measurement=measurement)
    )
    columns, first = _columns(course, spec), part.start
    up_s = _up_s(course, first)
    rates = arrival_rates(course, part, up_s)
    jobs.reset(
        np.arange(seeds, dtype=np.int64),
        np.broadcast_to(rates, (seeds, len(rates))),
        parallelism=np.tile(course.parallelism[first, columns], (seeds, 1)),
        memory_level=np.tile(course.memory_level[first, columns], (seeds, 1)),
    )
    pending, age_s = course.pending[first, columns], _age_s(course, first, up_s)
    _owe(jobs, pending)  # the backlog kept the job as busy before
    jobs.advance(up_s - age_s)
    _owe(jobs, pending)
    jobs.advance(age_s)
    return jobs


def _up_s(course: ObservedRun, first: int) -> int:
    """Whole seconds the job had been up, as far as it matters: caches and windows fill."""
    up_s = course.t_s[first] - course.running_since_s[first]
    return WARM_UP_S if np.isnan(up_s) else int(np.clip(round(up_s), 0, WARM_UP_S))


def _age_s(course: ObservedRun, first: int, up_s: int) -> int:
    """Whole seconds since the backlog was sampled that the first decision saw."""
    return min(up_s, round(float(course.age_s[max(0, first - 1)])))


def _columns(course: ObservedRun, spec: JobSpec) -> list[int]:
    """Positions of the model's vertices in the observed run; both have the same ones."""
    return [course.vertices.index(vertex.name) for vertex in spec.topological_order()]


def arrival_rates(course: ObservedRun, part: slice, before_s: int) -> Floats:
    """Reconstructs the offered load from `before_s` seconds before a stretch to its end.

    Arrivals are known from sample to sample; in an older journal from the newest sample at the
    begin of an interval to the one at its end.

    Returns:
        Records/s of each second.
    """
    ends = slot_ends_s(course, part)
    points = [_counted(course, k) for k in range(part.start, part.stop)]
    when = np.concatenate([found[1:, 0] for found in points]) - course.t_s[part.start]
    risen = np.concatenate([np.diff(found[:, 1]) for found in points])
    begin = points[0][0, 0] - course.t_s[part.start]
    edges = np.concatenate([[begin], when])
    kept = np.append(True, np.diff(np.maximum.accumulate(edges)) > 0)  # samples reported twice
    edges, risen = edges[kept], risen[kept[1:]]
    per_s = risen / np.diff(edges)
    # Before and after, the load stays as in the first and the last interval.
    soon = int(np.searchsorted(edges, edges[0] + course.interval_s))
    early = float(np.average(per_s[:soon], weights=np.diff(edges)[:soon]))
    edges = np.concatenate([[min(edges[0], 0.0) - before_s - 1.0], edges, [ends[-1] + 60.0]])
    per_s = np.concatenate([[early], per_s, per_s[-1:]])
    arrived = np.concatenate([[0.0], np.cumsum(per_s * np.diff(edges))])
    return np.diff(np.interp(np.arange(-before_s, ends[-1] + 1), edges, arrived))


def slot_ends_s(course: ObservedRun, part: slice) -> Ints:
    """The end of each interval of a stretch, whole seconds after its first decision, (K,).

    Returns:
        (K,) seconds that never fall; the run's last interval ends after its recorded length.
    """
    first, last = course.t_s[part.start], part.stop - 1
    ends = course.t_s[part.start + 1 : part.stop + 1] - first
    if part.stop == len(course):
        ends = np.append(ends, course.t_s[last] + course.outcome["seconds"][last] - first)
    return np.maximum.accumulate(np.round(ends).astype(np.int64))


def _counted(course: ObservedRun, k: int) -> Floats:
    """Times and the records that had arrived by then, of one interval, (N, 2)."""
    if len(course.arrivals[k]) > 1:
        return course.arrivals[k]
    seconds, age_s = course.outcome["seconds"][k], course.age_s[k]
    begin = course.t_s[k] - course.age_s[max(0, k - 1)]
    end = max(course.t_s[k] + seconds - age_s, begin + 1.0)
    return np.array([[begin, 0.0], [end, course.outcome["arrived"][k]]])


def _owe(jobs: SimulatedJobs, pending: Floats) -> None:
    """Gives sources the observed backlog; an unknown one stays as the model has it."""
    tables, row = jobs.topology.tables, jobs.topology.row
    for v in np.flatnonzero(tables.kind[row[0]] == SOURCE):
        if np.isfinite(pending[v]):
            jobs.state.vertex[:, v, X.pending] = pending[v]
