from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsp_gym.job.spec import JobSpec
from dsp_gym.loop import wire
from dsp_gym.loop.snapshot import PER_JOB, PER_VERTEX, MetricsSnapshot
from dsp_gym.loop.topology import Topology

INTEGERS = ("status", "parallelism", "memory_level")


@st.composite
def jobs(draw: st.DrawFn) -> JobSpec:
    """A job of one or two sources and a chain, with its vertices in any order."""
    sources = [f"s{i}" for i in range(draw(st.integers(1, 2)))]
    operators = [f"o{i}" for i in range(draw(st.integers(1, 3)))]
    widths = {name: draw(st.integers(1, 4)) for name in sources}
    vertices: list[dict[str, object]] = [
        {
            "name": name,
            "kind": "source",
            "cpu_us_per_record": 1,
            "parallelism": draw(st.integers(1, 4)),
        }
        for name, width in widths.items()
    ]
    upstream = sources
    for name in operators:
        ship = draw(st.sampled_from(["FORWARD", "HASH", "REBALANCE"]))
        vertices.append(
            {
                "name": name,
                "inputs": [{"from": source, "ship": ship} for source in upstream],
                "cpu_us_per_record": 5,
                "max_parallelism": draw(st.sampled_from([16, 128])),
                "parallelism": draw(st.integers(1, 16)),
                "state": {"keys": 10, "value_bytes": 8} if draw(st.booleans()) else None,
            }
        )
        upstream = [name]
    return JobSpec.model_validate(
        {
            "job": draw(st.sampled_from(["a", "b"])),
            "source": {"rate_per_s": 1000},
            "vertices": draw(st.permutations(vertices)),
            "slot_sharing": draw(st.booleans()),
            "slo": {"latency_s": draw(st.floats(0.1, 10))},
        }
    )


@st.composite
def snapshots(draw: st.DrawFn) -> MetricsSnapshot:
    topology = Topology.of(draw(st.lists(jobs(), min_size=1, max_size=3)))
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.Generator(np.random.Philox(seed))
    mask = topology.mask

    def metric(shape: tuple[int, ...]) -> np.ndarray:
        # Over many decades, so that a rounded number would be seen; a third is unknown.
        values = rng.standard_normal(shape) * 10.0 ** rng.integers(-12, 12, shape)
        return np.where(rng.random(shape) < 1 / 3, np.nan, values)

    values = {name: metric((len(topology),)) for name in PER_JOB}
    values |= {name: np.where(mask, metric(mask.shape), np.nan) for name in PER_VERTEX}
    values["t_s"] = rng.random(len(topology)) * 1e6
    values["status"] = rng.integers(0, 4, len(topology))
    # A source's parallelism is a fixed fact; that of the others is what was seen running.
    start = topology.tables.start_parallelism[topology.row]
    seen = np.where(topology.tables.kind[topology.row] == 0, start, rng.integers(1, 17, mask.shape))
    values["parallelism"] = np.where(mask, seen, 0)
    values["memory_level"] = np.where(mask, rng.integers(-1, 3, mask.shape), -1)
    return MetricsSnapshot(topology=topology, **values)


@pytest.mark.slow
@given(snapshots())
def test_a_snapshot_survives_the_wire_exactly(snapshot):
    sent = [wire.snapshot_to_json(snapshot.job(row)) for row in range(len(snapshot))]
    received = [json.loads(json.dumps(document, allow_nan=False)) for document in sent]
    back = wire.snapshot_from_json(received)
    for name in PER_JOB + PER_VERTEX:
        np.testing.assert_array_equal(getattr(back, name), getattr(snapshot, name), err_msg=name)
    for row in range(len(snapshot)):
        assert back.topology.names(row) == snapshot.topology.names(row)
        for fact in ("kind", "upstream", "min_parallelism", "max_parallelism", "stateful",
                     "key_groups", "partitions",
                     "start_parallelism", "start_level"):  # fmt: skip
            ours = getattr(snapshot.topology.tables, fact)[snapshot.topology.row[row]]
            theirs = getattr(back.topology.tables, fact)[back.topology.row[row]]
            np.testing.assert_array_equal(theirs, ours, err_msg=fact)
    assert [wire.snapshot_to_json(back.job(row)) for row in range(len(back))] == sent
