"""Dhalion: backpressure is the symptom, its initiator the cause, one operator per step the cure.

Floratou et al., "Dhalion: self-regulating stream processing in Heron", VLDB 2017, as Kalavri et
al. (DS2, OSDI 2018, sections 2 and 5.2) describe and run it, with the constants of Heron's
released `DynamicResourceAllocationPolicy` (60 s between evaluations, 180 s after an action, 20 ms/s
of noise, at most four times as many tasks more). Heron counts the time in which an operator holds
the sources back; Flink pushes back one hop at a time, so here it is the time in which the inputs
of the initiator wait for it.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from pydantic import Field, model_validator

from baselines import reasons
from dsp_gym.arrays import Floats, Ints
from dsp_gym.config.model import ConfigModel
from dsp_gym.job.tables import SOURCE
from dsp_gym.loop.decision import ScalingDecision
from dsp_gym.loop.protocols import Mask, State
from dsp_gym.loop.row_memory import RowMemory
from dsp_gym.loop.snapshot import MetricsSnapshot
from dsp_gym.loop.topology import Topology

__all__ = ["Dhalion", "DhalionConfig", "scale_up"]


ROUND_OFF = 1e-9
"""Part of a task that is arithmetic, not demand: 3.0000000001 tasks are three."""

UP, DOWN = 1, -1
FOREVER = 1e18


class DhalionConfig(ConfigModel):
    """Detectors, resolvers and blacklist; the defaults are Heron's where it has any."""

    interval_s: float = Field(60.0, gt=0, description="time between evaluations, s (Heron: 60)")
    wait_s: float = Field(
        180.0, ge=0, description="rest after a rescale until the next evaluation, s (Heron: 180)"
    )
    noise_ms_per_s: float = Field(
        20.0, ge=0, lt=1000, description="backpressure that is no symptom yet (Heron: 20)"
    )
    max_growth: float = Field(
        4.0, gt=0, description="largest share of the tasks that one step adds (Heron: 4)"
    )
    idle_ms_per_s: float = Field(
        700.0,
        gt=0,
        le=1000,
        description="idle time of a vertex above which it has tasks to spare (assumption)",
    )
    scale_down_share: float = Field(
        0.2, ge=0, lt=1, description="share of the tasks one step takes (assumption); 0: never"
    )
    blacklist_ratio: float = Field(
        0.5,
        ge=0,
        lt=1,
        description="share of a vertex's actions of one kind that brought nothing, above which "
        "that action is not taken again (assumption)",
    )
    blacklist_s: float | None = Field(
        None, gt=0, description="how long that holds, s; none: for good, as described"
    )
    min_gain: float = Field(
        0.05,
        ge=0,
        description="rise of the vertex's rate by which an action on a vertex that goes on "
        "holding its inputs back still counts as effective (assumption)",
    )

    @model_validator(mode="after")
    def _does_not_undo_itself(self) -> DhalionConfig:
        busy = 1 - self.idle_ms_per_s / 1000
        if busy > (1 - self.scale_down_share) * (1 - self.noise_ms_per_s / 1000):
            raise ValueError(
                f"idle_ms_per_s {self.idle_ms_per_s:g} and scale_down_share "
                f"{self.scale_down_share:g} conflict: a vertex busy {busy:.0%} of the time would "
                "be in backpressure after the scale-down; raise the first or lower the second"
            )
        return self


class Dhalion:
    """Dhalion: the initiator of backpressure is scaled up, an idle vertex down, one per step."""

    Config = DhalionConfig

    def __init__(self, config: DhalionConfig | None = None) -> None:
        self.name = "dhalion"
        self.explain = True
        self.config = config or DhalionConfig()
        self._memory = RowMemory(
            {
                "evaluated_s": ("job", -1e18),
                "seen_s": ("job", -1e18),
                "moved_s": ("job", -1e18),
                "running": ("vertex", -1),
                "rate": ("vertex", np.nan),
                # The action whose effect is still open, as seen from what runs.
                "acting": ("job", -1),
                "direction": ("job", 0),
                "rate_before": ("job", np.nan),
            }
        )
        # Per vertex, what became of scaling it: column 0 up, column 1 down.
        self._log = RowMemory(
            {"tried": ("vertex", 0), "failed": ("vertex", 0), "barred_s": ("vertex", -1e18)},
            depth=2,
        )

    def reset(self, jobs: Topology, seeds: Ints, mask: Mask | None = None) -> None:
        self._memory.reset(jobs, mask)
        self._log.reset(jobs, mask)

    def state(self) -> State:
        return {"memory": self._memory.state(), "log": self._log.state()}

    def restore(self, state: State) -> None:
        self._memory.restore(state["memory"])
        self._log.restore(state["log"])

    def decide(self, snapshot: MetricsSnapshot) -> ScalingDecision:
        c, m, log, tables = self.config, self._memory, self._log, snapshot.topology.tables
        pods = snapshot.parallelism.copy()
        waits = np.zeros(pods.shape)
        _decide(
            snapshot.topology.row,
            tables.n,
            tables.kind,
            tables.upstream,
            tables.min_parallelism,
            tables.max_parallelism,
            np.ascontiguousarray(snapshot.t_s),
            snapshot.status,
            np.ascontiguousarray(snapshot.running_since_s),
            snapshot.parallelism,
            np.ascontiguousarray(snapshot.backpressured_ms_per_s),
            np.ascontiguousarray(snapshot.idle_ms_per_s),
            np.ascontiguousarray(snapshot.records_in_per_s),
            c.interval_s,
            c.wait_s,
            c.noise_ms_per_s,
            c.max_growth,
            c.idle_ms_per_s,
            c.scale_down_share,
            c.blacklist_ratio,
            FOREVER if c.blacklist_s is None else c.blacklist_s,
            c.min_gain,
            m["evaluated_s"],
            m["seen_s"],
            m["moved_s"],
            m["running"],
            m["rate"],
            m["acting"],
            m["direction"],
            m["rate_before"],
            log["tried"],
            log["failed"],
            log["barred_s"],
            waits,
            pods,
        )

        def why(job: int, v: int) -> str:
            if pods[job, v] < snapshot.parallelism[job, v]:
                return f"idle {snapshot.idle_ms_per_s[job, v]:.0f} ms/s, no backpressure"
            return f"its inputs wait {waits[job, v]:.0f} ms/s for it, and it waits for nothing"

        return reasons.decision(
            snapshot, pods, snapshot.memory_level, why if self.explain else None
        )


@njit(cache=True, nogil=True)
def scale_up(tasks: int, backpressure_ms_per_s: float, max_growth: float) -> int:
    """Tasks that take in what could not be taken: more by time with over time without pressure.

    20 % of the time in backpressure and 80 % without call for a quarter more.

    >>> scale_up(4, 200.0, 4.0), scale_up(1, 990.0, 4.0)
    (5, 5)
    """
    pressure = min(backpressure_ms_per_s, 999.0)
    growth = min(pressure / (1000.0 - pressure), max_growth)
    return int(np.ceil(tasks * (1.0 + growth) - ROUND_OFF))


@njit(cache=True, nogil=True)
def _decide(
    row: Ints,
    n: Ints,
    kind: Ints,
    upstream: Ints,
    low: Ints,
    high: Ints,
    t_s: Floats,
    status: Ints,
    since: Floats,
    parallelism: Ints,
    back: Floats,
    idle: Floats,
    rates: Floats,
    interval: float,
    wait: float,
    noise: float,
    max_growth: float,
    idle_bar: float,
    down_share: float,
    ratio: float,
    barred_for: float,
    min_gain: float,
    evaluated_s: Floats,
    seen_s: Floats,
    moved_s: Floats,
    running: Ints,
    rate: Floats,
    acting: Ints,
    direction: Ints,
    rate_before: Floats,
    tried: Ints,
    failed: Ints,
    barred_s: Floats,
    waits: Floats,
    pods: Ints,
) -> None:
    for j in range(len(t_s)):
        k, now = row[j], t_s[j]
        if status[j] != 0:
            continue
        _notice(
            n[k],
            now,
            since[j],
            j,
            parallelism,
            seen_s,
            moved_s,
            running,
            rate,
            acting,
            direction,
            rate_before,
        )
        if now - moved_s[j] < wait or now - evaluated_s[j] < interval - ROUND_OFF:
            continue
        # Symptom and diagnosis: who makes others wait and waits for nobody.
        known, pressed = 0, False
        for v in range(n[k]):
            known += not np.isnan(back[j, v])
            pressed = pressed or back[j, v] > noise
            longest = 0.0
            for i in range(upstream.shape[2]):
                u = upstream[k, v, i]
                if u >= 0 and back[j, u] > longest:
                    longest = back[j, u]
            initiates = kind[k, v] != SOURCE and longest > noise and not back[j, v] > noise
            waits[j, v] = longest if initiates else 0.0
        if known == 0:
            continue
        evaluated_s[j] = now
        if acting[j] >= 0:
            _judge(
                now,
                acting[j],
                direction[j],
                waits[j, acting[j]] > 0.0,
                rates[j, acting[j]],
                rate_before[j],
                min_gain,
                ratio,
                barred_for,
                tried[j],
                failed[j],
                barred_s[j],
            )
            acting[j] = -1
        chosen, most = -1, 0.0
        for v in range(n[k]):
            rate[j, v] = rates[j, v]
            p = parallelism[j, v]
            if pressed:
                open_to = p < high[k, v] and barred_s[j, v, 0] <= now
                if open_to and waits[j, v] > most:
                    chosen, most = v, waits[j, v]
            elif down_share > 0.0:
                open_to = p > low[k, v] and barred_s[j, v, 1] <= now
                if open_to and idle[j, v] > max(idle_bar, most):
                    chosen, most = v, idle[j, v]
        if chosen < 0:
            continue
        p = parallelism[j, chosen]
        if pressed:
            pods[j, chosen] = min(scale_up(p, most, max_growth), high[k, chosen])
        else:
            kept = int(np.floor(p * (1.0 - down_share) + ROUND_OFF))
            pods[j, chosen] = max(kept, low[k, chosen])


@njit(cache=True, nogil=True)
def _notice(
    n: int,
    now: float,
    since: float,
    j: int,
    parallelism: Ints,
    seen_s: Floats,
    moved_s: Floats,
    running: Ints,
    rate: Floats,
    acting: Ints,
    direction: Ints,
    rate_before: Floats,
) -> None:
    """A rescale since the last look: a rest begins; of one vertex alone, it will be judged."""
    moved, which = 0, -1
    for v in range(n):
        if running[j, v] >= 0 and running[j, v] != parallelism[j, v]:
            moved, which = moved + 1, v
    if moved > 0:
        moved_s[j] = since if since > seen_s[j] else now
        acting[j] = which if moved == 1 else -1
        direction[j] = UP if parallelism[j, which] > running[j, which] else DOWN
        rate_before[j] = rate[j, which]
        rate[j, :] = np.nan
    seen_s[j] = now
    running[j, :] = parallelism[j, :]


@njit(cache=True, nogil=True)
def _judge(
    now: float,
    v: int,
    direction: int,
    initiates: bool,
    rate: float,
    before: float,
    min_gain: float,
    ratio: float,
    barred_for: float,
    tried: Ints,
    failed: Ints,
    barred_s: Floats,
) -> None:
    """Whether the last action brought the job closer to health; else it counts towards a bar.

    More tasks are effective when the vertex holds nobody back any more or takes in more; fewer
    when it holds nobody back. What cannot be told is not held against an action.
    """
    column = 0 if direction == UP else 1
    if direction == UP and initiates and (np.isnan(rate) or np.isnan(before)):
        return
    better = direction == UP and rate > before * (1.0 + min_gain)
    tried[v, column] += 1
    if initiates and not better:
        failed[v, column] += 1
        if failed[v, column] > ratio * tried[v, column]:
            barred_s[v, column] = now + barred_for
