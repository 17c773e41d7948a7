"""A quantity is one row of one table: places, types and meanings follow from it."""

from __future__ import annotations

from typing import Annotated, TypeVar, get_type_hints

import numpy as np
import pytest
from numpy.typing import NDArray
from typing_extensions import TypeAliasType

from dsp_gym.arrays import Column, columns_of, filled, indices, numbered
from dsp_gym.job.catalog import load_job
from dsp_gym.job.tables import JobTables, compile_jobs
from dsp_gym.loop.outcome import Outcome
from dsp_gym.loop.snapshot import (
    INTEGERS,
    JOB,
    PER_JOB,
    PER_VERTEX,
    VERTEX,
    MetricsSnapshot,
    unknown_snapshot,
)
from dsp_gym.loop.topology import Topology
from dsp_gym.simulation.state import TRACE, C, S, SimulationState, X
from tests.strategies import blank_snapshot


@pytest.mark.parametrize("table", [MetricsSnapshot, Outcome, JobTables, SimulationState])
def test_every_array_has_axes_and_a_sentence(table):
    rows = columns_of(table)
    names = [name for name in get_type_hints(table) if name not in ("topology", "_found")]
    assert [name for name, _, _ in rows] == names
    for name, dtype, column in rows:
        assert dtype in (np.int64, np.float64), name
        assert column.axes, name
        assert column.sentence, name


Scalar = TypeVar("Scalar", bound=np.generic)
_ALIAS = TypeAliasType(
    "_ALIAS", np.ndarray[tuple[int, ...], np.dtype[Scalar]], type_params=(Scalar,)
)
"""What `NDArray` is since numpy 2.5."""


@pytest.mark.parametrize("array", [NDArray, _ALIAS], ids=["this numpy", "numpy 2.5"])
def test_a_column_has_the_type_of_its_array_with_either_numpy(array):
    hint = Annotated[array[np.bool_], Column("J", "", "some")]
    (row,) = columns_of(type("Flags", (), {"__annotations__": {"flags": hint}}))
    assert (row.name, row.dtype) == ("flags", np.dtype(bool))


@pytest.mark.parametrize("table", [X, C, S, TRACE], ids=lambda table: type(table).__name__)
def test_every_column_has_its_place_and_a_sentence(table):
    assert list(table) == list(range(len(table)))
    for name, hint in get_type_hints(type(table), include_extras=True).items():
        assert hint.__metadata__[0].sentence, name
    assert numbered(type(table)) == table


def test_a_state_is_allocated_as_its_rows_say():
    sizes = {"J": 2, "V": 3, "R": 4, "X": len(X), "S": len(S), "bins": 5}
    state = filled(SimulationState, sizes)
    assert state.tick.shape == (2,)
    assert state.tick.dtype == np.int64
    assert state.vertex.shape == (2, 3, len(X))
    assert state.samples.shape == (2, 4, 3, len(S))
    assert state.samples.dtype == np.float64


def test_tables_of_jobs_start_with_the_values_of_their_rows():
    small, large = load_job("nexmark-q1"), load_job("nexmark-q11")
    specs = sorted([small, large], key=lambda spec: len(spec.vertices))
    tables = compile_jobs([*specs, load_job("nexmark-q8")])
    padding = tables.kind[0] == -1
    assert padding.any()
    assert (tables.start_level[0, padding] == -1).all()
    assert (tables.cpu_s[0, padding] == 1).all()


def test_names_of_columns_are_constants():
    shares = indices("SHARES", ("busy", "idle"))
    assert (shares.busy, shares.idle, len(shares)) == (0, 1, 2)
    with pytest.raises(AttributeError, match="bsy"):
        shares.bsy  # noqa: B018


def test_compiled_code_gets_the_values_of_the_snapshot():
    topology = Topology.of([load_job("nexmark-q11")])
    rng = np.random.default_rng(0)
    shape = (1, topology.max_vertices)
    values = {name: rng.random(shape) for name in PER_VERTEX if name not in INTEGERS}
    values |= {name: rng.random(1) for name in PER_JOB if name not in INTEGERS}
    snapshot = blank_snapshot(topology, **values)
    seen = snapshot.arrays
    assert seen is snapshot.arrays
    for name in INTEGERS:
        assert (getattr(seen, name) == getattr(snapshot, name)).all()
    for name, value in values.items():
        block, place = (seen.job, JOB) if name in PER_JOB else (seen.vertex, VERTEX)
        assert (block[getattr(place, name)] == value).all(), name
    assert all(array.flags.carray for array in seen)


def test_an_unknown_snapshot_is_filled_in_place():
    topology = Topology.of([load_job("nexmark-q11")])
    snapshot = unknown_snapshot(topology)
    assert np.isnan(snapshot.busy_ms_per_s).all()
    assert (snapshot.memory_level == -1).all()
    snapshot.busy_ms_per_s[0, 1] = 250.0
    snapshot.tm_count[0] = 2.0
    assert snapshot.arrays.vertex[VERTEX.busy_ms_per_s, 0, 1] == 250.0
    assert snapshot.arrays.job[JOB.tm_count, 0] == 2.0
