from __future__ import annotations

import pytest

from dsp_gym.errors import ConfigError
from dsp_gym.job.capacity import mst
from dsp_gym.job.catalog import load_job, other_job
from dsp_gym.job.other_dag import SHAPES, other_dag
from dsp_gym.job.random_dag import QUOTA, UTILIZATION
from dsp_gym.job.spec import JobSpec

SEEDS = range(12)


def drawn(seed: int) -> JobSpec:
    return load_job(other_job(seed))


def test_a_seed_gives_the_same_job_and_another_one_another():
    assert other_dag(3) == other_dag(3)
    assert other_dag(3) != other_dag(4)
    assert drawn(3).job == "other-dag-3"


def test_a_name_without_a_seed_is_refused():
    with pytest.raises(ConfigError, match=r"no seed.*other-dag:7"):
        load_job("other-dag:many")


def test_every_shape_is_drawn_and_is_what_it_is_called():
    found: dict[str, list[JobSpec]] = {}
    for seed in range(40):
        document = other_dag(seed)
        shape = next(one for one in SHAPES if f" with {one}:" in document["description"])
        found.setdefault(shape, []).append(JobSpec.model_validate(document))
    assert set(found) == set(SHAPES)
    for spec in found["a deep chain"]:
        assert len(spec.vertices) >= 8
        assert all(len(v.inputs) <= 1 for v in spec.vertices if v.kind == "operator")
    assert all(max(len(v.inputs) for v in s.vertices) >= 3 for s in found["wide joins"])
    for spec in found["dear state"]:
        states = [v.state for v in spec.vertices if v.kind == "operator"]
        assert all(s is not None and s.read_miss_us >= 4 * s.read_hit_us for s in states)
    assert all(sum(v.kind == "source" for v in s.vertices) >= 4 for s in found["many sources"])


@pytest.mark.parametrize("seed", SEEDS)
def test_a_job_is_as_busy_as_wanted_and_has_room_under_the_quota(seed):
    spec = drawn(seed)
    least_memory = {vertex.name: 0 for vertex in spec.vertices if vertex.state is not None}
    carried = mst(spec, None, least_memory).rate_per_s
    # A window is fuller, and its cache misses more, at the highest rate than at the reference.
    assert spec.source.rate_per_s / carried == pytest.approx(UTILIZATION, rel=0.1)
    top = {vertex.name: QUOTA for vertex in spec.vertices if vertex.kind == "operator"}
    assert mst(spec, top, least_memory).rate_per_s > 1.5 * spec.source.rate_per_s


@pytest.mark.parametrize("seed", SEEDS)
def test_every_stream_is_read_and_no_vertex_starves(seed):
    spec = drawn(seed)
    read = {edge.from_ for vertex in spec.vertices for edge in vertex.inputs}
    assert read == {vertex.name for vertex in spec.vertices} - {"sink"}
