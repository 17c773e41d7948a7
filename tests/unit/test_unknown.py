"""Unknown metrics of one vertex, on a job simple enough to check by hand."""

from __future__ import annotations

import numpy as np
import pytest

from dsp_gym.loop.known_values import LONGEST_S
from dsp_gym.loop.lacking import DEMANDED, OBSERVED, SIZED
from dsp_gym.loop.per_job import per_job
from dsp_gym.loop.unknown import (
    ALL,
    NONE,
    UNFILLED,
    LastKnown,
    hold_unknown,
    marked,
    unknown_values,
)
from dsp_gym.policies import make
from tests.guarded_job import NAN, TOPOLOGY, snapshot
from tests.strategies import random_snapshot, random_topology

ONE_MORE, ONE_LESS = np.array([[2, 5, 5, 1]]), np.array([[2, 3, 3, 1]])
LEVEL = np.array([[-1, -1, 1, -1]])


def held(seen, wanted, keeps=ALL):
    return hold_unknown(seen, wanted, LEVEL, keeps)[0][0].tolist()


def without(name, column, **values):
    seen = snapshot(**values)
    getattr(seen, name)[0, column] = NAN
    return seen


def test_where_everything_is_reported_nothing_is_held_or_copied():
    seen = snapshot()
    assert marked(seen, SIZED) is seen
    assert hold_unknown(seen, ONE_LESS, LEVEL)[0] is ONE_LESS


def test_a_vertex_without_busy_time_is_held_alone():
    seen = marked(without("busy_ms_per_s", 1), DEMANDED)
    assert held(seen, ONE_LESS) == [2, 4, 3, 1]
    assert held(seen, ONE_MORE) == [2, 4, 5, 1]
    assert unknown_values(seen, 0) == "kept: busy_ms_per_s of 'map' is unknown"


def test_without_its_records_the_demand_downstream_is_unknown_too():
    seen = marked(without("records_in_per_s", 1), DEMANDED)
    assert held(seen, ONE_LESS) == held(seen, ONE_MORE) == [2, 4, 4, 1]
    assert held(seen, ONE_MORE, NONE) == [2, 5, 5, 1]
    assert held(seen, ONE_LESS, NONE) == [2, 4, 4, 1]
    last = marked(without("records_in_per_s", 2), DEMANDED)
    assert held(last, ONE_LESS) == [2, 3, 4, 1]


def test_a_metric_that_nothing_reports_is_not_lacking():
    seen = snapshot(busy_ms_per_s=NAN)
    assert marked(seen, DEMANDED) is seen


def test_without_its_backlog_a_source_needs_at_least_what_it_reads():
    last = LastKnown(DEMANDED)
    last.reset(TOPOLOGY)
    last.filled(snapshot())
    seen = last.filled(without("pending_records", 0, t_s=660.0, busy_now_ms_per_s=500.0))
    assert seen.pending_records[0, 0] == 0.0
    assert held(seen, ONE_MORE) == [2, 5, 5, 1]
    assert held(seen, ONE_LESS) == [2, 4, 4, 1]


@pytest.mark.parametrize(
    ("values", "stands_in"),
    [
        ({"t_s": 660.0}, True),
        ({"t_s": 600.0 + LONGEST_S}, True),
        ({"t_s": 601.0 + LONGEST_S}, False),
        ({"t_s": 660.0, "p": (5, 4)}, False),
    ],
)
def test_a_last_known_value_stands_in_for_ten_minutes_of_the_same_configuration(values, stands_in):
    last = LastKnown(DEMANDED)
    last.reset(TOPOLOGY)
    assert last.filled(seen := snapshot()) is seen
    found = last.filled(without("busy_ms_per_s", 1, **values))
    assert found.busy_ms_per_s[0, 1] == (500.0 if stands_in else pytest.approx(NAN, nan_ok=True))
    more = [[2, 9, 9, 1]]
    assert held(found, np.array(more), UNFILLED)[1] == (9 if stands_in else found.parallelism[0, 1])


def test_its_state_goes_on_where_it_stopped():
    first, other = LastKnown(DEMANDED), LastKnown(DEMANDED)
    for one in (first, other):
        one.reset(TOPOLOGY)
    first.filled(snapshot())
    other.restore(first.state())
    assert other.filled(without("busy_ms_per_s", 1, t_s=660.0)).busy_ms_per_s[0, 1] == 500.0


def test_a_trade_of_tasks_for_memory_is_not_carried_out_on_an_unknown():
    seen = marked(without("busy_ms_per_s", 2), DEMANDED)
    more_memory = np.array([[-1, -1, 2, -1]])
    p, level = hold_unknown(seen, ONE_LESS, more_memory, NONE)
    assert (p[0, 2], level[0, 2]) == (4, 1)


@pytest.mark.parametrize("policy", ["justin-paper", "justin-artifact"])
def test_an_unknown_hit_rate_takes_no_memory_and_a_cache_that_was_not_used_does(policy):
    for totals, level in ((NAN, 1), (100.0, -1)):
        totals_of = {f"cache_{what}_total": totals for what in ("hits", "misses")}
        justin = make(policy)
        justin.reset(TOPOLOGY, np.array([0]))
        seen = snapshot(hit=NAN, busy=(900.0, 900.0), busy_now_ms_per_s=900.0, **totals_of)
        decision = justin.decide(seen)
        assert decision.memory_level[0, 2] == level, decision.reasons


def test_a_function_of_one_job_takes_nothing_on_an_unknown():
    @per_job
    def one_task(job):
        return dict.fromkeys(job.vertices[1:3], 1)

    policy = one_task()
    policy.reset(TOPOLOGY, np.array([0]))
    decision = policy.decide(without("busy_ms_per_s", 1))
    assert decision.parallelism[0].tolist() == [2, 4, 1, 1]
    assert decision.reasons[0].endswith("kept: busy_ms_per_s of 'map' is unknown")


def test_a_hit_rate_is_unknown_where_lookups_were_counted():
    last = LastKnown(SIZED)
    for gained, is_lacking in ((0.0, False), (10.0, True)):
        last.reset(TOPOLOGY)
        last.filled(snapshot(cache_hits_total=100.0, cache_misses_total=100.0))
        totals = {"cache_hits_total": 100.0 + gained, "cache_misses_total": 100.0}
        seen = last.filled(snapshot(t_s=660.0, hit=NAN, **totals))
        assert (seen.cache_hit_rate[0, 2] == 0.7) == is_lacking


@pytest.mark.parametrize(
    "asked", [DEMANDED, SIZED, OBSERVED], ids=["demanded", "sized", "observed"]
)
@pytest.mark.parametrize("seed", range(4))
def test_values_that_wait_in_their_snapshot_are_as_good_as_copies(asked, seed):
    rng = np.random.default_rng(seed)
    topology = random_topology(rng, 5)
    waiting, copied = LastKnown(asked), LastKnown(asked)
    for one in (waiting, copied):
        one.reset(topology)
    copied.memories()
    seen, without_log = None, np.arange(5) < 2
    for minute in range(40):
        unknown = rng.choice([0.0, 0.0, 0.02])
        seen = random_snapshot(rng, topology, 60.0 * minute, unknown=unknown, previous=seen)
        if minute == 30:
            without_log[:] = False
        seen.pending_records[without_log] = seen.pending_growth_per_s[without_log] = NAN
        remember = bool(rng.integers(4))
        found = [one.filled(seen, remember=remember) for one in (waiting, copied)]
        assert (found[0] is seen) == (found[1] is seen)
        np.testing.assert_array_equal(found[0].arrays.vertex, found[1].arrays.vertex)
        if minute % 9 == 8:
            assert waiting.state() == copied.state()
        if minute % 7 == 6:
            mask = rng.integers(2, size=5) == 1
            for one in (waiting, copied):
                one.reset(topology, mask)
