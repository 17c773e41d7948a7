"""Mechanisms and faults of the simulation: their effects, and no effect where they are off."""

from __future__ import annotations

import numpy as np
import pytest

from dsp_gym.backends.simulated.jobs import SimulatedJobs
from dsp_gym.errors import MetricsError
from dsp_gym.loop.protocols import ActuatorStatus
from dsp_gym.loop.snapshot import Status
from dsp_gym.loop.topology import Topology
from dsp_gym.simulation.options import Faults, SimulationOptions
from dsp_gym.simulation.state import X
from tests.simulating import ask, constant, exact, keyed, line, wanted


def capacity(jobs: SimulatedJobs, vertex: str = "map") -> float:
    v = jobs.topology.names(0).index(vertex)
    return float(jobs.state.vertex[0, v, X.capacity])


def windowed(kind: str = "tumbling", **rest: object):
    window = {"kind": kind, "length_s": 20.0} | ({"slide_s": 5.0} if kind == "sliding" else {})
    return keyed({"keys": 1e4, "value_bytes": 100, "window": window}, **rest)


# mechanisms


def test_without_the_cache_mechanism_no_read_is_a_miss_that_costs():
    reads = {"reads": 1, "writes": 0, "read_hit_us": 10, "read_miss_us": 1000}
    on = constant(keyed(reads), 10.0, exact())
    off = constant(keyed(reads), 10.0, exact(mechanisms={"cache": False}))
    assert capacity(off) == pytest.approx(1e6 / (100 + 10))
    assert capacity(on) == pytest.approx(1e6 / (100 + 10 + 1000))  # all cold
    for jobs in (on, off):
        jobs.advance(300)
    assert on.snapshot().job(0).vertex("map", "cache_hit_rate") < 0.1
    assert off.snapshot().job(0).vertex("map", "cache_hit_rate") == 1


def test_without_warm_up_the_cache_is_full_at_once():
    cold = constant(keyed(), 10.0, exact())
    warm = constant(keyed(), 10.0, exact(mechanisms={"warm_up": False}))
    assert cold.state.vertex[0, 1, X.hit] == 0
    cache, working = 158 * 5 / 6 - 158 / 3, 1e9 / 2**20
    assert warm.state.vertex[0, 1, X.hit] == pytest.approx(cache / working, rel=1e-3)


def restarted(state: dict[str, float], *, each_second: bool) -> SimulatedJobs:
    """A job with `state`, in the second in which a rescale is over."""
    jobs = constant(keyed(state), 10.0, exact(warms_each_second=each_second))
    jobs.advance(60)
    ask(jobs, map=2)
    while jobs.state.running_since[0] <= 60:
        jobs.advance(1)
    return jobs


def test_a_small_state_is_read_again_within_a_second_where_a_second_counts():
    small = {"reads": 1, "writes": 0, "keys": 1e4, "value_bytes": 16, "prefilled": True}
    by_sample, by_second = (restarted(small, each_second=each) for each in (False, True))
    for jobs in (by_sample, by_second):
        assert jobs.state.vertex[0, 1, X.hit] == 0
        jobs.advance(1)
    assert by_sample.state.vertex[0, 1, X.hit] == 0  # until its first sample is over
    assert by_second.state.vertex[0, 1, X.hit] == pytest.approx(1.0)
    assert capacity(by_second) > capacity(by_sample)


def test_a_large_state_is_read_again_as_slowly_either_way():
    large = {"reads": 1, "writes": 0, "keys": 1e7, "value_bytes": 1000, "prefilled": True}
    found = []
    for each in (False, True):
        jobs = restarted(large, each_second=each)
        jobs.advance(30)
        found.append(jobs.state.vertex[0, 1, X.hit])
    assert found[0] < 0.01
    assert found[1] < 0.01


def test_without_the_rescale_mechanism_a_rescale_is_instant_and_free():
    jobs = constant(line(), 100.0, exact(mechanisms={"rescale": False}))
    jobs.advance(10)
    ask(jobs, map=3)
    outcome = jobs.advance(10)
    assert outcome.down_s[0] == 0
    assert outcome.rescales[0] == 1
    assert jobs.snapshot().job(0).vertex("map", "parallelism") == 3
    assert jobs.status()[0] == ActuatorStatus.REACHED


def test_a_rescale_in_place_may_wait_for_the_next_checkpoint():
    waited_s = []
    for seed in range(8):
        jobs = SimulatedJobs(Topology.of([line()]), exact(checkpoint_interval_s=60.0))
        jobs.reset(np.array([seed]), np.array([[100.0]]))
        jobs.advance(100)
        ask(jobs, map=3)
        meanwhile = jobs.advance(1)
        assert meanwhile.processed[0] == 100.0
        while jobs.state.status[0] == Status.SAVEPOINTING:
            jobs.advance(1)
        waited_s.append(int(jobs.state.outage_begun[0]) - 100)
        jobs.advance(25)
        assert jobs.snapshot().job(0).vertex("map", "parallelism") == 3
    assert 1 <= min(waited_s) < 30 < max(waited_s) <= 60


def test_a_tumbling_window_gives_its_results_when_it_fires_and_not_before():
    jobs = constant(windowed(), 100.0, exact())
    before = jobs.advance(20) and jobs.state.vertex[0, 1, X.records_out]
    assert before == 0
    jobs.advance(1)
    assert jobs.state.vertex[0, 1, X.records_out] == pytest.approx(2000)


def test_a_sliding_window_fires_every_slide():
    jobs = constant(windowed("sliding"), 100.0, exact())
    out = []
    for _ in range(21):
        before = jobs.state.vertex[0, 1, X.records_out]
        jobs.advance(1)
        out.append(float(jobs.state.vertex[0, 1, X.records_out] - before))
    assert np.flatnonzero(out).tolist() == [5, 10, 15, 20]


@pytest.mark.parametrize("kind", ["tumbling", "sliding"])
def test_without_the_window_mechanism_results_leave_at_once(kind):
    jobs = constant(windowed(kind), 100.0, exact(mechanisms={"windows": False}))
    jobs.advance(7)
    x = jobs.state.vertex[0, 1]
    assert x[X.records_out] == x[X.records_in] == 700


def test_results_of_a_session_window_leave_all_the_time():
    jobs = constant(windowed("session"), 100.0, exact())
    jobs.advance(7)
    assert jobs.state.vertex[0, 1, X.records_out] == 700


def test_skew_limits_a_vertex_by_its_hottest_subtask():
    spec = keyed({"reads": 0, "writes": 0})
    spec = spec.model_copy(
        update={
            "vertices": tuple(
                v.model_copy(update={"max_parallelism": 8}) if v.name == "map" else v
                for v in spec.vertices
            )
        }
    )
    on = constant(spec, 10.0, exact(), map=5)  # 8 key groups on 5 tasks
    off = constant(spec, 10.0, exact(mechanisms={"skew": False}), map=5)
    assert capacity(off) == pytest.approx(5e4)
    assert capacity(on) == pytest.approx(4e4)  # 2 of 8 groups on one task: 4 tasks' worth


def test_efficiency_and_contention_lower_capacity_only_where_they_are_on():
    spec = line(taskmanager={"contention": 0.1})
    lossy = spec.model_copy(
        update={
            "vertices": tuple(
                v.model_validate(
                    v.model_dump(by_alias=True) | {"efficiency": {"form": "power", "a": 0.5}}
                )
                if v.name == "map"
                else v
                for v in spec.vertices
            )
        }
    )
    # 4 slots: the map's 4 tasks and the sink fill one TaskManager, 3 others slow a task
    assert capacity(constant(lossy, 1.0, exact(), map=4)) == pytest.approx(4**0.5 * 1e3 * 0.7)
    off = exact(mechanisms={"efficiency": False})
    assert capacity(constant(lossy, 1.0, off, map=4)) == pytest.approx(4e3 * 0.7)
    off = exact(mechanisms={"efficiency": False, "contention": False})
    assert capacity(constant(lossy, 1.0, off, map=4)) == pytest.approx(4e3)


def test_without_backlog_sources_owe_nothing_and_emit_less():
    jobs = constant(line(buffer_records=10), 1500.0, exact(mechanisms={"backlog": False}))
    outcome = jobs.advance(100)
    assert outcome.pending[0] == 0
    assert outcome.arrived[0] == 150_000
    assert outcome.processed[0] == pytest.approx(100_000, rel=0.01)
    assert jobs.snapshot().job(0).vertex("source", "pending_records") is None


def test_a_vertex_holds_as_many_records_as_its_own_buffers():
    def queued(**own):
        spec = line(buffer_records=10)
        source, mapper, sink = spec.vertices
        vertices = (source, mapper.model_copy(update=own), sink)
        jobs = constant(spec.model_copy(update={"vertices": vertices}), 1500.0, exact())
        jobs.advance(100)
        return float(jobs.state.vertex[0, 1, X.queue])

    assert queued() == pytest.approx(10)
    assert queued(buffer_records=500.0) == pytest.approx(500)


def test_a_second_without_arrivals_does_not_make_a_backlog_endless():
    jobs = SimulatedJobs(Topology.of([line(buffer_records=10)]), exact())
    rates = np.concatenate([np.full(50, 3000.0), np.zeros(50)])[None, :]
    jobs.reset(np.array([1]), rates)
    assert jobs.advance(50).pending_s[0] == pytest.approx(100_000 / 3000, rel=0.01)
    # against a tenth of the reference rate, 1,000/s
    outcome = jobs.advance(5)
    assert outcome.pending_s[0] == pytest.approx(outcome.pending[0] / 100)


def test_service_times_vary_only_with_service_noise():
    def capacities(options: SimulationOptions) -> list[float]:
        jobs = constant(line(), 100.0, options)
        seen = []
        for _ in range(200):
            jobs.advance(5)
            seen.append(capacity(jobs))
        return seen

    assert set(capacities(exact())) == {1000.0}
    noisy = 1e3 / np.array(capacities(SimulationOptions(service_cv=0.05)))
    assert noisy.std() == pytest.approx(0.05, rel=0.2)
    assert noisy.mean() == pytest.approx(1.0, abs=0.02)


def test_a_service_factor_scales_cpu_times():
    jobs = SimulatedJobs(Topology.of([line()]), exact())
    jobs.reset(np.array([1]), np.array([[10.0]]), service_factor=np.array([2.0]))
    assert capacity(jobs) == pytest.approx(500)


# asking for a configuration


def test_the_running_configuration_asks_for_nothing():
    jobs = constant(line(), 10.0, exact())
    ask(jobs)
    assert jobs.advance(10).rescales[0] == 0
    assert jobs.status()[0] == ActuatorStatus.IDLE


def test_what_is_out_of_bounds_is_brought_inside_before_it_is_compared():
    jobs = constant(line(), 10.0, exact())
    jobs.apply(wanted(np.array([[99, 0, 99]]), np.array([[0, 0, 0]])))
    assert jobs.advance(10).rescales[0] == 0
    ask(jobs, level=2)
    jobs.advance(60)
    ask(jobs, level=7)  # the highest there is runs already
    assert jobs.advance(60).rescales[0] == 0


def test_a_request_during_a_rescale_is_refused_and_changes_nothing():
    jobs = constant(line(), 10.0, exact())
    ask(jobs, map=2)
    jobs.advance(5)
    assert jobs.status()[0] == ActuatorStatus.PENDING
    ask(jobs, map=5)
    assert jobs.status()[0] == ActuatorStatus.FAILED
    jobs.advance(60)
    assert jobs.snapshot().job(0).vertex("map", "parallelism") == 2


def test_a_new_episode_forgets_what_was_asked_for_and_not_yet_reported():
    jobs = constant(line(), 10.0, exact())
    ask(jobs, map=2)
    jobs.reset(np.array([1]), np.array([[10.0]]))
    assert jobs.advance(10).rescales[0] == 0
    assert jobs.status()[0] == ActuatorStatus.IDLE


def test_a_new_episode_of_one_job_leaves_the_others_alone():
    topology = Topology.of([line()], [0, 0])
    masked, whole = SimulatedJobs(topology, exact()), SimulatedJobs(topology, exact())
    for jobs in (masked, whole):
        jobs.reset(np.array([1, 2]), np.full((2, 100), 50.0))
        jobs.advance(30)
    longer = np.full((2, 300), 7.0)
    masked.reset(np.array([3, 4]), longer, mask=np.array([True, False]))
    here, there = masked.advance(100), whole.advance(100)
    assert here.arrived.tolist() == [700, 5000]
    assert there.arrived[1] == 5000
    np.testing.assert_array_equal(masked.state.vertex[1], whole.state.vertex[1])


@pytest.mark.parametrize("rates", [np.zeros(3), np.zeros((2, 3)), [[np.nan]], [[-1.0]]])
def test_rates_that_cannot_be_are_refused(rates):
    jobs = SimulatedJobs(Topology.of([line()]), exact())
    with pytest.raises(MetricsError, match="rates"):
        jobs.reset(np.array([1]), np.asarray(rates))


# faults


def test_failures_come_as_often_as_asked_and_independently():
    options = exact(faults=Faults(failures_per_hour=12, recovery_s=10))
    jobs = SimulatedJobs(Topology.of([line()], [0] * 300), options)
    jobs.reset(np.arange(300), np.full((300, 1), 10.0))
    failures = jobs.advance(3600).failures
    assert failures.mean() == pytest.approx(12 * (1 - 12 * 10 / 3600), rel=0.06)
    assert failures.var() / failures.mean() == pytest.approx(1.0, abs=0.25)  # Poisson


def test_a_failed_job_is_down_and_comes_back_as_it_was():
    options = exact(faults=Faults(failures_per_hour=60, recovery_s=10))
    jobs = constant(line(), 10.0, options, map=3)
    outcome = jobs.advance(600)
    assert 3 <= outcome.failures[0] <= 20  # one a minute on average
    assert outcome.down_s[0] == pytest.approx(10 * outcome.failures[0], abs=10)
    assert outcome.rescales[0] == 0
    assert jobs.state.parallelism[0, 1] == 3


def test_a_slow_node_takes_its_share_of_the_capacity():
    slow = Faults(slow_nodes_per_hour=60, slow_factor=0.5, slow_s=1e6)
    jobs = constant(line(), 10.0, exact(faults=slow), map=7)  # and a sink: two TaskManagers
    jobs.advance(1200)
    assert capacity(jobs) == pytest.approx(7e3 * 0.75)


def test_a_deploy_restarts_the_job_as_it_was_and_doubles_the_time_per_record():
    deploy = Faults(deploy_at_s=300, deploy_factor=2)
    jobs = constant(line(), 10.0, exact(faults=deploy), map=3)
    before = jobs.advance(300)
    assert (before.down_s[0], capacity(jobs)) == (0, pytest.approx(3e3))
    outcome = jobs.advance(120)
    assert 16 <= outcome.down_s[0] <= 25
    assert (outcome.rescales[0], outcome.failures[0]) == (0, 0)
    assert jobs.state.parallelism[0, 1] == 3
    assert capacity(jobs) == pytest.approx(1.5e3)


def test_a_deploy_during_a_restart_comes_with_it():
    jobs = constant(line(), 10.0, exact(faults=Faults(deploy_at_s=60)), map=2)
    jobs.advance(50)
    ask(jobs, map=4)
    outcome = jobs.advance(60)
    assert (outcome.down_s[0], outcome.rescales[0]) == (20, 1)
    assert jobs.state.parallelism[0, 1] == 4
    assert capacity(jobs) == pytest.approx(2e3)


def test_in_a_metric_gap_nothing_is_known():
    gap = Faults(metric_gaps_per_hour=60, gap_s=1e6)
    jobs = constant(line(), 10.0, exact(faults=gap))
    jobs.advance(1800)
    seen = jobs.snapshot()
    assert seen.window_fill[0] == 0
    assert np.isnan(seen.busy_ms_per_s[0, 1])
    assert np.isnan(seen.latency_p95_s[0])
    assert np.isnan(seen.records_in_total[0, 1])
    assert seen.parallelism[0, 1] == 1


def test_a_failed_rescale_comes_back_with_the_old_configuration_and_says_so():
    jobs = constant(line(), 10.0, exact(faults=Faults(failed_rescale_probability=1)), map=2)
    ask(jobs, map=5)
    outcome = jobs.advance(60)
    assert outcome.down_s[0] == 20
    assert jobs.state.parallelism[0, 1] == 2
    assert jobs.status()[0] == ActuatorStatus.FAILED


def test_a_rescale_that_a_failure_interrupts_did_not_reach_what_was_asked():
    spec = keyed({"keys": 1e6, "value_bytes": 1e5}, rescale={"outage_s": [5, 5, 5]})
    faults = Faults(failures_per_hour=60, recovery_s=10)
    jobs = constant(spec, 10.0, exact(faults=faults))
    ask(jobs, map=2)  # the savepoint takes a quarter of an hour
    while jobs.advance(5).failures[0] == 0:
        assert jobs.state.status[0] == Status.SAVEPOINTING
    while jobs.state.status[0] != Status.RUNNING:
        jobs.advance(1)
    assert jobs.state.parallelism[0, 1] == 1
    assert jobs.status()[0] == ActuatorStatus.FAILED


def test_faults_are_off_unless_asked_for():
    jobs = constant(line(), 10.0, SimulationOptions())
    outcome = jobs.advance(7200)
    assert outcome.failures[0] == outcome.down_s[0] == 0
    assert jobs.snapshot().window_fill[0] == 1


# trace


def test_a_trace_keeps_every_second_of_the_load():
    options = exact(trace=True)
    jobs = SimulatedJobs(Topology.of([line()]), options)
    rates = np.arange(1.0, 51.0)[None, :]
    jobs.reset(np.array([1]), rates)
    jobs.advance(20)
    assert jobs.trace[0, :20, 0].tolist() == rates[0, :20].tolist()
    assert jobs.trace[0, :20, 1].tolist() == rates[0, :20].tolist()
    assert np.all(np.isnan(jobs.trace[0, 20:]))
    jobs.reset(np.array([1]), rates, mask=np.array([True]))
    assert np.all(np.isnan(jobs.trace))


def test_the_histogram_counts_every_second_once():
    jobs = constant(line(), 10.0, SimulationOptions())
    jobs.advance(77)
    assert jobs.state.histogram[0].sum() == 77
