"""Dhalion by hand: symptom, diagnosis, one operator per step, blacklist, idleness."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from baselines.dhalion import Dhalion, DhalionConfig, scale_up
from dsp_gym.errors import ConfigError
from dsp_gym.loop.topology import Topology
from dsp_gym.policies import PolicyConfig, make
from tests.strategies import blank_snapshot, random_snapshot, random_topology, spec_of

SPEC = spec_of(
    "chain",
    {"name": "source", "kind": "source", "parallelism": 2, "scalable": False},
    {"name": "map", "inputs": [{"from": "source"}]},
    {"name": "count", "inputs": [{"from": "map"}]},
    {"name": "sink", "kind": "sink", "inputs": [{"from": "count"}], "scalable": False},
    max_parallelism_per_vertex=64,
)
TOPOLOGY = Topology.of([SPEC])


def dhalion(topology=TOPOLOGY, **params):
    policy = Dhalion(DhalionConfig(**params))
    policy.reset(topology, np.array([0]))
    return policy


def tasks(policy, running, back, t_s=600.0, *, idle=0.0, rate=1000.0, **values):
    """Tasks of map and count; `back` of source, map and count."""
    snapshot = blank_snapshot(
        TOPOLOGY,
        t_s,
        parallelism=[[2, *running, 1]],
        backpressured_ms_per_s=[[*back, 0.0]],
        idle_ms_per_s=idle,
        records_in_per_s=rate,
        **values,
    )
    decision = policy.decide(snapshot)
    assert decision.parallelism[0, [0, 3]].tolist() == [2, 1]
    return tuple(decision.parallelism[0, 1:3].tolist())


@pytest.mark.parametrize(
    ("count", "pressure", "expected"),
    [
        (4, 200.0, 5),  # 20 % over 80 % is a quarter more
        (10, 500.0, 20),  # as long in backpressure as without
        (10, 110.0, 12),  # 11 / 89 of ten is 1.24: rounded up
        (3, 900.0, 15),  # 9, but at most 4 times as many more
        (2, 1000.0, 10),
    ],
)
def test_the_scale_up_factor_is_time_in_backpressure_over_time_without(count, pressure, expected):
    assert scale_up(count, pressure, 4.0) == expected


def test_the_initiator_is_who_makes_others_wait_and_waits_for_nobody():
    # Source and map wait, so count holds both back; its input waits half of the time.
    assert tasks(dhalion(), (4, 4), (980.0, 500.0, 0.0)) == (4, 8)
    # Only the source waits: map is the initiator.
    assert tasks(dhalion(), (4, 4), (500.0, 0.0, 0.0)) == (8, 4)


def test_of_two_initiators_the_one_that_holds_back_longest_is_scaled_alone():
    spec = spec_of(
        "diamond",
        {"name": "source", "kind": "source"},
        {"name": "other", "kind": "source"},
        {"name": "a", "inputs": [{"from": "source"}]},
        {"name": "b", "inputs": [{"from": "other"}]},
        {"name": "sink", "kind": "sink", "inputs": [{"from": "a"}, {"from": "b"}]},
        max_parallelism_per_vertex=64,
    )
    jobs = Topology.of([spec])
    names = jobs.names(0)
    back = np.zeros((1, 5))
    back[0, [names.index("source"), names.index("other")]] = 200.0, 500.0
    snapshot = blank_snapshot(
        jobs, parallelism=4, backpressured_ms_per_s=back, records_in_per_s=1000.0
    )
    decided = dhalion(jobs).decide(snapshot)
    assert decided.parallelism[0, names.index("b")] == 8
    assert np.count_nonzero(decided.parallelism != snapshot.parallelism) == 1
    assert "inputs blocked 500 ms/s by this vertex" in decided.reasons[0]


def test_backpressure_below_the_noise_is_no_symptom():
    assert tasks(dhalion(), (4, 4), (20.0, 0.0, 0.0)) == (4, 4)
    assert tasks(dhalion(), (4, 4), (20.1, 0.0, 0.0)) == (5, 4)


def test_it_looks_every_minute_and_rests_three_after_a_rescale():
    policy, back = dhalion(), (500.0, 0.0, 0.0)
    assert tasks(policy, (4, 4), back, 600.0) == (8, 4)
    assert tasks(policy, (4, 4), back, 630.0) == (4, 4)
    assert tasks(policy, (4, 4), back, 660.0) == (8, 4)  # not enacted the first time
    for t_s in (720.0, 780.0, 840.0):
        assert tasks(policy, (8, 4), back, t_s, running_since_s=[700.0]) == (8, 4)
    assert tasks(policy, (8, 4), back, 880.0, running_since_s=[700.0], rate=2000.0) == (16, 4)


def test_while_down_or_without_metrics_nothing_changes():
    assert tasks(dhalion(), (4, 4), (500.0, 0.0, 0.0), status=[2]) == (4, 4)
    assert tasks(dhalion(), (4, 4), (np.nan,) * 3, idle=np.nan) == (4, 4)


def step(policy, t_s, after, back, **values):
    """A rescale that was seen, and the decision after the rest."""
    tasks(policy, after, back, t_s, running_since_s=[t_s - 10.0], **values)
    return tasks(policy, after, back, t_s + 240.0, running_since_s=[t_s - 10.0], **values)


def test_a_scale_up_that_brings_nothing_is_blacklisted():
    policy, back = dhalion(), (500.0, 0.0, 0.0)
    assert tasks(policy, (4, 4), back, 600.0) == (8, 4)
    assert step(policy, 700.0, (8, 4), back) == (8, 4)
    assert tasks(policy, (8, 4), back, 99_000.0) == (8, 4)


def test_a_scale_up_after_which_more_is_taken_in_is_not():
    policy, back = dhalion(), (500.0, 0.0, 0.0)
    assert tasks(policy, (4, 4), back, 600.0) == (8, 4)
    assert step(policy, 700.0, (8, 4), back, rate=1100.0) == (16, 4)


def test_a_scale_up_whose_effect_is_unknown_is_not_held_against_it():
    policy, back = dhalion(), (500.0, 0.0, 0.0)
    assert tasks(policy, (4, 4), back, 600.0, rate=np.nan) == (8, 4)
    assert step(policy, 700.0, (8, 4), back) == (16, 4)


def test_the_blacklist_holds_for_as_long_as_it_is_told_to():
    policy, back = dhalion(blacklist_s=3600.0), (500.0, 0.0, 0.0)
    assert tasks(policy, (4, 4), back, 600.0) == (8, 4)
    assert step(policy, 700.0, (8, 4), back) == (8, 4)
    assert tasks(policy, (8, 4), back, 4_400.0) == (8, 4)
    assert tasks(policy, (8, 4), back, 4_600.0) == (16, 4)


def test_the_ratio_of_actions_in_vain_decides():
    policy, back = dhalion(blacklist_ratio=0.5), (500.0, 0.0, 0.0)
    assert tasks(policy, (4, 4), back, 600.0) == (8, 4)
    assert step(policy, 700.0, (8, 4), back, rate=2000.0) == (16, 4)
    # One of two in vain is not more than half; two of three are.
    assert step(policy, 1000.0, (16, 4), back, rate=2000.0) == (32, 4)
    assert step(policy, 1300.0, (32, 4), back, rate=2000.0) == (32, 4)


def test_an_idle_vertex_is_scaled_down_by_a_fifth_the_most_idle_first():
    idle = [[0.0, 750.0, 900.0, 950.0]]
    assert tasks(dhalion(), (10, 10), (0.0, 0.0, 0.0), idle=idle) == (10, 8)
    assert tasks(dhalion(), (10, 1), (0.0, 0.0, 0.0), idle=idle) == (8, 1)
    assert tasks(dhalion(scale_down_share=0.0), (10, 10), (0.0, 0.0, 0.0), idle=idle) == (10, 10)


def test_backpressure_anywhere_keeps_idle_vertices():
    # Only the sink, which cannot be scaled, holds anybody back.
    assert tasks(dhalion(), (10, 10), (900.0, 900.0, 900.0), idle=800.0) == (10, 10)


def test_a_scale_down_that_leads_to_backpressure_is_undone_and_not_tried_again():
    policy, calm = dhalion(), (0.0, 0.0, 0.0)
    idle = [[0.0, 750.0, 0.0, 0.0]]
    assert tasks(policy, (10, 4), calm, 600.0, idle=idle) == (8, 4)
    assert step(policy, 700.0, (8, 4), (200.0, 0.0, 0.0)) == (10, 4)
    assert step(policy, 1000.0, (10, 4), calm, idle=idle) == (10, 4)


@pytest.mark.parametrize("seed", range(8))
def test_no_decision_moves_more_than_one_vertex_of_a_job(seed):
    rng = np.random.default_rng(seed)
    jobs = random_topology(rng, 32)
    policy = Dhalion(DhalionConfig(wait_s=0.0))
    policy.reset(jobs, np.arange(32))
    moved = 0
    for step in range(6):
        snapshot = random_snapshot(rng, jobs, 600.0 + 60.0 * step)
        snapshot = replace(snapshot, idle_ms_per_s=1000 - snapshot.busy_ms_per_s)
        snapshot.backpressured_ms_per_s[: 32 // 2] = 0.0
        decided = policy.decide(snapshot)
        changes = np.count_nonzero(decided.parallelism != snapshot.parallelism, axis=1)
        assert changes.max() <= 1
        moved += int(changes.sum())
    assert moved > 10  # random metrics do call for some


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"idle_ms_per_s": 300, "scale_down_share": 0.5}, "conflict.*raise the first"),
        ({"noise_ms_per_s": 1000}, "noise_ms_per_s"),
        ({"max_grow": 3}, "Did you mean 'max_growth'"),
    ],
)
def test_wrong_parameters_are_refused(params, message):
    with pytest.raises(ConfigError, match=message):
        make(PolicyConfig(policy="dhalion", params=params))
