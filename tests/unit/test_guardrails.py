"""The effect of each guardrail, on a job simple enough to check by hand."""

from __future__ import annotations

import numpy as np
import pytest

from dsp_gym.errors import ConfigError, MetricsError, SchemaError
from dsp_gym.guardrails import Chain, GuardrailsConfig, build
from dsp_gym.guardrails.bounds_and_quota import BoundsAndQuota
from dsp_gym.guardrails.freeze import Freeze
from dsp_gym.guardrails.out_of_distribution import quantile_box
from dsp_gym.guardrails.step_limit import StepLimit
from dsp_gym.loop.decision import ScalingDecision
from dsp_gym.loop.known_values import LONGEST_S
from tests.guarded_job import NAN, TOPOLOGY, allowed, chain, snapshot, wanted


def test_bounds_clamp_and_only_stateless_vertices_go_without_memory():
    guards = chain(bounds_and_quota={"max_parallelism": 10})
    assert allowed(guards, snapshot(), wanted(0, 50, level=-1))[0] == (1, 10, 0)
    guarded = guards.allow(snapshot(), wanted(4, 4, level=9, stateless=-1))
    assert guarded.memory_level[0].tolist() == [-1, -1, 2, -1]


def test_over_the_quota_nothing_grows_but_shrinking_goes_on():
    guards = chain(bounds_and_quota={"cores": 12})
    assert allowed(guards, snapshot(), wanted(6, 5))[0] == (6, 5, 1)  # 12 with the sink
    assert allowed(guards, snapshot(), wanted(3, 12))[0] == (3, 4, 1)
    small = chain(bounds_and_quota={"memory_mib": 4 * 173 + 4 * (173 + 316) + 173})
    assert allowed(small, snapshot(), wanted(4, 4, level=2))[0] == (4, 4, 1)


def test_one_step_is_limited_up_down_and_in_memory():
    guards = chain(step_limit={"up_factor": 2.0, "down_factor": 0.5, "tasks": 1})
    assert allowed(guards, snapshot(p=(4, 1)), wanted(20, 20, level=4))[0] == (8, 2, 2)
    assert allowed(guards, snapshot(p=(8, 2)), wanted(1, 0, level=-1))[0] == (4, 1, 0)


def test_a_step_may_go_as_far_as_the_floor_requires():
    """Twenty tasks are required of one: four are the step limit's own most."""
    growing = [[1900.0, NAN, NAN, NAN]]
    loaded = snapshot(p=(1, 4), busy=(1000.0, 500.0), pending_growth_per_s=growing)
    floor = {"policy": {"policy": "ds2", "params": {"target_utilization": 1.0}}}
    alone = chain(step_limit={"up_factor": 4.0})
    assert allowed(alone, loaded, wanted(30, 4))[0][0] == 4
    both = chain(step_limit={"up_factor": 4.0}, capacity_floor=floor)
    assert allowed(both, loaded, wanted(20, 24)) == ((20, 24, 1), "")
    assert allowed(both, loaded, wanted(24, 24))[0][0] == 20


def test_after_a_restart_scale_down_waits_and_scale_up_does_not():
    guards = chain(cool_down={"scale_down_s": 300.0})
    young = snapshot(running_since_s=[400.0])
    assert allowed(guards, young, wanted(8, 2, level=0))[0] == (8, 4, 1)
    assert allowed(guards, snapshot(running_since_s=[300.0]), wanted(8, 2))[0] == (8, 2, 1)


def test_a_vertex_does_not_move_against_its_last_move():
    guards = chain(cool_down={"scale_down_s": 0.0, "reversal_s": 600.0})
    first, grown = snapshot(600.0), snapshot(720.0, p=(8, 4), running_since_s=[700.0])
    guards.commit(first, guards.allow(first, wanted(8, 4)))
    guards.commit(grown, guards.allow(grown, wanted(8, 4)))
    later = snapshot(1200.0, p=(8, 4), running_since_s=[700.0])
    assert allowed(guards, later, wanted(4, 2))[0] == (8, 2, 1)
    over = snapshot(1300.0, p=(8, 4), running_since_s=[700.0])
    assert allowed(guards, over, wanted(4, 2))[0] == (4, 2, 1)


HOUR = 3600.0


def watched(guards, *seen):
    """Watch a job with so many tasks of its first vertex at so many hours."""
    for hours, tasks in seen:
        guards.watch(snapshot(hours * HOUR, p=(tasks, 4)))


def test_a_job_settles_after_a_day_without_a_change():
    guards = chain(settle={})
    watched(guards, (0, 4), (5, 8), (20, 8))
    assert allowed(guards, snapshot(28.9 * HOUR, p=(8, 4)), wanted(9, 2))[0] == (9, 2, 1)
    late = snapshot(29.0 * HOUR, p=(8, 4))  # a day after the change at five hours
    assert allowed(guards, late, wanted(9, 2)) == (
        (8, 4, 1), "settle: the job has settled: unchanged for 24.0 h"
    )  # fmt: skip
    assert guards.allow(late, wanted(9, 2)).interventions[0].kind == "held"


def test_a_job_settles_after_three_days_however_often_it_was_changed():
    changed = [(h, 4 + h % 24 // 12) for h in range(0, 73, 12)]
    guards, patient = chain(settle={}), chain(settle={"at_most_s": None})
    for one in (guards, patient):
        watched(one, *changed[:-1])
    before, at = (snapshot(h * HOUR, p=(5, 4)) for h in (71.9, 72.0))
    assert allowed(guards, before, wanted(9, 2))[0] == (9, 2, 1)
    assert allowed(guards, at, wanted(9, 2)) == (
        (5, 4, 1), "settle: the job has settled: watched for 72.0 h"
    )  # fmt: skip
    assert allowed(patient, at, wanted(9, 2))[0] == (9, 2, 1)


def test_a_change_of_a_settled_job_by_somebody_else_begins_both_times_anew():
    guards = chain(settle={})
    watched(guards, (0, 4), (24, 4))
    assert allowed(guards, snapshot(25 * HOUR), wanted(9, 2))[0] == (4, 4, 1)
    by_owner = snapshot(26 * HOUR, p=(6, 4))
    assert allowed(guards, by_owner, wanted(9, 2))[0] == (9, 2, 1)
    watched(guards, (26, 6))
    assert allowed(guards, snapshot(49.9 * HOUR, p=(6, 4)), wanted(9, 2))[0] == (9, 2, 1)
    assert allowed(guards, snapshot(50 * HOUR, p=(6, 4)), wanted(9, 2))[0] == (6, 4, 1)


def test_a_restart_is_no_change_and_a_clock_set_forward_settles_nothing():
    guards = chain(settle={})
    watched(guards, (0, 4))
    guards.watch(snapshot(10 * HOUR, p=(0, 0), status=[2]))
    guards.set_forward(20 * HOUR)
    restarted = {"running_since_s": [40 * HOUR]}
    assert allowed(guards, snapshot(43.9 * HOUR, **restarted), wanted(9, 2))[0] == (9, 2, 1)
    assert allowed(guards, snapshot(44 * HOUR, **restarted), wanted(9, 2))[0] == (4, 4, 1)


def test_what_the_capacity_floor_requires_a_settled_job_still_gets():
    floor = {"policy": {"policy": "ds2", "params": {"target_utilization": 1.0}}}
    guards = chain(settle={}, capacity_floor=floor)
    watched(guards, (0, 4))
    growing = {"pending_growth_per_s": [[1900.0, NAN, NAN, NAN]]}
    loaded = snapshot(30 * HOUR, p=(1, 4), busy=(1000.0, 500.0), **growing)
    watched(guards, (1, 1))
    guarded, _ = allowed(guards, loaded, wanted(9, 2))
    assert guarded == (20, 24, 1)  # 24 is the most that the window may have


def test_a_clock_that_is_set_forward_ends_no_rest_after_a_move():
    guards = chain(cool_down={"scale_down_s": 0.0, "reversal_s": 600.0})
    first, grown = snapshot(600.0), snapshot(720.0, p=(8, 4), running_since_s=[700.0])
    guards.commit(first, guards.allow(first, wanted(8, 4)))
    guards.commit(grown, guards.allow(grown, wanted(8, 4)))
    guards.set_forward(3600.0)
    later = snapshot(4800.0, p=(8, 4), running_since_s=[4300.0])
    assert allowed(guards, later, wanted(4, 2))[0] == (8, 2, 1)
    over = snapshot(4900.0, p=(8, 4), running_since_s=[4300.0])
    assert allowed(guards, over, wanted(4, 2))[0] == (4, 2, 1)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"status": [1]}, "SAVEPOINTING"),
        ({"status": [2]}, "RESTARTING"),
        (
            {
                "pending_records": [[31000.0, NAN, NAN, NAN]],
                "records_in_per_s": 150.0,
                "pending_growth_per_s": [[-50.0, NAN, NAN, NAN]],
            },
            "backlog",
        ),
    ],
)
def test_a_job_that_restarts_or_catches_up_is_left_alone(values, words):
    found, said = allowed(chain(freeze={}), snapshot(**values), wanted(9, 3))
    assert found == (4, 4, 1)
    assert words in said


# 60 s of outage, and 31,000 records that wait while 100/s arrive.
@pytest.mark.parametrize(
    ("drained_per_s", "tasks", "passes"),
    [
        (50.0, 5, True),  # 620 s become 60 + 37,000 / 87.5 = 483 s
        (300.0, 5, False),  # 103 s would become 60 + 37,000 / 400 = 153 s
        (300.0, 16, True),  # 60 + 37,000 / 1,500 = 85 s
        (1.0, 5, True),  # 8.6 h
        (1.0, 3, False),
    ],
)
def test_a_catch_up_is_left_alone_unless_more_capacity_ends_it_earlier(
    drained_per_s, tasks, passes
):
    seen = snapshot(
        pending_records=[[31000.0, NAN, NAN, NAN]],
        records_in_per_s=100.0 + drained_per_s,
        pending_growth_per_s=[[-drained_per_s, NAN, NAN, NAN]],
        outage_s=[60.0],
        busy_ms_per_s=[[100.0, 1000.0, 900.0, 100.0]],
    )
    asked = tasks, max(4, tasks)
    found, _ = allowed(chain(freeze={}), seen, wanted(*asked))
    assert found == (*(asked if passes else (4, 4)), 1)


def test_a_slow_catch_up_keeps_what_it_has():
    """A backlog that shrinks by a record a second, and a policy that wants less."""
    seen = snapshot(
        pending_records=[[31000.0, NAN, NAN, NAN]],
        records_in_per_s=100.0,
        pending_growth_per_s=[[-1.0, NAN, NAN, NAN]],
        busy=(500.0, 1000.0),
    )
    assert allowed(chain(freeze={}), seen, wanted(9, 3))[0] == (4, 4, 1)
    assert allowed(chain(freeze={}), seen, wanted(9, 9, level=0))[0] == (4, 4, 1)
    assert allowed(chain(freeze={}), seen, wanted(4, 4, level=2))[0] == (4, 4, 2)


def catching_up(t_s, pending=31000.0, busy=(1000.0, 900.0)):
    return snapshot(
        t_s,
        pending_records=[[pending, NAN, NAN, NAN]],
        records_in_per_s=200.0,
        pending_growth_per_s=[[-100.0, NAN, NAN, NAN]],
        busy_ms_per_s=[[100.0, *busy, 100.0]],
        busy_now_ms_per_s=500.0,
    )


def test_a_gap_ends_a_freeze_when_the_last_known_backlog_is_too_old():
    guards = chain(freeze={})
    guards.watch(catching_up(600.0))
    for t_s, found in ((660.0, (4, 4, 1)), (600.0 + LONGEST_S, (4, 4, 1)), (1300.0, (3, 3, 1))):
        assert allowed(guards, catching_up(t_s, pending=NAN), wanted(3, 3))[0] == found


def test_a_gap_freezes_no_job():
    guards = chain(freeze={})
    guards.watch(catching_up(600.0, pending=0.0))
    assert allowed(guards, catching_up(660.0, pending=NAN), wanted(3, 3))[0] == (3, 3, 1)
    # A vertex that keeps its tasks because it does not report is none that holds up the others.
    seen, asked = catching_up(660.0, busy=(NAN, 900.0)), wanted(4, 9)
    guards.watch(catching_up(600.0, busy=(1000.0, 900.0)))
    assert allowed(guards, seen, asked)[0] == (4, 9, 1)
    assert allowed(guards, catching_up(660.0), asked)[0] == (4, 4, 1)


def test_a_growing_backlog_does_not_freeze():
    growing = {
        "pending_records": [[90000.0, NAN, NAN, NAN]],
        "pending_growth_per_s": [[50.0, NAN, NAN, NAN]],
    }
    assert allowed(chain(freeze={}), snapshot(**growing), wanted(9, 9))[0] == (9, 9, 1)


def test_stale_or_missing_metrics_hold_and_say_which():
    guards = chain(stale_metrics={})
    found, said = allowed(guards, snapshot(window_fill=[0.25]), wanted(9, 9))
    assert found == (4, 4, 1)
    assert "25 % of the metrics window" in said
    found, said = allowed(guards, snapshot(busy=(NAN, 500.0)), wanted(9, 9))
    assert found == (4, 9, 1)
    assert said == "stale_metrics: kept: busy_ms_per_s of 'map' is unknown"
    found, said = allowed(guards, snapshot(busy_ms_per_s=NAN), wanted(9, 9))
    assert found == (4, 4, 1)
    assert "unknown: busy_ms_per_s" in said
    assert allowed(guards, snapshot(), wanted(9, 9))[0] == (9, 9, 1)


def test_outside_the_box_the_running_configuration_is_held():
    bounds = {"busy_ms_per_s": (0.0, 800.0), "latency_p95_s": (0.0, 1.0)}
    guards = chain(out_of_distribution={"bounds": bounds, "action": "hold"})
    assert allowed(guards, snapshot(), wanted(9, 9))[0] == (9, 9, 1)
    found, said = allowed(guards, snapshot(busy=(900.0, 500.0)), wanted(9, 9))
    assert found == (4, 4, 1)
    assert said.endswith("training: busy_ms_per_s")
    tolerant = chain(out_of_distribution={"bounds": bounds, "action": "hold", "tolerated": 1})
    assert allowed(tolerant, snapshot(busy=(900.0, 500.0)), wanted(9, 9))[0] == (9, 9, 1)
    alone = {"bounds": bounds, "action": "hold", "tolerated": 1, "alone": ["busy_ms_per_s"]}
    strict = chain(out_of_distribution=alone)
    assert allowed(strict, snapshot(busy=(900.0, 500.0)), wanted(9, 9))[0] == (4, 4, 1)


def test_the_box_may_be_about_features_of_ones_own():
    config = GuardrailsConfig.model_validate(
        {"guardrails": [{"kind": "out_of_distribution", "bounds": {"load": (0, 1)},
                         "action": "hold"}]}
    )  # fmt: skip
    guards = build(config, features=lambda s: {"load": s.records_in_per_s[:, 0] / 90.0})
    guards.reset(TOPOLOGY, np.array([0]))
    assert allowed(guards, snapshot(), wanted(9, 9))[0] == (4, 4, 1)
    other = build(config, features=lambda s: {"laod": s.t_s})
    with pytest.raises(MetricsError, match=r"no feature 'load'.*Did you mean 'laod'\?"):
        other.allow(snapshot(), wanted(9, 9))


def test_without_a_box_nobody_asks_and_the_others_are_flagged_in_their_places():
    guards = chain(
        out_of_distribution={"action": "fallback"},
        fallback={"policy": "ds2"},
        bounds_and_quota={"max_parallelism": 10},
    )
    assert [guardrail.is_inert for guardrail in guards.guardrails] == [True, True, False]
    guarded = guards.allow(snapshot(), wanted(4, 50))
    assert guarded.trips.tolist() == [[False, False, True]]
    assert [found.guardrail for found in guarded.interventions] == ["bounds_and_quota"]
    assert guarded.replaced_by == (None,)


def test_a_box_is_learned_from_quantiles():
    values = np.arange(1001.0)
    low, high = quantile_box({"x": values}, tail=0.01, widen=0.0)["x"]
    assert (low, high) == pytest.approx((10.0, 990.0))


def test_the_fallback_decides_where_metrics_are_unlike_training():
    guards = chain(
        out_of_distribution={"bounds": {"busy_ms_per_s": (0.0, 800.0)}},
        fallback={"policy": "ds2"},
    )
    # map: 100/s at 100 / (0.9 * 4) per task needs 3.6; window 2, a fall by two.
    found, said = allowed(guards, snapshot(busy=(900.0, 500.0)), wanted(20, 20))
    assert found == (4, 2, 1)
    assert "ds2 decides, asked for by out_of_distribution (unlike anything" in said
    assert allowed(guards, snapshot(), wanted(20, 20))[0] == (20, 20, 1)


def floor(**params):
    model = {"policy": "justin-paper", "params": {"ds2": {}}}
    return chain(capacity_floor={"policy": model, **params})


def test_the_floor_is_what_the_model_requires_for_the_demand():
    # map needs 4 * 0.9 = 3.6, the window 4 * 0.45 = 1.8; its hit rate is good.
    seen = snapshot(busy=(900.0, 450.0), hit=0.9)
    found, said = allowed(floor(), seen, wanted(1, 1))
    assert found == (4, 2, 1)
    assert "requires map 4, window 2" in said
    assert allowed(floor(margin=0.5), seen, wanted(1, 1))[0] == (6, 3, 1)
    assert allowed(floor(), seen, wanted(9, 9))[0] == (9, 9, 1)


def test_memory_explains_fewer_tasks_where_justin_makes_the_same_move():
    # Demand grew: DS2 needs 6 windows; hit rate 0.7, so Justin keeps 4 and adds memory.
    grown = {"pending_growth_per_s": [[20.0, NAN, NAN, NAN]]}
    seen = snapshot(busy=(100.0, 1000.0), **grown)
    assert allowed(floor(), seen, wanted(4, 4, level=1))[0] == (4, 5, 1)
    assert allowed(floor(), seen, wanted(4, 4, level=2))[0] == (4, 4, 2)
    assert allowed(floor(), seen, wanted(4, 2, level=2))[0] == (4, 4, 2)
    assert allowed(floor(memory_factor=2.0), seen, wanted(4, 3, level=2))[0] == (4, 3, 2)


def test_memory_in_use_is_not_given_back_and_unneeded_memory_is():
    assert allowed(floor(), snapshot(hit=0.9), wanted(4, 4, level=0))[0] == (4, 4, 1)
    assert allowed(floor(), snapshot(hit=0.96), wanted(4, 4, level=0))[0] == (4, 4, 0)


def test_without_a_full_window_the_floor_asks_for_no_more_than_what_runs():
    seen = snapshot(p=(2, 4), busy=(1000.0, 900.0), hit=0.9, window_fill=[0.5],
                    pending_growth_per_s=[[100.0, NAN, NAN, NAN]])  # fmt: skip
    assert allowed(floor(), seen, wanted(1, 1))[0] == (2, 4, 1)


@pytest.mark.parametrize("early_s", [0.0, 0.003])  # turns of a real loop are not to the second
def test_a_patient_floor_lets_the_policy_answer_first_and_takes_nothing_away(early_s):
    """Map needs 4, and 2 run: for two minutes the policy may hold, but not shrink."""
    patient = floor(patience_s=120.0)
    demand = {"hit": 0.9, "pending_growth_per_s": [[100.0, NAN, NAN, NAN]]}
    found = []
    for step in range(4):
        t_s = 600.0 + (60.0 - early_s) * step
        seen = snapshot(t_s, p=(2, 4), busy=(1000.0, 450.0), **demand)
        shrunk, held = (allowed(patient, seen, wanted(p, 4))[0][0] for p in (1, 2))
        found.append((shrunk, held))
        patient.watch(seen)
    assert found == [(2, 2), (2, 2), (4, 4), (4, 4)]


def test_the_floor_asks_for_no_more_while_caches_fill():
    """Map needs 4, and 2 run; it misses less from minute to minute, so 2 may be enough."""
    whole = floor()
    demand = {"pending_growth_per_s": [[100.0, NAN, NAN, NAN]], "running_since_s": 500.0}
    found = []
    for step, hit in enumerate((0.5, 0.7, 0.8, 0.9, 0.9, 0.9)):
        seen = snapshot(600.0 + 60.0 * step, p=(2, 4), busy=(1000.0, 450.0), hit=hit, **demand)
        shrunk, held = (allowed(whole, seen, wanted(p, 4))[0][0] for p in (1, 2))
        found.append((shrunk, held))
        whole.watch(seen)
    # The first answer comes before anything is known; the last after two minutes of equal misses.
    assert found == [(4, 4), (2, 2), (2, 2), (2, 2), (2, 2), (4, 4)]


def test_a_floor_that_is_met_is_patient_anew():
    patient = floor(patience_s=60.0)
    demand = {"hit": 0.9, "pending_growth_per_s": [[100.0, NAN, NAN, NAN]]}
    patient.watch(snapshot(600.0, p=(2, 4), busy=(1000.0, 450.0), **demand))
    patient.watch(snapshot(660.0, p=(8, 8), busy=(500.0, 450.0), hit=0.9))
    short = snapshot(720.0, p=(2, 4), busy=(1000.0, 450.0), **demand)
    assert allowed(patient, short, wanted(2, 4))[0][0] == 2


@pytest.mark.parametrize(("latency_s", "expected"), [(0.1, (2, 2, 0)), (9.0, (4, 4, 1))])
def test_a_late_job_gives_up_neither_tasks_nor_memory(latency_s, expected):
    """The load needs two tasks of each vertex, and no memory."""
    keeping = floor(keep_when_late=True)
    seen = snapshot(hit=0.96, latency_p95_s=latency_s)
    assert allowed(keeping, seen, wanted(1, 1, level=0))[0] == expected
    assert allowed(keeping, seen, wanted(4, 4))[0] == (4, 4, 1)
    assert allowed(keeping, seen, wanted(5, 4))[0] == (5, 4, 1)


def test_a_late_job_may_trade_tasks_for_memory():
    keeping = floor(keep_when_late=True, memory_factor=2.0)
    late = snapshot(latency_p95_s=9.0)
    assert allowed(keeping, late, wanted(4, 2, level=2))[0] == (4, 2, 2)


def test_a_refusal_of_a_late_job_is_explained():
    _, words = allowed(floor(keep_when_late=True), snapshot(latency_p95_s=9.0), wanted(3, 4))
    assert "late" in words


def test_the_shipped_chains_are_in_order():
    assert build("none").names == ()
    names = build("default").names
    assert names[-1] == "bounds_and_quota"
    assert names.index("capacity_floor") < names.index("excess_budget")


@pytest.mark.parametrize(
    ("yaml", "message"),
    [
        ("guardrails: [{kind: freeze}, {kind: freeze}]", "'freeze' is given twice"),
        ("guardrails: [{kind: out_of_distribution}]", "no guardrail of kind 'fallback'"),
        ("guardrails: [{kind: stale_metrics, needed: [busy]}]", "no metric 'busy'"),
        ("guardrails: [{kind: bounds_and_quota, min_parallelism: 3, max_parallelism: 2}]", "below"),
        ("guardrails: [{kind: capacity_floor, policy: static}]", "computes no capacity"),
        ("guardrails: [{kind: fallback, policy: ds3}]", "there is no policy 'ds3'"),
    ],
)
def test_a_chain_that_makes_no_sense_is_refused(tmp_path, yaml, message):
    path = tmp_path / "guardrails.yaml"
    path.write_text(yaml)
    with pytest.raises(ConfigError, match=message):
        build(path)


def test_a_state_of_another_chain_is_refused():
    with pytest.raises(SchemaError, match="this chain has freeze"):
        chain(freeze={}).restore(chain(step_limit={}).state())


class Greedy(Freeze):
    """Stands where `freeze` does, and wants more than there may be."""

    def restrict(self, snapshot, parallelism, level):
        self.seen = parallelism.copy()
        parallelism[:, 1] += 1000
        return np.ones(len(parallelism), dtype=bool)


def test_a_guardrail_in_python_takes_its_turn_between_the_compiled_ones():
    greedy = Greedy()
    guards = Chain([BoundsAndQuota(), greedy, StepLimit()])
    guards.reset(TOPOLOGY, np.array([0]))
    guarded = guards.allow(snapshot(p=(4, 4)), wanted(100, 4))
    assert guards.names == ("step_limit", "freeze", "bounds_and_quota")
    assert greedy.seen[0, 1] == 16  # four times the tasks that run: the limit acted before
    assert guarded.parallelism[0, 1] == 24  # the job's bound: it acted behind
    assert guarded.trips.tolist() == [[True, True, True]]
    assert [one.guardrail for one in guarded.interventions] == list(guards.names)


def test_a_fallback_of_any_type_of_number_may_decide():
    guards = chain(excess_budget={"policy": "hpa-cpu", "outage_share": 0.0})
    guards.guardrails[0]._shadow.policy = NarrowPolicy()
    guarded = guards.allow(snapshot(), wanted(8, 8))
    assert guarded.parallelism[0].tolist() == [2, 5, 6, 1]
    assert guarded.trips.tolist() == [[True]]


class NarrowPolicy:
    """Decides in numbers of another type and layout."""

    name = "odd"

    def decide(self, snapshot):
        tasks = np.asfortranarray(np.array([[2, 5, 6, 1]], np.int16))
        return ScalingDecision(tasks, snapshot.memory_level.astype(np.int8), ("",))
