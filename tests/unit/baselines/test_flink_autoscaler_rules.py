"""Rules worked by hand; the numbers are those of FLIP-271's implementation, release 1.15.0."""

from __future__ import annotations

import math

import numpy as np
import pytest

from baselines.flink_autoscaler.documents import fill_window, vertices_of
from baselines.flink_autoscaler.evaluator import (
    E_CATCH_UP,
    E_DOWN,
    E_LOAD,
    E_TARGET,
    E_TPR,
    E_UP,
    capacity,
    thresholds,
)
from baselines.flink_autoscaler.flink_memory import MemoryRefused, derive
from baselines.flink_autoscaler.job import Job
from baselines.flink_autoscaler.numbers import (
    ceil2,
    ceiling_text,
    hash_order,
    round3,
    round_half_up,
)
from baselines.flink_autoscaler.options import Options
from baselines.flink_autoscaler.scaler import align, coefficient, scale
from baselines.flink_autoscaler.settings import (
    BALANCED,
    EVENLY,
    LEGACY_EVENLY,
    LEGACY_MAXIMIZE,
    OFF,
    Switches,
    settings_of,
)
from baselines.studies.autoscaler_facts import fact
from dsp_gym.errors import SchemaError

NAN = float("nan")
S = settings_of(Options.of({}), Switches())
MIB = 1 << 20


def test_capacity_with_the_defaults_aims_at_62_7_percent():
    # 0 + 1000 * 300 / 1800 + 1000 / 0.7 = 166.67 + 1428.57
    assert capacity(1000.0, 0.0, 0.7, True, S, 300.0) == 1595.0
    assert pytest.approx(0.627, abs=5e-4) == 1000 / 1595
    assert capacity(1000.0, 50.0, 0.7, False, S, 300.0) == 1479.0
    assert capacity(1000.0, 0.0, 0.0, True, S, 300.0) == math.inf
    assert math.isnan(capacity(NAN, 0.0, 0.7, True, S, 300.0))
    assert math.isnan(capacity(1000.0, NAN, 0.0, True, S, 300.0))


def test_thresholds_with_the_defaults_are_100_and_37_5_percent():
    # 1000 / 1.0, and 1000 / 0.4 + 1000 * 300 / 1800 = 2500 + 166.67
    assert thresholds(1000.0, 0.0, False, S, 300.0) == (1000.0, 2667.0)
    assert pytest.approx(0.375, abs=1e-4) == 1000 / 2667
    assert thresholds(1000.0, 20.0, True, S, 300.0) == (1020.0, math.inf)


def test_rounding_is_half_up_on_the_decimal_text():
    assert round3(1.0005) == 1.001  # the binary value lies below the tie
    assert round3(-1.0005) == -1.001
    assert round3(2.6749999) == 2.675
    assert round3(0.0004) == 0.0004  # never down to 0
    assert round3(0.0005) == 0.001
    assert round3(math.inf) == math.inf
    assert math.isnan(round3(NAN))
    assert round_half_up(2.5) == 3.0
    assert round_half_up(-2.5) == -2.0
    assert ceil2(0.58) == 0.58
    assert ceil2(0.580001) == 0.59
    assert ceiling_text(0.3193) == "0.32"


def test_vertices_are_visited_as_a_java_hash_map_holds_their_names():
    """Buckets are hash codes modulo 16; the trace t04 of the real classes names op2, op1, op0."""
    names = ["src0", "src1", "op0", "op1", "op2"]
    # Codes 3538636, 3538637, 110191, 110192, 110193 give buckets 9, 8, 14, 1, 0.
    codes = (b"src0", 3538636), (b"op2", 110193)
    for text, code in codes:
        assert sum(c * 31**i for i, c in enumerate(reversed(text))) % 2**32 == code
    assert [names[i] for i in hash_order(names)] == ["op2", "op1", "src1", "src0", "op0"]
    many = [f"op{i}" for i in range(13)]  # 32 buckets from 13 names on
    assert [many[i] for i in hash_order(many)[:3]] != [many[i] for i in hash_order(many[:12])[:3]]
    assert hash_order(["a", "q"]) == [0, 1]  # one bucket: as they came
    assert hash_order(["q", "a"]) == [0, 1]


def test_scaling_multiplies_doubles_and_rounds_up():
    # 0.07 * 100 is 7.000000000000001 in doubles.
    assert scale(100, 0.07, False, 0, 720, 1, 200, LEGACY_EVENLY) == (8, False)
    assert scale(10, math.inf, False, 0, 720, 1, 200, LEGACY_EVENLY) == (200, False)
    assert scale(10, NAN, False, 0, 720, 2, 200, LEGACY_EVENLY) == (2, False)
    assert scale(300, 2.0, False, 0, 720, 1, 300, LEGACY_EVENLY) == (300, False)


@pytest.mark.parametrize(
    ("p", "new", "groups", "mode", "expected"),
    [
        (10, 11, 128, LEGACY_EVENLY, (16, False)),  # next divisor
        (10, 11, 128, LEGACY_MAXIMIZE, (12, False)),  # 128 // 12 = 10 < 11
        (10, 13, 24, LEGACY_EVENLY, (24, False)),
        (22, 25, 35, LEGACY_EVENLY, (22, True)),  # cap 30: no divisor; below it inverts: blocked
        (5, 7, 12, LEGACY_EVENLY, (6, True)),  # cap 8: back to where the load grows
        (10, 6, 97, LEGACY_EVENLY, (6, False)),  # 97 // 6 = 16, 97 // 5 = 19: 5 rounds up to 6
        (10, 8, 9, LEGACY_EVENLY, (9, False)),  # 9 divides, still below 10
        (10, 8, 10, LEGACY_EVENLY, (10, False)),  # only the running one: no scale-down
        (5, 7, 12, EVENLY, (7, False)),  # main keeps the wanted one
        (16, 24, 128, BALANCED, (26, False)),
        (16, 24, 128, OFF, (24, False)),
        (20, 18, 12, LEGACY_EVENLY, (12, True)),  # more tasks than partitions
    ],
)
def test_alignment_with_key_groups_and_partitions(p, new, groups, mode, expected):
    high = {(22, 25): 30, (5, 7): 8}.get((p, new), 200)
    assert align(p, new, groups, max(groups, 128), 1, high, mode) == expected


def test_scalability_is_fitted_through_the_smallest_parallelism_and_rounded_up():
    # baseline 100 / 1; (1*100 + 2*150 + 4*250) / (100 * 21) = 1400 / 2100 = 0.6667
    before, rates = np.array([1, 2, 4]), np.array([100.0, 150.0, 250.0])
    assert coefficient(before, rates, 3, 0.5) == 0.67
    assert coefficient(before, rates, 4, 0.5) == 1.0  # too few
    assert coefficient(before, rates, 3, 0.8) == 0.8
    assert coefficient(before, np.array([100.0, NAN, 250.0]), 3, 0.5) == 1.0
    # FLINK-39890: an idle vertex aborts the pass.
    assert math.isnan(coefficient(before, np.zeros(3), 3, 0.5))


def diamond(conf=None, **metrics) -> Job:
    """source -> (left, right) -> sink over 60 s."""
    vertices = [
        {"name": "source", "parallelism": 2, "max_parallelism": 128},
        {"name": "left", "inputs": {"source": "HASH"}, "parallelism": 2, "max_parallelism": 128},
        {"name": "right", "inputs": {"source": "FORWARD"}, "parallelism": 2,
         "max_parallelism": 128},
        {"name": "sink", "inputs": {"left": "REBALANCE", "right": "REBALANCE"}, "parallelism": 2,
         "max_parallelism": 128},
    ]  # fmt: skip
    job = Job(Options.of(conf or {}), vertices_of(vertices))
    totals = {"source": (6000, 9000), "left": (3000, 1500), "right": (6000, 600),
              "sink": (2100, 0)}  # fmt: skip
    history = []
    for i in range(2):
        sample = {
            name: {"NUM_RECORDS_IN": i * into, "NUM_RECORDS_OUT": i * out, "LOAD": 0.5,
                   "ACCUMULATED_BUSY_TIME": i * 24_000, **metrics.get(name, {})}
            for name, (into, out) in totals.items()
        }  # fmt: skip
        sample["source"].setdefault("LAG", 600 * i)
        history.append({"ts_ms": 60_000 * i, "vertex_metrics": sample})
    fill_window(job, history)
    return job


def test_target_rates_follow_lag_and_edges():
    rows = dict(zip(("source", "left", "right", "sink"), diamond().evaluate(), strict=True))
    # 100/s read and 10/s of growing lag; 600 records to catch up in 1800 s.
    assert rows["source"][E_TARGET] == 110.0
    assert rows["source"][E_CATCH_UP] == 0.333
    # One input: what it read, 50/s of the source's 100/s.
    assert rows["left"][E_TARGET] == 55.0
    assert rows["left"][E_CATCH_UP] == 0.167  # 0.333 * 0.5, rounded on the way
    # sink: 35/s read; left: 35 - 10 of right = 25 per 50 read; right: 35 - 25 = 10 per 100.
    assert rows["sink"][E_TARGET] == pytest.approx(55 * 0.5 + 110 * 0.1, abs=1e-3)


def test_true_rates_take_busy_time_as_the_aggregator_says():
    assert diamond().evaluate()[0][E_TPR] == 200.0  # 100/s at half the time
    average = diamond({"job.autoscaler.metrics.busy-time.aggregator": "AVG"}).evaluate()[0]
    assert average[E_LOAD] == 0.2  # 400 ms/s over 2 tasks
    assert average[E_TPR] == 500.0


def test_an_observed_rate_counts_where_busy_time_says_much_more():
    seen = {"source": {"OBSERVED_TPR": 150.0}}
    assert diamond(**seen).evaluate()[0][E_TPR] == 150.0  # 200 > 150 * 1.15
    seen = {"source": {"OBSERVED_TPR": 180.0}}
    assert diamond(**seen).evaluate()[0][E_TPR] == 200.0


def test_nothing_coming_in_is_infinitely_fast_and_scales_down_as_far_as_allowed():
    idle = {name: {"NUM_RECORDS_IN": 0, "LAG": 0} for name in ("source",)}
    job = diamond({"job.autoscaler.scale-down.interval": "0 s"}, **idle)
    evaluated = job.evaluate()
    assert evaluated[0][E_TPR] == math.inf
    assert evaluated[1][E_TARGET] == 0.0  # upstream reads nothing: FLINK-39925
    done = job.decide(60_000, evaluated)
    assert done.scaled
    assert job.memory.overrides[0].tolist() == [1, 1, 1, 1]  # 2 * 0.4, rounded up


def test_only_a_vertex_outside_its_thresholds_moves_the_job_and_then_all_move():
    conf = {"job.autoscaler.scale-down.interval": "0 s"}
    calm = diamond(conf, **{n: {"LOAD": 0.6} for n in ("source", "left", "right", "sink")})
    rows = calm.evaluate()
    assert all(row[E_UP] <= row[E_TPR] <= row[E_DOWN] for row in rows)
    wanted = calm.changes(60_000, rows, calm.memory.delayed)
    assert (wanted.new != calm.parallelism).any()  # 0.627 is aimed at
    assert not wanted.due
    assert not calm.decide(60_000, rows).scaled
    busy = diamond(conf, sink={"LOAD": 1.3}, **{n: {"LOAD": 0.9} for n in ("source", "left")})
    rows = busy.evaluate()
    wanted = busy.changes(60_000, rows, busy.memory.delayed)
    assert wanted.outside.tolist().count(True) < (wanted.new != busy.parallelism).sum()
    assert busy.decide(60_000, rows).scaled
    assert busy.memory.overrides[0].tolist() == wanted.new.tolist()


def test_the_largest_parallelism_of_the_interval_counts_for_a_scale_down():
    job = diamond({"job.autoscaler.scale-down.interval": "5 min"})
    job.parallelism[:] = 10
    rows = job.evaluate()
    taken = []
    for minute, rate in enumerate([400.0, 300.0, 600.0, 500.0, 500.0, 600.0, 600.0, 600.0, 600.0]):
        rows[:, E_TPR] = NAN
        rows[0, E_TPR] = rate  # 176 needed: 44, 59, 29, 35 % of 10 tasks, at least 40 %
        changes = job.changes(60_000 * minute, rows, job.memory.delayed)
        taken.append(int(changes.new[0]))
    # 5, 6, then 4 tasks. From minute 5 on the 6 of minute 1 counts, until it leaves in minute 7.
    assert taken == [10, 10, 10, 10, 10, 6, 6, 4, 4]


def test_memory_of_a_taskmanager_is_derived_as_flink_does():
    memory = derive({"taskmanager.memory.process.size": "1728 mb"})
    # Flink's documented default process size: heap 512, managed 512, network 128 of 1280 MiB.
    assert memory.flink == 1280 * MIB
    assert round(memory.managed / MIB) == 512
    assert round(memory.network / MIB) == 128
    assert round(memory.heap / MIB) == 512
    assert (memory.metaspace, memory.overhead) == (256 * MIB, 192 * MIB)
    same = derive({"taskmanager.memory.flink.size": "1280 mb"})
    assert (same.flink, same.overhead) == (memory.flink, 192 * MIB)
    fine = derive(
        {"taskmanager.memory.task.heap.size": "384 mb", "taskmanager.memory.managed.size": "512 mb"}
    )
    assert round(fine.network / MIB) == 128


@pytest.mark.parametrize(
    "conf",
    [
        {},
        {"taskmanager.memory.process.size": "300 mb"},
        {"taskmanager.memory.flink.size": "300 mb", "taskmanager.memory.managed.size": "280 mb"},
        {"taskmanager.memory.flink.size": "1 gb", "taskmanager.memory.process.size": "4 gb"},
    ],
)
def test_memory_that_flink_refuses_is_not_tuned(conf):
    with pytest.raises(MemoryRefused):
        derive(conf)


def test_an_unknown_kind_of_fact_is_refused():
    with pytest.raises(SchemaError, match="Did you mean 'scale'"):
        fact("scal", {})
