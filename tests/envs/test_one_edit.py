"""A new feature and a new reward term are one edit in one file each; everything else follows."""

from __future__ import annotations

import json

import pytest

from dsp_gym.envs.features import FJ, FV, JOB_FEATURES, VERTEX_FEATURES
from dsp_gym.envs.reward import TERMS
from tests.edited import added, run_edited

VERTEX = '''
@vertex_feature("log10")
def lookups(vertex: Vertex) -> float:
    """1 + cache lookups since the last restart."""
    return float(np.log10(1.0 + vertex.cache_hits_total + vertex.cache_misses_total))
'''

JOB = '''
@job_feature("share")
def heap_share(job: Job) -> float:
    """Heap used over its limit."""
    return job.tm_heap_used_mib / job.tm_heap_max_mib
'''

TERM = """
    down: Annotated[
        float, Term("share", lambda outcome, _: outcome.down_s / np.maximum(outcome.seconds, 1.0))
    ] = Field(0.5, ge=0, description="share of seconds in which the job is down")
"""

PROGRAM = """
import json
import sys
import numpy as np

sys.path.insert(0, "docs")
import gymnasium
import dsp_gym
from generator.environment import action_and_reward, observation
from dsp_gym.datasets.rollouts.format import TERMS
from dsp_gym.envs.observation import FV, JOB_FEATURES, VERTEX_FEATURES

env = gymnasium.make("dsp_gym/Nexmark-Q11-v1")
batch = env.unwrapped.batch
layout = batch.encoder.layout
first, _ = env.reset(seed=0)
hold = np.zeros(env.action_space.shape, np.int64)
for _ in range(3):
    env.step(hold)
move = hold.copy()
move[2 * batch.topology.names(0).index("session")] = 5
seen, reward, _, _, info = env.step(move)
many = gymnasium.make_vec("dsp_gym/Nexmark-Q11-v1", num_envs=2)
many.reset(seed=0)
*_, infos = many.step(np.stack([hold, hold]))
snapshot = batch.snapshot
vertex = seen[layout.vertex].reshape(layout.vertices, FV)
terms, weights = info["reward_terms"], batch.config.reward
print(json.dumps({
    "size": [env.observation_space.shape[0], len(seen), many.observation_space.shape[1]],
    "names": [list(VERTEX_FEATURES), list(JOB_FEATURES)],
    "lookups": [
        vertex[:, list(VERTEX_FEATURES).index("lookups")].tolist(),
        np.nan_to_num(
            np.log10(1 + snapshot.cache_hits_total[0] + snapshot.cache_misses_total[0])
        ).clip(-10, 10).tolist(),
    ],
    "heap": [
        float(seen[layout.job][list(JOB_FEATURES).index("heap_share")]),
        float(snapshot.tm_heap_used_mib[0] / snapshot.tm_heap_max_mib[0]),
    ],
    "terms": [list(terms), sorted(infos["reward_terms"]), list(TERMS)],
    "down": [terms["down"], info["down_s"] / 60],
    "reward": [reward, -sum(getattr(weights, name) * value for name, value in terms.items())],
    "documented": [
        "| 24 | `lookups` | log10 | 1 + cache lookups since the last restart. |" in observation(),
        "| `down` | share | 0.5 | share of seconds in which the job is down |" in
        action_and_reward(),
    ],
}))
"""


@pytest.mark.slow
def test_an_added_feature_and_reward_term_are_found_everywhere(tmp_path):
    sources = added(TERM, added(JOB, added(VERTEX, {})))
    told = json.loads(run_edited(sources, PROGRAM, tmp_path).splitlines()[-1])
    assert told["names"] == [[*VERTEX_FEATURES, "lookups"], [*JOB_FEATURES, "heap_share"]]
    vertices = len(told["lookups"][0])
    expected = vertices * (FV + 1) + FJ + 1 + vertices + vertices**2
    assert told["size"] == [expected] * 3
    assert told["lookups"][0] == pytest.approx(told["lookups"][1])
    assert max(told["lookups"][0]) > 6  # 34,000 records/s for minutes: more than a million
    assert told["heap"][0] == pytest.approx(told["heap"][1])
    names = [*TERMS, "down"]
    assert told["terms"] == [names, sorted(names), names]
    assert told["down"][0] == pytest.approx(told["down"][1])
    assert 56 / 60 <= told["down"][0] <= 1  # the job file's redeploy takes 56 s or more
    assert told["reward"][0] == pytest.approx(told["reward"][1])
    assert told["documented"] == [True, True]
