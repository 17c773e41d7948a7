"""Since when a condition holds: gaps, restarts and rescales, by hand."""

from __future__ import annotations

import json

import numpy as np
import pytest

from baselines.spans import Spans, are_over
from dsp_gym.loop.snapshot import Status
from dsp_gym.loop.topology import Topology
from tests.strategies import blank_snapshot, chain_spec

TOPOLOGY = Topology.of([chain_spec(max_parallelism_per_vertex=64)])


def spans(topology=TOPOLOGY, **options):
    made = Spans(("high",), **{"longest_gap_s": 300.0} | options)
    made.reset(topology)
    return made


def since(made, t_s, holds: bool | None, **values):
    """Begin of the span at a time; None: the condition is unknown."""
    snapshot = blank_snapshot(TOPOLOGY, t_s, **values)
    made.changed_s(snapshot)
    known, held = np.array([holds is not None]), np.array([bool(holds)])
    return made.since_s("high", snapshot, known & held, known & ~held)[0]


def test_a_span_begins_when_the_condition_is_first_seen():
    made = spans()
    assert [since(made, t, True) for t in (600.0, 660.0, 720.0)] == [600.0] * 3


def test_a_sample_stands_for_the_time_before_it_but_not_for_that_before_the_job():
    assert since(spans(sample_s=60.0), 600.0, True) == 540.0
    assert since(spans(sample_s=60.0), 600.0, True, running_since_s=[580.0]) == 580.0


def test_a_condition_that_fails_ends_the_span():
    made = spans()
    since(made, 600.0, True)
    assert np.isnan(since(made, 660.0, False))
    assert since(made, 720.0, True) == 720.0


def test_an_unknown_condition_leaves_the_span_within_the_gap():
    made = spans()
    since(made, 600.0, True)
    assert np.isnan(since(made, 660.0, None))  # not known to hold now
    assert since(made, 900.0, True) == 600.0  # 300 s after it was last known
    assert np.isnan(since(made, 960.0, None))
    assert since(made, 1201.0, True) == 1201.0


def test_a_clock_set_back_begins_anew():
    made = spans()
    since(made, 600.0, True)
    assert since(made, 500.0, True) == 500.0


def test_a_restart_begins_anew_even_when_nobody_saw_the_job_down():
    made = spans()
    since(made, 600.0, True)
    assert since(made, 660.0, True, running_since_s=[640.0]) == 660.0
    assert since(made, 720.0, True, running_since_s=[640.0]) == 660.0


def test_a_rescale_in_place_begins_anew():
    made = spans()
    since(made, 600.0, True, parallelism=[[2, 4, 4, 1]])
    assert since(made, 660.0, True, parallelism=[[2, 8, 4, 1]]) == 660.0


def test_the_last_change_is_that_of_the_restart_that_brought_it():
    made = spans()
    for t_s, up_s, tasks, expected in (
        (600.0, 100.0, 4, 100.0),
        (660.0, 640.0, 8, 640.0),  # seen after the restart
        (720.0, 640.0, 6, 720.0),  # in place, first seen now
        (780.0, 640.0, 6, 720.0),
    ):
        snapshot = blank_snapshot(
            TOPOLOGY, t_s, running_since_s=[up_s], parallelism=[[2, tasks, 4, 1]]
        )
        assert made.changed_s(snapshot)[0] == expected


def test_a_job_that_is_down_tells_nothing():
    made = spans()
    since(made, 600.0, True)
    down = {"status": [Status.RESTARTING], "parallelism": [[2, 1, 1, 1]]}
    assert np.isnan(since(made, 660.0, True, **down))
    assert since(made, 720.0, True) == 600.0  # the same job, up all the time


def test_jobs_of_a_batch_have_spans_of_their_own():
    topology = Topology.of([chain_spec()], [0, 0])
    made = spans(topology)
    found = []
    for t_s, holds in ((600.0, [True, False]), (660.0, [True, True])):
        snapshot = blank_snapshot(topology, t_s)
        made.changed_s(snapshot)
        found.append(made.since_s("high", snapshot, np.array(holds), ~np.array(holds)).tolist())
    assert found == [[600.0, pytest.approx(np.nan, nan_ok=True)], [600.0, 660.0]]


def test_the_state_as_json_continues():
    first, second = spans(), spans()
    since(first, 600.0, True)
    second.restore(json.loads(json.dumps(first.state(), allow_nan=False)))
    assert since(first, 660.0, True) == since(second, 660.0, True) == 600.0


def test_a_time_is_over_as_an_interval_is_due():
    begins = np.array([0.0, 0.2, 3.0, np.nan])
    over = are_over(np.full(4, 119.9), begins, 120.0)
    assert over.tolist() == [True, True, False, False]
