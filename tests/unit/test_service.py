"""Service time, hit rate and working set, against values worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dsp_gym.job.cache import CURVE_X
from dsp_gym.job.service import (
    compacted_blocks,
    entries,
    hit_rate,
    level0_lookups,
    memtable_share,
    read_and_compacted,
    service_s,
    working_set_mib,
)

UNIFORM = np.minimum(CURVE_X, 1.0)


def test_prefilled_state_holds_every_key_whatever_arrived():
    assert entries(1000.0, 0.0, 1.0, True) == 1000.0


def test_a_window_with_few_records_holds_about_one_entry_per_record():
    assert entries(1e6, 10.0, 1.0, False) == pytest.approx(10.0, rel=1e-4)


def test_as_many_records_as_keys_touch_all_but_one_in_e_of_them():
    assert entries(1000.0, 1000.0, 1.0, False) == pytest.approx(1000 * (1 - 1 / math.e))


def test_unbounded_content_touches_every_key_in_every_pane():
    assert entries(1000.0, math.inf, 60.0, False) == pytest.approx(60_000)


def test_hit_rate_of_uniform_keys_is_the_cached_share():
    assert hit_rate(UNIFORM, 96.0, 954.0) == pytest.approx(96 / 954)


@pytest.mark.parametrize(("cache", "working_set", "hit"), [(10, 10, 1), (10, 0, 1), (0, 10, 0)])
def test_hit_rate_at_its_ends(cache, working_set, hit):
    assert hit_rate(UNIFORM, float(cache), float(working_set)) == hit


def test_hit_rate_follows_the_curve_between_its_points():
    curve = np.zeros(129)
    curve[65:] = 1.0  # the points on both sides: 1 and (65 / 64)^2 working sets
    assert hit_rate(curve, 32.0 * (64**2 + 65**2), 64.0**3) == pytest.approx(0.5)


def test_working_set_shares_entries_but_not_the_unshared_part():
    assert working_set_mib(1000.0, 0.1, 5.0, 4.0) == pytest.approx(30.0)


def test_service_time_adds_cpu_reads_and_writes():
    # 10 us CPU, two reads of 5 us that miss half the time for 20 us more, one 8 us write * 1.25
    seconds = service_s(10e-6, 2.0, 5e-6, 20e-6, 1.0, 8e-6 * 1.25, 0.5)
    assert seconds == pytest.approx(50e-6)


@pytest.mark.parametrize("memtable", [0.0, 3.0, 46.0])
@pytest.mark.parametrize("flush", [0.0, 1e-7, 46.0])
@pytest.mark.parametrize("state", [0.0, 1e-10, 1e-8, 5.0, 2000.0])
@pytest.mark.parametrize("files", [0.0, 1.0, 4.0])
def test_shares_computed_at_once_are_those_computed_one_by_one(memtable, flush, state, files):
    at_once = read_and_compacted(memtable, flush, state, files, 0.25)
    assert at_once == (
        memtable_share(memtable, state),
        level0_lookups(flush, state, files),
        compacted_blocks(flush, state, files, 0.25),
    )
