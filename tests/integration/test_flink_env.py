"""A job on a real Flink as a Gymnasium environment."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from dsp_gym.backends.flink.local.cluster import LocalCluster
from dsp_gym.backends.flink.rest import ENDED
from dsp_gym.backends.flink.submission import Configuration, Submission
from dsp_gym.envs.action import DOUBLE
from dsp_gym.errors import ConfigError, FlinkError
from dsp_gym.job.catalog import load_job
from dsp_gym.loop.decision import ScalingDecision
from tests.real_flink import PATIENCE_S, REAL_FLINK, running, small_cluster, write_job

pytestmark = REAL_FLINK


NAMES = ("source", "flatmap", "count")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[LocalCluster]:
    with small_cluster(tmp_path_factory.mktemp("env")) as made:
        yield made


@pytest.fixture(scope="module")
def config(tmp_path_factory) -> dict[str, Any]:
    path = write_job(tmp_path_factory.mktemp("jobs"), source={"rate_per_s": 200})
    return {
        "name": "words",
        "jobs": [str(path)],
        "loads": {"train": {"loads": ["diurnal-bursts"], "seeds": {"from": 0, "to": 9}}},
        "env": {
            "interval_s": 5,
            "episode_s": 600,
            "start": "job",
            "simulation": {"measurement": {"window_s": 10, "stabilization_s": 0}},
        },
        "guardrails": "floor",
    }


@pytest.fixture
def make(cluster) -> Iterator[Callable[[dict[str, Any]], gymnasium.Env]]:
    """Makes environments on the cluster; all are closed in the end."""
    where = {"home": str(cluster.home.folder), "compression": 10}
    made = []

    def make_one(config: dict[str, Any]) -> gymnasium.Env:
        env = gymnasium.make("dsp_gym/Autoscale-v1", config=config, backend="flink", where=where)
        made.append(env.unwrapped)
        return env

    yield make_one
    for env in made:
        env.close()


def alive(cluster: LocalCluster) -> list[str]:
    return [job.name for job in cluster.rest.jobs() if job.state not in ENDED]


@pytest.mark.validate  # test_kubernetes_env asks the same
def test_gymnasium_finds_nothing_wrong(cluster, config, make):
    env = make(config)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # To render, the checker would start a second job beside this one.
        check_env(env.unwrapped, skip_render_check=True)
    env.close()
    assert alive(cluster) == []


@pytest.mark.parametrize(
    "action_space", ["vertex", pytest.param("capacity", marks=pytest.mark.validate)]
)
def test_five_steps_scale_the_real_job(cluster, config, make, action_space):
    env = make({**config, "env": {**config["env"], "action": action_space}})
    column = env.unwrapped.batch.topology.names(0).index("flatmap")
    _, info = env.reset(seed=3)
    label = info["load"]
    for taken in range(1, 41):
        action: Any = np.zeros(env.action_space.shape, np.int64)
        # Masked, and so a hold, until something is measured.
        if env.unwrapped.batch.snapshot.parallelism[0, column] == 1 and action_space == "vertex":
            action[2 * column] = DOUBLE
        elif action_space == "capacity":
            action = np.flatnonzero(info["action_mask"])[-1]  # for as much load as it can
        seen, reward, terminated, truncated, info = env.step(action)
        assert seen in env.observation_space
        assert np.isfinite(reward)
        assert (info["reward_source"], info["enacted"]) == ("metrics", True)
        assert not terminated
        assert not truncated
        if taken >= 5 and env.unwrapped.batch.snapshot.parallelism[0, column] >= 2:
            break
    (name,) = alive(cluster)
    assert running(cluster, env.unwrapped.batch.topology.spec(0), name)["flatmap"] >= 2
    assert env.unwrapped.batch.snapshot.parallelism[0, column] >= 2
    assert env.reset(seed=3)[1]["load"] == label
    assert alive(cluster) == [name]  # the job before was cancelled
    env.close()
    assert alive(cluster) == []


def test_other_jobs_are_let_be_and_slots_that_are_missing_are_named(cluster, config, make):
    spec = load_job(config["jobs"][0])
    wide = Configuration({"source": 1, "flatmap": 3, "count": 2}, dict.fromkeys(NAMES, 0))
    mine = Submission.of_spec(spec, {"rate": "10"}, "mine").submit(cluster.rest, wide)
    env = make(config)
    with pytest.raises(FlinkError, match="2 are free"):
        env.reset(seed=0)
    env.close()
    assert alive(cluster) == ["mine"]
    cluster.rest.cancel(mine)
    assert cluster.rest.wait_for(mine, ENDED, PATIENCE_S) == "CANCELED"


@pytest.mark.validate
def test_neither_the_start_nor_a_decision_takes_more_than_the_free_slots(cluster, config, make):
    start = {"start": "sized", "start_headroom": 0.01}
    env = make({**config, "env": {**config["env"], **start}, "guardrails": None})
    env.reset(seed=0)
    batch = env.unwrapped.batch
    runs = batch.snapshot.parallelism
    assert runs[0].sum() == 8
    step = batch.enact(ScalingDecision(np.array([[1, 4, 4]]), batch.snapshot.memory_level, ("",)))
    np.testing.assert_array_equal(step.guarded.parallelism, runs)
    assert "bounds_and_quota" in {said.guardrail for said in step.guarded.interventions}
    env.close()


def test_an_environment_that_is_forgotten_gives_its_slots_back(cluster, config):
    where = {"home": str(cluster.home.folder)}
    env = gymnasium.make("dsp_gym/Autoscale-v1", config=config, backend="flink", where=where)
    env.reset(seed=0)
    assert len(alive(cluster)) == 1
    del env
    gc.collect()
    assert alive(cluster) == []


def test_a_job_that_can_only_be_simulated_is_refused(cluster, config, make):
    with pytest.raises(ConfigError, match="no 'flink' section"):
        make({**config, "jobs": ["nexmark-q11"]})


def test_a_cluster_that_is_not_there_is_named(config, tmp_path: Path):
    with pytest.raises(FlinkError, match="dsp-gym flink up"):
        gymnasium.make("dsp_gym/Autoscale-v1", config=config, backend="flink", where=str(tmp_path))
