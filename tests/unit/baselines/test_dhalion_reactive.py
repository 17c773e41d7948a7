"""Dhalion in reactive mode by hand: github.com/delftdata/espa-autoscaling at 2290fa6, dhalion/."""

from __future__ import annotations

import numpy as np
import pytest

from baselines.reactive import DhalionReactive
from baselines.reactive.dhalion import DhalionReactiveConfig
from dsp_gym.loop.topology import Topology
from tests.strategies import blank_snapshot, spec_of

SPEC = spec_of(
    "q1",
    {"name": "source", "kind": "source", "partitions": 20},
    {"name": "map", "inputs": [{"from": "source"}]},
    {"name": "sink", "kind": "sink", "inputs": [{"from": "map"}]},
    max_parallelism_per_vertex=16,
)
JOBS = Topology.of([SPEC])


def dhalion(**params):
    policy = DhalionReactive(DhalionReactiveConfig(**params))
    policy.reset(JOBS, np.array([0]))
    return policy


def workers(policy, running, t_s=1000.0, *, sink=1000.0, back=0.0, cpu=0.5, **values):
    """Workers wanted where 1000/s are read, nothing waits and nothing is blocked."""
    backlog = {"pending_records": 0.0, "pending_growth_per_s": 0.0}
    backlog |= {name: values.pop(name) for name in tuple(backlog) if name in values}
    snapshot = blank_snapshot(
        JOBS,
        t_s,
        parallelism=running,
        records_in_per_s=[[1000.0, 1000.0, sink]],
        backpressured_ms_per_s=[[back, 0.0, 0.0]],
        tm_cpu_load=[cpu],
        **{name: [[value, np.nan, np.nan]] for name, value in backlog.items()},
        **values,
    )
    parallelism = policy.decide(snapshot).parallelism[0, 1:]  # a source keeps its own
    assert len(set(parallelism.tolist())) == 1
    return parallelism[0]


def late(seconds, growth=250.0):
    """A backlog of so many seconds of arrivals, and its growth."""
    return {"pending_records": seconds * (1000.0 + growth), "pending_growth_per_s": growth}


def test_espa_a_late_and_growing_backlog_gets_arrivals_over_throughput_and_a_fifth():
    # ceil(4 * 1250 / 1000 * 1.2) = 6
    assert workers(dhalion(), 4, cpu=1.0, **late(6.0)) == 6
    assert workers(dhalion(), 4, cpu=1.0, **late(4.9)) == 4
    assert workers(dhalion(latency_s=1.0), 4, cpu=1.0, **late(4.9)) == 6
    assert workers(dhalion(), 4, cpu=1.0, **late(60.0, growth=-250.0)) == 4


def test_espa_the_throughput_is_that_of_the_sink():
    # As in Q3, whose join drops records: ceil(2 * 1250 / 500 * 1.2) = 6.
    assert workers(dhalion(), 2, cpu=1.0, sink=500.0, **late(6.0)) == 6
    assert workers(dhalion(), 2, cpu=1.0, sink=0.0, **late(6.0)) == 2
    assert workers(dhalion(), 2, cpu=1.0, sink=9000.0, **late(6.0)) == 2


@pytest.mark.parametrize(("running", "expected"), [(8, 6), (6, 4), (4, 3), (3, 2), (2, 1), (1, 1)])
def test_espa_an_idle_job_loses_a_fifth_rounded_down_as_recorded(running, expected):
    assert workers(dhalion(), running) == expected


@pytest.mark.parametrize(
    "busy",
    [
        {"back": 100.0},
        {"cpu": 0.6},
        {"pending_records": 4000.0},  # 200 per partition are 0.2 s of all arrivals
        {"cpu": np.nan},
    ],
)
def test_espa_any_sign_of_load_keeps_the_workers(busy):
    assert workers(dhalion(), 8, **busy) == 8


def test_just_below_every_threshold_workers_go():
    assert workers(dhalion(), 8, back=99.9, cpu=0.599, pending_records=3999.0) == 6


def test_espa_nothing_changes_within_120_s_of_a_change_of_the_workers():
    policy = dhalion()
    assert workers(policy, 8, 1000.0) == 6
    since = {"running_since_s": [1025.0], "outage_s": 15.0}  # it began at 1010 s
    assert workers(policy, 6, 1030.0, **since) == 6
    assert workers(policy, 6, 1120.0, **since) == 6
    assert workers(policy, 6, 1130.0, **since) == 4


def test_espa_it_looks_every_10_s():
    policy = dhalion()
    assert [workers(policy, 8, 1000.0 + t) for t in (0, 5, 10, 15, 20)] == [6, 8, 6, 8, 6]


def test_while_the_job_is_down_nothing_changes():
    assert workers(dhalion(), 8, status=[2]) == 8


def test_reasons_say_why_workers_come_and_go():
    reasons = []
    for cpu, backlog in ((1.0, late(6.0)), (0.5, {"pending_records": 0.0})):
        values = {"pending_growth_per_s": 0.0, **backlog}
        snapshot = blank_snapshot(
            JOBS,
            1000.0,
            parallelism=4,
            records_in_per_s=1000.0,
            backpressured_ms_per_s=0.0,
            tm_cpu_load=cpu,
            **{name: [[value, np.nan, np.nan]] for name, value in values.items()},
        )
        reasons.append(dhalion().decide(snapshot).reasons[0])
    assert "latency 6 s and growing, 1,250/s arrive, 1,000/s reach the sink" in reasons[0]
    assert "CPU 50%, backpressure 0 ms/s, no lag" in reasons[1]
