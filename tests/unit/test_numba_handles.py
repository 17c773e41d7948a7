"""Direct calls keep their types, and handles share the arrays of their tables."""

import copy
import sys
from collections import namedtuple
from typing import NamedTuple

import numpy as np
import pytest
from numba import config, typeof
from numba.core.dispatcher import Dispatcher
from numba.core.errors import NumbaError

import baselines.justin  # noqa: F401  # among the loaded
from dsp_gym.arrays import Floats, Ints
from dsp_gym.compiling import njit
from dsp_gym.envs.single import AutoscaleEnv
from dsp_gym.envs.vector import AutoscaleVectorEnv
from dsp_gym.loop.decision import ScalingDecision
from dsp_gym.loop.turn import take_turn
from dsp_gym.loop.wire import snapshot_from_json, snapshot_to_json
from dsp_gym.numba_handles import by_address, direct, handle
from dsp_gym.policies import make


class Table(NamedTuple):
    count: Ints
    rate: Floats
    factor: float


@direct
@njit()
def _scaled(table, at, out):
    t = table.arrays
    out[at] = t.count[at] * t.rate[at] * t.factor
    t.count[at] += 1


def test_a_handle_shares_the_arrays_of_its_table():
    table = Table(np.array([2, 3]), np.array([0.5, 1.5]), 2.0)
    held, out = handle(table), np.zeros(2)
    _scaled(held, 1, out)
    table.rate[0] = 4.0
    _scaled(held, 0, out)
    assert out.tolist() == [16.0, 9.0]
    assert table.count.tolist() == [3, 4]
    assert held.arrays.count.tolist() == [3, 4]
    assert held.arrays.factor == 2.0


def _direct_functions():
    """Module and name of every direct function of the library and the policies that is loaded."""
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] in ("baselines", "dsp_gym"):
            for attribute, value in list(vars(module).items()):
                if isinstance(getattr(value, "__wrapped__", None), Dispatcher):
                    yield module, attribute, value


@pytest.fixture
def watched(monkeypatch):
    """Every direct function notes the types it is called with."""
    seen = {}

    def watching(key, function):
        def call(*arguments):
            seen.setdefault(key, set()).add(tuple(map(typeof, arguments)))
            return function(*arguments)

        return call

    for module, name, value in _direct_functions():
        monkeypatch.setattr(module, name, watching((value.__module__, name), value))
    return seen


def test_direct_functions_meet_the_same_types_whoever_calls(watched):
    rng = np.random.default_rng(0)
    for guardrails in ("default", "deployed", None):
        env = AutoscaleEnv("nexmark-q8", guardrails=guardrails)
        env.reset(seed=0)
        for _ in range(4):
            env.step(env.action_space.sample().astype(np.int32))
        shape = (1, env.batch.topology.max_vertices)
        wanted = np.asfortranarray(rng.integers(1, 5, shape), np.int32)
        env.batch.enact(ScalingDecision(wanted, np.zeros(shape, np.int8), ("",)))
    vector = AutoscaleVectorEnv(2, "nexmark-q11", guardrails="default")
    vector.reset(seed=0)
    for turn in range(3):
        vector.step(np.asfortranarray(vector.action_space.sample()))
        vector.reset(options={"reset_mask": np.array([turn == 0, turn > 0])})
    read = snapshot_from_json([snapshot_to_json(vector.batch.snapshot.job(0))])
    for name in (
        "ds2",
        "justin-paper",
        "justin-artifact",
        "dhalion",
        "hpa-cpu",
        "keda",
        "dataflow",
    ):
        for snapshot in (vector.batch.snapshot, vector.batch.snapshot.take(np.array([1])), read):
            policy, chain = make(name), vector.batch.guardrails
            policy.reset(snapshot.topology, np.zeros(len(snapshot), np.int64))
            chain.reset(snapshot.topology, np.zeros(len(snapshot), np.int64))
            take_turn(snapshot, policy.decide, chain)
    passes = {"_look", "score", "_run", "_require", "_decide", "_count", "advance", "observe"}
    assert passes <= {name for _, name in watched}
    assert {key: len(types) for key, types in watched.items() if len(types) > 1} == {}


def test_a_copy_of_an_environment_goes_its_own_way():
    env = AutoscaleEnv("nexmark-q11", guardrails="default")
    env.reset(seed=0)
    env.action_space.seed(0)
    actions = [env.action_space.sample() for _ in range(12)]
    for action in actions[:6]:
        env.step(action)
    twin, state = copy.deepcopy(env), env.get_state()
    first = [env.step(action)[0] for action in actions[6:]]
    np.testing.assert_array_equal([twin.step(action)[0] for action in actions[6:]], first)
    env.set_state(state)
    np.testing.assert_array_equal([env.step(action)[0] for action in actions[6:]], first)


class Inner(NamedTuple):
    rates: np.ndarray
    size: int


class Outer(NamedTuple):
    inner: Inner
    flags: np.ndarray
    on: bool


@njit(borrows=True, error_model="numpy")
def through(table):
    return table.inner.rates[table.inner.size - 1] if table.on else table.flags[0]


@njit(borrows=True, error_model="numpy")
def read(held):
    table = held.arrays
    table.flags[0] += 1
    return through(table)


@pytest.mark.parametrize("on", [True, False])
def test_a_borrowed_table_is_read_field_by_field_where_the_arrays_are(on):
    rates, flags = np.array([1.0, 2.0, 3.0]), np.array([6.0])
    held = handle(Outer(Inner(rates, 2), flags, on))
    assert read(held) == (2.0 if on else 7.0)
    rates[1] = 5.0
    assert read(held) == (5.0 if on else 8.0)
    assert flags[0] == 8.0


@pytest.mark.skipif(config.DISABLE_JIT, reason="plain Python has no references to count")
def test_reading_a_borrowed_table_counts_no_references():
    held = handle(Outer(Inner(np.ones(2), 1), np.ones(1), True))
    read(held)
    assert not any("NRT_incref" in text for text in read.inspect_llvm().values())


class Large(NamedTuple):
    rates: Floats
    limit: float


by_address(Large)


@njit()
def _below(table, at):
    table.rates[at] += 1.0
    return table.rates[at] < table.limit


@njit()
def _both_below(held):
    return _below(held.arrays, 0) and _below(held.arrays, 1)


def test_a_table_by_address_is_the_same_to_compiled_code_whoever_hands_it_over():
    table = Large(np.array([1.0, 5.0]), 4.0)
    assert _below(table, 0)
    assert not _both_below(handle(table))
    assert table.rates.tolist() == [3.0, 6.0]
    for rate in range(40):  # more tables than are kept
        assert _below(Large(np.array([float(rate)]), 4.0), 0) == (rate < 3)
    assert _below(Large(table.rates, 9.0), 1)
    if not config.DISABLE_JIT:
        assert len(_below.signatures) == 1


@pytest.mark.skipif(config.DISABLE_JIT, reason="plain Python keeps no machine code")
def test_tables_whose_fields_change_places_are_not_the_same_to_kept_machine_code():
    one = namedtuple("Pair", "low high")
    other = namedtuple("Pair", "high low")
    tables = [table(np.ones(1), np.ones(1)) for table in (one, other, one)]
    names = [str(typeof(handle(table))) for table in tables]
    assert names[0] == names[2] != names[1]


@pytest.mark.parametrize("field", [None, "text", [1.0]])
@pytest.mark.skipif(config.DISABLE_JIT, reason="plain Python holds anything")
def test_a_handle_refuses_what_compiled_code_cannot_read(field):
    with pytest.raises((TypeError, ValueError)):
        handle(Large(np.ones(2), field))


@pytest.mark.skipif(config.DISABLE_JIT, reason="plain Python refuses when it runs")
def test_a_field_that_a_borrowed_table_lacks_does_not_compile():
    @njit(borrows=True)
    def wrong(held):
        return held.arrays.missing

    with pytest.raises(NumbaError, match="missing"):
        wrong(handle(Outer(Inner(np.ones(2), 1), np.ones(1), True)))
