"""Laws of the maximal sustainable throughput, for any job."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsp_gym.job.capacity import mst, mst_per_s
from dsp_gym.job.placement import place
from dsp_gym.job.tables import compile_jobs
from tests.strategies import random_configuration, random_spec, random_topology

SEEDS = st.integers(0, 2**32 - 1)


@given(SEEDS)
def test_a_task_more_never_lowers_the_throughput(seed):
    rng = np.random.default_rng(seed)
    topology = random_topology(rng, 1)
    parallelism, level = (array[0] for array in random_configuration(rng, topology))
    tables, k = topology.tables, int(topology.row[0])
    before = mst_per_s(tables, k, parallelism, level)
    for v in range(tables.n[k]):
        if parallelism[v] < tables.max_parallelism[k, v]:
            more = parallelism.copy()
            more[v] += 1
            assert mst_per_s(tables, k, more, level) >= before * (1 - 1e-12)


@given(SEEDS)
def test_more_memory_never_lowers_the_throughput(seed):
    rng = np.random.default_rng(seed)
    topology = random_topology(rng, 1)
    parallelism, level = (array[0] for array in random_configuration(rng, topology))
    tables, k = topology.tables, int(topology.row[0])
    rates = [
        mst_per_s(tables, k, parallelism, np.minimum(level + more, tables.levels[k] - 1))
        for more in range(3)
    ]
    assert rates == sorted(rates)


@given(SEEDS)
def test_a_job_is_worth_the_same_alone_and_in_a_batch(seed):
    rng = np.random.default_rng(seed)
    topology = random_topology(rng, 4)
    parallelism, level = random_configuration(rng, topology)
    for job in range(4):
        k = int(topology.row[job])
        together = mst_per_s(topology.tables, k, parallelism[job], level[job])
        n = topology.tables.n[k]
        alone = compile_jobs([topology.spec(job)])
        assert mst_per_s(alone, 0, parallelism[job, :n], level[job, :n]) == together


@given(SEEDS)
def test_at_the_limit_one_vertex_is_full_and_none_is_fuller(seed):
    spec = random_spec(np.random.default_rng(seed))
    result = mst(spec)
    used = [load.utilization for load in result.vertices]
    assert max(used) == pytest.approx(1.0, abs=1e-6)


@pytest.mark.slow
@given(SEEDS, st.integers(0, 5))
def test_a_slot_more_never_lowers_what_can_be_placed(seed, spare):
    spec = random_spec(np.random.default_rng(seed))
    least = sum(1 for v in spec.vertices if v.kind != "source")
    fewer, more = place(spec, least + spare), place(spec, least + spare + 1)
    assert more.result.rate_per_s >= fewer.result.rate_per_s * (1 - 1e-9)
    assert fewer.slots <= least + spare
