"""ContTune's Big and Small phases on DS2's scaling manager."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from pydantic import Field

from baselines import ds2, reasons
from baselines.conttune.gaussian_process import fit_length, mean_at, weigh
from baselines.ds2 import Ds2, Ds2Config, Ds2Rules, manage, plan_anew
from dsp_gym.arrays import Bools, Floats, Ints
from dsp_gym.compiling import njit
from dsp_gym.config.model import ConfigModel
from dsp_gym.loop.backlog import backlog_of
from dsp_gym.loop.decision import ScalingDecision
from dsp_gym.loop.lacking import needs
from dsp_gym.loop.per_job_state import Kept, Parts, RowMemory
from dsp_gym.loop.protocols import Mask
from dsp_gym.loop.rates import RATES, Ds2Rates, room_for_rates
from dsp_gym.loop.snapshot import JOB, RUNNING, VERTEX, MetricsSnapshot, SnapshotArrays
from dsp_gym.loop.topology import JobFacts, Topology
from dsp_gym.numba_handles import Handle, direct
from dsp_gym.policies.capabilities import ExplainingPolicy

OBSERVED = 20
"""Parallelisms of a vertex whose ability is remembered; the one seen longest ago gives way."""

AVERAGED = 5
"""Observations of one parallelism whose mean counts: their table holds up to five."""

ROUND_OFF = 1e-9
"""Part of a task that is arithmetic, not demand: 3.0000000001 tasks are three."""

BY_DS2, BY_PROCESS, BIG = range(3)
"""The origin of a vertex' parallelism."""

NEEDS = needs(("records_in_per_s", "busy_ms_per_s", "backpressured_ms_per_s"))
"""The metrics that a decision on a vertex needs."""


class ContTuneConfig(ConfigModel):
    """Parameters of both phases, and the DS2 that answers where the process knows too little."""

    ds2: Ds2Config = Field(
        default_factory=Ds2Config,
        description="the DS2 inside: its trigger, its demand, and its parallelism as conservative "
        "exploration",
    )
    alpha: float = Field(
        1.0,
        ge=0,
        description="distance to the nearest observed parallelism up to which the process is "
        "trusted, tasks (the code has no value; its example trusts one task for any from 1 on)",
    )
    length: float = Field(
        4.37,
        gt=0,
        description="tasks over which the process is correlated, before there are three "
        "observations to fit it to (the published start)",
    )
    fit_length: bool = Field(
        True, description="the marginal likelihood chooses the length; false: it stays"
    )
    backpressure_ms_per_s: float = Field(
        500.0,
        ge=0,
        lt=1000,
        description="time under backpressure above which a vertex counts as backpressured "
        "(assumption: what Flink's web UI calls high)",
    )
    big_factor: float = Field(
        2.0,
        gt=1,
        description="growth of all vertices in one step of the Big phase (assumption; the code "
        "leaves the phase out)",
    )


class ContTuneRules(NamedTuple):
    """`ContTuneConfig` as compiled code takes it."""

    ds2: Ds2Rules
    alpha: float
    length: float
    fits: bool
    backpressure_ms_per_s: float
    big_factor: float


class Abilities(NamedTuple):
    """Observed processing abilities of every vertex, (J, V, OBSERVED) each but the last."""

    tasks: Ints  # 0: free
    ability: Floats  # records/s of all tasks, mean
    averaged: Ints  # observations in the mean, at most AVERAGED
    at_s: Floats  # time of the last one
    length: Floats  # (J, V) tasks over which the process is correlated


class Answers(NamedTuple):
    """Where the parallelism of a vertex comes from, (J, V) each."""

    origin: Ints  # BY_DS2, BY_PROCESS, BIG
    ability: Floats  # records/s that the process expects


class ContTune(Kept, ExplainingPolicy):
    """ContTune (Lian et al., VLDB 2023): Big until nothing is backpressured, then Small by a GP."""

    Config = ContTuneConfig

    def __init__(self, config: ContTuneConfig | None = None) -> None:
        self.name = "conttune"
        self.config = c = config or ContTuneConfig()
        self._ds2 = Ds2(c.ds2, NEEDS)
        self._rules = ContTuneRules(
            self._ds2.rules,
            c.alpha,
            c.length,
            c.fit_length,
            c.backpressure_ms_per_s,
            c.big_factor,
        )
        self._abilities = RowMemory(
            {
                "tasks": ("vertex", 0),
                "ability": ("vertex", 0.0),
                "averaged": ("vertex", 0),
                "at_s": ("vertex", -1e18),
                "length": ("vertex", c.length),
            },
            depth=dict.fromkeys(("tasks", "ability", "averaged", "at_s"), OBSERVED),
        )
        self._kept = Parts(ds2=self._ds2, abilities=self._abilities)

    def reset(self, jobs: Topology, seeds: Ints, mask: Mask | None = None) -> None:
        self._ds2.reset(jobs, seeds, mask)
        self._abilities.reset(jobs, mask)

    def decide(self, snapshot: MetricsSnapshot) -> ScalingDecision:
        reported = snapshot.arrays
        snapshot = self._ds2.last_known.filled(snapshot)
        rates, known = room_for_rates(snapshot, self.config.ds2.source_rate)
        shape = snapshot.parallelism.shape
        wanted = np.empty(shape, np.int64)
        due, evaluated = np.zeros(shape[0], np.bool_), np.zeros(shape[0], np.bool_)
        answers = Answers(np.zeros(shape, np.int64), np.full(shape, np.nan))
        facts, abilities = snapshot.topology.handle, self._abilities.handle(Abilities)
        seen, rules = snapshot.arrays, self._rules
        _plan(facts, reported, seen, rates.block, known, rules, abilities, wanted, answers)
        _manage(facts, seen, rules.ds2, self._ds2.memory, wanted, due, evaluated)
        if self.config.ds2.roll_back:
            self._ds2.roll_back(snapshot, wanted, due, evaluated)
        why = self._why(snapshot, rates, answers) if self.explain else None
        return reasons.decision(snapshot, wanted, snapshot.memory_level, why)

    def _why(self, snapshot: MetricsSnapshot, rates: Ds2Rates, answers: Answers) -> reasons.Why:
        by_rate = self._ds2.why(rates)

        def reason(job: int, v: int) -> str:
            if answers.origin[job, v] == BIG:
                longest = np.nanmax(snapshot.backpressured_ms_per_s[job])
                return f"Big: a vertex is backpressured {longest:.0f} ms/s"
            if answers.origin[job, v] == BY_PROCESS:
                demand = reasons.amount(rates.demand[job, v])
                ability = reasons.amount(answers.ability[job, v])
                return f"demand {demand}/s, by observations these tasks process {ability}/s"
            return by_rate(job, v)

        return reason


@njit(cache=True, nogil=True, borrows=True)
def is_backpressured(t: JobFacts, seen: SnapshotArrays, j: int, bound_ms_per_s: float) -> bool:
    """Return whether a vertex of job j waits for its output for longer than a bound."""
    found = False
    for v in range(t.n[t.row[j]]):
        found = found or seen.vertex[VERTEX.backpressured_ms_per_s, j, v] > bound_ms_per_s
    return found


@njit(cache=True, nogil=True, borrows=True)
def catches_up(t: JobFacts, seen: SnapshotArrays, j: int) -> bool:
    """Return whether job j works off a backlog: then some vertex is the limit whatever it has."""
    waiting, _, growing = backlog_of(t, seen, j)
    return waiting > 0.0 and growing < 0.0


@njit(cache=True, nogil=True, borrows=True)
def keep_ability(
    kept: Abilities, at: tuple[int, int], now: float, tasks: int, ability: float
) -> bool:
    """Remember what a parallelism processes: the mean of the last observations of it.

    Args:
        kept: Abilities, changed in place.
        at: Row of the job and column of the vertex.
        now: Time, s.
        tasks: Running parallelism.
        ability: Records/s that all tasks would process without idle time.

    Returns:
        Whether this parallelism was not remembered before.
    """
    j, v = at
    place, oldest = -1, 0
    for i in range(kept.tasks.shape[2]):
        if kept.tasks[j, v, i] == tasks:
            place = i
        if kept.at_s[j, v, i] < kept.at_s[j, v, oldest]:
            oldest = i
    is_new = place < 0
    if is_new:
        place = oldest
        kept.tasks[j, v, place], kept.ability[j, v, place] = tasks, 0.0
        kept.averaged[j, v, place] = 0
    kept.averaged[j, v, place] = min(kept.averaged[j, v, place] + 1, AVERAGED)
    off = ability - kept.ability[j, v, place]
    kept.ability[j, v, place] += off / kept.averaged[j, v, place]
    kept.at_s[j, v, place] = now
    return is_new


@njit(cache=True, nogil=True)
def observations(kept: Abilities, of: tuple[int, int]) -> tuple[Floats, Floats]:
    """Copy what was observed of one vertex.

    Returns:
        Parallelisms and the records/s that each processes, (n,) both.
    """
    j, v = of
    n = 0
    for tasks in kept.tasks[j, v]:
        n += tasks > 0
    # Places are taken from the first on, and never given up.
    at, ability = np.empty(n), np.empty(n)
    for i in range(n):
        at[i], ability[i] = kept.tasks[j, v, i], kept.ability[j, v, i]
    return at, ability


@njit(cache=True, nogil=True)
def _observe(
    t: JobFacts, reported: SnapshotArrays, c: ContTuneRules, kept: Abilities, j: int
) -> None:
    """Observe every vertex v of job j, which runs without backpressure.

    The length is fitted again when a parallelism is observed for the first time: it takes as long
    as twenty decisions.
    """
    for v in range(t.n[t.row[j]]):
        busy = reported.vertex[VERTEX.busy_ms_per_s, j, v] / 1000.0
        arriving, tasks = reported.vertex[VERTEX.records_in_per_s, j, v], reported.parallelism[j, v]
        if busy > 0.0 and arriving > 0.0 and tasks > 0:
            is_new = keep_ability(kept, (j, v), reported.job[JOB.t_s, j], tasks, arriving / busy)
            if is_new and c.fits:
                at, ability = observations(kept, (j, v))
                kept.length[j, v] = fit_length(at, ability, c.length)


@njit(cache=True, nogil=True)
def smallest(
    demand: float,
    kept: Abilities,
    of: tuple[int, int],
    bounds: tuple[int, int],
    c: ContTuneRules,
) -> tuple[int, float]:
    """Find the smallest parallelism whose expected ability covers the demand.

    Args:
        demand: Records/s.
        kept: Observed abilities.
        of: Row of the job and column of the vertex.
        bounds: Lowest and highest parallelism.
        c: The rules.

    Returns:
        Tasks, and the expected ability; 0 tasks where nothing was observed, none covers the demand,
        or the first that does is farther than alpha from all observed ones.
    """
    at, ability = observations(kept, of)
    if at.shape[0] == 0:
        return 0, np.nan
    length = kept.length[of[0], of[1]]
    weights, likelihood = weigh(at, ability, length)
    if np.isinf(likelihood):
        return 0, np.nan
    for tasks in range(bounds[0], bounds[1] + 1):
        mean = mean_at(tasks, at, weights, length)
        if mean >= demand:
            nearest = np.inf
            for one in at:
                nearest = min(nearest, abs(one - tasks))
            return (tasks, mean) if nearest <= c.alpha else (0, mean)
    return 0, np.nan


@direct
@njit(cache=True, nogil=True)
def _plan(
    facts: Handle[JobFacts],
    reported: SnapshotArrays,
    seen: SnapshotArrays,
    rates: Floats,
    known: bool,
    c: ContTuneRules,
    memory: Handle[Abilities],
    wanted: Ints,
    answers: Answers,
) -> None:
    """Plan the parallelism of vertices v of jobs j: Big under backpressure, else Small.

    Args:
        facts: The jobs.
        reported: The snapshot as it came: what is filled in is no observation.
        seen: The snapshot with last known values.
        rates: Rates of DS2's model, computed here where they are not known.
        known: Whether they are.
        c: The rules.
        memory: Abilities, changed in place.
        wanted: (J, V) filled with the plan.
        answers: Filled with where it comes from.
    """
    t, kept = facts.arrays, memory.arrays
    plan_anew(t, seen, rates, known, c.ds2, wanted)
    is_full = seen.job[JOB.window_fill] >= c.ds2.triggers.min_fill - ROUND_OFF
    for j in range(wanted.shape[0]):
        k, waits = t.row[j], is_backpressured(t, seen, j, c.backpressure_ms_per_s)
        is_big = waits and not catches_up(t, seen, j)
        if seen.status[j] == RUNNING and is_full[j] and not waits:
            _observe(t, reported, c, kept, j)
        for v in range(t.n[k]):
            low = t.min_parallelism[k, v]
            high = min(t.max_parallelism[k, v], c.ds2.sizing.cap)
            if low >= high:
                continue
            if is_big:
                raised = int(np.ceil(seen.parallelism[j, v] * c.big_factor - ROUND_OFF))
                wanted[j, v], answers.origin[j, v] = min(max(raised, low), high), BIG
                continue
            demand = rates[RATES.demand, j, v] * c.ds2.sizing.headroom
            if not demand > 0.0:
                continue
            tasks, ability = smallest(demand, kept, (j, v), (low, high), c)
            if tasks > 0:
                wanted[j, v], answers.origin[j, v] = tasks, BY_PROCESS
                answers.ability[j, v] = ability


@direct
@njit(cache=True, nogil=True)
def _manage(
    facts: Handle[JobFacts],
    seen: SnapshotArrays,
    c: Ds2Rules,
    memory: Handle[ds2.Remembered],
    wanted: Ints,
    due: Bools,
    evaluated: Bools,
) -> None:
    """Have DS2's scaling manager decide when to act on the plan."""
    manage(facts.arrays, seen, c.triggers, memory.arrays, wanted, due, evaluated)
