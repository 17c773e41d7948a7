"""The calibrated model of a job run forward from what was observed, on the observed load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dsp_gym.arrays import Floats, Ints
from dsp_gym.backends.simulated.jobs import SimulatedJobs
from dsp_gym.backends.simulated.measured import MeasuredJobs
from dsp_gym.errors import DspGymError
from dsp_gym.job.spec import JobSpec
from dsp_gym.job.tables import SOURCE
from dsp_gym.loop.decision import GuardedDecision, ScalingDecision
from dsp_gym.loop.outcome import Outcome
from dsp_gym.loop.plausible import plausible
from dsp_gym.loop.protocols import Guardrail, Mask, Policy, State
from dsp_gym.loop.snapshot import MetricsSnapshot
from dsp_gym.loop.topology import Topology
from dsp_gym.loop.turn import take_turn
from dsp_gym.metrics.window import WindowConfig
from dsp_gym.simulation.options import Measurement, SimulationOptions
from dsp_gym.simulation.state import X
from dsp_gym.whatif.journal import ObservedRun
from dsp_gym.whatif.rescales import down_share, observed_outages_s

__all__ = [
    "Charge",
    "Driven",
    "IncumbentReplay",
    "Predicted",
    "Stretch",
    "arrival_rates",
    "forward",
    "settled_slots",
    "slot_ends_s",
]


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
        self._at = 0
        self.follow(course, part, outages_s)

    def follow(
        self, course: ObservedRun, part: slice, outages_s: Mapping[int, float] | None = None
    ) -> None:
        """Take in a stretch that has grown; what was decided stays."""
        after = course.next_up()[_next_slots(course, part)]
        self._parallelism = course.parallelism[after]  # vertices as on the wire: the model's order
        self._level = course.memory_level[after]
        self._outages_s = [(outages_s or {}).get(k) for k in range(part.start, part.stop)]

    @property
    def outage_s(self) -> float | None:
        """Duration of the rescale that the next decision asks for, s; None: not known."""
        return self._outages_s[self._at]

    def told(self, slots: int) -> tuple[Ints, Ints, Floats]:
        """What it follows in the first slots.

        Returns:
            Tasks and levels (K, V), and outages in s, (K,), NaN where they are not known.
        """
        outages = np.array([np.nan if s is None else s for s in self._outages_s[:slots]])
        return self._parallelism[:slots], self._level[:slots], outages

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


class Charge(NamedTuple):
    """A policy in charge of the model, with the guardrails around it."""

    policy: Policy
    guardrails: Guardrail | None = None


class Driven(NamedTuple):
    """One interval of every twin: J rows, those of one policy side by side."""

    outcome: Outcome
    parallelism: Ints  # (J, V) as running
    memory_level: Ints


class Stretch:
    """A stretch of the observed run, gone through by the model with every policy in charge.

    All jobs are one batch: those of policy i are the rows i*S to (i+1)*S, one per seed. A policy
    sees the metrics of its own jobs, not the observed ones: after its first different decision the
    observed job is another one. Rows depend on nothing but their own policy and seed, so that a
    policy alone gives what it gives beside others.

    Args:
        spec: the job's calibrated model.
        course: the observed run.
        part: a stretch without gaps, see `ObservedRun.segments`.
        charges: the policies in charge, by name.
        window: the samples that a snapshot averages, as in the run.
        seeds: jobs of each policy, each with other service times, outages and noise.
    """

    def __init__(
        self,
        spec: JobSpec,
        course: ObservedRun,
        part: slice,
        charges: Mapping[str, Charge],
        window: WindowConfig,
        seeds: int,
    ) -> None:
        self.charges, self.seeds = dict(charges), seeds
        self.failures: dict[str, DspGymError] = {}
        """Why a policy no longer decides: its jobs keep their configuration from then on."""
        self._spec = spec
        self._before_s = _up_s(course, part.start)
        copies = [spec] * len(charges)  # each with outages of its own
        self._simulated = _started(copies, course, part, window, seeds)
        self._age_s = 0.0
        self._measured: MeasuredJobs | None = None
        if not course.simulated:
            self._measured = MeasuredJobs(
                self._simulated,
                ages_s=iter(lambda: self._age_s, None),
                has_latency=course.tells_latency,
                down_share=down_share(course),
            )
        self._jobs = self._measured or self._simulated
        self._ends_s: Ints = np.empty(0, np.int64)
        self._ages: Floats = np.empty(0)
        self._at = 0
        numbers = np.arange(seeds, dtype=np.int64)
        rows = np.arange(len(charges) * seeds).reshape(len(charges), seeds)
        self.rows = dict(zip(charges, rows, strict=True))
        self._topologies = {
            name: self._simulated.topology.take(own) for name, own in self.rows.items()
        }
        for name, charge in self.charges.items():
            charge.policy.reset(self._topologies[name], numbers)
            if charge.guardrails is not None:
                charge.guardrails.reset(self._topologies[name], numbers)
        self._take(course, part)

    @property
    def done(self) -> int:
        """Intervals that were gone through."""
        return self._at

    def follow(self, course: ObservedRun, part: slice) -> bool:
        """Take in a stretch that has grown.

        Returns:
            False: what was gone through was something else, so it must be gone through again.
        """
        before = self._told()
        self._take(course, part)
        outages_s = observed_outages_s(course, self._spec)
        for charge in self.charges.values():
            if isinstance(charge.policy, IncumbentReplay):
                charge.policy.follow(course, part, outages_s)
        return all(
            np.array_equal(was, now, equal_nan=True)
            for was, now in zip(before, self._told(), strict=True)
        )

    def _take(self, course: ObservedRun, part: slice) -> None:
        self._ends_s, self._ages = slot_ends_s(course, part), course.age_s[part]
        self._jobs.offer(arrival_rates(course, part, self._before_s))

    def _told(self) -> list[NDArray[np.generic]]:
        """What the observed run said of the intervals gone through, as copies."""
        at = self._at
        ends_s = self._ends_s[:at]
        past_s = self._before_s + (int(ends_s[-1]) if at else 0)
        found: list[NDArray[np.generic]] = [ends_s, self._ages[:at]]
        found.append(self._simulated.rates[0, :past_s].copy())
        for charge in self.charges.values():
            if isinstance(charge.policy, IncumbentReplay):
                found += charge.policy.told(at)
        return found

    def step(self) -> Driven:
        """Let every policy decide, and the jobs run to the end of the interval.

        Returns:
            What came of it.
        """
        seen = plausible(self._jobs.snapshot())
        parallelism, level = seen.parallelism.copy(), seen.memory_level.copy()
        for place, (name, charge) in enumerate(self.charges.items()):
            if name in self.failures:
                continue
            own = self.rows[name]
            if isinstance(charge.policy, IncumbentReplay) and self._measured is not None:
                self._measured.take(charge.policy.outage_s, place)
            part = seen if len(self.charges) == 1 else seen.take(own)
            try:
                wanted = take_turn(part, charge.policy.decide, charge.guardrails)
            except DspGymError as error:
                self.failures[name] = error
                continue
            parallelism[own], level[own] = wanted.parallelism, wanted.memory_level
        words = ("",) * len(parallelism)
        self._jobs.apply(GuardedDecision.unchanged(ScalingDecision(parallelism, level, words)))
        self._age_s = float(self._ages[self._at])
        begin_s = int(self._ends_s[self._at - 1]) if self._at else 0
        outcome = self._jobs.advance(max(1, int(self._ends_s[self._at]) - begin_s))
        self._at += 1
        return Driven(outcome, seen.parallelism, seen.memory_level)

    def save(self) -> dict[str, object]:
        """Everything that its future depends on, to be compared.

        Returns:
            The simulation's arrays, and by policy its state and that of its guardrails.
        """
        states = {
            name: (one.policy.state(), None if one.guardrails is None else one.guardrails.state())
            for name, one in self.charges.items()
        }
        jobs = self._simulated.save()
        del jobs["rates"]  # those to come are not known; those gone by follow
        return {"jobs": jobs, "offered": self._told(), "policies": states}


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
    name = policy.name
    stretch = Stretch(spec, course, part, {name: Charge(policy, guardrails)}, window, seeds)
    slots = part.stop - part.start
    outcome = {field.name: np.empty((slots, seeds)) for field in fields(Outcome)}
    running = level = np.empty((0, 0, 0), np.int64)
    for k in range(slots):
        driven = stretch.step()
        if name in stretch.failures:
            raise stretch.failures[name]
        if not k:
            running, level = (np.empty((slots, *driven.parallelism.shape), np.int64) for _ in "pl")
        for key, values in outcome.items():
            values[k] = getattr(driven.outcome, key)
        running[k], level[k] = driven.parallelism, driven.memory_level
    return Predicted(outcome, running, level)


def settled_slots(course: ObservedRun, part: slice) -> int:
    """Counts the intervals of a stretch about which nothing more will be learnt.

    The load to the end of an interval is known from the samples of the next one, and the
    configuration that its decision led to when the job is up again.

    Returns:
        Intervals from the first on.
    """
    known_s = _counted(course, part.stop - 1)[-1, 0] - course.t_s[part.start]
    after = course.next_up()[_next_slots(course, part)]
    sure = (slot_ends_s(course, part) <= known_s) & course.up[after]
    sure[-1] = False
    return int(np.flatnonzero(~sure)[0])


def _next_slots(course: ObservedRun, part: slice) -> list[int]:
    last = len(course) - 1
    return [min(k + 1, last) for k in range(part.start, part.stop)]


def _started(
    specs: Sequence[JobSpec], course: ObservedRun, part: slice, window: WindowConfig, seeds: int
) -> SimulatedJobs:
    """The model where the stretch begins: as long up as the job was, with the backlog it had."""
    measurement = Measurement(window_s=window.window_s, stabilization_s=window.stabilization_s)
    if not course.simulated:
        measurement = measurement.model_copy(update={"counts_times": True})
    row = np.repeat(np.arange(len(specs)), seeds)
    jobs = SimulatedJobs(
        Topology.of(specs, row.tolist()), SimulationOptions(measurement=measurement)
    )
    columns, first = _columns(course, specs[0]), part.start
    up_s = _up_s(course, first)
    rates = arrival_rates(course, part, up_s)
    jobs.reset(
        np.tile(np.arange(seeds, dtype=np.int64), len(specs)),
        np.broadcast_to(rates, (len(row), len(rates))),
        parallelism=np.tile(course.parallelism[first, columns], (len(row), 1)),
        memory_level=np.tile(course.memory_level[first, columns], (len(row), 1)),
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
