"""A job in slow motion is the same job: shares, counts and costs of a run stay as they are."""

from __future__ import annotations

import numpy as np
import pytest

from dsp_gym.backends.simulated.jobs import SimulatedJobs
from dsp_gym.job.capacity import mst
from dsp_gym.job.catalog import load_job
from dsp_gym.job.sizing import reference_cost_per_s
from dsp_gym.loop.snapshot import MOMENTS, PER_JOB, PER_VERTEX, SNAPSHOT_METRICS
from dsp_gym.loop.topology import Topology
from dsp_gym.policies.registry import make
from dsp_gym.simulation.options import Measurement, SimulationOptions
from dsp_gym.studies.policies_on_flink.slow_motion import SlowGuardedPolicy, slowed, slowed_snapshot

TIMES = 12.0
UNITS = {name: column.unit for name, _, column in SNAPSHOT_METRICS}


@pytest.mark.parametrize("job", ["flink-q5", "flink-wordcount", "flink-large-update"])
@pytest.mark.parametrize("tasks", [1, 5])
def test_capacity_falls_with_the_load_and_money_per_record_stays(job, tasks):
    spec = load_job(job)
    slow = slowed(spec, TIMES)
    wanted = {v.name: tasks if v.kind == "operator" else 1 for v in spec.vertices}
    carried = mst(spec, wanted).rate_per_s
    assert mst(slow, wanted).rate_per_s * TIMES == pytest.approx(carried)
    of = [Topology.of([one]) for one in (spec, slow)]
    cost, slow_cost = (reference_cost_per_s(one.tables, one.row, 0.7)[0] for one in of)
    assert slow_cost * TIMES == pytest.approx(cost)


def test_every_time_of_the_file_is_longer_and_every_count_as_it_was():
    spec = load_job("flink-q5")
    slow = slowed(spec, TIMES)
    window, longer = (one.vertex("window").state.window for one in (spec, slow))
    assert longer.length_s == TIMES * window.length_s
    assert longer.slide_s == TIMES * window.slide_s
    assert slow.rescale.outage_s == tuple(TIMES * second for second in spec.rescale.outage_s)
    assert slow.slo.latency_s == TIMES * spec.slo.latency_s
    assert slow.memory == spec.memory
    assert slow.vertex("window").selectivity == spec.vertex("window").selectivity


@pytest.fixture
def seen():
    topology = Topology.of([load_job("flink-q11")])
    measured = Measurement(window_s=10, stabilization_s=5)
    jobs = SimulatedJobs(topology, SimulationOptions(measurement=measured))
    jobs.reset(np.array([1]), np.full((1, 60), 900.0))
    jobs.advance(60)
    return jobs.snapshot()


def test_metrics_change_with_their_unit(seen):
    slow = slowed_snapshot(seen, Topology.of([slowed(load_job("flink-q11"), TIMES)]), TIMES, 20.0)
    assert slow.t_s[0] == TIMES * 40.0
    assert slow.running_since_s[0] == TIMES * -20.0
    factors = {"s": TIMES, "ms": TIMES, "records/s": 1.0 / TIMES}
    for name in (*PER_JOB, *PER_VERTEX):
        if name not in MOMENTS:
            expected = getattr(seen, name) * factors.get(UNITS[name], 1.0)
            np.testing.assert_allclose(getattr(slow, name), expected, err_msg=name)
    assert np.nanmax(slow.records_in_per_s) == pytest.approx(900.0 / TIMES, rel=0.05)


def test_a_policy_decides_on_the_slowed_job_as_on_the_job_itself(seen):
    """DS2 without a clock: the same tasks, whatever a second is."""
    spec, ds2 = load_job("flink-q11"), make("ds2-local")
    seat = SlowGuardedPolicy(spec, make("ds2-local"), None, name="ds2", times=TIMES, origin_s=0.0)
    for policy in (ds2, seat):
        policy.reset(seen.topology, np.array([0]))
    np.testing.assert_array_equal(
        seat.decide(seen).guarded.parallelism, ds2.decide(seen).parallelism
    )


class Wants:
    """More of everything."""

    name = "wants"

    def reset(self, jobs, seeds, mask=None) -> None:
        self.rate_per_s = jobs.spec(0).source.rate_per_s

    def decide(self, snapshot):
        from dsp_gym.loop.decision import ScalingDecision

        return ScalingDecision(snapshot.parallelism + 1, snapshot.memory_level + 1, ("more",))

    def state(self) -> dict:
        return {}

    def restore(self, state) -> None:
        pass


def test_in_place_memory_stays_and_the_file_is_the_policy_s_own(seen):
    spec, policy = load_job("flink-q11"), Wants()
    seat = SlowGuardedPolicy(
        spec, policy, None, name="w", times=TIMES, origin_s=0.0, keeps_memory=True
    )
    seat.reset(Topology.of([load_job("flink-q5")]), np.array([0]))
    assert policy.rate_per_s == pytest.approx(3000.0 / TIMES)
    decided = seat.decide(seen).guarded
    np.testing.assert_array_equal(decided.memory_level, seen.memory_level)
    np.testing.assert_array_equal(decided.parallelism, seen.parallelism + 1)
