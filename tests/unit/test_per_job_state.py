"""Memory of policies and guardrails: one table of arrays, written through by compiled code."""

from __future__ import annotations

import json
from typing import NamedTuple

import numpy as np
import pytest

from dsp_gym.arrays import Floats, Ints
from dsp_gym.job.catalog import load_job
from dsp_gym.loop.per_job_state import RowMemory
from dsp_gym.loop.topology import Topology


class Kept(NamedTuple):
    wanted: Ints
    at_s: Floats


@pytest.fixture
def memory():
    kept = RowMemory({"at_s": ("job", np.nan), "wanted": ("vertex", -1)})
    kept.reset(Topology.of([load_job("nexmark-q8")], [0, 0]))
    return kept


def test_its_arrays_are_one_value_and_what_is_written_there_is_remembered(memory):
    table = memory.arrays(Kept)
    assert table.wanted.shape == (2, Topology.of([load_job("nexmark-q8")]).max_vertices)
    table.at_s[1] = 60.0
    table.wanted[0, 0] = 4
    saved = json.loads(json.dumps(memory.state(), allow_nan=False))
    assert saved["at_s"] == [None, 60.0]
    assert saved["wanted"][0][0] == 4
    memory.restore(saved)
    np.testing.assert_array_equal(memory.arrays(Kept).wanted, table.wanted)
    np.testing.assert_array_equal(memory.arrays(Kept).at_s, table.at_s)


def test_a_table_with_another_set_of_fields_is_refused(memory):
    class Less(NamedTuple):
        wanted: Ints

    class More(NamedTuple):
        wanted: Ints
        at_s: Floats
        until_s: Floats

    for table in (Less, More):
        with pytest.raises(TypeError):
            memory.arrays(table)
