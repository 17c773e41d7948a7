"""Fixed configurations, and how policies are made by name."""

from __future__ import annotations

import numpy as np
import pytest

from baselines.static import Static, StaticConfig
from dsp_gym.errors import ConfigError, PolicyError
from dsp_gym.loop.per_job import per_job
from dsp_gym.loop.topology import Topology
from dsp_gym.policies import PolicyConfig, make
from tests.strategies import blank_snapshot, chain_spec

TOPOLOGY = Topology.of([chain_spec()])


def configuration(**params):
    policy = Static(StaticConfig(**params))
    policy.reset(TOPOLOGY, np.array([0]))
    decision = policy.decide(blank_snapshot(TOPOLOGY, parallelism=9, memory_level=2))
    return decision.parallelism[0].tolist(), decision.memory_level[0].tolist()


def test_without_parameters_it_is_what_the_job_file_starts_with():
    assert configuration() == ([2, 1, 1, 1], [0, 0, 0, 0])


def test_one_number_is_for_every_vertex_that_can_be_scaled():
    assert configuration(parallelism=5) == ([2, 5, 5, 1], [0, 0, 0, 0])


def test_vertices_may_be_named():
    given = configuration(parallelism={"window": 7}, memory_level={"window": 1, "map": -1})
    assert given == ([2, 1, 7, 1], [0, -1, 1, 0])


def test_a_vertex_the_job_does_not_have_is_named():
    with pytest.raises(PolicyError, match=r"no vertex 'windw'.*Did you mean 'window'\?"):
        configuration(parallelism={"windw": 7})


def test_a_policy_is_made_by_name_file_and_configuration(tmp_path):
    path = tmp_path / "big.yaml"
    path.write_text("policy: static\nparams: {parallelism: 4}\n")
    assert make(path).config.parallelism == 4
    assert make(path).name == "big"
    assert make(PolicyConfig(policy="static", params={"parallelism": 3})).config.parallelism == 3
    assert make("static").config == StaticConfig()


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ("ds3", r"no policy 'ds3'.*Did you mean 'ds2'\?"),
        (PolicyConfig(policy="hpa"), r"no policy 'hpa'.*Did you mean 'hpa-cpu'\?"),
        (PolicyConfig(policy="ds2", params={"warmup_s": 3}), r"'warmup_s'.*'warm_up_s'"),
        ("nowhere/policy.yaml", "there is no policy 'nowhere/policy.yaml'"),
    ],
)
def test_what_does_not_exist_is_refused_with_a_remedy(policy, message):
    with pytest.raises(ConfigError, match=message):
        make(policy)


def test_a_function_of_one_job_serves_a_batch():
    @per_job
    def one_more(job):
        return {"map": int(job.vertex("map", "parallelism")) + 1, "window": (3, 1)}

    both = Topology.of([chain_spec()], [0, 0])
    snapshot = blank_snapshot(both, parallelism=[[2, 4, 1, 1], [2, 6, 1, 1]])
    decision = one_more().decide(snapshot)
    assert decision.parallelism.tolist() == [[2, 5, 3, 1], [2, 7, 3, 1]]
    assert decision.memory_level[:, 2].tolist() == [1, 1]
    assert one_more().name == "one-more"
