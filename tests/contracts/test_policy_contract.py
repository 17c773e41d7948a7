"""The contract of every policy: batches equal single jobs, state continues, bounds hold."""

from __future__ import annotations

import json

import numpy as np
import pytest

from agents.planning.policy import MdpConfig, MdpPolicy
from agents.trained import TrainedConfig, TrainedPolicy
from dsp_gym.loop.per_job_state import RowBlock
from dsp_gym.loop.protocols import Policy
from dsp_gym.loop.topology import Topology
from dsp_gym.policies import PolicyConfig, available, make
from dsp_gym.policies.capabilities import FutureLoad, capabilities_of, without_reasons
from tests.recurrent import recurrent_folder
from tests.strategies import random_snapshot, random_spec, random_topology

POLICIES = {
    "static": {},
    "static-given": {"policy": "static", "params": {"parallelism": 3, "memory_level": 1}},
    "hpa-cpu": {},
    "hpa-job": {"policy": "hpa-cpu", "params": {"per_vertex": False}},
    "espa-hpa": {},
    "hpa-varga": {},
    "hpa-varga-per-vertex": {},
    "espa-varga1": {},
    "espa-varga2": {},
    "keda": {},
    "keda-100k": {},
    "aws-managed-flink": {},
    "aws-managed-flink-quick": {
        "policy": "aws-managed-flink",
        "params": {"scale_up_s": 60.0, "scale_down_cpu": 0.3, "scale_down_s": 60.0},
    },
    "dataflow": {},
    "dataflow-hinted": {
        "policy": "dataflow",
        "params": {"worker_utilization_hint": 0.5, "lasting_s": 30.0},
    },
    "beam-flink": {},
    "beam-flink-quick": {"policy": "beam-flink", "params": {"rest_s": 0.0, "backlog_s": 10.0}},
    "dhalion": {},
    "dhalion-forgiving": {
        "policy": "dhalion",
        "params": {"wait_s": 0.0, "blacklist_ratio": 0.0, "blacklist_s": 120.0},
    },
    "dhalion-reactive": {},
    "dhalion-reactive-quick": {
        "policy": "dhalion-reactive",
        "params": {"rest_s": 0.0, "latency_s": 0.1, "low_cpu": 1.0, "lag_s": 1e6},
    },
    "daedalus": {},
    "daedalus-hasty": {
        "policy": "daedalus",
        "params": {"warm_up_s": 0.0, "rest_s": 0.0, "hold_s": 0.0, "min_cpu_spread": 0.0},
    },
    "conttune": {},
    "conttune-trusting": {
        "policy": "conttune",
        "params": {
            "alpha": 100.0,
            "backpressure_ms_per_s": 999.0,
            "ds2": {"min_window_fill": 0.0, "min_down": 1, "roll_back": True},
        },
    },
    "ds2": {},
    "ds2-reactive": {},
    "ds2-reactive-quick": {
        "policy": "ds2-reactive",
        "params": {"interval_s": 5.0, "rest_s": 0.0, "window_s": 10.0, "over_provisioning": 0.5},
    },
    "espa-ds2-updated": {},
    "ds2-justin": {},
    "ds2-careful": {
        "policy": "ds2",
        "params": {
            "activation": 2,
            "activation_rule": "unchanged",
            "target_rate_ratio": 1.0,
            "roll_back": True,
            "warm_up_s": 30,
        },
    },
    "flink-autoscaler": {},
    "flink-autoscaler-quick": {
        "policy": "flink-autoscaler",
        "params": {
            "version": "main",
            "flink_configuration": {
                "job.autoscaler.metrics.window": "1 min",
                "job.autoscaler.stabilization.interval": "0 s",
                "job.autoscaler.scale-down.interval": "0 s",
            },
        },
    },
    "justin-paper": {},
    "justin-artifact": {},
    "clairvoyant": {},
    "learned-ppo": {},
    "learned-q11": {},
    "learned-recurrent": {},
    "mdp": MdpConfig(),
    "mdp-no-prior": MdpConfig(prior="none", own_weight=0.0),
    "streambed": {
        "policy": "streambed",
        "params": {
            "estimator": {"warm_up_s": 30, "injection_s": 30, "observation_s": 15, "timeout_s": 60},
            "explorer": {"max_measurements": 4},
            "testbed_slots": 12,
            "memory_levels": [0],
        },
    },
}


def made(name: str) -> Policy:
    given = POLICIES[name]
    if name == "learned-recurrent":
        return TrainedPolicy(TrainedConfig(path=str(recurrent_folder())))
    if isinstance(given, MdpConfig):
        return MdpPolicy(given)
    policy = make(PolicyConfig(**given) if given else name)
    return policy


@pytest.fixture(params=POLICIES)
def name(request):
    return request.param


def snapshots(seed: int, jobs: int, steps: int = 6):
    rng = np.random.default_rng(seed)
    topology = random_topology(rng, jobs)
    previous = None
    for step in range(steps):
        previous = random_snapshot(rng, topology, 600.0 + 60.0 * step, previous=previous)
        yield previous


def tell(policy: Policy, topology, rows=slice(None)) -> None:
    """Gives a clairvoyant the load of those of eight jobs."""
    if (know_future := capabilities_of(policy).know_future) is not None:
        rates = np.random.default_rng(1).uniform(0, 2000, (8, 600))
        know_future(topology, FutureLoad(rates[rows][: len(topology)], 60))


def decisions(policy: Policy, taken, seed: int = 0, rows=slice(None)):
    taken = list(taken)
    tell(policy, taken[0].topology, rows)
    policy.reset(taken[0].topology, np.arange(len(taken[0])) + seed)
    return [policy.decide(snapshot) for snapshot in taken]


each_seed = pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.validate) for seed in (2, 3))]
)


def test_it_is_a_policy(name):
    assert isinstance(made(name), Policy)


@pytest.mark.slow
@each_seed
def test_a_batch_gives_what_its_jobs_give_alone(name, seed):
    taken = list(snapshots(seed, 5))
    together = decisions(made(name), taken)
    for job in range(5):
        rows = np.array([job])
        alone = decisions(made(name), [snapshot.take(rows) for snapshot in taken], rows=rows)
        for whole, one in zip(together, alone, strict=True):
            np.testing.assert_array_equal(whole.parallelism[job], one.parallelism[0])
            np.testing.assert_array_equal(whole.memory_level[job], one.memory_level[0])
            assert whole.reasons[job] == one.reasons[0]


@each_seed
def test_its_state_as_json_continues_where_it_stopped(name, seed):
    taken = list(snapshots(seed, 4))
    first = made(name)
    expected = decisions(first, taken)
    half = made(name)
    decisions(half, taken[:3])
    saved = json.loads(json.dumps(half.state(), allow_nan=False))
    other = made(name)
    other.reset(taken[0].topology, np.arange(4))
    other.restore(saved)
    for snapshot, wanted in zip(taken[3:], expected[3:], strict=True):
        decision = other.decide(snapshot)
        np.testing.assert_array_equal(decision.parallelism, wanted.parallelism)
        np.testing.assert_array_equal(decision.memory_level, wanted.memory_level)


def test_reset_of_some_rows_starts_those_anew(name):
    taken = list(snapshots(5, 4))
    policy = made(name)
    decisions(policy, taken[:4])
    mask = np.array([True, False, True, False])
    policy.reset(taken[0].topology, np.arange(4), mask)
    fresh, old = made(name), made(name)
    tell(fresh, taken[0].topology)
    fresh.reset(taken[0].topology, np.arange(4))
    decisions(old, taken[:4])
    decision, anew, kept = (p.decide(taken[4]) for p in (policy, fresh, old))
    np.testing.assert_array_equal(decision.parallelism[mask], anew.parallelism[mask])
    np.testing.assert_array_equal(decision.parallelism[~mask], kept.parallelism[~mask])


@each_seed
def test_it_keeps_the_bounds_of_the_job(name, seed):
    for snapshot, decision in zip(
        snapshots(seed, 6), decisions(made(name), snapshots(seed, 6)), strict=True
    ):
        tables, row = snapshot.topology.tables, snapshot.topology.row
        mask = snapshot.topology.mask
        assert np.all((decision.parallelism >= tables.min_parallelism[row])[mask])
        assert np.all((decision.parallelism <= tables.max_parallelism[row])[mask])
        assert np.all((decision.memory_level < tables.levels[row][:, None])[mask])


def test_it_does_not_write_into_the_snapshot(name):
    taken = list(snapshots(6, 5))
    before = [(s.parallelism.copy(), s.memory_level.copy()) for s in taken]
    for decision, snapshot in zip(decisions(made(name), taken), taken, strict=True):
        assert decision.parallelism is not snapshot.parallelism
    for snapshot, (parallelism, level) in zip(taken, before, strict=True):
        np.testing.assert_array_equal(snapshot.parallelism, parallelism)
        np.testing.assert_array_equal(snapshot.memory_level, level)


def test_without_explanations_it_decides_the_same(name):
    silent = without_reasons(made(name))
    taken = list(snapshots(7, 5))
    for quiet, loud in zip(decisions(silent, taken), decisions(made(name), taken), strict=True):
        assert quiet.reasons == ("",) * 5
        np.testing.assert_array_equal(quiet.parallelism, loud.parallelism)


@pytest.mark.parametrize(
    "name", ["ds2-careful", "aws-managed-flink-quick", "dataflow-hinted", "beam-flink-quick"]
)
def test_rows_of_its_memory_decide_in_another_batch_as_at_home(name):
    rng, jobs = np.random.default_rng(8), 3
    topology = Topology.of([random_spec(rng)], [0] * jobs)
    taken, previous = [], None
    for minute in range(6):
        previous = random_snapshot(rng, topology, 600.0 + 60.0 * minute, previous=previous)
        taken.append(previous)
    home = decisions(made(name), taken)
    batch, alone = made(name), [made(name) for _ in range(jobs)]
    batch.reset(topology, np.arange(jobs))
    for policy in alone:
        policy.reset(topology.take([0]), np.array([0]))
    blocks = [RowBlock(rows_of(policy), 1) for policy in alone]
    block = RowBlock(rows_of(batch), jobs)
    for minute, (snapshot, expected) in enumerate(zip(taken, home, strict=True)):
        if minute % 2:
            found = [policy.decide(snapshot.take(np.array([j]))) for j, policy in enumerate(alone)]
            tasks = np.concatenate([decision.parallelism for decision in found])
        else:
            block.load(blocks)
            tasks = batch.decide(snapshot).parallelism
            block.store(blocks)
        np.testing.assert_array_equal(tasks, expected.parallelism)


def rows_of(policy: Policy):
    memories = capabilities_of(policy).memories
    assert memories is not None
    found = memories()
    assert found is not None
    return found


def test_every_shipped_policy_says_what_it_is():
    about = available()
    assert {"static", "hpa-cpu", "ds2", "ds2-justin", "justin-paper"} <= set(about)
    assert about["ds2"].startswith("DS2")
