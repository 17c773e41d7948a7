from __future__ import annotations

import numpy as np
import pytest
from pydantic import ValidationError

from dsp_gym.backends.simulated.jobs import SimulatedJobs
from dsp_gym.evaluation.batch_of_runs import benchmark_job
from dsp_gym.evaluation.config import BenchmarkConfig
from dsp_gym.evaluation.fingerprint import fingerprint
from dsp_gym.evaluation.run import cells_of
from dsp_gym.evaluation.shift import Misinformed, Shift, misread
from dsp_gym.job.catalog import load_job
from dsp_gym.job.sizing import sized
from dsp_gym.job.tables import compile_jobs
from dsp_gym.loads.splits import LoadSet
from dsp_gym.loop.topology import Topology
from dsp_gym.policies.registry import make

ROW = np.zeros(1, np.int64)


def benchmark(**changes: object) -> BenchmarkConfig:
    return BenchmarkConfig.model_validate(
        {
            "policies": ["ds2"],
            "jobs": ["nexmark-q11"],
            "loads": LoadSet.model_validate(
                {"test": {"loads": ["diurnal-bursts"], "seeds": {"from": 7, "to": 8}}}
            ),
            "clairvoyant": False,
            "reference": None,
            "episode_s": 1800,
            **changes,
        }
    )


@pytest.mark.parametrize("factor", [0.1, 10.0])
@pytest.mark.parametrize("name", ["nexmark-q11", "nexmark-q1", "random-dag:3"])
def test_a_job_of_another_rate_needs_as_many_tasks(name, factor):
    spec = load_job(name)
    needed = []
    for job in (spec, Shift(name="rate", rate=factor).job(spec)):
        tables = compile_jobs([job])
        level = tables.start_level[ROW]
        needed.append(sized(tables, ROW, tables.rate_per_s[ROW], 0.7, np.ones(1), level))
    assert tables.rate_per_s[0] == pytest.approx(factor * spec.source.rate_per_s)
    assert needed[1].tolist() == needed[0].tolist()


def test_an_outage_or_the_age_of_metrics_changes_alone():
    spec = load_job("nexmark-q11")
    longer = Shift(name="outage", outage=3).job(spec)
    assert longer.rescale.outage_s == pytest.approx((168.0, 228.0, 279.0))
    assert longer.model_copy(update={"rescale": spec.rescale}) == spec
    config = benchmark()
    older = Shift(name="lag", metric_delay_s=60)
    assert older.job(spec) is spec
    assert older.options(config.simulation).measurement.delay_s == 60
    assert Shift(name="none").options(config.simulation) is config.simulation


def test_a_shift_without_changes_is_the_job_and_the_options_themselves():
    spec, options = load_job("nexmark-q11"), benchmark().simulation
    nothing = Shift(name="none")
    assert nothing.job(spec) is spec
    assert nothing.options(options) is options
    # What results and fingerprints of earlier releases hold of a shift.
    before = {"name", "rate", "outage", "scheduler", "metric_delay_s", "file_error"}
    assert set(nothing.model_dump()) == before


def test_an_outage_lasts_as_long_whatever_the_state():
    spec = load_job("nexmark-q8")
    for scheduler in ("default", "adaptive"):
        found = Shift(name="2 s", outage_s=2, scheduler=scheduler).job(spec).rescale
        assert found.outage_s == (2.0, 2.0, 2.0)
        assert compile_jobs([spec]).restore_mib_s[0] < 1e3 < found.restore_mib_per_s
        assert found.mode == ("in_place" if scheduler == "adaptive" else "redeploy")


def test_a_cap_holds_for_every_vertex_and_never_lifts_one():
    spec = load_job("random-dag:3")
    capped = compile_jobs([Shift(name="cap", max_parallelism=5).job(spec)])
    operators = [v for v, one in enumerate(spec.topological_order()) if one.kind == "operator"]
    assert capped.max_parallelism[0, operators].max() == 5
    assert Shift(name="cap", max_parallelism=2000).job(spec) == spec


@pytest.mark.parametrize("name", ["nexmark-q11", "random-dag:3", "flink-large-update"])
def test_dear_misses_leave_a_warm_job_as_busy_as_before(name):
    spec = load_job(name)
    dear = Shift(name="dear", miss_ms=9).job(spec)
    tables = compile_jobs([spec, dear])
    row, rate = np.array([0, 1]), tables.rate_per_s
    needed = sized(tables, row, rate, 0.7, np.ones(2), tables.start_level)
    assert needed[1].tolist() == needed[0].tolist()
    fewer = [
        (one.state.reads, other.state.reads, one.state.read_miss_us)
        for one, other in zip(dear.vertices, spec.vertices, strict=True)
        if other.state is not None and other.state.reads > 0
    ]
    assert fewer
    assert all(0 < one <= other and miss == 9000.0 for one, other, miss in fewer)


def test_metrics_and_faults_are_those_of_the_shift():
    options = benchmark().simulation
    lossy = Shift(name="lossy", lost_samples=0.2, gaps_per_hour=6, gap_s=90).options(options)
    assert lossy.measurement.missing_probability == 0.2
    assert (lossy.faults.metric_gaps_per_hour, lossy.faults.gap_s) == (6, 90)
    slow = Shift(name="slow", slow_per_hour=2, slow_factor=0.4, slow_s=600).options(options).faults
    assert (slow.slow_nodes_per_hour, slow.slow_factor, slow.slow_s) == (2, 0.4, 600)
    failing = Shift(name="failing", failed_rescales=0.2).options(options).faults
    assert failing.failed_rescale_probability == 0.2
    deployed = Shift(name="deploy", deploy_at_s=900, deploy_factor=1.5).options(options).faults
    assert (deployed.deploy_at_s, deployed.deploy_factor) == (900, 1.5)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"gap_s": 60}, "gap_s changes nothing without gaps_per_hour"),
        ({"slow_s": 60}, "slow_s changes nothing without slow_per_hour"),
        ({"deploy_factor": 3}, "deploy_factor changes nothing without deploy_at_s"),
        ({"outage": 2, "outage_s": 2}, "give one of them"),
        ({"lost_samples": 1}, "less than 1"),
        ({"deploy_at_s": 901}, "multiple of 5"),
    ],
)
def test_a_shift_that_cannot_be_is_refused(changes, said):
    with pytest.raises(ValidationError, match=said):
        Shift(name="x", **changes)


def test_a_deploy_after_the_episode_is_refused():
    with pytest.raises(ValidationError, match="deploy_at_s 1800 lies beyond the episode of 1800 s"):
        benchmark(shift=Shift(name="late", deploy_at_s=1800))


def test_a_wrong_file_is_wrong_about_every_vertex_by_the_same_share():
    spec = load_job("nexmark-q8")
    wrong = misread(spec, 0.15)
    share = [
        one.cpu_us_per_record / other.cpu_us_per_record
        for one, other in zip(wrong.vertices, spec.vertices, strict=True)
    ]
    assert {round(one, 9) for one in share} == {0.85, 1.15}
    assert misread(spec, 0.15) == wrong


def test_a_policy_with_a_wrong_file_reads_it_and_measures_the_job():
    jobs = Topology.of([load_job("nexmark-q11")])
    heard = []

    class Listens:
        name = "listens"

        def reset(self, jobs, seeds, mask=None):
            heard.append(jobs.specs[0])

        def decide(self, snapshot):
            heard.append(snapshot.topology.specs[0])
            return snapshot

        def state(self):
            return {"x": 1}

        def restore(self, state):
            heard.append(state)

    from dsp_gym.loop.snapshot import unknown_snapshot

    policy = Misinformed(Listens(), 0.15)
    policy.reset(jobs, np.zeros(1, np.int64))
    snapshot = unknown_snapshot(jobs)
    answered = policy.decide(snapshot)
    wrong = misread(jobs.specs[0], 0.15)
    assert heard == [wrong, wrong]
    assert answered.arrays is snapshot.arrays
    policy.restore(policy.state())
    assert heard[-1] == {"x": 1}


def test_a_benchmark_without_a_shift_keeps_its_fingerprint_and_with_one_gets_another():
    plain = benchmark()
    assert "shift" not in plain.model_dump()
    shifts = [Shift(name="a", outage=2), Shift(name="a", rate=2), Shift(name="a", file_error=0.1)]
    found = {fingerprint(plain), *(fingerprint(benchmark(shift=shift)) for shift in shifts)}
    assert len(found) == 4
    assert benchmark_job("nexmark-q11", benchmark(shift=shifts[0])).rescale.outage_s[0] == 112.0


def test_runs_feel_the_shift():
    longer, plain = (
        cells_of(benchmark(shift=shift))[0].metrics
        for shift in (Shift(name="outage", outage=3), None)
    )
    assert plain["rescales"] >= 1
    per_rescale = [one["down_s"] / one["rescales"] for one in (plain, longer)]
    assert per_rescale[1] > 2 * per_rescale[0]


@pytest.mark.parametrize(
    ("shift", "worse"),
    [
        ({"outage_s": 300}, "down_s"),
        ({"failed_rescales": 1}, "rescales"),
        ({"slow_per_hour": 60, "slow_factor": 0.2}, "slo_s"),
        ({"deploy_at_s": 900}, "down_s"),
    ],
)
def test_runs_are_worse_for_what_goes_wrong(shift, worse):
    plain, shifted = (
        cells_of(benchmark(shift=one))[0].metrics for one in (None, Shift(name="x", **shift))
    )
    assert shifted[worse] > plain[worse]


@pytest.mark.parametrize(
    "shift",
    [
        {"max_parallelism": 3},
        {"gaps_per_hour": 30, "gap_s": 300},
        {"metric_delay_s": 150},
        {"miss_ms": 9},
    ],
)
def test_runs_under_other_shifts_are_others(shift):
    plain, shifted = (
        cells_of(benchmark(policies=["planner-no-file"], shift=one))[0].metrics
        for one in (None, Shift(name="x", **shift))
    )
    assert plain != shifted


def test_lost_samples_are_not_seen():
    seen = []
    for shift in (Shift(name="none"), Shift(name="lossy", lost_samples=0.2)):
        jobs = SimulatedJobs(
            Topology.of([load_job("nexmark-q11")]), shift.options(benchmark().simulation)
        )
        jobs.reset(np.array([7]), np.full((1, 1), 3000.0))
        jobs.advance(600)
        known = jobs.state.sample_known[0].mean()
        seen.append((known, jobs.snapshot().busy_ms_per_s[0, 1]))
    (every, plain), (some, lossy) = seen
    assert every == 1.0
    assert 0.6 < some < 0.95
    assert lossy != plain


def test_only_what_a_policy_reads_in_the_file_can_be_wrong():
    """DS2 reads nothing but the graph, so a wrong file changes no run of it."""
    right, wrong = (
        cells_of(benchmark(shift=shift))[0].metrics
        for shift in (None, Shift(name="file", file_error=0.15))
    )
    assert wrong == right
    assert make("ds2").name == "ds2"


@pytest.mark.parametrize("policy", ["planner", "learned-ppo", "learned-q11", "justin-artifact"])
def test_policies_run_where_there_is_one_memory_level(policy):
    shift = Shift(name="in place", scheduler="adaptive")
    (found,) = cells_of(benchmark(policies=[policy], jobs=["nexmark-q8"], shift=shift))
    assert found.metrics["cost"] > 0


@pytest.mark.slow
def test_a_policy_that_prices_rescales_makes_more_of_them_in_place():
    default, in_place = (
        cells_of(benchmark(policies=["mdp"], jobs=["nexmark-q1"], episode_s=7200, shift=shift))[0]
        for shift in (None, Shift(name="in place", scheduler="adaptive"))
    )
    assert in_place.metrics["rescales"] > default.metrics["rescales"]
    assert in_place.metrics["down_s"] < default.metrics["down_s"]
    assert in_place.metrics["cost"] < default.metrics["cost"]
