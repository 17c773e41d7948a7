"""DS2: scale every vertex at once from true rates.

Kalavri et al., "Three steps is all you need: fast, accurate, automatic scaling decisions for
distributed streaming dataflows", OSDI 2018. The model is `dsp_gym.loop.rates`; here is the
scaling manager of its section 4.2, and what Flink's autoscaler adds to it.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numba import njit
from pydantic import Field, model_validator

from baselines import reasons
from dsp_gym.arrays import Bools, Floats, Ints
from dsp_gym.config.model import ConfigModel
from dsp_gym.loop.decision import ScalingDecision
from dsp_gym.loop.protocols import Mask, State
from dsp_gym.loop.rates import Ds2Rates, SourceRate, ds2_rates
from dsp_gym.loop.row_memory import RowMemory
from dsp_gym.loop.snapshot import MetricsSnapshot
from dsp_gym.loop.topology import Topology
from dsp_gym.policies.requirement import Requirement

__all__ = ["Ds2", "Ds2Config"]


ROUND_OFF = 1e-9
"""Part of a task that is arithmetic, not demand: 3.0000000001 tasks are three."""


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
        """Capacity asked for over demand: Flink's target/u + target * restart / catch_up."""
        share = 1 / self.target_utilization + self.restart_s / self.catch_up_s
        return (1 + self.scaling_factor) * share


class Ds2:
    """DS2 (Kalavri et al., OSDI 2018): every vertex to the parallelism its true rate asks for."""

    Config = Ds2Config

    def __init__(self, config: Ds2Config | None = None) -> None:
        self.name = "ds2"
        self.explain = True
        self.config = config or Ds2Config()
        self._planned: tuple[MetricsSnapshot, Ds2Rates, Ints] | None = None
        self._memory = RowMemory(
            {
                "evaluated_s": ("job", -1e18),
                "wanting": ("job", 0),
                "wanted": ("vertex", -1),
                # Only for the roll-back: configurations seen running and what they achieved.
                "current": ("vertex", -1),
                "previous": ("vertex", -1),
                "refused": ("vertex", -1),
                "achieved": ("job", np.nan),
                "achieved_before": ("job", np.nan),
            }
        )

    def reset(self, jobs: Topology, seeds: Ints, mask: Mask | None = None) -> None:
        self._memory.reset(jobs, mask)

    def state(self) -> State:
        return self._memory.state()

    def restore(self, state: State) -> None:
        self._memory.restore(state)

    def observe(self, snapshot: MetricsSnapshot) -> None:
        """The model needs no history."""

    def required(self, snapshot: MetricsSnapshot) -> Requirement:
        _, parallelism = self.planned(snapshot)
        return Requirement(parallelism, snapshot.memory_level, parallelism)

    def decide(self, snapshot: MetricsSnapshot) -> ScalingDecision:
        parallelism, _, rates = self.trigger(snapshot)
        return reasons.decision(
            snapshot, parallelism, snapshot.memory_level, self.why(rates) if self.explain else None
        )

    def why(self, rates: Ds2Rates) -> reasons.Why:
        """Words for a change of parallelism."""

        def reason(job: int, v: int) -> str:
            demand, rate = rates.demand[job, v], rates.true_rate_per_task[job, v]
            return f"demand {demand:.4g}/s, true rate {rate:.4g}/s per task"

        return reason

    def trigger(self, snapshot: MetricsSnapshot) -> tuple[Ints, Bools, Ds2Rates]:
        """Parallelism to run, rows where a rescale is due now, and the rates behind it."""
        c, m = self.config, self._memory
        rates, plan = self.planned(snapshot)
        wanted = plan.copy()
        band = c.utilization_band or (-1.0, 2.0)
        tables = snapshot.topology.tables
        due = np.zeros(len(snapshot), dtype=bool)
        evaluated = np.zeros(len(snapshot), dtype=bool)
        _manage(
            snapshot.topology.row,
            tables.min_parallelism,
            tables.max_parallelism,
            np.ascontiguousarray(snapshot.t_s),
            snapshot.status,
            np.ascontiguousarray(snapshot.running_since_s),
            np.ascontiguousarray(snapshot.window_fill),
            snapshot.parallelism,
            np.ascontiguousarray(snapshot.busy_ms_per_s),
            c.interval_s,
            c.warm_up_s,
            c.min_window_fill,
            c.activation,
            c.activation_rule == "unchanged",
            c.utilization_band is not None,
            band[0],
            band[1],
            c.keep_inside_band,
            c.min_up,
            c.min_down,
            m["evaluated_s"],
            m["wanting"],
            m["wanted"],
            wanted,
            due,
            evaluated,
        )
        if c.roll_back:
            self._roll_back(snapshot, wanted, due, evaluated)
        return wanted, due, rates

    def planned(self, snapshot: MetricsSnapshot) -> tuple[Ds2Rates, Ints]:
        """The rates, and equation 7 with head-room, rounded up, inside the bounds; (J, V).

        Kept for the snapshot: a policy and a guardrail ask for the same numbers in one tick.
        """
        if self._planned is not None and self._planned[0] is snapshot:
            return self._planned[1], self._planned[2]
        c, tables = self.config, snapshot.topology.tables
        rates = ds2_rates(snapshot, c.source_rate)
        planned = np.empty(snapshot.parallelism.shape, dtype=np.int64)
        _round_up(
            snapshot.topology.row,
            tables.kind,
            tables.min_parallelism,
            tables.max_parallelism,
            snapshot.parallelism,
            rates.optimal,
            rates.demand,
            np.ascontiguousarray(snapshot.records_in_per_s),
            c.headroom,
            np.inf if c.target_rate_ratio is None else c.target_rate_ratio,
            c.max_parallelism or np.iinfo(np.int64).max,
            planned,
        )
        self._planned = snapshot, rates, planned
        return rates, planned

    def _roll_back(
        self, snapshot: MetricsSnapshot, wanted: Ints, due: Bools, evaluated: Bools
    ) -> None:
        """Section 4.2: if performance degrades after a scaling action, DS2 rolls back."""
        m, running, mask = self._memory, snapshot.parallelism, snapshot.topology.mask
        known = snapshot.running
        moved = known & np.any(m["current"] != running, axis=1)
        m["previous"][moved] = m["current"][moved]
        m["current"][moved] = running[moved]
        m["achieved_before"][moved] = m["achieved"][moved]
        m["achieved"][moved] = np.nan
        achieved = achieved_share(snapshot, self.config.source_rate)
        seen = evaluated & ~np.isnan(achieved)
        m["achieved"][seen] = achieved[seen]
        lost = seen & (m["achieved"] < (1 - self.config.roll_back_loss) * m["achieved_before"])
        lost &= np.all(m["previous"] >= 0, axis=1)
        m["refused"][lost] = running[lost]
        wanted[lost] = m["previous"][lost]
        due[lost] = True
        again = ~lost & due & np.all((wanted == m["refused"]) | ~mask, axis=1)
        wanted[again] = running[again]
        due[again] = False


def achieved_share(snapshot: MetricsSnapshot, source_rate: SourceRate) -> Floats:
    """What the sources achieve of their target, or their rate where there is no target; (J,)."""
    source = snapshot.topology.mask & (snapshot.topology.tables.kind[snapshot.topology.row] == 0)
    achieved = np.where(source, snapshot.records_in_per_s, 0.0).sum(axis=1)
    if source_rate == "observed":
        return np.asarray(achieved)
    growth = np.where(source, np.nan_to_num(snapshot.pending_growth_per_s), 0.0).sum(axis=1)
    target = np.maximum(achieved + growth, ROUND_OFF)
    return np.asarray(np.minimum(1.0, achieved / target))


@njit(cache=True, nogil=True)
def _round_up(
    row: Ints,
    kind: Ints,
    low: Ints,
    high: Ints,
    running: Ints,
    optimal: Floats,
    demand: Floats,
    records_in: Floats,
    headroom: float,
    ratio_bound: float,
    cap: int,
    planned: Ints,
) -> None:
    jobs, vertices = running.shape
    for j in range(jobs):
        k = row[j]
        ratio, rises = 0.0, False
        for again in range(2):
            factor = headroom * ratio if again == 1 else headroom
            for v in range(vertices):
                p = running[j, v]
                planned[j, v] = p
                if kind[k, v] < 0 or low[k, v] == high[k, v] or np.isnan(optimal[j, v]):
                    continue
                tasks = np.ceil(optimal[j, v] * factor - ROUND_OFF)
                upper = min(high[k, v], cap)
                # Clipped as a float: demand without bound would overflow an integer.
                planned[j, v] = int(min(max(tasks, float(low[k, v])), float(upper)))
                rises = rises or planned[j, v] > p
            if again == 1 or rises:
                break
            # No vertex scales up, yet a source does not reach its target: what instrumentation
            # misses is made up for by the ratio of the two (section 4.2, target rate ratio).
            for v in range(vertices):
                if kind[k, v] == 0 and records_in[j, v] > 0.0:
                    ratio = max(ratio, demand[j, v] / records_in[j, v])
            if not ratio > ratio_bound:
                break


@njit(cache=True, nogil=True)
def _manage(
    row: Ints,
    low: Ints,
    high: Ints,
    t_s: Floats,
    status: Ints,
    since: Floats,
    fill: Floats,
    running: Ints,
    busy: Floats,
    interval: float,
    warm_up: float,
    min_fill: float,
    activation: int,
    unchanged: bool,
    banded: bool,
    band_low: float,
    band_high: float,
    keep_inside: bool,
    min_up: int,
    min_down: int,
    evaluated_s: Floats,
    wanting: Ints,
    last: Ints,
    wanted: Ints,
    due: Bools,
    evaluated: Bools,
) -> None:
    """When to act on a plan; `wanted` becomes the running configuration where it is not time."""
    jobs, vertices = running.shape
    for j in range(jobs):
        k = row[j]
        ready = (
            status[j] == 0
            and t_s[j] - since[j] >= warm_up
            and fill[j] >= min_fill - ROUND_OFF
            and not np.isnan(fill[j])
        )
        if not ready or since[j] > evaluated_s[j]:
            wanting[j] = 0
        if ready and t_s[j] - evaluated_s[j] >= interval - ROUND_OFF:
            evaluated_s[j] = t_s[j]
            evaluated[j] = True
            outside, worth, same = not banded, False, True
            for v in range(vertices):
                if low[k, v] == high[k, v]:
                    continue
                share = busy[j, v] / 1000.0
                inside = band_low <= share <= band_high
                if keep_inside and inside:
                    wanted[j, v] = running[j, v]
                change = wanted[j, v] - running[j, v]
                # A vertex that is idle and cannot shrink calls for nothing, as in Flink.
                if banded and change != 0 and not inside and not np.isnan(share):
                    outside = True
                worth = worth or change >= min_up or -change >= min_down
                same = same and wanted[j, v] == last[j, v]
                last[j, v] = wanted[j, v]
            if not (outside and worth):
                wanting[j] = 0
            elif unchanged and not same:
                wanting[j] = 1
            else:
                wanting[j] += 1
            if wanting[j] >= activation:
                due[j] = True
                wanting[j] = 0
        if not due[j]:
            for v in range(vertices):
                wanted[j, v] = running[j, v]
