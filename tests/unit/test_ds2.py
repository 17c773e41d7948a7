"""The conditions under which DS2's scaling manager acts."""

from __future__ import annotations

import numpy as np
import pytest
from pydantic import ValidationError

from baselines.ds2 import Ds2, Ds2Config
from baselines.justin import justin_ds2
from dsp_gym.loop.topology import Topology
from dsp_gym.policies import make
from tests.strategies import blank_snapshot, chain_spec

TOPOLOGY = Topology.of([chain_spec()])


def snapshot(t_s=600.0, p=(1, 1), busy=(1000.0, 500.0), rates=(50.0, 400.0), growth=0.0, **values):
    """source 100/s -> map x8 -> window -> sink; `rates` are what map and window take in."""
    return blank_snapshot(
        TOPOLOGY,
        t_s,
        **{
            "parallelism": [[2, *p, 1]],
            "records_in_per_s": [[100.0, *rates, 400.0]],
            "records_out_per_s": [[100.0, rates[0] * 8, rates[1], 0.0]],
            "busy_ms_per_s": [[100.0, *busy, 990.0]],
            "pending_growth_per_s": [[growth, np.nan, np.nan, np.nan]],
        }
        | values,
    )


def ds2(**params):
    policy = Ds2(Ds2Config(**params))
    policy.reset(TOPOLOGY, np.array([0]))
    return policy


def tasks(policy, *args, **kwargs):
    """Tasks of map and window after one decision."""
    return tuple(policy.decide(snapshot(*args, **kwargs)).parallelism[0, 1:3].tolist())


def test_it_scales_every_vertex_in_one_step():
    # map: 100/s at 50/s per task; window: 800/s at 400 / 0.5 = 800/s per task.
    decision = ds2().decide(snapshot())
    assert decision.parallelism[0].tolist() == [2, 2, 1, 1]
    assert "map 1 at level 0 -> 2 at level 0 (demand 100/s" in decision.reasons[0]


def test_head_room_is_flinks_capacity_formula():
    # 2 tasks * (1 / 0.5 + 60 / 1800) = 4.07, and 1 * 2.033 for the window.
    config = {"target_utilization": 0.5, "restart_s": 60.0, "catch_up_s": 1800.0}
    assert tasks(ds2(**config)) == (5, 3)


def test_a_fall_by_one_task_is_noise_and_by_two_is_not():
    # map needs 2 of 3 or 4 tasks: 100/s at 50/s per task.
    quiet = {"busy": (667.0, 999.0), "rates": (100.0, 800.0)}
    assert tasks(ds2(), p=(3, 1), **quiet) == (3, 1)
    quiet = {"busy": (500.0, 999.0), "rates": (100.0, 800.0)}
    assert tasks(ds2(), p=(4, 1), **quiet) == (2, 1)


def test_inside_the_band_nothing_happens_and_outside_all_are_renewed():
    steady = {"p": (6, 2), "rates": (100.0, 800.0)}
    params = {"target_utilization": 0.5, "utilization_band": (0.2, 0.8), "min_down": 1}
    assert tasks(ds2(**params), busy=(333.0, 700.0), **steady) == (6, 2)
    # The window leaves the band; map, at a third, is renewed with it: 6 * 0.333 / 0.5 = 4.
    assert tasks(ds2(**params), busy=(333.0, 900.0), **steady) == (4, 4)
    kept = ds2(**params, keep_inside_band=True)
    assert tasks(kept, busy=(333.0, 900.0), **steady) == (6, 4)


def test_a_busy_sink_of_one_task_does_not_leave_the_band():
    params = {"target_utilization": 0.5, "utilization_band": (0.2, 0.8)}
    assert tasks(ds2(**params), p=(4, 2), busy=(300.0, 300.0)) == (4, 2)


def test_it_waits_for_warm_up_window_and_interval():
    waiting = ds2(warm_up_s=30.0)
    assert tasks(waiting, running_since_s=[580.0]) == (1, 1)
    assert tasks(waiting, window_fill=[0.9]) == (1, 1)
    assert tasks(waiting, status=[2]) == (1, 1)
    assert tasks(waiting) == (2, 1)
    assert tasks(waiting, 630.0) == (1, 1)  # 30 s later, before the next interval
    assert tasks(waiting, 660.0) == (2, 1)


def test_activation_counts_evaluations_and_applies_the_latest():
    policy = ds2(activation=3)
    assert tasks(policy, 600.0, growth=0.0) == (1, 1)
    assert tasks(policy, 660.0, growth=100.0) == (1, 1)
    assert tasks(policy, 720.0, growth=200.0) == (6, 3)


def test_activation_may_ask_for_unchanged_decisions():
    policy = ds2(activation=2, activation_rule="unchanged")
    assert tasks(policy, 600.0, growth=0.0) == (1, 1)
    assert tasks(policy, 660.0, growth=100.0) == (1, 1)
    assert tasks(policy, 720.0, growth=100.0) == (4, 2)


def test_a_restart_starts_the_activation_anew():
    policy = ds2(activation=2)
    assert tasks(policy, 600.0) == (1, 1)
    assert tasks(policy, 660.0, running_since_s=[640.0]) == (1, 1)
    assert tasks(policy, 720.0, running_since_s=[640.0]) == (2, 1)


def test_the_target_rate_ratio_makes_up_for_what_instrumentation_misses():
    # Every vertex seems fast enough, yet the source reads 100/s of 150/s: x 1.5.
    seen = {"p": (2, 1), "rates": (100.0, 800.0), "busy": (600.0, 600.0), "growth": 50.0}
    assert tasks(ds2(), **seen) == (2, 1)
    assert tasks(ds2(target_rate_ratio=1.0), **seen) == (3, 2)


def test_it_rolls_back_when_the_achieved_rate_fell():
    policy = ds2(roll_back=True, min_down=9)
    calm = {"busy": (900.0, 900.0), "rates": (100.0, 800.0)}
    assert tasks(policy, 600.0, p=(2, 1), **calm) == (2, 1)
    worse = calm | {"growth": 60.0, "busy": (300.0, 300.0)}
    assert tasks(policy, 720.0, p=(4, 4), **worse) == (2, 1)


def test_the_shipped_ds2_of_justin_is_the_one_inside_justin():
    assert make("ds2-justin").config == justin_ds2()


@pytest.mark.parametrize(
    "params", [{"utilization_band": (0.6, 0.8), "target_utilization": 0.5}, {"interval_s": 0}]
)
def test_parameters_that_make_no_sense_are_refused(params):
    with pytest.raises(ValidationError):
        Ds2Config(**params)
