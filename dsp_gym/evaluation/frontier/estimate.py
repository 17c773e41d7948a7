"""Costs at equal lateness, read from frontiers, with their intervals.

Points of a frontier are means over runs: the late share over everything, the cost as the geometric
mean over jobs, so that a large job counts no more than a small one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from dsp_gym.arrays import Floats, finite
from dsp_gym.evaluation.frontier.play import CellRuns, PolicyRuns
from dsp_gym.evaluation.run import PLAN
from dsp_gym.evaluation.statistics import BootstrapEstimate, Resampling, estimate_of

_Estimate = BootstrapEstimate | None

WORST_SHARE = 0.05
"""Share of the runs behind the column of the worst runs."""


class FrontierPoint(NamedTuple):
    """One setting of a policy in one cell, means over runs."""

    value: float | None  # of the knob
    late: float  # share of the time
    cost: float  # per day, geometric mean over jobs
    worst: float  # late share of the worst 5 % of the runs
    rescales: float  # per day


class DearestJob(NamedTuple):
    """The job on which a policy costs most against the tuned rule that is cheapest on that job."""

    job: str
    ratio: float  # of the costs at equal lateness, on the job's own frontiers
    later: tuple[str, ...]  # jobs on which the policy is later at each setting, and a rule is not
    compared: int  # jobs on which the policy and a rule reach the lateness


class AgainstOther(NamedTuple):
    """A policy against one tuned rule, or a yardstick, at equal lateness."""

    cost: BootstrapEstimate | None  # ratio; None: one of the two is later at each of its settings
    rescales: float | None  # ratio of the rescales per day; None: likewise
    late: float  # where rescales are compared: the level, or the other's laxest setting below it


@dataclass(frozen=True, slots=True)
class PolicyFrontier:
    """One policy in one cell.

    Each mapping has an entry per level of lateness, None where the policy is later at each of its
    settings.
    """

    policy: str
    rule: bool
    points: tuple[FrontierPoint, ...]
    cost: dict[float, BootstrapEstimate | None]  # per day, geometric mean over jobs
    ratio: dict[float, BootstrapEstimate | None]  # to the best tuned rule
    closed: dict[
        float, BootstrapEstimate | None
    ]  # share of the gap from that rule to the clairvoyant
    regret: dict[float, BootstrapEstimate | None]  # cost over the clairvoyant's, less 1
    worst: dict[float, float | None]  # late share of the worst 5 % of the runs, as late as the rule
    rescales: dict[float, float | None]  # per day, likewise
    against: dict[str, dict[float, AgainstOther]]  # every other tuned rule and yardstick by itself
    by_job: dict[str, dict[float, float | None]]  # cost per day on each job's own frontier
    dearest_job: dict[float, DearestJob | None]  # against the cheapest tuned rule of each job
    trainings: dict[float, tuple[float | None, ...]]  # cost of each training by itself


def cost_at(late: Floats, cost: Floats, level: float) -> Floats:
    """Return the cost at a lateness, on the line through the settings that no other one beats.

    A setting that is both later and dearer than another does not count. Between two settings the
    cost is linear in the lateness. A policy whose laxest setting is still more punctual than the
    level costs what that setting costs.

    Args:
        late: (..., settings) shares of the time.
        cost: (..., settings) costs of the same.
        level: Share of the time late, 0..1.

    Returns:
        (...) costs; NaN where every setting is later than the level.

    >>> float(cost_at(np.array([0.01, 0.03]), np.array([10.0, 8.0]), 0.02))
    9.0
    """
    order = np.argsort(late, axis=-1, kind="stable")
    x = np.take_along_axis(late, order, axis=-1)
    y = np.minimum.accumulate(np.take_along_axis(cost, order, axis=-1), axis=-1)
    below = (x <= level).sum(axis=-1) - 1
    left = np.clip(below, 0, x.shape[-1] - 1)[..., None]
    right = np.minimum(left + 1, x.shape[-1] - 1)
    x0, x1 = (np.take_along_axis(x, at, axis=-1)[..., 0] for at in (left, right))
    y0, y1 = (np.take_along_axis(y, at, axis=-1)[..., 0] for at in (left, right))
    share = np.where(x1 > x0, (level - x0) / np.where(x1 > x0, x1 - x0, 1.0), 0.0)
    return np.where(below < 0, np.nan, y0 + np.clip(share, 0.0, 1.0) * (y1 - y0))


class _Frontiers(NamedTuple):
    """The settings of one policy under every resampling."""

    late: Floats  # (n + 1, settings)
    log_cost: Floats  # (n + 1, settings)

    @classmethod
    def of(cls, runs: PolicyRuns, draws: Resampling) -> _Frontiers:
        late, cost = (runs.runs(table).mean(axis=4) for table in ("late", "cost"))
        trainings = draws.trainings(runs.trainings)
        late, cost = (np.einsum("nt,kjlt->nkjl", trainings, table) for table in (late, cost))
        by_load = np.einsum("nl,nkjl->nkj", draws.loads, cost)
        return cls(
            np.einsum("nj,nl,nkjl->nk", draws.jobs, draws.loads, late),
            np.einsum("nj,nkj->nk", draws.jobs, np.log(by_load)),
        )

    def cost(self, level: float) -> Floats:
        """Return the cost at a lateness, (n + 1,)."""
        return np.asarray(np.exp(cost_at(self.late, self.log_cost, level)))


def estimate_cell(
    runs: CellRuns,
    lateness: Sequence[float],
    *,
    resamples: int,
    confidence: float,
    draws: Resampling | None = None,
    of_jobs: Sequence[str] = (),
) -> tuple[PolicyFrontier, ...]:
    """Return the frontiers of one cell.

    Args:
        runs: Every run of the cell.
        lateness: Levels of lateness, shares of the time.
        resamples: Of the bootstrap.
        confidence: Of the intervals.
        draws: Weights of the resampled runs; None: jobs and loads are resampled, each by itself.
        of_jobs: The job of each row of the tables; none: every row is a job of its own.

    Returns:
        One frontier per policy, in the order of the runs.
    """
    draws = draws or Resampling.of(len(runs.jobs), len(runs.loads), resamples)
    jobs = tuple(of_jobs) or runs.jobs
    swept = {one.policy: _Frontiers.of(one, draws) for one in runs.policies}
    costs = {name: {level: one.cost(level) for level in lateness} for name, one in swept.items()}
    rules = tuple(one.policy for one in runs.policies if one.rule)
    on_jobs = {one.policy: _job_costs(one, jobs, lateness) for one in runs.policies}
    cell = _Cell(
        lateness=tuple(lateness),
        confidence=confidence,
        rules=rules,
        yardsticks=tuple(one.policy for one in runs.policies if one.yardstick),
        costs=costs,
        points={one.policy: points_of(one) for one in runs.policies},
        on_jobs=on_jobs,
        rule_on_jobs=_cheapest_rules(
            tuple(dict.fromkeys(jobs)), lateness, [on_jobs[name] for name in rules]
        ),
    )
    return tuple(cell.frontier(one) for one in runs.policies)


@dataclass(frozen=True, slots=True)
class _Cell:
    """The costs of all policies of a cell, to compare one with the others."""

    lateness: tuple[float, ...]
    confidence: float
    rules: tuple[str, ...]  # labels of the tuned rules
    yardsticks: tuple[str, ...]  # labels of what others are compared with beside them
    costs: Mapping[str, Mapping[float, Floats]]  # (n + 1,) by policy and level
    points: Mapping[str, tuple[FrontierPoint, ...]]
    on_jobs: Mapping[str, dict[str, dict[float, float | None]]]
    rule_on_jobs: dict[str, dict[float, float | None]]

    def frontier(self, runs: PolicyRuns) -> PolicyFrontier:
        """Compare one policy with the others."""
        name, mine, points = runs.policy, self.costs[runs.policy], self.points[runs.policy]
        best = {level: self.best_rule(level) for level in self.lateness}
        least = {level: self.costs.get(PLAN, {}).get(level) for level in self.lateness}
        shown = {level: self.compared_at(level) for level in self.lateness}

        def at_each(value: Callable[[float], Floats | None]) -> dict[float, _Estimate]:
            return {level: estimate_of(value(level), self.confidence) for level in self.lateness}

        return PolicyFrontier(
            policy=name,
            rule=runs.rule,
            points=points,
            cost=at_each(lambda level: mine[level]),
            ratio=at_each(lambda level: _ratio(mine[level], best[level])),
            closed=at_each(lambda level: _closed(mine[level], best[level], least[level])),
            regret=at_each(lambda level: _regret(mine[level], least[level])),
            worst={level: _at(points, "worst", late) for level, late in shown.items()},
            rescales={level: _at(points, "rescales", late) for level, late in shown.items()},
            against={
                other: {level: self.against(name, other, level) for level in self.lateness}
                for other in (*self.rules, *self.yardsticks)
                if other != name
            },
            by_job=self.on_jobs[name],
            dearest_job={
                level: _dearest_job(self.on_jobs[name], self.rule_on_jobs, level)
                for level in self.lateness
            },
            trainings={level: _by_training(runs, level) for level in self.lateness},
        )

    def best_name(self, level: float) -> str | None:
        # Chosen on the runs as they are, not once more in each resampling: what is compared is a
        # policy one could have named.
        return _cheapest({name: self.costs[name][level] for name in self.rules})

    def best_rule(self, level: float) -> Floats | None:
        """Return the costs of the cheapest tuned rule; None where each is later."""
        name = self.best_name(level)
        return None if name is None else self.costs[name][level]

    def compared_at(self, level: float) -> float:
        """Return the lateness at which worst runs and rescales are read."""
        name = self.best_name(level)
        return level if name is None else _reached(self.points[name], level)

    def against(self, policy: str, other: str, level: float) -> AgainstOther:
        """Compare a policy with one tuned rule or yardstick."""
        late = _reached(self.points[other], level)
        mine, its = (_at(self.points[name], "rescales", late) for name in (policy, other))
        ratio = _ratio(self.costs[policy][level], self.costs[other][level])
        return AgainstOther(
            estimate_of(ratio, self.confidence),
            mine / its if mine is not None and its else None,
            late,
        )


def _cheapest(costs: Mapping[str, Floats]) -> str | None:
    """Return the policy whose costs (n + 1,) are least on the runs as they are, if any."""
    able = [name for name, cost in costs.items() if np.isfinite(cost[0])]
    return min(able, key=lambda name: float(costs[name][0])) if able else None


def _ratio(mine: Floats, other: Floats | None) -> Floats | None:
    return None if other is None else np.asarray(mine / other)


def _closed(mine: Floats, rule: Floats | None, least: Floats | None) -> Floats | None:
    if rule is None or least is None or not rule[0] > least[0]:
        return None
    gap = np.where(rule > least, rule - least, np.nan)
    return np.asarray((rule - mine) / gap)


def _regret(mine: Floats, least: Floats | None) -> Floats | None:
    return None if least is None else np.asarray(mine / least - 1.0)


def points_of(runs: PolicyRuns) -> tuple[FrontierPoint, ...]:
    """Return means over the runs of each setting of a policy.

    Returns:
        A point per setting, in their order.
    """
    late, cost, rescales = (runs.runs(table) for table in ("late", "cost", "rescales"))
    return tuple(
        FrontierPoint(
            value=value,
            late=float(late[k].mean()),
            cost=float(np.exp(np.log(cost[k].mean(axis=(1, 2, 3))).mean())),
            worst=_worst(late[k].reshape(-1)),
            rescales=float(rescales[k].mean()),
        )
        for k, value in enumerate(runs.values)
    )


def _worst(late: Floats) -> float:
    count = max(1, round(WORST_SHARE * late.size))
    return float(np.sort(late)[-count:].mean())


def _reached(rule: Sequence[FrontierPoint], level: float) -> float:
    """Return a level of lateness, or less where a rule is more punctual at each of its settings.

    The later a policy is, the later are its worst runs and the fewer its rescales: both are
    compared at one lateness.
    """
    return min(level, max(point.late for point in rule))


def _at(
    points: Sequence[FrontierPoint], name: Literal["worst", "rescales"], level: float
) -> float | None:
    """Return a figure between the two settings around a level; None: each setting is later."""
    ordered = sorted(points, key=lambda point: point.late)
    late = np.array([point.late for point in ordered])
    if late[0] > level:
        return None
    return float(np.interp(level, late, [getattr(point, name) for point in ordered]))


def _job_costs(
    runs: PolicyRuns, jobs: Sequence[str], lateness: Sequence[float]
) -> dict[str, dict[float, float | None]]:
    """Return costs on the frontier of each job by itself; several rows may be of one job."""
    late, cost = (runs.runs(table).mean(axis=(2, 3, 4)) for table in ("late", "cost"))
    rows: dict[str, list[int]] = {}
    for row, job in enumerate(jobs):
        rows.setdefault(job, []).append(row)

    def at(places: list[int], level: float) -> float | None:
        late_of_job, cost_of_job = (table[:, places].mean(axis=1) for table in (late, cost))
        return finite(cost_at(late_of_job, cost_of_job, level))

    return {job: {level: at(places, level) for level in lateness} for job, places in rows.items()}


def _cheapest_rules(
    jobs: Sequence[str],
    lateness: Sequence[float],
    rules: Sequence[Mapping[str, Mapping[float, float | None]]],
) -> dict[str, dict[float, float | None]]:
    """Return the cost of the cheapest tuned rule on each job; None: every rule is later."""

    def least(job: str, level: float) -> float | None:
        able = [cost for rule in rules if (cost := rule[job][level]) is not None]
        return min(able, default=None)

    return {job: {level: least(job, level) for level in lateness} for job in jobs}


def _dearest_job(
    mine: Mapping[str, Mapping[float, float | None]],
    rule: Mapping[str, Mapping[float, float | None]],
    level: float,
) -> DearestJob | None:
    """Return where a policy costs most of a rule's cost; None where they compare on no job."""
    ratios, later = {}, []
    for job, costs in mine.items():
        cost, other = costs[level], rule[job][level]
        if cost is not None and other is not None:
            ratios[job] = cost / other
        elif other is not None:
            later.append(job)
    if not ratios:
        return None
    job = max(ratios, key=lambda name: ratios[name])
    return DearestJob(job, ratios[job], tuple(later), len(ratios))


def _by_training(runs: PolicyRuns, level: float) -> tuple[float | None, ...]:
    """Return the cost at a lateness of each training, on its own frontier."""
    late = runs.runs("late").mean(axis=(1, 2, 4))
    cost = np.log(runs.runs("cost").mean(axis=(2, 4))).mean(axis=1)
    found = (cost_at(late[:, t], cost[:, t], level) for t in range(runs.trainings))
    return tuple(None if np.isnan(value) else float(np.exp(value)) for value in found)
