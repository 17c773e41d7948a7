"""Constructed histories for the tests of a backtest."""

from __future__ import annotations

import numpy as np

from dsp_gym.control.modes import INCUMBENT
from dsp_gym.evaluation.backtest.claims import BacktestTrust, ObservedJob, claim_of, fleet_saving
from dsp_gym.evaluation.backtest.document import Backtest, FleetClaim, JobBacktest
from dsp_gym.evaluation.backtest.history import JobHistory
from dsp_gym.evaluation.backtest.result import Block, JobReplay, ReplayedRescale
from dsp_gym.job.catalog import load_job

DAY_S = 86_400


def history(
    name="orders", job="nexmark-q1", days=4.0, interval_s=300, tasks=12, load=None, **given
):
    """A job on a fixed configuration under a load that rises and falls every day."""
    spec = load_job(job)
    slots = round(days * DAY_S / interval_s)
    t_s = 1.7e9 // DAY_S * DAY_S + interval_s * np.arange(slots, dtype=np.float64)
    rate = 0.4 * float(spec.source.rate_per_s)
    day = rate * (1.0 - 0.5 * np.cos(2 * np.pi * t_s / DAY_S))
    vertices = spec.topological_order()
    parallelism = [1 if v.kind == "source" else tasks for v in vertices]
    level = [0 if v.state is not None else -1 for v in vertices]
    nothing = np.full(slots, np.nan)
    return JobHistory(
        **{
            "name": name,
            "spec": spec,
            "t_s": t_s,
            "interval_s": interval_s,
            "load_per_s": day if load is None else np.full(slots, float(load)),
            "parallelism": np.tile(np.array(parallelism), (slots, 1)),
            "memory_level": np.tile(np.array(level), (slots, 1)),
            "late": np.zeros(slots),
            "lag_s": nothing,
            "latency_s": nothing,
            "outage_s": nothing,
            "is_dated": True,
            **given,
        }
    )


def replayed(policy, costs, late_s=0.0, rescales=0.0, job="orders", measured=0.0, changes=()):
    """A replay of one day for each cost; `late_s` and `rescales` are of every day."""
    blocks = [
        Block(block=100 + day, seconds=DAY_S, cost=cost, slo_s=late_s, rescales=rescales)
        for day, cost in enumerate(costs)
    ]
    line = {
        "subtasks": (4.0, 4.0, 2.0),
        "cost_per_h": (1.0, 1.0, 0.5),
        "latency_s": (0.1, None, 0.2),
        "lag_s": (0.0, 0.0, 1.0),
    }
    return JobReplay(
        policy=policy,
        job=job,
        blocks=tuple(blocks),
        late_where_measured=measured,
        line=line,
        changes=tuple(changes),
    )


def observed(cost=1.0, model_cost=1.0, late=0.0, model_late=0.0, days=10.0):
    return ObservedJob(
        cost_per_month=cost,
        model_cost_per_month=model_cost,
        late=late,
        model_late=model_late,
        rescales_per_day=0.5,
        days=days,
    )


def document(names, policies=("ds2", "learned"), vertices=3):
    """A backtest of jobs of these names, without any simulation."""
    random = np.random.default_rng(0)
    jobs, every = [], {policy: [] for policy in policies}
    for place, name in enumerate(names):
        now = replayed(INCUMBENT, 10 + random.random(12), job=name)
        found = observed(late=0.03 if place % 3 == 0 else 0.0)
        own = []
        for policy in policies:
            change = ReplayedRescale(slot=1, what=f"{name} 4 → 2", reason="demand <i>1/s</i>")
            mine = replayed(policy, 6 + random.random(12), 0, 2, name, changes=(change,) * 3)
            own.append((mine, claim_of(now, mine, found, BacktestTrust())))
            every[policy].append((now, mine, found, own[-1][1]))
        jobs.append(
            JobBacktest(
                name=name,
                vertices=vertices,
                begin_s=1.7e9,
                is_dated=True,
                interval_s=300,
                slo_latency_s=2.0,
                observed=found,
                claims=tuple(claim for _, claim in own),
                notes=(f"{name}: no samples from 3 to 4 s",),
                t_s=(0.0, 300.0, 600.0),
                seen={**now.line, "load_per_s": (100.0, 200.0, 150.0)},
                lines={INCUMBENT: now.line, **{one.policy: one.line for one, _ in own}},
                changes={INCUMBENT: (), **{one.policy: one.changes for one, _ in own}},
            )
        )
    fleet = [
        FleetClaim(
            policy=policy,
            saving_per_month=fleet_saving(
                [(now, mine) for now, mine, _, _ in rows], [(o, c) for _, _, o, c in rows]
            ),
            claimed_per_month=sum(claim.claimed_per_month for *_, claim in rows),
            jobs_claimed=sum(claim.claimed_per_month > 0 for *_, claim in rows),
        )
        for policy, rows in every.items()
    ]
    return Backtest(
        source="a test",
        currency="EUR",
        trust=BacktestTrust(),
        policies=tuple(policies),
        fleet=tuple(fleet),
        jobs=tuple(jobs),
        versions={"dsp-gym": "0"},
    )
