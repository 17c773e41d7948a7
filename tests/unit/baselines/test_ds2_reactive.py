"""DS2 in reactive mode by hand: github.com/delftdata/espa-autoscaling at commit 2290fa6, ds2/."""

from __future__ import annotations

import numpy as np
import pytest

from baselines.reactive import Ds2Reactive
from baselines.reactive.ds2 import Ds2ReactiveConfig
from dsp_gym.loop.topology import Topology
from tests.strategies import blank_snapshot, spec_of

SPEC = spec_of(
    "q1",
    {"name": "source", "kind": "source", "partitions": 24},
    {"name": "map", "inputs": [{"from": "source"}]},
    {"name": "sink", "kind": "sink", "inputs": [{"from": "map"}]},
    max_parallelism_per_vertex=16,
)
JOBS = Topology.of([SPEC])
UPDATED = {"up_latency_s": 5.0, "down_latency_s": 1.0}


def ds2(**params):
    policy = Ds2Reactive(Ds2ReactiveConfig(**params))
    policy.reset(JOBS, np.array([0]))
    return policy


def workers(policy, running, busy, t_s=1000.0, *, rate=1000.0, growth=0.0, pending=0.0, **values):
    """Workers wanted where each of three vertices reads `rate` and is busy as given, ms/s."""
    snapshot = blank_snapshot(
        JOBS,
        t_s,
        parallelism=running,
        records_in_per_s=rate,
        records_out_per_s=rate,
        busy_ms_per_s=[busy],
        pending_records=[[pending, np.nan, np.nan]],
        pending_growth_per_s=[[growth, np.nan, np.nan]],
        **values,
    )
    parallelism = policy.decide(snapshot).parallelism[0, 1:]  # a source keeps its own
    assert len(set(parallelism.tolist())) == 1
    return parallelism[0]


def test_espa_the_largest_vertex_sets_the_parallelism_of_all():
    # Of 4 tasks busy 600 ms/s, 1000/s need 2.4: three. Source and sink need 1.2 and 0.4.
    assert workers(ds2(), 4, (300.0, 600.0, 100.0)) == 3


@pytest.mark.parametrize(("over", "expected"), [(0.0, 3), (0.33, 4), (0.66, 5)])
def test_espa_over_provisioning_multiplies_the_whole_number_and_rounds_up_again(over, expected):
    # Of the fraction it would be ceil(1.33 * 2.4) = 4 and ceil(1.66 * 2.4) = 4, not 5.
    assert workers(ds2(over_provisioning=over), 8, (0.1, 300.0, 0.1)) == expected


def test_espa_arrivals_count_not_what_is_read():
    # 1000 read and 500 more waiting each second: 1.5 times 2.4.
    assert workers(ds2(), 4, (300.0, 600.0, 100.0), growth=500.0) == 4


def test_espa_nothing_changes_within_240_s_of_a_change_of_the_workers():
    policy, busy = ds2(), (300.0, 600.0, 100.0)
    assert workers(policy, 4, busy, 1000.0, running_since_s=[780.0]) == 4
    assert workers(policy, 4, busy, 1020.0, running_since_s=[780.0]) == 3
    # Three run; the outage of 20 s began at 1015 s, and they are busy all the time.
    since = {"running_since_s": [1035.0], "outage_s": 20.0, "growth": 150.0}
    for t_s, expected in ((1060.0, 3), (1250.0, 3), (1260.0, 4)):
        policy = ds2()
        assert workers(policy, 4, busy, 1000.0) == 3
        assert workers(policy, 3, (900.0, 1000.0, 1.0), t_s, **since) == expected


def test_espa_it_looks_every_20_s():
    policy, busy = ds2(), (300.0, 600.0, 100.0)
    assert [workers(policy, 4, busy, 1000.0 + t) for t in (0, 5, 10, 15, 20)] == [3, 4, 4, 4, 3]


@pytest.mark.parametrize(
    ("busy", "pending", "expected"),
    [
        (1000.0, 4_900.0, 4),  # 4.9 s late: not yet
        (1000.0, 9_000.0, 6),  # six would do, and the job is late
        (600.0, 900.0, 3),  # 0.9 s late: down
        (600.0, 1_100.0, 4),
    ],
)
def test_espa_updated_goes_up_only_above_5_s_and_down_only_below_1_s(busy, pending, expected):
    growth = 500.0 if busy == 1000.0 else 0.0
    # Lateness is the backlog over the arrivals.
    arrivals = 1000.0 + growth
    found = workers(
        ds2(**UPDATED), 4, (1.0, busy, 1.0), growth=growth, pending=pending * arrivals / 1000
    )
    assert found == expected


def test_more_than_the_job_allows_is_its_bound_and_less_than_one_is_one():
    assert workers(ds2(), 8, (1.0, 1000.0, 1.0), growth=9000.0) == 16
    assert workers(ds2(), 8, (1.0, 1.0, 1.0)) == 1


def test_a_vertex_that_was_never_busy_leaves_the_job_alone():
    assert workers(ds2(), 8, (1.0, 0.0, 1.0)) == 8
    assert workers(ds2(), 8, (np.nan, np.nan, np.nan)) == 8


def test_down_is_not_asked_for_where_up_would_be():
    with pytest.raises(ValueError, match="down_latency_s 6 is above up_latency_s 5"):
        Ds2ReactiveConfig(up_latency_s=5.0, down_latency_s=6.0)


def test_the_window_is_the_policys_own():
    policy = ds2()
    totals = {"busy_now_ms_per_s": 900.0, "backpressured_now_ms_per_s": 0.0}
    for step in range(13):
        t_s, taken = 1000.0 + 5 * step, 5000.0 * step
        # The collector's window still says 100/s.
        found = workers(
            policy,
            4,
            (900.0,) * 3,
            t_s,
            rate=100.0,
            records_in_total=taken,
            records_out_total=taken,
            running_since_s=[1000.0],
            **totals,
        )
        assert found == 4
    seen = policy.state()["window"]
    assert seen["written"] == [13]


def test_reasons_name_the_load_and_the_workers_it_needs():
    snapshot = blank_snapshot(
        JOBS,
        1000.0,
        parallelism=4,
        records_in_per_s=1000.0,
        records_out_per_s=1000.0,
        busy_ms_per_s=600.0,
        pending_records=[[0.0, np.nan, np.nan]],
        pending_growth_per_s=[[0.0, np.nan, np.nan]],
    )
    reason = ds2().decide(snapshot).reasons[0]
    assert "arrivals 1,000/s need 3 workers, latency 0 s" in reason
