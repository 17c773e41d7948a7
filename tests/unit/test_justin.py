"""Justin's branches, one by one, by the paper and by its code."""

from __future__ import annotations

import numpy as np
import pytest

from baselines.justin import (
    JustinArtifact,
    JustinArtifactConfig,
    JustinPaper,
    JustinPaperConfig,
    justin_ds2,
)
from dsp_gym.loop.topology import Topology
from tests.strategies import blank_snapshot, chain_spec

NAN = np.nan
TOPOLOGY = Topology.of([chain_spec()])


def snapshot(t_s, p, level, hit, latency=0.5, busy=1000.0, rate=100.0):
    """The window runs (p; level); its rate is what `busy` leaves of it."""
    return blank_snapshot(
        TOPOLOGY,
        t_s,
        parallelism=[[2, 1, p, 1]],
        memory_level=[[-1, -1, level, -1]],
        records_in_per_s=[[rate, rate, rate, rate]],
        records_out_per_s=[[rate, rate, rate, 0.0]],
        busy_ms_per_s=[[100.0, 500.0, busy, 100.0]],
        cache_hit_rate=[[NAN, NAN, hit, NAN]],
        state_read_latency_ms=[[NAN, NAN, latency, NAN]],
    )


def window(policy, *args, **kwargs):
    """(tasks, level) of the window after a decision."""
    decision = policy.decide(snapshot(*args, **kwargs))
    return int(decision.parallelism[0, 2]), int(decision.memory_level[0, 2])


def paper(**params):
    policy = JustinPaper(JustinPaperConfig(**params))
    policy.reset(TOPOLOGY, np.array([0]))
    return policy


def artifact(**params):
    policy = JustinArtifact(JustinArtifactConfig(**params))
    policy.reset(TOPOLOGY, np.array([0]))
    return policy


# A saturated window of p tasks: DS2 at 50 % with head-room asks for ceil(2.033 p).


def test_vertices_without_cache_metric_lose_their_memory_once_ds2_rescales():
    start = snapshot(600.0, 1, 0, 0.9)
    start.memory_level[:] = 0
    calm = snapshot(600.0, 1, 0, 0.9, busy=500.0)
    calm.memory_level[:] = 0
    assert paper().decide(calm).memory_level[0].tolist() == [0, 0, 0, 0]
    decision = paper().decide(start)
    assert decision.memory_level[0].tolist() == [-1, -1, 0, -1]
    assert decision.parallelism[0].tolist() == [2, 2, 3, 1]


@pytest.mark.parametrize(("hit", "latency"), [(0.79, 0.5), (0.9, 1.1)])
def test_paper_adds_memory_first_when_the_cache_could_gain(hit, latency):
    assert window(paper(), 600.0, 4, 0, hit, latency) == (4, 1)


@pytest.mark.parametrize(("hit", "latency"), [(0.8, 1.0), (0.95, 0.1)])
def test_paper_scales_out_when_the_cache_is_good(hit, latency):
    assert window(paper(), 600.0, 4, 0, hit, latency) == (9, 0)


def test_paper_goes_on_up_while_it_improves_and_the_bound_is_exclusive():
    policy = paper()
    assert window(policy, 600.0, 4, 0, 0.5) == (4, 1)
    assert window(policy, 720.0, 4, 1, 0.6) == (4, 2)
    assert window(policy, 840.0, 4, 2, 0.7) == (9, 2)
    capped = paper(max_level=2)
    assert window(capped, 600.0, 4, 0, 0.5) == (4, 1)
    assert window(capped, 720.0, 4, 1, 0.6) == (9, 1)


def test_paper_counts_a_lower_latency_as_improvement():
    policy = paper()
    assert window(policy, 600.0, 4, 0, 0.5, 2.0) == (4, 1)
    assert window(policy, 720.0, 4, 1, 0.5, 1.9) == (4, 2)


def test_paper_rolls_back_memory_that_did_not_help_and_scales_out():
    policy = paper()
    assert window(policy, 600.0, 4, 0, 0.5, 2.0) == (4, 1)
    assert window(policy, 720.0, 4, 1, 0.5, 2.0) == (9, 0)


def test_paper_may_ask_for_a_least_improvement():
    policy = paper(min_improvement=0.5)
    assert window(policy, 600.0, 4, 0, 0.5, 2.0) == (4, 1)
    assert window(policy, 720.0, 4, 1, 0.6, 1.5) == (9, 0)


def test_history_is_what_ran_not_what_was_asked_for():
    policy = paper()
    assert window(policy, 600.0, 4, 0, 0.5) == (4, 1)
    # The rescale never came: the same configuration still runs, so memory is tried again.
    assert window(policy, 720.0, 4, 0, 0.5) == (4, 1)


def test_paper_leaves_the_level_where_ds2_leaves_the_parallelism():
    policy = paper()
    # map leaves the band and triggers; the window is right at its target.
    both = snapshot(600.0, 4, 1, 0.5, busy=450.0)
    both.busy_ms_per_s[0, 1] = 900.0
    decision = policy.decide(both)
    assert (decision.parallelism[0, 2], decision.memory_level[0, 2]) == (4, 1)


def test_artifact_first_decision_assumes_one_task():
    assert window(artifact(), 600.0, 4, 0, 0.5) == (1, 1)
    assert window(artifact(), 600.0, 4, 0, 0.9) == (9, 0)


def test_artifact_never_goes_above_level_one_and_ignores_latency():
    policy = artifact()
    assert window(policy, 600.0, 1, 0, 0.5) == (1, 1)
    assert window(policy, 720.0, 1, 1, 0.7, rate=200.0) == (3, 1)
    slow = artifact()
    assert window(slow, 600.0, 4, 0, 0.9, latency=9.0) == (9, 0)


def test_artifact_takes_memory_back_that_gained_less_than_five_points():
    policy = artifact()
    assert window(policy, 600.0, 1, 0, 0.5) == (1, 1)
    assert window(policy, 720.0, 1, 1, 0.54, latency=0.1) == (3, 0)


def test_artifact_adds_memory_after_a_scale_out():
    policy = artifact()
    assert window(policy, 600.0, 2, 0, 0.9) == (5, 0)
    assert window(policy, 720.0, 5, 0, 0.7) == (5, 1)


def test_artifact_goes_further_only_with_throughput():
    for rate, expected in ((104.0, (3, 1)), (106.0, (1, 2))):
        policy = artifact(max_level=3)
        assert window(policy, 600.0, 1, 0, 0.5) == (1, 1)
        assert window(policy, 720.0, 1, 1, 0.7, rate=rate) == expected


def test_artifact_lets_the_level_fall_where_parallelism_stays():
    policy = artifact()
    window(policy, 600.0, 4, 0, 0.9)
    both = snapshot(720.0, 4, 1, 0.7, busy=450.0)
    both.busy_ms_per_s[0, 1] = 900.0
    decision = policy.decide(both)
    assert (decision.parallelism[0, 2], decision.memory_level[0, 2]) == (4, 0)


def test_artifact_takes_a_hit_rate_of_zero_for_stateless():
    assert window(artifact(), 600.0, 4, 0, 0.0) == (9, -1)
    assert window(artifact(zero_is_stateless=False), 600.0, 4, 0, 0.0) == (1, 1)


def test_what_is_required_does_not_wait_for_a_trigger():
    policy = paper()
    calm = snapshot(600.0, 4, 0, 0.5, busy=700.0)
    assert policy.decide(calm).parallelism[0, 2] == 4
    required = policy.required(calm)
    assert (required.parallelism[0, 2], required.memory_level[0, 2]) == (4, 1)
    assert required.horizontal[0, 2] == 6  # 4 * 0.7 * 2.033 = 5.7


@pytest.mark.parametrize("made", [paper, artifact])
def test_with_a_roll_back_that_never_comes_it_decides_as_without(made):
    plain, careful = made(), made(ds2=justin_ds2().model_copy(update={"roll_back": True}))
    seen = [(4, 0, 0.7, 900.0), (4, 1, 0.75, 900.0), (4, 1, 0.75, 400.0), (9, 1, 0.9, 950.0)]
    moves = 0
    for turn, (p, level, hit, busy) in enumerate(seen):
        at = 600.0 + 300.0 * turn
        given = {"p": p, "level": level, "hit": hit, "busy": busy}
        decided = window(plain, at, **given)
        assert window(careful, at, **given) == decided
        moves += decided != (p, level)
    assert moves >= 2
    assert plain.state()["history"] == careful.state()["history"]
