"""The calibrated model of a job run forward from what was observed, on the observed load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dsp_gym.arrays import Floats, Ints
from dsp_gym.backends.simulated.jobs import SimulatedJobs
from dsp_gym.backends.simulated.measured import REMEMBERED_S, MeasuredJobs
from dsp_gym.control.modes import INCUMBENT
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
from dsp_gym.simulation.options import Measurement, SimulationOptions
from dsp_gym.simulation.state import X
from dsp_gym.whatif.history import JobHistory

WARM_UP_S = 300
"""Longest run of the model, s, in the first configuration before the stretch: caches and windows
fill."""


class IncumbentReplay:
    """The incumbent: decides the configuration observed next, if need be after an outage.

    Args:
        history: the observed job.
        part: the stretch to follow.
    """

    def __init__(self, history: JobHistory, part: slice) -> None:
        self.name = INCUMBENT
        self._at = 0
        self.follow(history, part)

    def follow(self, history: JobHistory, part: slice) -> None:
        """Take in a stretch that has grown; what was decided stays."""
        self._parallelism, self._level = history.wanted[part], history.wanted_level[part]
        self._outages_s = history.outage_s[part]

    @property
    def outage_s(self) -> float:
        """Duration of the rescale that the next decision asks for, s; NaN: not known."""
        return float(self._outages_s[self._at])

    def told(self, slots: int) -> tuple[Ints, Ints, Floats]:
        """What it follows in the first slots.

        Returns:
            Tasks and levels (K, V), and outages in s, (K,), NaN where they are not known.
        """
        return self._parallelism[:slots], self._level[:slots], self._outages_s[:slots]

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
    parallelism: Ints  # (J, V) as running when it began
    memory_level: Ints
    wanted: Mapping[str, GuardedDecision]  # by policy; those that no longer decide have none


class Stretch:
    """A stretch of the observed run, gone through by the model with every policy in charge.

    All jobs are one batch: those of policy i are the rows i*S to (i+1)*S, one per seed. A policy
    sees the metrics of its own jobs, not the observed ones: after its first different decision the
    observed job is another one. Rows depend on nothing but their own policy and seed, so that a
    policy alone gives what it gives beside others.

    Args:
        history: the observed job, with its model.
        part: a stretch without gaps, see `JobHistory.stretches`.
        charges: the policies in charge, by name.
        seeds: jobs of each policy, each with other service times, outages and noise.
    """

    def __init__(
        self,
        history: JobHistory,
        part: slice,
        charges: Mapping[str, Charge],
        seeds: int,
    ) -> None:
        self.charges, self.seeds = dict(charges), seeds
        self.failures: dict[str, DspGymError] = {}
        """Why a policy no longer decides: its jobs keep their configuration from then on."""
        spec = history.spec
        self._before_s = _up_s(history, part.start)
        copies = [spec] * len(charges)  # each with its own outages
        self._simulated = _started(copies, history, part, seeds)
        self._age_s = 0.0
        self._measured: MeasuredJobs | None = None
        if not history.simulated:
            self._measured = MeasuredJobs(
                self._simulated,
                ages_s=iter(lambda: self._age_s, None),
                has_latency=history.tells_latency,
                down_share=history.down_share,
                # Outages known from scrapes are too long already: with a memory of the sinks, the
                # late share of six runs was off by 3.1 points in place of 2.3.
                remembers_s=REMEMBERED_S if history.arrivals else 1,
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
        self._take(history, part)

    @property
    def done(self) -> int:
        """Intervals that were gone through."""
        return self._at

    def follow(self, history: JobHistory, part: slice) -> bool:
        """Take in a stretch that has grown.

        Returns:
            False: what was gone through was something else, so it must be gone through again.
        """
        before = self._told()
        self._take(history, part)
        for charge in self.charges.values():
            if isinstance(charge.policy, IncumbentReplay):
                charge.policy.follow(history, part)
        return all(
            np.array_equal(was, now, equal_nan=True)
            for was, now in zip(before, self._told(), strict=True)
        )

    def _take(self, history: JobHistory, part: slice) -> None:
        self._ends_s, self._ages = slot_ends_s(history, part), history.age_s[part]
        self._jobs.offer(arrival_rates(history, part, self._before_s))

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
        decided: dict[str, GuardedDecision] = {}
        for place, (name, charge) in enumerate(self.charges.items()):
            if name in self.failures:
                continue
            own = self.rows[name]
            if isinstance(charge.policy, IncumbentReplay) and self._measured is not None:
                self._measured.take(self._outage_s(charge.policy, own), place)
            part = seen if len(self.charges) == 1 else seen.take(own, self._topologies[name])
            try:
                wanted = take_turn(part, charge.policy.decide, charge.guardrails)
            except DspGymError as error:
                self.failures[name] = error
                continue
            parallelism[own], level[own] = wanted.parallelism, wanted.memory_level
            decided[name] = wanted
        words = ("",) * len(parallelism)
        self._jobs.apply(GuardedDecision.unchanged(ScalingDecision(parallelism, level, words)))
        self._age_s = float(self._ages[self._at])
        begin_s = int(self._ends_s[self._at - 1]) if self._at else 0
        outcome = self._jobs.advance(max(1, int(self._ends_s[self._at]) - begin_s))
        self._at += 1
        return Driven(outcome, seen.parallelism, seen.memory_level, decided)

    def _outage_s(self, policy: IncumbentReplay, rows: Ints) -> float | None:
        """What the observed rescale took beside the restore that the model adds; None: unknown."""
        if np.isnan(policy.outage_s):
            return None
        tables, state = self._simulated.topology.tables, self._simulated.state
        k = self._simulated.topology.row[rows[0]]
        restored_mib = float(state.vertex[rows, :, X.state].sum(axis=1).mean())
        return max(0.0, policy.outage_s - restored_mib / float(tables.restore_mib_s[k]))

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


def settled_slots(history: JobHistory, part: slice) -> int:
    """Count the intervals of a stretch about which nothing more will be learnt.

    The load to the end of an interval is known from the samples of the next one, and the
    configuration that its decision led to when the job is up again.

    Returns:
        Intervals from the first on.
    """
    known_s = _counted(history, part.stop - 1)[-1, 0] - history.t_s[part.start]
    sure = (slot_ends_s(history, part) <= known_s) & history.settled[part]
    sure[-1] = False
    return int(np.flatnonzero(~sure)[0])


def _started(
    specs: Sequence[JobSpec], history: JobHistory, part: slice, seeds: int
) -> SimulatedJobs:
    """The model where the stretch begins: as long up as the job was, with the backlog it had."""
    window = history.window
    measurement = Measurement(window_s=window.window_s, stabilization_s=window.stabilization_s)
    if not history.simulated:
        measurement = measurement.model_copy(update={"counts_times": True})
    row = np.repeat(np.arange(len(specs)), seeds)
    jobs = SimulatedJobs(
        Topology.of(specs, row.tolist()), SimulationOptions(measurement=measurement, threads=1)
    )
    first = part.start
    up_s = _up_s(history, first)
    rates = arrival_rates(history, part, up_s)
    jobs.reset(
        np.tile(np.arange(seeds, dtype=np.int64), len(specs)),
        np.broadcast_to(rates, (len(row), len(rates))),
        parallelism=np.tile(history.parallelism[first], (len(row), 1)),
        memory_level=np.tile(history.memory_level[first], (len(row), 1)),
    )
    pending, age_s = history.pending[first], _age_s(history, first, up_s)
    _owe(jobs, pending)  # the backlog kept the job as busy before
    jobs.advance(up_s - age_s)
    _owe(jobs, pending)
    jobs.advance(age_s)
    return jobs


def _up_s(history: JobHistory, first: int) -> int:
    """Whole seconds the job had been up, as far as it matters: caches and windows fill."""
    up_s = history.t_s[first] - history.running_since_s[first]
    return WARM_UP_S if np.isnan(up_s) else int(np.clip(round(up_s), 0, WARM_UP_S))


def _age_s(history: JobHistory, first: int, up_s: int) -> int:
    """Whole seconds since the backlog was sampled that the first decision saw."""
    return min(up_s, round(float(history.age_s[max(0, first - 1)])))


def arrival_rates(history: JobHistory, part: slice, before_s: int) -> Floats:
    """Reconstruct the offered load from `before_s` seconds before a stretch to its end.

    Arrivals are known from sample to sample; in an older journal from the newest sample at the
    begin of an interval to the one at its end.

    Returns:
        Records/s of each second.
    """
    ends = slot_ends_s(history, part)
    points = [_counted(history, k) for k in range(part.start, part.stop)]
    when = np.concatenate([found[1:, 0] for found in points]) - history.t_s[part.start]
    risen = np.concatenate([np.diff(found[:, 1]) for found in points])
    begin = points[0][0, 0] - history.t_s[part.start]
    edges = np.concatenate([[begin], when])
    kept = np.append(True, np.diff(np.maximum.accumulate(edges)) > 0)  # samples reported twice
    edges, risen = edges[kept], risen[kept[1:]]
    per_s = risen / np.diff(edges)
    # Before and after, the load stays as in the first and the last interval.
    soon = int(np.searchsorted(edges, edges[0] + history.interval_s))
    early = float(np.average(per_s[:soon], weights=np.diff(edges)[:soon]))
    edges = np.concatenate([[min(edges[0], 0.0) - before_s - 1.0], edges, [ends[-1] + 60.0]])
    per_s = np.concatenate([[early], per_s, per_s[-1:]])
    arrived = np.concatenate([[0.0], np.cumsum(per_s * np.diff(edges))])
    return np.diff(np.interp(np.arange(-before_s, ends[-1] + 1), edges, arrived))


def slot_ends_s(history: JobHistory, part: slice) -> Ints:
    """The end of each interval of a stretch, whole seconds after its first decision, (K,).

    Returns:
        (K,) seconds that never fall; the run's last interval ends after its recorded length.
    """
    first, last = history.t_s[part.start], part.stop - 1
    ends = history.t_s[part.start + 1 : part.stop + 1] - first
    if part.stop == len(history):
        ends = np.append(ends, history.t_s[last] + history.seconds[last] - first)
    return np.maximum.accumulate(np.round(ends).astype(np.int64))


def _counted(history: JobHistory, k: int) -> Floats:
    """Times and the records that had arrived by then, of one interval, (N, 2)."""
    if history.arrivals and len(history.arrivals[k]) > 1:
        return history.arrivals[k]
    seconds, age_s = history.seconds[k], history.age_s[k]
    begin = history.t_s[k] - history.age_s[max(0, k - 1)]
    end = max(history.t_s[k] + seconds - age_s, begin + 1.0)
    return np.array([[begin, 0.0], [end, history.arrived[k]]])


def _owe(jobs: SimulatedJobs, pending: Floats) -> None:
    """Give sources the observed backlog; an unknown one stays as the model has it."""
    tables, row = jobs.topology.tables, jobs.topology.row
    for v in np.flatnonzero(tables.kind[row[0]] == SOURCE):
        if np.isfinite(pending[v]):
            jobs.state.vertex[:, v, X.pending] = pending[v]
