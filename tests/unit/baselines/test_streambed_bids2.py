"""BIDS2 by hand, and its refusals of graphs that it cannot place."""

from __future__ import annotations

import builtins
import math

import pytest

from baselines.streambed.bids2 import Operator, bids2
from dsp_gym.errors import ConfigError, MissingExtraError

MAP = Operator("map", ratio=1.0, rate_per_task_per_s=100.0)
SINK = Operator("sink", ratio=0.5, rate_per_task_per_s=300.0)


def test_equations_1_to_4_on_two_vertices():
    # 5 slots: map 4 carries 400, sink 1 carries 300 / 0.5 = 600; map 3 and sink 2 carry 300.
    assert bids2([MAP, SINK], 5).parallelism == {"map": 4, "sink": 1}
    assert bids2([MAP, SINK], 5).rate_per_s == pytest.approx(400.0)
    # 9 slots: (8, 1) carries min(800, 600), (7, 2) carries min(700, 1200).
    assert bids2([MAP, SINK], 9).parallelism == {"map": 7, "sink": 2}
    assert bids2([MAP, SINK], 9).rate_per_s == pytest.approx(700.0)


def test_equation_4_fills_every_slot_with_the_next_limit_first():
    slow = Operator("slow", 1.0, 10.0, most=2)
    # slow limits at 20 whatever the others have. Of the 8 slots left, map takes 6 and sink 1 to
    # carry 600 each; the last one goes to the first of the two.
    found = bids2([MAP, slow, SINK], 10)
    assert found.rate_per_s == pytest.approx(20.0)
    assert found.parallelism == {"map": 7, "slow": 2, "sink": 1}


def test_a_vertex_that_receives_nothing_keeps_its_fewest_tasks():
    idle = Operator("idle", 0.0, math.nan)
    assert bids2([MAP, idle], 6).parallelism == {"map": 5, "idle": 1}


def test_a_graph_that_does_not_fit_says_what_is_missing():
    fixed = Operator("fixed", 1.0, 10.0, least=4, most=4)
    with pytest.raises(ConfigError, match=r"at least 6 slots \(map 1, fixed 4, sink 1.*, 3 more"):
        bids2([MAP, fixed, SINK], 3)


def test_slots_that_the_bounds_cannot_fill_make_the_program_infeasible():
    bounded = [Operator("a", 1.0, 10.0, most=2), Operator("b", 1.0, 10.0, most=3)]
    with pytest.raises(ConfigError, match=r"at most 5 slots \(a 2, b 3\), 4 fewer.*no solution"):
        bids2(bounded, 9)


@pytest.mark.parametrize("rate", [0.0, math.nan, -1.0, math.inf])
def test_a_rate_that_was_not_measured_is_named(rate):
    with pytest.raises(ConfigError, match="vertex 'map' has no measured rate"):
        bids2([Operator("map", 1.0, rate), SINK], 4)


def test_rates_of_any_size_are_solved_alike():
    for factor in (1e-3, 1.0, 1e9):
        scaled = [Operator(o.name, o.ratio, o.rate_per_task_per_s * factor) for o in (MAP, SINK)]
        assert bids2(scaled, 9).parallelism == {"map": 7, "sink": 2}


def test_without_scipy_the_extra_is_named(monkeypatch):
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name.startswith("scipy"):
            raise ModuleNotFoundError(name=name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtraError, match=r"dsp-gym\[plan\]"):
        bids2([MAP, SINK], 5)
