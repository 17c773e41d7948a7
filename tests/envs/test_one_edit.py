"""A new metric, feature or reward term is one edit in one file; everything else follows."""

from __future__ import annotations

import json

import pytest

from dsp_gym.envs.features import FJ, FV, JOB_FEATURES, VERTEX_FEATURES
from dsp_gym.envs.reward import TERMS
from dsp_gym.job.catalog import load_job
from tests.edited import REPO, added, run_edited

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
    up, *_ = env.step(hold)
snapshot = batch.snapshot
vertex = up[layout.vertex].reshape(layout.vertices, FV)
lookups = [
    vertex[:, list(VERTEX_FEATURES).index("lookups")].tolist(),
    np.nan_to_num(
        np.log10(1 + snapshot.cache_hits_total[0] + snapshot.cache_misses_total[0])
    ).clip(-10, 10).tolist(),
]
heap = [
    float(up[layout.job][list(JOB_FEATURES).index("heap_share")]),
    float(snapshot.tm_heap_used_mib[0] / snapshot.tm_heap_max_mib[0]),
]
move = hold.copy()
move[2 * batch.topology.names(0).index("session")] = 5
seen, reward, _, _, info = env.step(move)
many = gymnasium.make_vec("dsp_gym/Nexmark-Q11-v1", num_envs=2)
many.reset(seed=0)
*_, infos = many.step(np.stack([hold, hold]))
snapshot = batch.snapshot
terms, weights = info["reward_terms"], batch.config.reward
print(json.dumps({
    "size": [env.observation_space.shape[0], len(seen), many.observation_space.shape[1]],
    "names": [list(VERTEX_FEATURES), list(JOB_FEATURES)],
    "lookups": lookups,
    "heap": heap,
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


ROW = '    spilled_mib: Annotated[Floats, Column("J V", "MiB", "window mean of state on disk")]\n'

ROW_PROGRAM = """
import json
import sys
import numpy as np

sys.path.insert(0, "docs")
from dsp_gym.backends.simulated.jobs import SimulatedJobs
from dsp_gym.datasets.rollouts.format import cell_schema
from dsp_gym.guardrails.stale_metrics import StaleMetricsConfig
from dsp_gym.job.catalog import load_job
from dsp_gym.loop.snapshot import VERTEX
from dsp_gym.loop.topology import Topology
from dsp_gym.loop.wire import json_schema, snapshot_from_json, snapshot_to_json
from generator.environment import metrics
from spark_pipelines.schema import SNAPSHOT

jobs = SimulatedJobs(Topology.of([load_job("nexmark-q11")]))
jobs.reset(np.array([0]), np.full((1, 60), 1e4))
jobs.advance(60)
seen = jobs.snapshot()
document = snapshot_to_json(seen.job(0))
known = snapshot_to_json(seen.job(0))
for vertex in known["vertices"]:
    vertex["metrics"]["spilled_mib"] = 3.0
del document["vertices"][0]["metrics"]["spilled_mib"]
back = snapshot_from_json([known])
print(json.dumps({
    "simulated": bool(np.isnan(seen.spilled_mib).all() and (seen.records_in_total[0, 0] > 0)),
    "null": document["vertices"][1]["metrics"]["spilled_mib"],
    "earlier": bool(np.isnan(snapshot_from_json([document]).spilled_mib).all()),
    "back": back.spilled_mib[0].tolist(),
    "compiled": back.arrays.vertex[VERTEX.spilled_mib, 0].tolist(),
    "schema": "spilled_mib" in json.dumps(json_schema("dsp-gym/snapshot/1")),
    "rollouts": "spilled_mib" in str(cell_schema()),
    "spark": "spilled_mib" in SNAPSHOT.fieldNames(),
    "guardrail": list(StaleMetricsConfig(needed=("spilled_mib",)).needed),
    "documented": "| `spilled_mib` | window mean of state on disk |" in metrics(),
}))
"""


@pytest.fixture(scope="module")
def printed(tmp_path_factory) -> list[str]:
    """What both programs print in one process with every addition: it compiles for a while."""
    module = "dsp_gym.loop.snapshot"
    source = (REPO / f"{module.replace('.', '/')}.py").read_text()
    mark = "\n    def __len__(self)"
    assert source.count(mark) == 1
    sources = added(TERM, added(JOB, added(VERTEX, {module: source.replace(mark, ROW + mark)})))
    return run_edited(sources, PROGRAM + ROW_PROGRAM, tmp_path_factory.mktemp("edited")).split("\n")


@pytest.mark.slow
def test_an_added_feature_and_reward_term_are_found_everywhere(printed):
    told = json.loads(printed[-3])
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


@pytest.mark.slow
def test_a_metric_is_one_row_and_found_everywhere(printed):
    told = json.loads(printed[-2])
    vertices = len(load_job("nexmark-q11").vertices)
    assert told == {
        "simulated": True,
        "null": None,
        "earlier": True,
        "back": [3.0] * vertices,
        "compiled": [3.0] * vertices,
        "schema": True,
        "rollouts": True,
        "spark": True,
        "guardrail": ["spilled_mib"],
        "documented": True,
    }
