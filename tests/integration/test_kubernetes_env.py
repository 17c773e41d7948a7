"""A job of the operator as an environment: the API server is the fake, the Flink is real."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
import yaml
from gymnasium.utils.env_checker import check_env

from dsp_gym.envs.action import DOUBLE
from dsp_gym.errors import ConfigError, KubernetesError
from dsp_gym.flink.cluster import LocalCluster
from dsp_gym.flink.rest import ENDED
from dsp_gym.flink.settings import ClusterSettings
from dsp_gym.flink.submission import Configuration, Submission
from dsp_gym.job.catalog import load_job
from dsp_gym.job.spec import JobSpec
from dsp_gym.kubernetes.overrides import KEY, Override
from dsp_gym.loop.decision import ScalingDecision
from tests.fakes.flink_operator import FlinkOperator, RealJob
from tests.fakes.kubernetes_api import FakeKubernetes, only_override, served_kubernetes
from tests.flink_resources import deployment
from tests.real_flink import REAL_FLINK, WORD_COUNT, running

pytestmark = REAL_FLINK

RIGHTS = {"flinkdeployments": ("get", "list", "watch", "patch"),
          "leases": ("get", "create", "update")}  # fmt: skip


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[LocalCluster]:
    settings = ClusterSettings(
        slots=8, managed_mib=128, task_heap_mib=256, network_mib=64, rest_port=0,
        prometheus_port=0, scrape_interval_s=2, scheduler="adaptive",
    )  # fmt: skip
    made = LocalCluster.up(settings, tmp_path_factory.mktemp("kubernetes"))
    yield made
    made.down()


@pytest.fixture(scope="module")
def job_file(tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("jobs") / "words.yaml"
    path.write_text(yaml.safe_dump(WORD_COUNT | {"source": {"rate_per_s": 200}}))
    return str(path)


@pytest.fixture(scope="module")
def spec(job_file) -> JobSpec:
    return load_job(job_file)


@pytest.fixture
def fake(cluster, spec) -> Iterator[FakeKubernetes]:
    """An API server, an operator, and the deployment of a job that runs."""
    job_id = Submission.of_spec(spec, {"rate": "300"}, "words").submit(
        cluster.rest, Configuration.of_spec(spec)
    )
    job = RealJob(cluster.rest, "words", spec)
    with served_kubernetes() as server:
        server.put(deployment("words"))
        with FlinkOperator(server, "words", job):
            yield server
        job.close()
    cluster.rest.cancel(job_id)
    assert cluster.rest.wait_for(job_id, ENDED, 30) in ENDED


@pytest.fixture
def make(cluster, fake, job_file, tmp_path) -> Iterator[Callable[..., gymnasium.Env]]:
    """Makes environments over the deployment; all are closed in the end."""
    made = []
    file = fake.kubeconfig(tmp_path / "config", fake.account("gym", RIGHTS))
    fake.admission.append(only_override("gym"))

    def make_one(**given: Any) -> gymnasium.Env:
        where = {
            "kubeconfig": str(file), "namespace": "jobs", "name": "words",
            "prometheus_url": cluster.prometheus_url, "rest_url": cluster.rest_url,
            "max_slots": 8, "timeout_s": 5, "apply": True, **given,
        }  # fmt: skip
        config = {
            "name": "words",
            "jobs": [job_file],
            "loads": {"train": {"loads": ["diurnal-bursts"], "seeds": {"from": 0, "to": 9}}},
            "env": {
                "interval_s": 5,
                "episode_s": 600,
                "simulation": {"measurement": {"window_s": 10, "stabilization_s": 0}},
            },
        }
        env = gymnasium.make(
            "dsp_gym/Autoscale-v0", config=config, backend="kubernetes", where=where
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
    assert cluster.rest.find_job("words").state == "RUNNING"


def test_ten_steps_scale_the_job_through_its_resource(make, cluster, fake, spec):
    env = make()
    column = env.unwrapped.batch.topology.names(0).index("flatmap")
    _, info = env.reset(seed=3)
    assert info["load"] == "as it comes to jobs/words"
    for _ in range(10):
        action = np.zeros(env.action_space.shape, np.int64)
        if env.unwrapped.batch.snapshot.parallelism[0, column] == 1:
            action[2 * column] = DOUBLE  # masked, and so a hold, until something is measured
        seen, reward, terminated, truncated, info = env.step(action)
        assert seen in env.observation_space
        assert np.isfinite(reward)
        assert (info["reward_source"], info["enacted"]) == ("metrics", True)
        assert not terminated
        assert not truncated
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
