"""A bound on how much worse than its fallback a policy may do.

The fallback runs alongside. What the policy costs above it, and the seconds of outage and lateness
it causes above it, are counted over a rolling window. Once the budget is spent, or does not
cover one more rescale, the fallback decides until the window has moved on.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numba import njit
from pydantic import Field

from dsp_gym.arrays import Bools, Floats, Ints
from dsp_gym.config.model import ConfigModel
from dsp_gym.guardrails.restriction import Restriction, replace
from dsp_gym.guardrails.shadow import Shadows
from dsp_gym.loop.decision import GuardedDecision
from dsp_gym.loop.protocols import Mask, State
from dsp_gym.loop.row_memory import RowMemory
from dsp_gym.loop.snapshot import MetricsSnapshot
from dsp_gym.loop.topology import Topology
from dsp_gym.policies import PolicyConfig

__all__ = ["ExcessBudget", "ExcessBudgetConfig"]


BUCKETS = 24
"""Parts the rolling window is counted in; what is older than the window leaves by the part."""


class ExcessBudgetConfig(ConfigModel):
    """The budget."""

    kind: Literal["excess_budget"] = Field("excess_budget", description="this guardrail")
    policy: str | PolicyConfig = Field(
        "ds2", description="the fallback: what the policy is compared with, and who takes over"
    )
    window_s: float = Field(14400.0, gt=0, description="rolling window, s")
    cost_share: float = Field(
        0.05, ge=0, description="cost above the fallback's own, share of its cost over the window"
    )
    outage_share: float = Field(
        0.01,
        ge=0,
        description="seconds of outage and lateness above the fallback's own, share of the window",
    )
    outage_s: float | None = Field(
        None,
        gt=0,
        description="what one rescale is counted with, s; none: the last outage seen, before the "
        "first one the median of the job file",
    )


class ExcessBudget(Restriction):
    """Hands over to the fallback once the policy has cost too much more than it.

    The configuration the fallback would run is kept beside: it follows what the fallback decides,
    and, while the fallback is content with what runs, stays between that and its model's need.
    """

    name = "excess_budget"
    kind = "replaced"

    def __init__(
        self, config: ExcessBudgetConfig | None = None, shadows: Shadows | None = None
    ) -> None:
        super().__init__(
            RowMemory(
                {
                    "started": ("job", False),
                    "counted_s": ("job", 0.0),
                    "credited_s": ("job", -1e18),
                    "parallelism": ("vertex", 0),
                    "level": ("vertex", -1),
                }
            )
        )
        self.config = config or ExcessBudgetConfig()
        self._shadow = (shadows or Shadows()).of(self.config.policy, self.name)
        self._known: tuple[MetricsSnapshot, Bools] | None = None
        self._counts = RowMemory(
            {"part": ("job", -1), "cost": ("job", 0.0), "outage_s": ("job", 0.0)}, depth=BUCKETS
        )

    def reset(self, jobs: Topology, seeds: Ints, mask: Mask | None = None) -> None:
        super().reset(jobs, seeds, mask)
        self._counts.reset(jobs, mask)
        self._known = None
        self._shadow.reset(jobs, seeds, mask)

    def spent(self, snapshot: MetricsSnapshot) -> tuple[Floats, Floats]:
        """Share of the cost and of the outage budget that is spent, (J,) each.

        Outage is spent (1 or more) as soon as what is left does not cover one rescale.
        """
        c, m, n, tables = self.config, self._memory, self._counts, snapshot.topology.tables
        cost, outage = np.empty(len(snapshot)), np.empty(len(snapshot))
        _spent(
            snapshot.topology.row,
            tables.kind,
            tables.subtask_mib,
            tables.core_hour,
            tables.gib_hour,
            tables.outage_s,
            np.ascontiguousarray(snapshot.t_s),
            np.ascontiguousarray(snapshot.outage_s),
            snapshot.parallelism,
            snapshot.memory_level,
            c.window_s,
            c.cost_share,
            c.outage_share,
            c.outage_s or np.nan,
            m["started"],
            m["counted_s"],
            m["parallelism"],
            m["level"],
            n["part"],
            n["cost"],
            n["outage_s"],
            cost,
            outage,
        )
        return cost, outage

    def restrict(self, snapshot: MetricsSnapshot, parallelism: Ints, level: Ints) -> Bools:
        over = self.replaces(snapshot)
        if not over.any():
            return np.zeros_like(over)
        wanted = self._shadow.decided(snapshot)
        return replace(snapshot, over, wanted.parallelism, wanted.memory_level, parallelism, level)

    def commit(self, snapshot: MetricsSnapshot, guarded: GuardedDecision) -> None:
        c, m, n, tables = self.config, self._memory, self._counts, snapshot.topology.tables
        over = self.replaces(snapshot)
        wanted = self._shadow.decided(snapshot)
        required = self._shadow.required(snapshot)
        needed = snapshot.parallelism if required is None else required.parallelism
        _count(
            snapshot.topology.row,
            tables.n,
            tables.kind,
            tables.subtask_mib,
            tables.core_hour,
            tables.gib_hour,
            tables.outage_s,
            tables.slo_s,
            np.ascontiguousarray(snapshot.t_s),
            snapshot.status,
            np.ascontiguousarray(snapshot.window_s),
            np.ascontiguousarray(snapshot.window_fill),
            np.ascontiguousarray(snapshot.outage_s),
            np.ascontiguousarray(snapshot.latency_p95_s),
            snapshot.parallelism,
            snapshot.memory_level,
            guarded.parallelism,
            guarded.memory_level,
            wanted.parallelism,
            wanted.memory_level,
            needed,
            over,
            c.window_s,
            c.outage_s or np.nan,
            m["started"],
            m["counted_s"],
            m["credited_s"],
            m["parallelism"],
            m["level"],
            n["part"],
            n["cost"],
            n["outage_s"],
        )
        self._known = None

    def reason(self, snapshot: MetricsSnapshot, job: int) -> str:
        cost, outage = self.spent(snapshot)
        what = "cost" if cost[job] >= 1 else "outage"
        return f"{self._shadow.name} decides: the {what} budget above its own is spent" + (
            f" ({100 * cost[job]:.0f} % of cost, {100 * outage[job]:.0f} % of outage)"
        )

    def state(self) -> State:
        return {
            "memory": self._memory.state(),
            "counts": self._counts.state(),
            "policy": self._shadow.state(),
        }

    def restore(self, state: State) -> None:
        self._memory.restore(state["memory"])
        self._counts.restore(state["counts"])
        self._known = None
        self._shadow.restore(state["policy"])

    @property
    def replacement(self) -> str:
        return self._shadow.name

    def replaces(self, snapshot: MetricsSnapshot) -> Bools:
        """True for the jobs whose budget is spent, (J,); kept until the next `commit`."""
        if self._known is None or self._known[0] is not snapshot:
            cost, outage = self.spent(snapshot)
            self._known = snapshot, (cost >= 1) | (outage >= 1)
        return self._known[1]


@njit(cache=True, nogil=True)
def _money_per_s(
    j: int,
    k: int,
    kind: Ints,
    subtask_mib: Floats,
    core_hour: Floats,
    gib_hour: Floats,
    p: Ints,
    level: Ints,
) -> float:
    """What a configuration requests, sources left out (`dsp_gym.job.cost`)."""
    cores = mib = 0.0
    for v in range(p.shape[1]):
        if kind[k, v] > 0:
            cores += p[j, v]
            mib += p[j, v] * subtask_mib[k, level[j, v] + 1]
    return float((cores * core_hour[k] + mib / 1024.0 * gib_hour[k]) / 3600.0)


@njit(cache=True, nogil=True)
def _rescale_s(given: float, seen: float, median: float) -> float:
    if not np.isnan(given):
        return given
    return seen if seen > 0.0 else median


@njit(cache=True, nogil=True)
def _spent(
    row: Ints,
    kind: Ints,
    subtask_mib: Floats,
    core_hour: Floats,
    gib_hour: Floats,
    table_outage: Floats,
    t_s: Floats,
    outage_seen: Floats,
    running: Ints,
    running_level: Ints,
    window: float,
    cost_share: float,
    outage_share: float,
    given: float,
    started: Bools,
    counted_s: Floats,
    p_own: Ints,
    level_own: Ints,
    part: Ints,
    cost: Floats,
    late: Floats,
    cost_spent: Floats,
    outage_spent: Floats,
) -> None:
    size = part.shape[1]
    for j in range(running.shape[0]):
        k = row[j]
        newest = int(t_s[j] * size / window)
        more, seconds = 0.0, 0.0
        for b in range(size):
            if newest - size < part[j, b] <= newest:
                more += cost[j, b]
                seconds += late[j, b]
        now = _money_per_s(j, k, kind, subtask_mib, core_hour, gib_hour, running, running_level)
        own = now
        if started[j]:  # and what has run since the last count
            own = _money_per_s(j, k, kind, subtask_mib, core_hour, gib_hour, p_own, level_own)
            more += (now - own) * max(0.0, t_s[j] - counted_s[j])
        budget = cost_share * own * window
        cost_spent[j] = more / budget if budget > 0.0 else (1.0 if more > 0.0 else 0.0)
        allowed = outage_share * window - _rescale_s(given, outage_seen[j], table_outage[k, 1])
        # Of what is there beside one whole rescale; none left is spent.
        outage_spent[j] = max(0.0, seconds) / allowed if allowed > 0.0 else 1.0


@njit(cache=True, nogil=True)
def _count(
    row: Ints,
    n: Ints,
    kind: Ints,
    subtask_mib: Floats,
    core_hour: Floats,
    gib_hour: Floats,
    table_outage: Floats,
    slo_s: Floats,
    t_s: Floats,
    status: Ints,
    metrics_window: Floats,
    fill: Floats,
    outage_seen: Floats,
    latency: Floats,
    running: Ints,
    running_level: Ints,
    taken: Ints,
    taken_level: Ints,
    wanted: Ints,
    wanted_level: Ints,
    needed: Ints,
    over: Bools,
    window: float,
    given: float,
    started: Bools,
    counted_s: Floats,
    credited_s: Floats,
    p_own: Ints,
    level_own: Ints,
    part: Ints,
    cost: Floats,
    late: Floats,
) -> None:
    size = part.shape[1]
    for j in range(running.shape[0]):
        k = row[j]
        if not started[j]:
            started[j] = True
            counted_s[j] = t_s[j]
            for v in range(running.shape[1]):
                p_own[j, v], level_own[j, v] = running[j, v], running_level[j, v]
        seconds = max(0.0, t_s[j] - counted_s[j])
        counted_s[j] = t_s[j]
        newest = int(t_s[j] * size / window)
        b = newest % size
        if part[j, b] != newest:
            part[j, b], cost[j, b], late[j, b] = newest, 0.0, 0.0
        cost[j, b] += seconds * (
            _money_per_s(j, k, kind, subtask_mib, core_hour, gib_hour, running, running_level)
            - _money_per_s(j, k, kind, subtask_mib, core_hour, gib_hour, p_own, level_own)
        )
        differs = acts = asks = anew = False
        for v in range(n[k]):
            p, level = running[j, v], running_level[j, v]
            differs = differs or p != p_own[j, v] or level != level_own[j, v]
            acts = acts or taken[j, v] != p or taken_level[j, v] != level
            asks = asks or wanted[j, v] != p or wanted_level[j, v] != level
            anew = anew or wanted[j, v] != p_own[j, v] or wanted_level[j, v] != level_own[j, v]
        # Late in a configuration that is not the fallback's: counted like an outage.
        if differs and status[j] == 0 and latency[j] > slo_s[k]:
            late[j, b] += seconds
        rescale = _rescale_s(given, outage_seen[j], table_outage[k, 1])
        if acts:
            late[j, b] += rescale
        # The fallback could not rescale again before its metrics window had filled anew.
        may = over[j] or t_s[j] - credited_s[j] >= rescale + metrics_window[j]
        if asks and anew and may:
            late[j, b] -= rescale
            credited_s[j] = t_s[j]
        for v in range(n[k]):
            if over[j] or (asks and may):
                p_own[j, v], level_own[j, v] = wanted[j, v], wanted_level[j, v]
            elif not asks and status[j] == 0 and fill[j] >= 1.0 - 1e-9:
                least = min(needed[j, v], running[j, v])
                most = max(needed[j, v], running[j, v])
                p_own[j, v] = min(max(p_own[j, v], least), most)
