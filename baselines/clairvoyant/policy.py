"""The best plan for a known load, as a policy: it plans once and follows the plan."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, replace

import numpy as np
from pydantic import Field

from baselines import reasons
from baselines.clairvoyant.bound import bounds
from baselines.clairvoyant.candidates import Candidates, candidates, described
from baselines.clairvoyant.frontier import IN_TIME, Frontier, frontier
from baselines.clairvoyant.plan import Plan, Terms, plan
from dsp_gym.arrays import Floats, Ints
from dsp_gym.config.model import ConfigModel
from dsp_gym.errors import PolicyError
from dsp_gym.job.service import entries
from dsp_gym.job.tables import NO_WINDOW, JobTables
from dsp_gym.loop.decision import ScalingDecision
from dsp_gym.loop.lacking import DEMANDED
from dsp_gym.loop.protocols import Mask, State
from dsp_gym.loop.snapshot import MetricsSnapshot
from dsp_gym.loop.topology import Topology
from dsp_gym.loop.unknown import NONE, marked
from dsp_gym.policies.capabilities import Capabilities, CostBounds, ExplainingPolicy, FutureLoad
from dsp_gym.simulation.rows import over_rows
from dsp_gym.sizing.lateness import COLD_SPEED
from dsp_gym.sizing.prior import lost_by_restart_s


class ClairvoyantConfig(ConfigModel):
    """Prices of the plan, and its margin for the model's error."""

    slo_weight: float = Field(
        4.0,
        ge=0,
        description="price of a second that violates the SLO, in seconds of the configuration that "
        "carries the job's reference rate; the reward's weight",
    )
    rescale_weight: float = Field(
        6.0,
        ge=0,
        description="price of a rescale beside its outage, in the same seconds; the reward's 0.1 "
        "per interval of 60 s",
    )
    headroom: float = Field(
        0.95,
        gt=0,
        le=1,
        description="share of a configuration's capacity the plan counts on; service times vary "
        "by 3 % over 5 s and caches start cold",
    )
    configurations: int = Field(
        64,
        ge=2,
        le=512,
        description="configurations planned with; where a job has more that matter, these are "
        "spread evenly over their cost",
    )
    cold_caches: bool = Field(
        False,
        description="true: a rescale also costs the capacity that cold caches keep from the job; "
        "false: caches are taken as warm, as in the published figures of core-v2",
    )


@dataclass(slots=True, eq=False)
class _Schedule:
    """The configurations of one job: each from its step until the next."""

    origin_s: float
    interval_s: int
    steps: list[int]
    parallelism: list[list[int]]
    level: list[list[int]]

    def at(self, t_s: float) -> int:
        """Return the place of the configuration wanted at a time."""
        step = math.floor((t_s - self.origin_s) / self.interval_s + 1e-9)
        return max(0, int(np.searchsorted(self.steps, step, "right")) - 1)


class Clairvoyant(ExplainingPolicy):
    """The best plan of a simple model: the load is known in advance."""

    Config = ClairvoyantConfig

    def __init__(self, config: ClairvoyantConfig | None = None) -> None:
        self.name = "clairvoyant"
        self.config = config or ClairvoyantConfig()
        self._jobs: Topology | None = None
        self._future: FutureLoad | None = None
        self._frontiers: dict[int, Frontier] = {}
        self._candidates: dict[int, tuple[Candidates, float]] = {}
        self._schedules: list[_Schedule | None] = []
        self.price: Floats = np.zeros(0)  # (J,) price of each plan, as planned
        self.gap: Floats = np.zeros(0)  # (J,) no plan is cheaper by more

    def capabilities(self) -> Capabilities:
        return replace(
            super().capabilities(), know_future=self.know_future, cost_bounds=self.cost_bounds
        )

    def know_future(self, jobs: Topology, future: FutureLoad) -> None:
        if len(future.rates_per_s) != len(jobs):
            raise PolicyError(
                f"clairvoyant received {len(future.rates_per_s)} loads for {len(jobs)} jobs"
            )
        self._jobs, self._future = jobs, future
        rows = np.unique(jobs.row).tolist()
        most = self.config.configurations
        self._frontiers = {k: frontier(jobs.tables, k) for k in rows}
        self._candidates = {k: candidates(jobs, k, most) for k in rows}

    def cost_bounds(self) -> CostBounds:
        """Compute the range of costs a policy could reach on the load to come.

        Returns:
            Cost of the bound and of the peak-provisioned job, money, (J,); the peak has the plan's
            head-room.
        """
        jobs, future = self._known()
        least, highest = bounds(jobs.tables, jobs.row, future.rates_per_s)
        calm = {
            k: frontier(jobs.tables, k, 1.0 + IN_TIME * float(jobs.tables.slo_s[k]))
            for k in self._frontiers
        }
        peak = np.zeros(len(jobs))
        for j, k in enumerate(jobs.row.tolist()):
            needed = float(highest[j]) / self.config.headroom
            # Where no configuration works off its windows' bursts in time, take one for their mean.
            reached = needed <= calm[k].rate_per_s[-1]
            found = calm[k] if reached else self._frontiers[k]
            peak[j] = found.cost_per_s[found.cheapest(needed)]
        return CostBounds(bound=least, peak=peak * future.rates_per_s.shape[1])

    def reset(self, jobs: Topology, seeds: Ints, mask: Mask | None = None) -> None:
        if mask is None or len(self._schedules) != len(jobs):
            self._schedules = [None] * len(jobs)
            self.price, self.gap = np.full((2, len(jobs)), np.nan)
        else:
            for j in np.flatnonzero(mask).tolist():
                self._schedules[j] = None

    def decide(self, snapshot: MetricsSnapshot) -> ScalingDecision:
        new = [j for j, schedule in enumerate(self._schedules) if schedule is None]
        if new:
            self._plan(snapshot, new)
        parallelism, level = snapshot.parallelism.copy(), snapshot.memory_level.copy()
        places = []
        for j, schedule in enumerate(self._schedules):
            assert schedule is not None  # planned just above
            place = schedule.at(float(snapshot.t_s[j]))
            size = len(schedule.parallelism[place])
            parallelism[j, :size] = schedule.parallelism[place]
            level[j, :size] = schedule.level[place]
            places.append(place)

        def why(job: int, v: int) -> str:
            schedule = self._schedules[job]
            assert schedule is not None
            later = schedule.steps[places[job] + 1 : places[job] + 2]
            steps = later[0] - schedule.steps[places[job]] if later else 0
            return f"plan for the known load, {f'for {steps} steps' if later else 'to the end'}"

        seen = marked(snapshot, DEMANDED)
        return reasons.decision(seen, parallelism, level, why if self.explain else None, NONE)

    def state(self) -> State:
        return {
            "schedules": [
                None
                if s is None
                else {name: getattr(s, name) for name in _Schedule.__dataclass_fields__}
                for s in self._schedules
            ]
        }

    def restore(self, state: State) -> None:
        self._schedules = [s if s is None else _Schedule(**s) for s in state["schedules"]]
        self.price, self.gap = np.full((2, len(self._schedules)), np.nan)

    def _known(self) -> tuple[Topology, FutureLoad]:
        if self._jobs is None or self._future is None:
            raise PolicyError(
                "clairvoyant does not know the load",
                remedy="Only dsp-gym evaluate knows a load in advance and can run this policy: "
                "choose another one as a fallback, as a teacher, or for a real job.",
            )
        return self._jobs, self._future

    def _plan(self, snapshot: MetricsSnapshot, rows: list[int]) -> None:
        """Plan for jobs from their running configuration."""
        jobs, future = self._known()
        running = self._running(snapshot, rows)

        def work(low: int, high: int) -> None:
            for j in rows[low:high]:
                k = int(jobs.row[j])
                kept, share = self._candidates[k]
                options = kept.with_one_more(*running[j])
                load = future.rates_per_s[j]
                # Whole intervals only; each step's mean load decides how often firings make it
                # late.
                load = load[: len(load) // future.interval_s * future.interval_s]
                steady = load.reshape(-1, future.interval_s).mean(axis=1)
                found = plan(
                    load,
                    options.capacity_per_s * self.config.headroom,
                    options.cost_per_s,
                    len(kept),
                    self.terms(k, load),
                    options.late_share(steady),
                    self._cold_s(k, options, float(load.mean())),
                )
                self.price[j] = found.price
                self.gap[j] = found.gap + share * found.price
                self._schedules[j] = _schedule(snapshot, j, found, options, future.interval_s)

        over_rows(work, len(rows), min(len(os.sched_getaffinity(0)), len(rows)))

    def _running(
        self, snapshot: MetricsSnapshot, rows: list[int]
    ) -> dict[int, tuple[Candidates, int]]:
        """Describe the running configuration of each job; equal ones of a job only once."""
        jobs, _ = self._known()
        found: dict[int, tuple[Candidates, int]] = {}
        for k in np.unique(jobs.row[rows]).tolist():
            mine = [j for j in rows if jobs.row[j] == k]
            both = np.hstack([snapshot.parallelism[mine], snapshot.memory_level[mine]])
            distinct, place = np.unique(both, axis=0, return_inverse=True)
            p, level = np.hsplit(distinct, 2)
            about = described(jobs, k, np.ascontiguousarray(p), np.ascontiguousarray(level))
            found |= {j: (about, int(i)) for j, i in zip(mine, place.reshape(-1), strict=True)}
        return found

    def _cold_s(self, k: int, options: Candidates, rate_per_s: float) -> Ints:
        """Return the seconds after a rescale in which configurations have cold caches, (N,)."""
        cold_s = np.zeros(len(options), np.int64)
        if self.config.cold_caches:
            tables = self._known()[0].tables
            for c, (p, level) in enumerate(zip(options.parallelism, options.level, strict=True)):
                lost_s = lost_by_restart_s(tables, k, p, level, rate_per_s)
                cold_s[c] = math.ceil(lost_s / (1.0 - COLD_SPEED))
        return cold_s

    def terms(self, k: int, load: Floats) -> Terms:
        """Price a change of a job's configuration.

        Args:
            k: Its job file, a row of the jobs' tables.
            load: Its load to come, records/s by second.

        Returns:
            Seconds of savepoint and outage, and prices in money.
        """
        assert self._jobs is not None
        assert self._future is not None
        tables, c = self._jobs.tables, self.config
        state_mib = _state_mib(tables, k, float(load.mean()))
        savepoint_s = 0.0 if tables.in_place[k] else state_mib / float(tables.savepoint_mib_s[k])
        outage_s = float(tables.outage_s[k, 1]) + state_mib / float(tables.restore_mib_s[k])
        full = self._frontiers[k]
        unit = float(full.cost_per_s[full.cheapest(float(tables.rate_per_s[k]))])
        return Terms(
            interval_s=self._future.interval_s,
            savepoint_s=math.ceil(savepoint_s),
            outage_s=max(1, math.ceil(outage_s)),
            late_s=IN_TIME * float(tables.slo_s[k]),
            slo_price=c.slo_weight * unit,
            rescale_price=c.rescale_weight * unit,
        )


def _state_mib(tables: JobTables, k: int, rate_per_s: float) -> float:
    """Return the state of the whole job at a load, windows full, MiB."""
    total = 0.0
    for v in np.flatnonzero(tables.stateful[k] == 1).tolist():
        content = math.inf
        if tables.window[k, v] != NO_WINDOW:
            content = rate_per_s * tables.ratio[k, v] * tables.length_s[k, v]
        held = entries(tables.keys[k, v], content, tables.panes[k, v], bool(tables.prefilled[k, v]))
        total += float(held) * float(tables.entry_mib[k, v])
    return total


def _schedule(
    snapshot: MetricsSnapshot, j: int, found: Plan, options: Candidates, interval_s: int
) -> _Schedule:
    """Turn the plan into configurations."""
    changes = [0, *(np.flatnonzero(np.diff(found.choice)) + 1).tolist()]
    chosen = found.choice[changes]
    return _Schedule(
        origin_s=float(snapshot.t_s[j]),
        interval_s=interval_s,
        steps=changes,
        parallelism=options.parallelism[chosen].tolist(),
        level=options.level[chosen].tolist(),
    )
