"""Histories of our own choice, for the tests of a backtest."""

from __future__ import annotations

import random
from dataclasses import fields

import numpy as np

from dsp_gym.control.gate import GateConfig
from dsp_gym.control.modes import INCUMBENT
from dsp_gym.job.catalog import load_job
from dsp_gym.whatif.backtest import _fleet, job_result
from dsp_gym.whatif.blocks import JobReplay, PolicyReplay
from dsp_gym.whatif.history import (
    GridSlots,
    JobHistory,
    gridded,
)
from dsp_gym.whatif.result import Backtest, ObservedJob, ReplayedRescale, Trust
from dsp_gym.whatif.verdict import VerdictTerms

DAY_S = 86_400

TERMS = VerdictTerms(GateConfig(), Trust())

LINE = {
    "subtasks": (4.0, 4.0, 2.0),
    "cost_per_h": (1.0, 1.0, 0.5),
    "latency_s": (0.1, None, 0.2),
    "lag_s": (0.0, 0.0, 1.0),
}


def history(
    name="orders",
    job="nexmark-q1",
    days=10.0,
    interval_s=300,
    tasks=12,
    load=None,
    ran=None,
    **given,
) -> JobHistory:
    """A job on a fixed configuration under a load that rises and falls every day."""
    spec = load_job(job)
    slots = round(days * DAY_S / interval_s)
    t_s = 1.7e9 // DAY_S * DAY_S + interval_s * np.arange(slots, dtype=np.float64)
    rate = 0.4 * float(spec.source.rate_per_s)
    day = rate * (1.0 - 0.5 * np.cos(2 * np.pi * t_s / DAY_S))
    vertices = spec.topological_order()
    running = np.array([1 if v.kind == "source" else tasks for v in vertices])
    level = np.array([0 if v.state is not None else -1 for v in vertices])
    nothing = np.full(slots, np.nan)
    known = {
        "load_per_s": day if load is None else np.full(slots, float(load)),
        "tasks": np.tile(running, (slots, 1)) if ran is None else ran,
        "level": np.tile(level, (slots, 1)),
        "late": np.zeros(slots),
        "lag_s": nothing,
        "latency_s": nothing,
        "outage_s": nothing,
        "is_dated": True,
        **given,
    }
    grid = {one.name: known.pop(one.name) for one in fields(GridSlots) if one.name in known}
    return gridded(name, spec, GridSlots(t_s=t_s, interval_s=interval_s, **grid), **known)


def policy_replay(costs, late_s=0.0, rescales=0.0, down_s=0.0, changes=(), seeds=1):
    """A policy on days of these costs; the others are of every day."""
    rows = {"seconds": DAY_S, "slo_s": late_s, "down_s": down_s, "rescales": rescales}
    sums = {name: ((float(value),) * seeds,) * len(costs) for name, value in rows.items()}
    sums["cost"] = tuple((float(cost),) * seeds for cost in costs)
    return PolicyReplay(
        sums=sums, lag_s=0.0, latency_p95_s=0.1, line=LINE, changes=tuple(changes), beyond=()
    )


def replayed(costs, found=None, job="orders", **policies) -> JobReplay:
    """The replay of a job whose deployed configurations cost so much on each day."""
    return JobReplay(
        job=job,
        intervals=288 * len(costs),
        seeds=1,
        blocks=tuple(100 + day for day in range(len(costs))),
        policies={INCUMBENT: policy_replay(costs), **policies},
        failures={},
        observed=found or observed(),
    )


def observed(cost=1.0, model_cost=1.0, late=0.0, model_late=0.0, days=10.0, **given):
    return ObservedJob(
        cost_per_month=cost,
        model_cost_per_month=model_cost,
        late=late,
        model_late=model_late,
        lag_s=None,
        model_lag_s=None,
        rescales_per_day=0.5,
        days=days,
        coverage=1.0,
    ).model_copy(update=given)


def document(names, policies=("ds2", "planner")) -> Backtest:
    """A backtest of jobs with these names, with numbers of our own."""
    dice = random.Random(7)
    jobs, replays = [], []
    for name in names:
        own = {}
        for policy in policies:
            change = ReplayedRescale(t_s=300.0, what=f"{name} 4 → 2", reason="demand <i>1/s</i>")
            costs = [6 + dice.random() for _ in range(10)]
            own[policy] = policy_replay(costs, 0, 2, changes=(change,) * 3)
        replays.append(replayed([10.0] * 10, job=name, **own))
        one = history(name, notes=(f"{name}: no samples from 3 to 4 s",))
        jobs.append(job_result(one, replays[-1], TERMS))
    return Backtest(
        source="a test",
        currency="USD",
        trust=Trust(),
        fleet=tuple(_fleet(policy, jobs, replays) for policy in policies),
        jobs=tuple(jobs),
        versions={"dsp-gym": "0"},
    )
