"""A job of the operator as an environment: the API server is the fake, the Flink is real."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from dsp_gym.backends.flink.local.cluster import LocalCluster
from dsp_gym.backends.kubernetes.overrides import KEY, Override
from dsp_gym.envs.action import DOUBLE
from dsp_gym.errors import ConfigError, KubernetesError
from dsp_gym.job.catalog import load_job
from dsp_gym.job.spec import JobSpec
from dsp_gym.loop.decision import ScalingDecision
from tests.fakes.kubernetes_api import FakeKubernetes, only_override
from tests.real_flink import (
    QUICK_TO_RESCALE,
    REAL_FLINK,
    operated,
    running,
    small_cluster,
    submitting,
    wait_until_it_runs,
    write_job,
)

pytestmark = [*REAL_FLINK, pytest.mark.validate]

RIGHTS = {"flinkdeployments": ("get", "list", "watch", "patch"),
          "leases": ("get", "create", "update")}  # fmt: skip


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[LocalCluster]:
    with small_cluster(tmp_path_factory.mktemp("kubernetes"), **QUICK_TO_RESCALE) as made:
        yield made


@pytest.fixture(scope="module")
def job_file(tmp_path_factory) -> Path:
    return write_job(tmp_path_factory.mktemp("jobs"), source={"rate_per_s": 200})


@pytest.fixture(scope="module")
def spec(job_file) -> JobSpec:
    return load_job(str(job_file))


@pytest.fixture
def fake(cluster, spec, tmp_path) -> Iterator[FakeKubernetes]:
    """An API server, an operator, and the deployment of a job that runs."""
    with submitting(cluster, spec, tmp_path) as submit:
        submit(300.0)
        with operated(cluster, spec) as server:
            yield server


@pytest.fixture
def make(cluster, fake, job_file, tmp_path) -> Iterator[Callable[..., gymnasium.Env]]:
    """Makes environments over the deployment; all are closed in the end."""
    made = []
    file = fake.kubeconfig(tmp_path / "config", fake.account("gym", RIGHTS))
    fake.admission.append(only_override("gym"))

    def make_one(action: str = "vertex", **given: Any) -> gymnasium.Env:
        where = {
            "kubeconfig": str(file), "namespace": "jobs", "name": "words",
            "prometheus_url": cluster.prometheus_url, "rest_url": cluster.rest_url,
            "max_slots": 8, "timeout_s": 5, "apply": True, **given,
        }  # fmt: skip
        config = {
            "name": "words",
            "jobs": [str(job_file)],
            "loads": {"train": {"loads": ["diurnal-bursts"], "seeds": {"from": 0, "to": 9}}},
            "env": {
                "action": action,
                "interval_s": 5,
                "episode_s": 600,
                "simulation": {"measurement": {"window_s": 10, "stabilization_s": 0}},
            },
        }
        env = gymnasium.make(
            "dsp_gym/Autoscale-v1", config=config, backend="kubernetes", where=where
        )
        made.append(env.unwrapped)
        return env

    yield make_one
    for env in made:
        env.close()


def test_gymnasium_finds_nothing_wrong(make, cluster):
    env = make()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env.unwrapped, skip_render_check=True)
    env.close()
    wait_until_it_runs(cluster)


@pytest.mark.parametrize("action_space", ["vertex", "capacity"])
def test_five_steps_scale_the_job_through_its_resource(make, cluster, fake, spec, action_space):
    env = make(action_space)
    column = env.unwrapped.batch.topology.names(0).index("flatmap")
    _, info = env.reset(seed=3)
    assert info["load"] == "as it comes to jobs/words"
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
    assert running(cluster, spec)["flatmap"] >= 2
    assert env.unwrapped.batch.snapshot.parallelism[0, column] >= 2
    options = fake.object("FlinkDeployment", "words")["spec"]["flinkConfiguration"]
    assert max(Override.of(options).values.values()) >= 2
    mine = [r for r in fake.writes() if r.account == "gym"]
    assert {r.method for r in mine if "flinkdeployments" in r.path} == {"PATCH"}
    env.close()
    lease = fake.object("Lease", "dsp-gym-words")
    assert lease["spec"]["holderIdentity"] == ""
    assert running(cluster, spec)["flatmap"] >= 2  # the job runs on as it is


def test_an_environment_that_only_looks_writes_nothing(make, cluster, fake, spec):
    before = running(cluster, spec)
    fake.accounts["gym"] = {"flinkdeployments": ("get", "list", "watch")}
    env = make(apply=False)
    env.reset(seed=0)
    batch = env.unwrapped.batch
    step = batch.enact(ScalingDecision(np.array([[1, 3, 2]]), batch.snapshot.memory_level, ("",)))
    assert step.guarded.parallelism.tolist() == [[1, 3, 2]]
    assert batch.info(step, 0)["enacted"] is False
    env.close()
    assert running(cluster, spec) == before
    assert [r for r in fake.writes() if r.account == "gym"] == []
    assert KEY not in fake.object("FlinkDeployment", "words")["spec"]["flinkConfiguration"]


def test_what_is_missing_is_named(make, fake):
    with pytest.raises(KubernetesError, match="Did you mean 'words'"):
        make(name="wordz").reset()
    with pytest.raises(ConfigError, match="nmespace"):
        make(nmespace="jobs")
