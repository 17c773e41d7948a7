"""The excess budget over a fallback, on a job simple enough to check by hand."""

from __future__ import annotations

import numpy as np
import pytest

from dsp_gym.loop.decision import ScalingDecision
from tests.guarded_job import allowed, chain, snapshot


def budget(**params):
    return chain(
        excess_budget={
            "policy": {"policy": "static", "params": {"parallelism": 4, "memory_level": 1}},
            "window_s": 3600.0,
        }
        | params
    )


STATIC = {"memory_level": 1}  # the static fallback gives every vertex level 1


def fallback_snapshot(t_s, p=(4, 4), **values):
    return snapshot(t_s, p=p, **{"memory_level": STATIC["memory_level"]} | values)


def jammed(t_s, p, level=1, **values):
    """As `fallback_snapshot`, late by five minutes, with tasks that are busy all the time."""
    full = {"latency_p95_s": 300.0, "busy": (1000.0, 1000.0)}
    return fallback_snapshot(t_s, p=p, memory_level=level, **full | values)


def own(p, level=1):
    return ScalingDecision(np.array([[2, *p, 1]]), np.full((1, 4), level), ("test",))


def test_the_budget_pays_for_rescales_until_it_does_not_cover_the_next():
    guards = budget(outage_share=0.05)  # 180 s: two rescales of 80 s
    decided = []
    for t_s in (600.0, 660.0, 720.0):
        seen = fallback_snapshot(t_s)
        guarded = guards.allow(seen, own((5, 4)))
        guards.commit(seen, guarded)
        decided.append(int(guarded.parallelism[0, 1]))
    assert decided == [5, 5, 4]


def test_the_budget_is_refilled_when_the_window_has_moved_on():
    guards = budget(outage_share=0.03)  # 108 s: one rescale
    for t_s, expected in ((600.0, 5), (660.0, 4), (4300.0, 5)):
        seen = fallback_snapshot(t_s)
        guarded = guards.allow(seen, own((5, 4)))
        guards.commit(seen, guarded)
        assert int(guarded.parallelism[0, 1]) == expected


def test_the_fallback_decides_for_as_long_as_it_is_given_and_all_is_counted_anew():
    """Two rescales of 80 s spend 180 s; after ten minutes there is a whole budget again."""
    guards = budget(outage_share=0.05, hand_over_s=600.0)
    decided = []
    for t_s in (600.0, 660.0, 720.0, 1260.0, 1320.0, 1380.0, 1440.0):
        seen = jammed(t_s, (4, 4), latency_p95_s=9.0)
        guarded = guards.allow(seen, own((5, 4)))
        guards.commit(seen, guarded)
        decided.append(int(guarded.parallelism[0, 1]))
    assert decided == [5, 5, 4, 4, 5, 5, 4]


def test_cost_above_the_fallbacks_own_is_counted_and_ends():
    guards = budget(outage_share=0.5, cost_share=0.05)
    start = fallback_snapshot(600.0)
    guards.commit(start, guards.allow(start, own((8, 8))))
    taken_over = None
    for step in range(1, 30):
        seen = fallback_snapshot(600.0 + 60.0 * step, p=(8, 8))
        guarded = guards.allow(seen, own((8, 8)))
        guards.commit(seen, guarded)
        if guarded.parallelism[0, 1] == 4:
            taken_over = 60.0 * step
            break
    # 17 instead of 9 subtasks of the same size cost 8/9 more; 5 % of an hour at that rate are
    # 0.05 * 3600 / (8/9) = 202 s.
    assert taken_over == 240.0
    _, said = allowed(guards, seen, own((8, 8)))
    assert "budget of excess cost is spent" in said


def test_late_seconds_in_a_configuration_of_its_own_count_as_outage():
    guards = budget(outage_share=0.09)  # 324 s: one rescale of 80 s, and 164 s late
    start = fallback_snapshot(600.0)
    guards.commit(start, guards.allow(start, own((2, 4))))
    found = []
    for step in (1, 2, 3, 4):
        seen = jammed(600.0 + 60.0 * step, (2, 4), latency_p95_s=9.0)
        guarded = guards.allow(seen, own((2, 4)))
        guards.commit(seen, guarded)
        found.append(int(guarded.parallelism[0, 1]))
    assert found == [2, 2, 2, 4]


def test_what_the_fallback_does_itself_is_free():
    guards = budget(outage_share=0.025)
    for t_s in (600.0, 660.0, 720.0, 780.0):
        seen = fallback_snapshot(t_s, p=(4, 4), latency_p95_s=9.0)
        guarded = guards.allow(seen, own((4, 4)))
        guards.commit(seen, guarded)
    _, outage = guards.guardrails[0].spent(fallback_snapshot(840.0))
    assert outage[0] == 0.0


def test_what_was_saved_pays_for_lateness_at_its_price():
    """In half an hour 3 of 9 tasks less save a third: 600 s of the fallback, 150 late s at 4."""
    spent = {}
    for price in (None, 4.0):
        guards = budget(outage_share=0.05, cost_share=0.05, late_price=price)
        start = fallback_snapshot(600.0)
        guards.commit(start, guards.allow(start, own((1, 4))))
        for step in range(1, 31):
            seen = fallback_snapshot(600.0 + 60.0 * step, p=(1, 4))
            guards.commit(seen, guards.allow(seen, own((1, 4))))
        spent[price] = guards.guardrails[0].spent(seen)[1][0]
    allowed = 0.05 * 3600 - 80
    assert spent[None] == pytest.approx(80 / allowed)
    assert spent[4.0] == pytest.approx(80 / (allowed + 1800 / 3 / 4), rel=0.01)


def test_the_price_of_what_was_saved_is_that_of_its_time():
    """A fallback that grows makes no earlier saving worth less."""
    guards = chain(
        excess_budget={
            "policy": {"policy": "ds2", "params": {"warm_up_s": 0, "target_utilization": 0.5}},
            "window_s": 3600.0,
            "outage_share": 0.05,
            "late_price": 4.0,
        }
    )
    rare = {"records_in_per_s": 100.0, "records_out_per_s": 100.0}
    for step in range(20):
        seen = fallback_snapshot(600.0 + 60.0 * step, p=(2, 2), busy=(250.0, 250.0), **rare)
        guards.commit(seen, guards.allow(seen, own((1, 2))))
    before = guards.guardrails[0].spent(seen)[1][0]
    seen = fallback_snapshot(1860.0, p=(2, 2), busy=(900.0, 900.0), **rare)
    assert guards.guardrails[0].spent(seen)[1][0] <= before + 1e-9


def test_a_burst_of_lateness_is_not_for_sale():
    """Late for good minutes long: savings of any size do not pay for it."""
    guards = budget(window_s=86400.0, outage_share=0.5, late_price=0.001, burst_s=200.0)
    start = fallback_snapshot(2000.0)
    guards.commit(start, guards.allow(start, own((2, 4))))
    found = []
    for step in range(1, 6):
        seen = jammed(2000.0 + 30.0 * step, (2, 4), latency_p95_s=9.0)
        guarded = guards.allow(seen, own((2, 4)))
        guards.commit(seen, guarded)
        found.append(int(guarded.parallelism[0, 1]))
    # 80 s of outage, 30 s before every snapshot, and 9 s behind a twin that carries twice the load.
    assert found == [2, 2, 2, 2, 4]


def test_what_is_still_to_be_caught_up_with_counts_as_a_burst():
    """Five minutes behind is more than 200 s, however few of them have been late so far."""
    guards = budget(outage_share=0.5, late_price=0.001, burst_s=200.0)
    start = fallback_snapshot(600.0)
    guards.commit(start, guards.allow(start, own((2, 4))))
    seen = jammed(630.0, (2, 4), latency_p95_s=0.1)
    guards.commit(seen, guards.allow(seen, own((2, 4))))
    assert allowed(guards, jammed(660.0, (2, 4)), own((2, 4)))[0][0] == 4


def test_after_a_burst_a_policy_whose_job_catches_up_goes_on():
    guards = budget(window_s=86400.0, outage_share=0.5, burst_s=100.0)
    for t_s, p in ((600.0, 4), (660.0, 5)):
        seen = fallback_snapshot(t_s, p=(p, 4))
        guards.commit(seen, guards.allow(seen, own((p + 1, 4))))
    assert guards.guardrails[0].spent(fallback_snapshot(720.0, p=(6, 4)))[1][0] == pytest.approx(
        1.6
    )
    assert allowed(guards, fallback_snapshot(720.0, p=(6, 4)), own((7, 4)))[0][0] == 7
    assert allowed(guards, jammed(720.0, (2, 4)), own((3, 4)))[0][0] == 4


def test_a_configuration_that_nobody_has_measured_yet_is_not_judged():
    """Five tasks were busy for half of the time: two are too few."""
    guards = budget(window_s=86400.0, outage_share=0.5, burst_s=100.0)
    for t_s, p in ((600.0, 4), (660.0, 5)):
        seen = fallback_snapshot(t_s, p=(p, 4))
        guards.commit(seen, guards.allow(seen, own((p + 1, 4))))
    assert allowed(guards, jammed(720.0, (2, 4), window_fill=0.5), own((3, 4)))[0][0] == 3
    assert allowed(guards, jammed(780.0, (2, 4)), own((3, 4)))[0][0] == 4


def test_a_fallback_that_would_be_content_with_a_dear_configuration_begins_with_its_twins():
    """Within ds2-justin's band are eight tasks that are busy a quarter of the time, and four."""
    guards = chain(
        excess_budget={
            "policy": "ds2-justin",
            "window_s": 3600.0,
            "outage_share": 0.5,
            "cost_share": 0.05,
            "burst_s": 1e6,
        }
    )
    start = snapshot(600.0)
    guards.commit(start, guards.allow(start, own((8, 8))))
    found = []
    for step in range(1, 10):
        seen = snapshot(600.0 + 60.0 * step, p=(8, 8), busy=(250.0, 250.0))
        guarded = guards.allow(seen, own((8, 8)))
        guards.commit(seen, guarded)
        found.append(tuple(guarded.parallelism[0, 1:3].tolist()))
    assert (4, 4) in found


@pytest.mark.parametrize(("busy", "expected"), [(250.0, 4), (750.0, 8)])
def test_a_job_that_carries_the_load_does_not_get_a_twin_that_does_not(busy, expected):
    """The fallback holds for ever, and its twin has four tasks; the load keeps two or six busy."""
    guards = chain(
        excess_budget={
            "policy": {"policy": "ds2", "params": {"warm_up_s": 1e6}},
            "window_s": 3600.0,
            "outage_share": 0.5,
            "cost_share": 0.05,
            "burst_s": 1e6,
            "hand_over_s": 3600.0,
        }
    )
    start = snapshot(600.0)
    guards.commit(start, guards.allow(start, own((8, 8))))
    for step in range(1, 10):
        seen = snapshot(600.0 + 60.0 * step, p=(8, 8), busy=(busy, busy))
        guarded = guards.allow(seen, own((7, 7)))
        if guards.guardrails[0].replaces(seen)[0]:
            break
        guards.commit(seen, guarded)
    assert tuple(guarded.parallelism[0, 1:3].tolist()) == (expected, expected)


def test_a_job_that_is_taken_over_first_gets_the_configuration_of_the_twin():
    """DS2 would go from one busy task step by step; its twin has long been where the load is."""
    guards = chain(
        excess_budget={
            "policy": {"policy": "static", "params": {"parallelism": 6, "memory_level": 1}},
            "window_s": 3600.0,
            "outage_share": 0.05,
        }
    )
    start = fallback_snapshot(600.0, p=(6, 6))
    guards.commit(start, guards.allow(start, own((1, 1))))
    for step in range(1, 4):
        seen = jammed(600.0 + 60.0 * step, (1, 1))
        guards.commit(seen, guards.allow(seen, own((1, 1))))
    assert allowed(guards, jammed(840.0, (1, 1)), own((1, 1)))[0] == (6, 6, 1)


def test_the_fallback_rescales_nothing_while_caches_fill():
    """One task for two minutes spends the budget; the twin has four."""
    guards, found = budget(outage_share=0.05), []
    start = fallback_snapshot(600.0)
    guards.commit(start, guards.allow(start, own((1, 1))))
    for step, hit in enumerate((0.2, 0.4, 0.6, 0.7, 0.8, 0.8, 0.8)):
        seen = jammed(660.0 + 60.0 * step, (1, 1), hit=hit, running_since_s=600.0)
        guarded = guards.allow(seen, own((1, 1)))
        guards.commit(seen, guarded)
        found.append((bool(guards.guardrails[0].replaces(seen)[0]), int(guarded.parallelism[0, 1])))
    assert found[2:] == [(True, 1), (True, 1), (True, 1), (True, 1), (True, 4)]


def test_what_nobody_enacted_spends_no_budget():
    acted, watched = budget(outage_share=0.05), budget(outage_share=0.05)
    decided = {"acted": [], "watched": []}
    for step in range(6):
        # Dearer and later than the fallback, in a configuration that is not the policy's doing.
        seen = fallback_snapshot(600.0 + 600.0 * step, p=(8, 8), latency_p95_s=9.0)
        for name, guards in (("acted", acted), ("watched", watched)):
            guarded = guards.allow(seen, own((9, 8)))
            decided[name].append(int(guarded.parallelism[0, 1]))
            if guards is acted:
                guards.commit(seen, guarded)
            else:
                guards.watch(seen)
    # The fallback decides, and takes nothing from a late job.
    assert decided["acted"][-1] == 8
    assert decided["watched"] == [9] * 6
    assert [share[0] for share in watched.guardrails[0].spent(seen)] == [0.0, 0.0]


def test_a_policy_that_begins_to_act_is_billed_from_then_on():
    guards = budget(outage_share=0.5, cost_share=0.05)
    for step in range(10):
        guards.watch(fallback_snapshot(600.0 + 60.0 * step, p=(8, 8)))
    seen = fallback_snapshot(1200.0, p=(8, 8))
    assert int(guards.allow(seen, own((8, 8))).parallelism[0, 1]) == 8
    guards.commit(seen, guards.allow(seen, own((8, 8))))
    last = [fallback_snapshot(1200.0 + 60.0 * step, p=(8, 8)) for step in range(1, 8)]
    for seen in last:
        guards.commit(seen, guards.allow(seen, own((8, 8))))
    assert int(guards.allow(last[-1], own((8, 8))).parallelism[0, 1]) == 4
