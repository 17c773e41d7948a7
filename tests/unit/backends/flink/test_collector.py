"""Snapshots of one real job, also while something is out of reach."""

from __future__ import annotations

import numpy as np
import pytest

from dsp_gym.backends.base import Clock
from dsp_gym.backends.flink.backend import FlinkCollector
from dsp_gym.backends.flink.job import FlinkJob
from dsp_gym.backends.flink.rest import FlinkRest
from dsp_gym.errors import FlinkError
from dsp_gym.guardrails.chain import Chain
from dsp_gym.guardrails.freeze import Freeze
from dsp_gym.guardrails.stale_metrics import StaleMetrics
from dsp_gym.loop.decision import ScalingDecision
from dsp_gym.loop.snapshot import PER_VERTEX, Status
from dsp_gym.metrics.window import WindowConfig
from tests.answering import TASKS, Scripted, answering, tell
from tests.simulating import line

WINDOW = WindowConfig(window_s=60, stabilization_s=30)


@pytest.fixture
def cluster():
    with answering() as told:
        tell(told)
        yield told


@pytest.fixture
def source():
    return Scripted(since_s=1000.0)


@pytest.fixture
def collector(cluster, source):
    job = FlinkJob(FlinkRest(cluster.url, timeout_s=2.0), "mine", line())
    return FlinkCollector(line(), job, source, WINDOW, Clock(lambda: source.now_s))


def is_empty(snapshot):
    means = PER_VERTEX[2:]
    return snapshot.window_fill[0] == 0 and all(
        np.isnan(getattr(snapshot, name)).all() for name in means
    )


def is_held(snapshot):
    """Whether the guardrails hold what runs against a policy that wants more."""
    guardrails = Chain([Freeze(), StaleMetrics()])
    guardrails.reset(snapshot.topology, np.zeros(1, dtype=np.int64))
    wanted = ScalingDecision(snapshot.parallelism + 1, snapshot.memory_level, ("more",))
    allowed = guardrails.allow(snapshot, wanted)
    return bool(np.all(allowed.parallelism == snapshot.parallelism))


def test_a_healthy_job_is_seen_and_may_be_scaled(collector):
    taken = collector.snapshot()
    assert collector.trouble is None
    assert taken.window_fill[0] == 1
    assert taken.status[0] == Status.RUNNING
    assert taken.parallelism.tolist() == [list(TASKS.values())]
    assert taken.records_in_per_s[0, 1] == pytest.approx(3 * 100)
    assert not is_held(taken)


def test_while_metrics_are_out_of_reach_the_window_is_empty_and_nothing_is_changed(
    collector, source
):
    collector.snapshot()
    source.failure = FlinkError("http://prometheus: down")
    taken = collector.snapshot()
    assert str(collector.trouble) == "http://prometheus: down"
    assert is_empty(taken)
    assert taken.status[0] == Status.RUNNING
    assert taken.parallelism.tolist() == [list(TASKS.values())]
    assert is_held(taken)
    source.failure = None
    assert collector.snapshot().window_fill[0] == 1
    assert collector.trouble is None


def test_while_flink_is_out_of_reach_the_last_configuration_is_held(collector, cluster):
    collector.snapshot()
    kept = dict(cluster.answers)
    cluster.answers["/jobs/overview"] = (500, "{}")
    taken = collector.snapshot()
    assert "/jobs/overview answered 500" in str(collector.trouble)
    assert is_empty(taken)
    assert taken.status[0] == Status.RESTARTING
    assert taken.parallelism.tolist() == [list(TASKS.values())]
    assert is_held(taken)
    cluster.answers |= kept
    assert collector.snapshot().window_fill[0] == 1
    assert collector.trouble is None


def test_a_job_that_ended_is_a_status_and_no_trouble(collector, cluster):
    collector.snapshot()
    tell(cluster, state="FAILED", running={})
    taken = collector.snapshot()
    assert (taken.status[0], collector.trouble) == (Status.FAILED, None)
    assert is_empty(taken)
    assert is_held(taken)


def test_two_jobs_of_one_name_are_an_error(collector, cluster):
    tell(cluster, job_id="b2")
    with pytest.raises(FlinkError, match="2 jobs are named"):
        collector.snapshot()


def test_a_silent_subtask_holds_its_vertex(collector, source):
    source.silent = ("map", 2)
    taken = collector.snapshot()
    assert (taken.window_fill[0], collector.trouble) == (1, None)
    assert np.isnan(taken.busy_ms_per_s[0]).tolist() == [False, True, False]
    guardrails = Chain([StaleMetrics()])
    guardrails.reset(taken.topology, np.zeros(1, dtype=np.int64))
    wanted = ScalingDecision(taken.parallelism + 1, taken.memory_level, ("more",))
    guarded = guardrails.allow(taken, wanted)
    assert guarded.parallelism[0, 1] == taken.parallelism[0, 1]
    (said,) = guarded.interventions
    assert said.reason == "kept: busy_ms_per_s of 'map' is unknown"


def test_a_silent_source_is_named(collector, source):
    source.silent = ("source", 0)
    taken = collector.snapshot()
    assert is_held(taken)
    assert taken.window_fill[0] == 0
    assert "no metrics from 1 of 4 subtasks of vertex 'source'" in str(collector.trouble)
    assert (collector.trouble.api, collector.trouble.reason) == ("prometheus", "NoMetrics")


def test_metrics_that_stopped_are_said_to_be_old(collector, source):
    source.until_s = source.now_s - 65.0
    assert is_empty(collector.snapshot())
    assert "newest are 65 s old" in str(collector.trouble)
    assert (collector.trouble.api, collector.trouble.reason) == ("prometheus", "NoMetrics")


def test_one_sample_in_the_window_is_said_to_be_too_few(cluster, source):
    job = FlinkJob(FlinkRest(cluster.url, timeout_s=2.0), "mine", line())
    window = WindowConfig(window_s=10, stabilization_s=0)
    collector = FlinkCollector(line(), job, source, window, Clock(lambda: source.now_s))
    source.since_s = source.now_s - 7.0  # all but the last are lost
    taken = collector.snapshot()
    assert (taken.window_fill[0], is_held(taken)) == (0, True)
    assert (
        str(collector.trouble) == "fewer than two samples in the last 10 s; the newest is 2 s old"
    )


def test_a_young_job_without_samples_is_no_trouble(collector, source):
    source.now_s = 1000.0 + WINDOW.stabilization_s
    taken = collector.snapshot()
    assert (taken.window_fill[0], collector.trouble) == (0, None)


def test_a_job_between_its_stop_and_its_resubmission_is_restarting_and_not_lost(cluster, source):
    job = FlinkJob(FlinkRest(cluster.url, timeout_s=2.0), "mine", line())
    under_way = [True]
    collector = FlinkCollector(
        line(), job, source, WINDOW, Clock(lambda: source.now_s), lambda: under_way[0]
    )
    cluster.answers["/jobs/overview"]["jobs"].clear()
    assert collector.snapshot().status.tolist() == [Status.RESTARTING]
    assert not collector.is_gone
    under_way[0] = False
    assert collector.snapshot().status.tolist() == [Status.FAILED]
    assert collector.is_gone
