from __future__ import annotations

import numpy as np
import pytest

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
