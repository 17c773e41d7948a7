"""Readers with and without knowledge of the job read documents alike."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsp_gym.errors import DspGymError
from dsp_gym.job.catalog import load_job
from dsp_gym.loop.snapshot import JOB, SnapshotArrays, unknown_snapshot
from dsp_gym.loop.snapshot_stream import SnapshotReader
from dsp_gym.loop.topology import Topology
from dsp_gym.loop.wire import snapshot_from_json, snapshot_to_json

ODD = st.sampled_from(
    [None, True, 0, -1, 1, 3, 10**400, 2.5, 1e16, math.nan, math.inf, "1.5", "nan", "x", [], {}]
)
PLACES = ("parallelism", "memory_level", "start_parallelism", "max_parallelism", "name", "extra")


def document() -> dict[str, Any]:
    """A snapshot of the word count with some metrics known."""
    seen = unknown_snapshot(Topology.of([load_job("flink-wordcount")]))
    seen.arrays.parallelism[:] = [[1, 2, 3]]
    seen.arrays.job[:], seen.arrays.vertex[:] = 0.5, np.linspace(0, 1, seen.arrays.vertex[0].size)
    seen.arrays.vertex[3] = seen.arrays.job[JOB.counted_s] = np.nan
    return snapshot_to_json(seen.job(0))


KNOWN = document()
METRICS = sorted(KNOWN["vertices"][0]["metrics"])


@st.composite
def changes(draw: st.DrawFn) -> dict[str, Any]:
    """The document with a few things in it changed, for better or worse."""
    changed = copy.deepcopy(KNOWN)
    vertices: list[Any] = changed["vertices"]
    for _ in range(draw(st.integers(0, 3))):
        vertex = vertices[draw(st.integers(0, len(vertices) - 1))]
        where = draw(st.sampled_from(["metric", "job metric", "vertex", "job", "gone", "order"]))
        if where == "metric":
            vertex["metrics"][draw(st.sampled_from([*METRICS, "new"]))] = draw(
                ODD | st.floats(allow_nan=False)
            )
        elif where == "job metric":
            changed["metrics"][draw(st.sampled_from(["window_s", "new"]))] = draw(ODD)
        elif where == "vertex":
            vertex[draw(st.sampled_from(PLACES))] = draw(ODD | st.integers(0, 200))
        elif where == "job":
            key = draw(
                st.sampled_from(["t_s", "status", "job", "metrics", "buffer_records", "new"])
            )
            changed[key] = draw(ODD | st.sampled_from(["RESTARTING", 100.0, 60]))
        elif where == "gone":
            gone = draw(st.sampled_from(["metrics", "parallelism", "memory_level", "kind"]))
            vertex.pop(gone, None)
            vertex.setdefault("metrics", {}) if draw(st.booleans()) else None
        else:
            vertices.reverse()
    return changed


def outcome(read: Any) -> tuple[str, SnapshotArrays | None]:
    """What was refused, or what was read."""
    try:
        seen = read()
    except DspGymError as error:
        return str(error), None
    return "\n".join(map(repr, seen.topology.specs)), seen.arrays


@given(changed=changes())
def test_a_reader_that_knows_the_job_reads_the_same_and_refuses_in_the_same_words(
    changed: dict[str, Any],
) -> None:
    reader = SnapshotReader("request")
    reader.read(copy.deepcopy(KNOWN))
    for _ in range(2):  # after a refusal, too
        said, arrays = outcome(lambda: reader.read(changed))
        expected, wanted = outcome(lambda: snapshot_from_json([changed], "request"))
        assert said == expected
        if wanted is not None:
            assert arrays is not None
            for ours, theirs in zip(arrays, wanted, strict=True):
                np.testing.assert_array_equal(ours, theirs)


def test_what_is_fixed_is_compiled_once() -> None:
    reader = SnapshotReader()
    first = reader.read(document())
    later = document()
    later["t_s"], later["vertices"][1]["parallelism"] = 60, 7
    later["vertices"][1]["metrics"]["busy_ms_per_s"] = None
    second = reader.read(later)
    assert second.topology is first.topology
    assert second.parallelism.tolist() == [[1, 7, 3]]
    assert math.isnan(second.busy_ms_per_s[0, 1])
    assert second.t_s.tolist() == [60.0]
    assert reader.read({**later, "buffer_records": 3000.0}).topology is not first.topology


@pytest.mark.parametrize("given_", [None, [], {}, {"schema": "dsp-gym/snapshot/1"}])
def test_what_is_no_snapshot_is_refused_by_a_reader_that_knows_the_job_too(given_: Any) -> None:
    reader = SnapshotReader()
    reader.read(document())
    with pytest.raises(DspGymError):
        reader.read(given_)
