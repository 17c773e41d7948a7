"""The service model finds the times per record that the simulation runs with."""

from __future__ import annotations

import json

import numpy as np
import pytest

from dsp_gym.backends.simulated.jobs import SimulatedJobs
from dsp_gym.errors import PolicyError
from dsp_gym.job.capacity import mst_per_s
from dsp_gym.job.spec import JobSpec
from dsp_gym.loop.decision import GuardedDecision, ScalingDecision
from dsp_gym.loop.topology import Topology
from dsp_gym.loop.wire import snapshot_from_json, snapshot_to_json
from dsp_gym.simulation.options import Faults, SimulationOptions
from dsp_gym.sizing import Prior, ServiceModel
from dsp_gym.sizing.service import SizingConfig
from tests.simulating import exact, keyed, line
from tests.strategies import blank_snapshot

RESCALE = {"mode": "in_place", "outage_s": [5, 5, 5]}


def off(spec: JobSpec, factor: float) -> JobSpec:
    """The same job with other times per record in its file."""
    vertices = []
    for vertex in spec.vertices:
        changed = {"cpu_us_per_record": vertex.cpu_us_per_record * factor}
        if vertex.state is not None:
            times = ("read_hit_us", "read_miss_us", "write_us")
            state = {name: getattr(vertex.state, name) * factor for name in times}
            changed["state"] = vertex.state.model_copy(update=state)
        vertices.append(vertex.model_copy(update=changed))
    return spec.model_copy(update={"vertices": tuple(vertices)})


def watched(spec, prior, configurations, rate=2000.0, minutes=12, options=None):
    """A model that watched a job in some configurations of its map, one after the other."""
    jobs = Topology.of([spec])
    simulated = SimulatedJobs(jobs, options or exact())
    seconds = 60 * minutes * len(configurations)
    simulated.reset(np.array([3]), np.full((1, seconds), rate))
    model = ServiceModel()
    model.reset(jobs, prior(jobs))
    for p, level in configurations:
        parallelism, memory = simulated.state.parallelism.copy(), simulated.state.level.copy()
        parallelism[0, 1], memory[0, 1] = p, level
        wanted = ScalingDecision(parallelism, memory, ("",))
        simulated.actuator.apply(GuardedDecision.unchanged(wanted))
        for _ in range(minutes):
            simulated.advance(60)
            model.observe(simulated.collector.snapshot())
    return jobs, model


def relative_capacity(jobs, model, p, level):
    tables = jobs.tables
    parallelism, memory = tables.start_parallelism.copy(), tables.start_level.copy()
    parallelism[0, 1], memory[0, 1] = p, level
    found = model.capacity_per_s(jobs, parallelism, memory)[0]
    return found / mst_per_s(tables, 0, parallelism[0], memory[0])


PRIORS = {
    "right": lambda jobs: Prior.of_files(jobs),
    "slow": lambda jobs: Prior.of_files(jobs, [off(jobs.specs[0], 1.15)]),
    "fast": lambda jobs: Prior.of_files(jobs, [off(jobs.specs[0], 0.85)]),
    "none": Prior.none,
}


@pytest.mark.parametrize("prior", PRIORS)
def test_it_finds_the_time_per_record_within_three_per_cent(prior):
    jobs, model = watched(line(rescale=RESCALE), PRIORS[prior], [(4, -1)])
    assert relative_capacity(jobs, model, 4, -1) == pytest.approx(1.0, abs=0.03)


@pytest.mark.parametrize("prior", PRIORS)
def test_it_finds_the_exponent_from_two_sizes(prior):
    spec = line(rescale=RESCALE)
    vertices = [v.model_dump(by_alias=True, exclude_unset=True) for v in spec.vertices]
    vertices[1]["efficiency"] = {"form": "power", "a": 0.12}
    spec = JobSpec.model_validate(
        spec.model_dump(by_alias=True, exclude_unset=True) | {"vertices": vertices}
    )
    jobs, model = watched(spec, PRIORS[prior], [(3, -1), (8, -1)])
    assert relative_capacity(jobs, model, 8, -1) == pytest.approx(1.0, abs=0.03)
    # Extrapolated to twice as many tasks.
    assert relative_capacity(jobs, model, 16, -1) == pytest.approx(1.0, abs=0.06)


@pytest.mark.parametrize("prior", PRIORS)
def test_it_finds_what_each_memory_level_gives(prior):
    spec = keyed({"keys": 4e5}, rescale=RESCALE)
    jobs, model = watched(spec, PRIORS[prior], [(8, 0), (8, 1)], rate=4000.0, minutes=20)
    for level in (0, 1):
        assert relative_capacity(jobs, model, 8, level) == pytest.approx(1.0, abs=0.05)


def test_a_right_file_is_left_as_it_is_by_a_noisy_day():
    jobs, model = watched(
        line(rescale=RESCALE), Prior.of_files, [(4, -1)], minutes=40, options=SimulationOptions()
    )
    assert relative_capacity(jobs, model, 4, -1) == pytest.approx(1.0, abs=0.03)


def snapshot(jobs, rate, busy, p=4, **values):
    return blank_snapshot(
        jobs,
        records_in_per_s=[[rate, rate, rate]],
        busy_ms_per_s=[[10.0, busy, 5.0]],
        busy_max_ms_per_s=[[10.0, busy, 5.0]],
        parallelism=[[4, p, 1]],
        **values,
    )


def test_an_untried_level_is_less_certain_than_a_tried_one():
    jobs = Topology.of([keyed()])
    model = ServiceModel()
    model.reset(jobs, Prior.none(jobs))
    for _ in range(20):
        model.observe(snapshot(jobs, 1000.0, 500.0, cache_hit_rate=0.6, memory_level=0))
    errors = []
    for level in (0, 1, 2):
        at = np.array([[-1, level, -1]])
        _, error = model.times(jobs, np.array([[4, 4, 1]]), at)
        errors.append(error[0, 1])
    assert errors == sorted(errors)
    assert errors[0] < 0.06 < errors[1]


@pytest.mark.parametrize(("hit", "gains"), [(0.5, True), (1.0, False)])
def test_more_memory_promises_something_only_where_the_cache_misses(hit, gains):
    jobs = Topology.of([keyed()])
    model = ServiceModel()
    model.reset(jobs, Prior.none(jobs))
    model.observe(snapshot(jobs, 1000.0, 500.0, cache_hit_rate=hit, memory_level=0))
    tasks = np.array([[4, 4, 1]])
    now, more = (
        model.capacity_per_s(jobs, tasks, np.array([[-1, level, -1]]))[0] for level in (0, 1)
    )
    assert bool(more > 1.01 * now) is gains


def test_without_a_prior_an_unseen_job_carries_nobody_knows_what():
    jobs = Topology.of([line()])
    model = ServiceModel()
    model.reset(jobs, Prior.none(jobs))
    running = jobs.tables.start_parallelism, jobs.tables.start_level
    assert np.isnan(model.capacity_per_s(jobs, *running)[0])
    model.observe(snapshot(jobs, 0.0, 0.0))  # no load: nothing to be learned
    assert np.isnan(model.capacity_per_s(jobs, *running)[0])


@pytest.mark.parametrize("values", [{"status": 2}, {"window_fill": 0.3}])
def test_a_job_that_is_down_or_has_just_restarted_teaches_nothing(values):
    jobs = Topology.of([line()])
    model = ServiceModel()
    model.reset(jobs, Prior.of_files(jobs))
    before = model.state()
    model.observe(snapshot(jobs, 1000.0, 999.0, **values))
    assert model.state() == before


def test_one_absurd_snapshot_moves_little():
    jobs = Topology.of([line()])
    model = ServiceModel()
    model.reset(jobs, Prior.of_files(jobs))
    for _ in range(10):
        model.observe(snapshot(jobs, 2000.0, 500.0))  # 1,000/s per task, as in the file
    running = np.array([[4, 4, 1]]), np.array([[-1, -1, -1]])
    before = model.capacity_per_s(jobs, *running)[0]
    model.observe(snapshot(jobs, 2000.0, 5.0))
    assert model.capacity_per_s(jobs, *running)[0] == pytest.approx(before, rel=0.15)


@pytest.mark.parametrize("factor", [0.01, 100.0])
def test_a_job_of_other_speed_is_learned_alike(factor):
    jobs = Topology.of([line()])
    found = []
    for times in (1.0, factor):
        model = ServiceModel()
        model.reset(jobs, Prior.none(jobs))
        for busy in (400.0, 450.0, 380.0):
            model.observe(snapshot(jobs, 1000.0 * times, busy))
        tasks = np.array([[4, 9, 1]])
        found.append(model.capacity_per_s(jobs, tasks, jobs.tables.start_level)[0] / times)
    assert found[1] == pytest.approx(found[0], rel=1e-9)


def test_a_file_of_another_graph_is_refused_with_a_sentence():
    jobs = Topology.of([line()])
    other = keyed().model_copy(update={"job": "line"})
    wrong = off(other, 1.0).model_copy(
        update={
            "vertices": tuple(
                v.model_copy(update={"name": "filter"}) if v.name == "map" else v
                for v in other.vertices
            )
        }
    )
    with pytest.raises(PolicyError, match=r"describes another job: its vertices are .*filter"):
        Prior.of_files(jobs, [wrong])


def test_its_state_continues():
    jobs = Topology.of([keyed()])
    first, second = ServiceModel(), ServiceModel()
    for model in (first, second):
        model.reset(jobs, Prior.none(jobs))
    first.observe(snapshot(jobs, 1000.0, 500.0, cache_hit_rate=0.6))
    second.restore(first.state())
    for model in (first, second):
        model.observe(snapshot(jobs, 1100.0, 520.0, cache_hit_rate=0.6))
    assert first.state() == second.state()


def test_a_job_known_from_snapshots_alone_has_no_times_to_start_from():
    spec = line(rescale=RESCALE)
    jobs = Topology.of([spec])
    simulated = SimulatedJobs(jobs)
    simulated.reset(np.zeros(1, np.int64), np.full((1, 120), 100.0))
    told = snapshot_from_json([snapshot_to_json(simulated.snapshot().job(0))]).topology
    assert not Prior.of_files(told).is_filed
    given = Prior.of_files(told, [spec])
    assert given.is_filed
    np.testing.assert_allclose(given.records_per_s, Prior.of_files(jobs).records_per_s)


def test_a_doubled_time_is_learned_within_minutes_where_surprises_are_counted():
    jobs, found = Topology.of([line(rescale=RESCALE)]), {}
    for surprises in (0, 3):
        options = exact(faults=Faults(deploy_at_s=3600))
        simulated = SimulatedJobs(jobs, options)
        simulated.reset(np.array([3]), np.full((1, 1), 400.0))
        model = ServiceModel(SizingConfig(surprises=surprises))
        model.reset(jobs, Prior.of_files(jobs))
        for minute in range(70):
            simulated.advance(60)
            model.observe(simulated.collector.snapshot())
            if minute == 59:
                assert relative_capacity(jobs, model, 1, 0) == pytest.approx(1.0, abs=0.05)
        found[surprises] = relative_capacity(jobs, model, 1, 0)
    assert found[0] > 0.65
    assert found[3] == pytest.approx(0.5, abs=0.03)


def test_surprises_on_both_sides_are_noise():
    jobs, moved = Topology.of([line()]), []
    running = np.array([[4, 4, 1]]), np.array([[-1, -1, -1]])
    for busy in (100.0, 900.0):
        model = ServiceModel(SizingConfig(surprises=3))
        model.reset(jobs, Prior.of_files(jobs))
        for _ in range(30):
            model.observe(snapshot(jobs, 2000.0, 500.0))
        for other in (busy, 900.0, busy, 900.0, busy):
            model.observe(snapshot(jobs, 2000.0, other))
        moved.append(model.capacity_per_s(jobs, *running)[0] / 4000.0)
    assert moved[0] == pytest.approx(1.0, rel=0.3)
    assert moved[1] == pytest.approx(500.0 / 900.0, rel=0.05)


class Warming:
    """A model of a job that has just restarted, shown a minute at a time."""

    def __init__(self, prior):
        self.jobs, self.model, self.t_s = Topology.of([keyed()]), ServiceModel(), 600.0
        self.model.reset(self.jobs, prior(self.jobs))

    def show(self, busy, hit):
        """Show a minute at 1,000 records/s."""
        self.t_s += 60.0
        shown = {"cache_hit_rate": hit, "memory_level": 0}
        seen = snapshot(self.jobs, 1000.0, busy, running_since_s=500.0, **shown)
        seen.t_s[:] = self.t_s
        self.model.observe(seen)

    @property
    def carries(self):
        at = np.array([[-1, 0, -1]])
        return self.model.capacity_per_s(self.jobs, np.array([[4, 4, 1]]), at)[0]


def test_times_measured_while_a_cache_fills_say_nothing_against_those_of_a_warm_one():
    job = Warming(Prior.of_files)
    before = job.carries
    for busy, hit in ((990.0, 0.1), (960.0, 0.4), (900.0, 0.6), (700.0, 0.8), (500.0, 0.9)):
        job.show(busy, hit)
    assert job.carries == before
    for _ in range(30):  # it misses as often as a minute ago: this is how the job is
        job.show(500.0, 0.9)
    assert job.carries < before
    assert job.carries == pytest.approx(2000.0, rel=0.1)


def test_a_cache_that_never_fills_is_believed_after_an_hour():
    job = Warming(Prior.of_files)
    before = job.carries
    for minute in range(90):
        job.show(500.0, 1.0 - 0.9 ** (1 + minute))
        if minute < 50:
            assert job.carries == before
    assert job.carries == pytest.approx(2000.0, rel=0.1)


def test_a_cold_cache_that_is_faster_than_believed_is_believed():
    job = Warming(Prior.of_files)
    before = job.carries
    for hit in (0.1, 0.3, 0.5, 0.7):
        job.show(1000.0 * 1000.0 / (2.0 * before), hit)
    assert job.carries > 1.3 * before


def test_of_a_job_never_seen_warm_the_shortest_time_is_believed():
    job = Warming(Prior.none)
    for busy, hit, carries in ((900.0, 0.1, 1111.0), (500.0, 0.5, 2000.0), (800.0, 0.7, 2000.0)):
        job.show(busy, hit)
        assert job.carries == pytest.approx(carries, rel=0.01)
    job.show(250.0, 0.7)  # warm: this counts
    assert job.carries == pytest.approx(4000.0, rel=0.05)


class Behind:
    """A model of two operators that share a core, which does 1,000 records/s and is 60 % busy."""

    def __init__(self, prior=Prior.none, scalable=True):
        spec = keyed()
        source, operator, sink = spec.vertices
        sink = sink.model_copy(update={"scalable": scalable})
        spec = spec.model_copy(update={"vertices": (source, operator, sink)})
        self.jobs, self.model = Topology.of([spec]), ServiceModel()
        self.model.reset(self.jobs, prior(self.jobs))

    def show(self, rate=1000.0, busy=600.0, waiting_s=60.0, grown_per_s=100.0, p=4, level=0):
        """Show a minute, at whose end so many seconds of the load wait."""
        self.model.observe(
            blank_snapshot(
                self.jobs,
                records_in_per_s=[[rate, rate, rate]],
                busy_ms_per_s=[[10.0, busy, busy / 2.0]],
                busy_max_ms_per_s=[[10.0, busy, busy / 2.0]],
                parallelism=[[4, p, 1]],
                memory_level=[[-1, level, -1]],
                pending_records=[[waiting_s * rate, np.nan, np.nan]],
                pending_growth_per_s=[[grown_per_s, np.nan, np.nan]],
            )
        )

    def carries(self, p=4, sinks=1, level=0):
        tasks, at = np.array([[4, p, sinks]]), np.array([[-1, level, -1]])
        return self.model.capacity_per_s(self.jobs, tasks, at)[0]


@pytest.mark.parametrize("prior", [Prior.none, Prior.of_files])
def test_a_job_that_stays_behind_carries_what_it_reads_whatever_its_gauges_show(prior):
    job = Behind(prior)
    for _ in range(30):
        job.show(waiting_s=0.0, grown_per_s=0.0)
    assert job.carries() == pytest.approx(1000.0 / 0.6, rel=0.05)
    job.show()
    assert job.carries() == pytest.approx(1000.0, rel=1e-6)
    # Any of its vertices may be the limit: more tasks for one of them are no help.
    assert job.carries(p=8) == pytest.approx(1000.0, rel=1e-6)
    assert job.carries(sinks=2) == pytest.approx(1000.0, rel=1e-6)
    assert job.carries(p=8, sinks=2) > 1600.0
    # Gauges of quiet minutes do not raise it again.
    for _ in range(600):
        job.show(rate=300.0, busy=100.0, waiting_s=0.0, grown_per_s=0.0)
    assert job.carries() == pytest.approx(1000.0, rel=1e-6)


def test_a_vertex_that_cannot_be_rescaled_is_no_hidden_limit():
    job = Behind(scalable=False)
    job.show()
    assert job.carries() == pytest.approx(1000.0, rel=1e-6)
    assert job.carries(p=8) > 1600.0


@pytest.mark.parametrize(
    "shown",
    [
        {"busy": 950.0},  # the gauge tells the limit
        {"busy": 200.0},  # something else holds the job
        {"waiting_s": 5.0},  # hardly behind
        {"grown_per_s": 900.0},  # in time when the window began
        {"waiting_s": np.nan},
        {"grown_per_s": np.nan},
    ],
)
def test_a_rate_is_no_limit_where_the_job_was_not_behind_or_its_gauges_tell_why(shown):
    job = Behind()
    for _ in range(30):
        job.show(**shown)
    assert job.carries() == pytest.approx(1000.0 / (shown.get("busy", 600.0) / 1000.0), rel=0.05)


def test_a_job_that_reads_more_than_its_limit_has_another():
    job = Behind()
    job.show()
    # At twice the tasks, so it is no limit of four.
    job.show(rate=1500.0, busy=500.0, p=8, waiting_s=0.0, grown_per_s=0.0)
    assert job.carries() == pytest.approx(1000.0, rel=0.03)
    job.show(rate=1200.0, busy=650.0, waiting_s=0.0, grown_per_s=0.0)
    assert job.carries() == pytest.approx(1200.0, rel=0.03)


def test_at_another_memory_level_a_limit_differs_as_the_times_do():
    job = Behind(Prior.of_files)
    before = job.carries(level=1) / job.carries(level=0)
    job.show()
    now = job.carries(level=1, sinks=4) / job.carries(level=0, sinks=4)
    assert now == pytest.approx(before, rel=0.01)


def test_a_limit_outlives_a_restart_of_the_policy_and_a_changed_job_file():
    job, again, other = Behind(Prior.of_files), Behind(Prior.of_files), Behind(Prior.of_files)
    job.show()
    again.model.restore(json.loads(json.dumps(job.model.state(), allow_nan=False)))
    assert again.carries() == job.carries()
    twice = Topology.of([off(job.jobs.specs[0], 2.0)])
    other.jobs = twice
    other.model.reset(twice, Prior.of_files(twice))
    other.model.adopt(np.array([0]), job.model.learned(0))
    assert other.carries() == pytest.approx(job.carries(), rel=1e-6)
    # What an earlier release learned has no limits.
    plain = {name: v for name, v in job.model.learned(0).items() if not name.startswith("limit")}
    other.model.reset(twice, Prior.of_files(twice))
    other.model.adopt(np.array([0]), plain)
    assert other.carries() > 1.2 * job.carries()
