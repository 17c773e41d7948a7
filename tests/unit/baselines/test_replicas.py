"""The behaviour policies of autoscaling/v2, as kube-controller-manager applies them."""

from __future__ import annotations

import numpy as np
import pytest

from baselines.replicas import Behavior, HorizontalController, recommend
from dsp_gym.config.files import parse
from dsp_gym.errors import ConfigError
from dsp_gym.loop.topology import Topology
from dsp_gym.policies import PolicyConfig, make
from tests.strategies import blank_snapshot, chain_spec

TOPOLOGY = Topology.of([chain_spec(max_parallelism_per_vertex=64)])
PODS_2_PER_MINUTE = {"type": "Pods", "value": 2, "period_s": 60}
PERCENT_50_PER_MINUTE = {"type": "Percent", "value": 50, "period_s": 60}


def controller(per_vertex=True, **behavior):
    made = HorizontalController(
        parse(Behavior, behavior, "behavior"), sync_period_s=15.0, per_vertex=per_vertex
    )
    made.reset(TOPOLOGY)
    return made


def pods(made, running, recommended, t_s=600.0, since=0.0):
    """Tasks of the vertex 'map'; the others stay."""
    snapshot = blank_snapshot(
        TOPOLOGY, t_s, parallelism=[[2, running, 4, 1]], running_since_s=[since]
    )
    wanted = np.array([[2, recommended, 4, 1]])
    decided = made.replicas(snapshot, made.current(snapshot), wanted)
    assert decided[0, [0, 2, 3]].tolist() == [2, 4, 1]
    return int(decided[0, 1])


def test_desired_replicas_by_the_documentation_of_kubernetes():
    # "if the current metric value is 200m, and the desired value is 100m, replicas double;
    # if it is 50m, they halve"; 109m is within the tolerance of 0.1.
    assert [recommend(4, value / 100, 0.1) for value in (200, 50, 109)] == [8, 2, 4]


@pytest.mark.parametrize(
    ("select", "expected"),
    # From 10: two pods more are 12, half of 10 more are 15.
    [("Max", 15), ("Min", 12), ("Disabled", 10)],
)
def test_select_policy_takes_the_larger_the_smaller_or_no_rise(select, expected):
    rules = {"policies": [PODS_2_PER_MINUTE, PERCENT_50_PER_MINUTE], "select_policy": select}
    assert pods(controller(scale_up=rules), 10, 40) == expected


@pytest.mark.parametrize(
    ("select", "expected"),
    # From 10: two pods less are 8, half of 10 less are 5.
    [("Max", 5), ("Min", 8), ("Disabled", 10)],
)
def test_select_policy_takes_the_larger_the_smaller_or_no_fall(select, expected):
    rules = {
        "stabilization_window_s": 0,
        "policies": [PODS_2_PER_MINUTE, PERCENT_50_PER_MINUTE],
        "select_policy": select,
    }
    assert pods(controller(scale_down=rules), 10, 1) == expected


def test_a_period_counts_what_was_added_within_it():
    made = controller(scale_up={"policies": [{"type": "Pods", "value": 4, "period_s": 60}]})
    assert pods(made, 10, 40, 600.0) == 14
    assert pods(made, 13, 40, 615.0) == 14  # three came up; ten at the period's start
    assert pods(made, 14, 40, 630.0) == 14  # all four are used
    assert pods(made, 14, 40, 675.0) == 17  # the three of 615 are out, the one of 630 is in
    assert pods(made, 14, 40, 690.0) == 18


def test_a_period_counts_from_when_the_job_came_up():
    made = controller(scale_up={"policies": [{"type": "Pods", "value": 4, "period_s": 60}]})
    assert pods(made, 10, 40, 600.0) == 14
    assert pods(made, 14, 40, 660.0, since=640.0) == 14
    assert pods(made, 14, 40, 700.0, since=640.0) == 18


def test_pods_removed_in_the_period_may_be_added_again():
    made = controller(
        scale_up={"policies": [{"type": "Pods", "value": 1, "period_s": 60}]},
        scale_down={"stabilization_window_s": 0},
    )
    assert pods(made, 10, 4, 600.0) == 4
    assert pods(made, 4, 40, 615.0) == 11  # ten at the period's start, and one


def test_percent_up_is_rounded_up_and_percent_down_keeps_what_is_left_whole():
    tenth = {"policies": [{"type": "Percent", "value": 10, "period_s": 60}]}
    assert pods(controller(scale_up=tenth), 3, 40) == 4  # 3.3
    down = {"stabilization_window_s": 0} | tenth
    assert pods(controller(scale_down=down), 17, 1) == 15  # 15.3


def test_the_windows_take_the_lowest_of_rises_and_the_highest_of_falls():
    made = controller(scale_up={"stabilization_window_s": 30})
    assert pods(made, 4, 4, 600.0) == 4
    assert pods(made, 4, 8, 615.0) == 4
    assert pods(made, 4, 6, 630.0) == 6  # 8 and 6 are left of the window
    made = controller(scale_down={"stabilization_window_s": 30})
    assert pods(made, 8, 8, 600.0) == 8
    assert pods(made, 8, 2, 615.0) == 8
    assert pods(made, 8, 4, 630.0) == 4


def test_without_a_recommendation_the_replicas_stay_and_the_window_forgets_nothing():
    made = controller()
    assert pods(made, 8, 8, 600.0) == 8
    assert pods(made, 8, -1, 700.0) == 8
    assert pods(made, 8, 2, 850.0) == 8  # 8 at 600 still counts
    assert pods(made, 8, 2, 901.0) == 2


def test_one_count_for_the_job_follows_its_largest_vertex():
    made = controller(per_vertex=False)
    snapshot = blank_snapshot(TOPOLOGY, parallelism=[[2, 6, 3, 1]])
    assert made.current(snapshot).tolist() == [[2, 6, 6, 1]]
    wanted = np.array([[2, 9, 9, 1]])
    assert made.replicas(snapshot, made.current(snapshot), wanted).tolist() == [[2, 9, 9, 1]]


def test_both_directions_disabled_are_refused():
    off = {"select_policy": "Disabled"}
    params = {"behavior": {"scale_up": off, "scale_down": off}}
    with pytest.raises(ConfigError, match="both Disabled"):
        make(PolicyConfig(policy="hpa-cpu", params=params))


@pytest.mark.parametrize(
    ("policies", "message"),
    [
        ([], "name at least one policy"),
        ([{"type": "Pod", "value": 1, "period_s": 15}], r"type': value 'Pod'.*'Pods' or 'Percent'"),
    ],
)
def test_rules_without_a_limit_or_of_an_unknown_unit_are_refused(policies, message):
    params = {"behavior": {"scale_up": {"policies": policies}}}
    with pytest.raises(ConfigError, match=message) as caught:
        make(PolicyConfig(policy="hpa-cpu", params=params))
    assert "2 things" not in str(caught.value)


def test_a_misspelt_rule_gets_a_suggestion():
    params = {"behavior": {"scale_down": {"select_polcy": "Min"}}}
    with pytest.raises(ConfigError, match="Did you mean 'select_policy'"):
        make(PolicyConfig(policy="hpa-cpu", params=params))


def test_a_period_beyond_kubernetes_half_hour_is_refused():
    rule = {"type": "Pods", "value": 1, "period_s": 3600}
    with pytest.raises(ConfigError, match="period_s"):
        make(
            PolicyConfig(policy="hpa-cpu", params={"behavior": {"scale_up": {"policies": [rule]}}})
        )


@pytest.mark.parametrize(
    ("ratio", "expected"),
    [
        (2.0, 6),  # three at twice the target and one at nothing: ceil(4 * 1.5)
        (1.5, 5),
        (1.2, 4),  # 0.9 of all four: the other way round
        (1.05, 4),
        (0.2, 2),  # three at a fifth and one on target: ceil(4 * 0.4)
        (0.8, 4),  # 0.85: ceil(3.4)
        (np.nan, -1),
    ],
)
def test_kubernetes_counts_pods_without_metrics_against_the_change(ratio, expected):
    assert recommend(4, ratio, 0.1, 1) == expected


def test_where_no_pod_or_every_pod_lacks_metrics_the_ratio_stands():
    assert recommend(4, 2.0, 0.1, 0) == recommend(4, 2.0, 0.1, 4) == 8


def surviving(**params):
    made = HorizontalController(
        Behavior(), sync_period_s=15.0, per_vertex=True, restarts_pods=False, **params
    )
    made.reset(TOPOLOGY)
    return made


def without(made, running, t_s, since=0.0):
    seen = blank_snapshot(TOPOLOGY, t_s, parallelism=[[2, running, 4, 1]], running_since_s=[since])
    return made.without_metrics(seen, made.current(seen))[0].tolist()


def test_where_pods_survive_a_rescale_only_added_ones_lack_metrics_for_a_while():
    made = surviving(readiness_s=60.0)
    assert without(made, 4, 600.0) == [0, 0, 0, 0]
    assert without(made, 7, 630.0, since=620.0) == [0, 3, 0, 0]
    assert without(made, 7, 675.0, since=620.0) == [0, 3, 0, 0]
    assert without(made, 7, 680.0, since=620.0) == [0, 0, 0, 0]


def test_pods_taken_away_are_those_added_last():
    made = surviving(readiness_s=60.0)
    without(made, 4, 600.0)
    without(made, 7, 630.0)
    assert without(made, 5, 645.0) == [0, 1, 0, 0]
    assert without(made, 2, 650.0) == [0, 0, 0, 0]


def test_where_pods_survive_a_rescale_the_controller_goes_on_after_it():
    made = surviving(readiness_s=60.0)
    assert pods(made, 4, 8, 600.0) == 8
    assert pods(made, 8, 16, 630.0, since=614.0) == 16
    waiting = HorizontalController(Behavior(), sync_period_s=15.0, per_vertex=True, readiness_s=60)
    waiting.reset(TOPOLOGY)
    assert pods(waiting, 8, 16, 630.0, since=614.0) == 8


def test_where_all_pods_start_anew_none_is_told_apart():
    made = controller()
    without(made, 4, 600.0)
    assert without(made, 7, 630.0) == [0, 0, 0, 0]
