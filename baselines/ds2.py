"""DS2: scale every vertex at once from true rates.

Kalavri et al., "Three steps is all you need: fast, accurate, automatic scaling decisions for
distributed streaming dataflows", OSDI 2018. The model is `dsp_gym.loop.rates`; here is the scaling
manager of its section 4.2, with the additions of Flink's autoscaler.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal, NamedTuple

import numpy as np
from pydantic import Field, model_validator

from baselines import reasons
from dsp_gym.arrays import Bools, Floats, Ints
from dsp_gym.compiling import njit
from dsp_gym.config.model import ConfigModel
from dsp_gym.job.tables import SOURCE
from dsp_gym.loop.decision import ScalingDecision
from dsp_gym.loop.due import is_due
from dsp_gym.loop.lacking import DEMANDED, Needs
from dsp_gym.loop.per_job_state import Kept, Parts, RowMemory
from dsp_gym.loop.protocols import Mask
from dsp_gym.loop.rates import RATES, Ds2Rates, SourceRate, room_for_rates, traverse
from dsp_gym.loop.snapshot import JOB, RUNNING, VERTEX, MetricsSnapshot, SnapshotArrays
from dsp_gym.loop.topology import JobFacts, Topology
from dsp_gym.loop.unknown import LastKnown
from dsp_gym.numba_handles import Handle, direct
from dsp_gym.policies.capabilities import Capabilities, ExplainingPolicy, Requirement

ROUND_OFF = 1e-9
"""Part of a task that is arithmetic, not demand: 3.0000000001 tasks are three."""

_BOUNDLESS = 1e15
"""Tasks beyond every bound: an unbounded demand would overflow an integer."""


class Ds2Config(ConfigModel):
    """Parameters of DS2's scaling manager; the defaults are those of its public controller."""

    interval_s: float = Field(60.0, gt=0, description="policy interval, s (Heron runs: 60)")
    warm_up_s: float = Field(
        0.0, ge=0, description="seconds after a (re)start that are ignored (Flink runs: 30)"
    )
    min_window_fill: float = Field(
        1.0, ge=0, le=1, description="share of the metrics window that must be covered to decide"
    )
    activation: int = Field(
        1, ge=1, description="consecutive evaluations that want a change before one is applied"
    )
    activation_rule: Literal["evaluations", "unchanged"] = Field(
        "evaluations",
        description="evaluations: any consecutive ones count and the latest decision is applied, "
        "as in the public controller; unchanged: they must agree (the paper's section 5.4)",
    )
    source_rate: SourceRate = Field(
        "offered", description="offered: output plus growth of the backlog; observed: output only"
    )
    target_rate_ratio: float | None = Field(
        None,
        ge=1,
        description="target over achieved source rate above which demand is corrected by that "
        "ratio when no vertex scales up (paper: 1.0); none: off, as in the public controller",
    )
    scaling_factor: float = Field(0.0, ge=0, description="over-provisioning, share of the demand")
    target_utilization: float = Field(
        1.0, gt=0, le=1, description="busy share to aim at; 1 is DS2, 0.7 Flink's autoscaler"
    )
    utilization_band: tuple[float, float] | None = Field(
        None,
        description="act only when a vertex that can be scaled is busy below or above this "
        "share of the time; then all vertices are renewed, as in Flink's autoscaler; none: off",
    )
    keep_inside_band: bool = Field(
        False, description="vertices inside the band keep their parallelism when others are renewed"
    )
    restart_s: float = Field(
        0.0, ge=0, description="restart time to make up for within catch_up_s, s; 0: no head-room"
    )
    catch_up_s: float = Field(1800.0, gt=0, description="time to catch up, s (Flink's default)")
    min_up: int = Field(1, ge=1, description="smallest rise of a vertex that is worth a rescale")
    min_down: int = Field(
        2, ge=1, description="smallest fall worth a rescale; one task less may be noise (paper 4.2)"
    )
    max_parallelism: int | None = Field(
        None, ge=1, description="upper bound on top of the job's own; none: the job's"
    )
    roll_back: bool = Field(
        False, description="return to the previous configuration when the achieved rate fell"
    )
    roll_back_loss: float = Field(
        0.05, gt=0, lt=1, description="share of the achieved rate lost that calls for a roll-back"
    )

    @model_validator(mode="after")
    def _band_holds_target(self) -> Ds2Config:
        band = self.utilization_band
        if band is not None and not 0 <= band[0] <= self.target_utilization <= band[1] <= 1:
            raise ValueError("utilization_band must be (low, high) around target_utilization")
        if self.keep_inside_band and band is None:
            raise ValueError("keep_inside_band needs a utilization_band")
        return self

    @property
    def headroom(self) -> float:
        """Capacity requested over demand: Flink's target/u + target * restart / catch_up.

        The question of `work_off_s` turned round: the spare for a given time.
        """
        share = 1 / self.target_utilization + self.restart_s / self.catch_up_s
        return (1 + self.scaling_factor) * share


class Sizing(NamedTuple):
    """The way from demand to parallelism, as compiled code takes it."""

    headroom: float  # capacity requested over demand
    ratio_bound: float  # target over achieved rate above which demand is corrected; infinity: never
    cap: int  # upper bound on top of the job's


class Triggers(NamedTuple):
    """Conditions for applying a plan, as compiled code takes them."""

    interval_s: float
    warm_up_s: float
    min_fill: float  # share of the metrics window
    activation: int  # evaluations
    unchanged: bool  # the evaluations must agree
    banded: bool
    band_low: float  # busy share
    band_high: float
    keep_inside: bool
    min_up: int
    min_down: int

    @classmethod
    def of(cls, c: Ds2Config) -> Triggers:
        """Read the triggers of a configuration.

        Returns:
            The triggers; without a configured band, one that no share leaves.
        """
        low, high = c.utilization_band or (-1.0, 2.0)
        return cls(
            c.interval_s,
            c.warm_up_s,
            c.min_window_fill,
            c.activation,
            c.activation_rule == "unchanged",
            c.utilization_band is not None,
            low,
            high,
            c.keep_inside_band,
            c.min_up,
            c.min_down,
        )


class Ds2Rules(NamedTuple):
    """`Ds2Config` as compiled code takes it."""

    offered: bool  # sources count with their offered rate
    sizing: Sizing
    triggers: Triggers

    @classmethod
    def of(cls, c: Ds2Config) -> Ds2Rules:
        """Read a configuration.

        Returns:
            Numbers for compiled code; infinity and the largest integer where there is no bound.
        """
        ratio_bound = np.inf if c.target_rate_ratio is None else c.target_rate_ratio
        cap = c.max_parallelism or int(np.iinfo(np.int64).max)
        sizing = Sizing(c.headroom, ratio_bound, cap)
        return cls(c.source_rate == "offered", sizing, Triggers.of(c))


class Remembered(NamedTuple):
    """Memory of the scaling manager."""

    evaluated_s: Floats  # (J,) time of the last evaluation
    wanting: Ints  # (J,) consecutive evaluations that want a change
    wanted: Ints  # (J, V) parallelism wanted by the last of them
    # Only for the roll-back: observed configurations and their achieved rates.
    current: Ints  # (J, V)
    previous: Ints  # (J, V)
    refused: Ints  # (J, V)
    achieved: Floats  # (J,) share of the target rate, or records/s
    achieved_before: Floats  # (J,)


class Ds2(Kept, ExplainingPolicy):
    """DS2 (Kalavri et al., OSDI 2018): every vertex to the parallelism its true rate asks for."""

    Config = Ds2Config

    def __init__(self, config: Ds2Config | None = None, asked: Needs = DEMANDED) -> None:
        self.name = "ds2"
        self.config = c = config or Ds2Config()
        self.rules = Ds2Rules.of(c)
        self._memory = RowMemory(
            {
                "evaluated_s": ("job", -1e18),
                "wanting": ("job", 0),
                "wanted": ("vertex", -1),
                "current": ("vertex", -1),
                "previous": ("vertex", -1),
                "refused": ("vertex", -1),
                "achieved": ("job", np.nan),
                "achieved_before": ("job", np.nan),
            }
        )
        self.last_known = LastKnown(asked)
        self._kept = Parts(manager=self._memory, last_known=self.last_known)

    def reset(self, jobs: Topology, seeds: Ints, mask: Mask | None = None) -> None:
        self._memory.reset(jobs, mask)
        self.last_known.reset(jobs, mask)

    def capabilities(self) -> Capabilities:
        return replace(super().capabilities(), memories=self.memories, capacity=self)

    def memories(self) -> tuple[RowMemory, ...]:
        return (self._memory, *self.last_known.memories())

    def observe(self, snapshot: MetricsSnapshot) -> None:
        """Do nothing: the model needs no history."""

    def required(self, snapshot: MetricsSnapshot) -> Requirement:
        _, parallelism = self.planned(snapshot)
        return Requirement(parallelism, snapshot.memory_level, parallelism)

    def decide(self, snapshot: MetricsSnapshot) -> ScalingDecision:
        snapshot = self.last_known.filled(snapshot)
        parallelism, _, rates = self.trigger(snapshot)
        return reasons.decision(
            snapshot, parallelism, snapshot.memory_level, self.why(rates) if self.explain else None
        )

    def why(self, rates: Ds2Rates) -> reasons.Why:
        """Explain a change of parallelism.

        Returns:
            A function of a job's row and a vertex' column.
        """

        def reason(job: int, v: int) -> str:
            demand, rate = rates.demand[job, v], rates.true_rate_per_task[job, v]
            return f"demand {reasons.amount(demand)}/s, true rate {reasons.amount(rate)}/s per task"

        return reason

    def trigger(self, snapshot: MetricsSnapshot) -> tuple[Ints, Bools, Ds2Rates]:
        """Take a step of the scaling manager.

        Returns:
            Parallelism to run, (J, V); where a rescale is due now, (J,); and the rates behind it.
        """
        rates, known = room_for_rates(snapshot, self.config.source_rate)
        seen, facts = snapshot.arrays, snapshot.topology.handle
        wanted = np.empty_like(seen.parallelism)
        due, evaluated = np.zeros(len(wanted), np.bool_), np.zeros(len(wanted), np.bool_)
        memory = self.memory
        _step(facts, seen, rates.block, known, self.rules, memory, wanted, due, evaluated)
        if self.config.roll_back:
            self.roll_back(snapshot, wanted, due, evaluated)
        return wanted, due, rates

    def planned(self, snapshot: MetricsSnapshot) -> tuple[Ds2Rates, Ints]:
        """Plan the parallelism of every vertex: equation 7 with head-room.

        Returns:
            The rates, and the parallelism, rounded up, inside the bounds, (J, V).
        """
        rates, known = room_for_rates(snapshot, self.config.source_rate)
        planned = np.empty_like(snapshot.arrays.parallelism)
        _plan(snapshot.topology.facts, snapshot.arrays, rates.block, known, self.rules, planned)
        return rates, planned

    @property
    def memory(self) -> Handle[Remembered]:
        """The scaling manager's memory, for compiled code."""
        return self._memory.handle(Remembered)

    def roll_back(
        self, snapshot: MetricsSnapshot, wanted: Ints, due: Bools, evaluated: Bools
    ) -> None:
        """Roll back if performance degrades after a scaling action (section 4.2).

        Args:
            snapshot: The metrics.
            wanted: (J, V) parallelism of the scaling manager, changed in place.
            due: (J,) where a rescale is due, changed in place.
            evaluated: (J,) where the interval has passed.
        """
        m = self._memory.arrays(Remembered)
        running, mask = snapshot.parallelism, snapshot.topology.mask
        known = snapshot.running
        # A rescale shows as another running parallelism: what it achieves is compared with before.
        moved = known & np.any(m.current != running, axis=1)
        m.previous[moved] = m.current[moved]
        m.current[moved] = running[moved]
        m.achieved_before[moved] = m.achieved[moved]
        m.achieved[moved] = np.nan
        achieved = achieved_share(snapshot, self.config.source_rate)
        seen = evaluated & ~np.isnan(achieved)
        m.achieved[seen] = achieved[seen]
        lost = seen & (m.achieved < (1 - self.config.roll_back_loss) * m.achieved_before)
        lost &= np.all(m.previous >= 0, axis=1)
        m.refused[lost] = running[lost]
        wanted[lost] = m.previous[lost]
        due[lost] = True
        # The configuration that lost is refused once more demand would lead there again.
        again = ~lost & due & np.all((wanted == m.refused) | ~mask, axis=1)
        wanted[again] = running[again]
        due[again] = False


def achieved_share(snapshot: MetricsSnapshot, source_rate: SourceRate) -> Floats:
    """Compare the achieved rate of the sources with their target.

    Returns:
        (J,) share of the target, 0..1; records/s where the rate is observed, without a target.
    """
    source = snapshot.topology.mask & (
        snapshot.topology.tables.kind[snapshot.topology.row] == SOURCE
    )
    achieved = np.where(source, snapshot.records_in_per_s, 0.0).sum(axis=1)
    if source_rate == "observed":
        return np.asarray(achieved)
    growth = np.where(source, np.nan_to_num(snapshot.pending_growth_per_s), 0.0).sum(axis=1)
    target = np.maximum(achieved + growth, ROUND_OFF)
    return np.asarray(np.minimum(1.0, achieved / target))


@njit(cache=True, nogil=True, borrows=True)
def plan(
    t: JobFacts,
    seen: SnapshotArrays,
    rates: Floats,
    c: Sizing,
    planned: Ints,
) -> None:
    """Plan by equation 7 with head-room, rounded up, inside the bounds, (J, V).

    j is a job's row, k its job file, v a vertex, p its running parallelism.
    """
    records_in = seen.vertex[VERTEX.records_in_per_s]
    jobs, vertices = planned.shape
    for j in range(jobs):
        k = t.row[j]
        ratio, rises = 0.0, False
        for again in range(2):
            factor = c.headroom * ratio if again == 1 else c.headroom
            for v in range(vertices):
                p, low, high = (
                    seen.parallelism[j, v],
                    t.min_parallelism[k, v],
                    t.max_parallelism[k, v],
                )
                planned[j, v] = p
                if t.kind[k, v] < 0 or low == high or np.isnan(rates[RATES.optimal, j, v]):
                    continue
                exact = rates[RATES.optimal, j, v] * factor - ROUND_OFF
                tasks = float(math.ceil(min(exact, _BOUNDLESS)))
                upper = min(high, c.cap)
                planned[j, v] = int(min(max(tasks, float(low)), float(upper)))
                rises = rises or planned[j, v] > p
            if again == 1 or rises:
                break
            # No vertex scales up, yet a source does not reach its target: the ratio of the two
            # makes up for overheads that instrumentation misses (section 4.2, target rate ratio).
            for v in range(vertices):
                if t.kind[k, v] == SOURCE and records_in[j, v] > 0.0:
                    ratio = max(ratio, rates[RATES.demand, j, v] / records_in[j, v])
            if not ratio > c.ratio_bound:
                break


@njit(cache=True, nogil=True, borrows=True)
def _weigh(
    t: JobFacts, seen: SnapshotArrays, c: Triggers, m: Remembered, wanted: Ints, j: int
) -> tuple[bool, bool]:
    """Return whether the plan of row j is worth a rescale and whether it is unchanged; keep it.

    Vertices inside the band stay as they run where the options say so. k is the row's job file, v a
    vertex; `wanted` (J, V) is the plan, changed in place, and `m.wanted` the one before.
    """
    k, running, busy = t.row[j], seen.parallelism, seen.vertex[VERTEX.busy_ms_per_s]
    outside, worth, same = not c.banded, False, True
    for v in range(running.shape[1]):
        if t.min_parallelism[k, v] == t.max_parallelism[k, v]:
            continue
        share = busy[j, v] / 1000.0
        inside = c.band_low <= share <= c.band_high
        if c.keep_inside and inside:
            wanted[j, v] = running[j, v]
        change = wanted[j, v] - running[j, v]
        # An idle vertex that cannot shrink asks for no rescale, as in Flink.
        if c.banded and change != 0 and not inside and not np.isnan(share):
            outside = True
        worth = worth or change >= c.min_up or -change >= c.min_down
        same = same and wanted[j, v] == m.wanted[j, v]
        m.wanted[j, v] = wanted[j, v]
    return outside and worth, same


@njit(cache=True, nogil=True, borrows=True)
def manage(
    t: JobFacts,
    seen: SnapshotArrays,
    c: Triggers,
    m: Remembered,
    wanted: Ints,
    due: Bools,
    evaluated: Bools,
) -> None:
    """Decide when to act on a plan (section 4.2, the scaling manager); j is a job's row.

    Args:
        t: The jobs.
        seen: The snapshot.
        c: Conditions for applying a plan.
        m: Memory, changed in place.
        wanted: (J, V) the plan; becomes the running configuration where no rescale is due.
        due: (J,) set where a rescale is due.
        evaluated: (J,) set where the interval has passed.
    """
    t_s, since = seen.job[JOB.t_s], seen.job[JOB.running_since_s]
    fill, running = seen.job[JOB.window_fill], seen.parallelism
    jobs, vertices = running.shape
    for j in range(jobs):
        ready = (
            seen.status[j] == RUNNING
            and t_s[j] - since[j] >= c.warm_up_s
            and fill[j] >= c.min_fill - ROUND_OFF
            and not np.isnan(fill[j])
        )
        # A restart since the last evaluation begins the count of activations again.
        if not ready or since[j] > m.evaluated_s[j]:
            m.wanting[j] = 0
        if ready and is_due(t_s[j], m.evaluated_s[j], c.interval_s):
            m.evaluated_s[j] = t_s[j]
            evaluated[j] = True
            counts, same = _weigh(t, seen, c, m, wanted, j)
            # Activation: so many evaluations in a row must want a change.
            if not counts:
                m.wanting[j] = 0
            elif c.unchanged and not same:
                m.wanting[j] = 1
            else:
                m.wanting[j] += 1
            if m.wanting[j] >= c.activation:
                due[j] = True
                m.wanting[j] = 0
        if not due[j]:
            for v in range(vertices):
                wanted[j, v] = running[j, v]


@njit(cache=True, nogil=True)
def plan_anew(
    t: JobFacts,
    seen: SnapshotArrays,
    rates: Floats,
    known: bool,
    c: Ds2Rules,
    planned: Ints,
) -> None:
    """Plan the parallelism of every vertex, after its rates where they are not known."""
    if not known:
        jobs, vertices = planned.shape
        traverse(t, seen, c.offered, 0, jobs, rates, np.empty(vertices))
    plan(t, seen, rates, c.sizing, planned)


@njit(cache=True, nogil=True)
def take_step(
    t: JobFacts,
    seen: SnapshotArrays,
    rates: Floats,
    known: bool,
    c: Ds2Rules,
    m: Remembered,
    wanted: Ints,
    due: Bools,
    evaluated: Bools,
) -> None:
    """Plan, and decide when to act on the plan; as `plan_anew`, then `manage`."""
    plan_anew(t, seen, rates, known, c, wanted)
    manage(t, seen, c.triggers, m, wanted, due, evaluated)


_plan = direct(plan_anew)


@direct
@njit(cache=True, nogil=True)
def _step(
    facts: Handle[JobFacts],
    seen: SnapshotArrays,
    rates: Floats,
    known: bool,
    c: Ds2Rules,
    memory: Handle[Remembered],
    wanted: Ints,
    due: Bools,
    evaluated: Bools,
) -> None:
    """Call `take_step` from Python."""
    take_step(facts.arrays, seen, rates, known, c, memory.arrays, wanted, due, evaluated)
