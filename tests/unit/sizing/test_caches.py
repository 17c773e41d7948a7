"""Caches that fill after a restart, by the misses of one snapshot after the other."""

from __future__ import annotations

import numpy as np
import pytest

from dsp_gym.loop.snapshot import Status
from dsp_gym.loop.topology import Topology
from dsp_gym.sizing.caches import FillingCaches
from tests.simulating import keyed
from tests.strategies import blank_snapshot

JOB = Topology.of([keyed()])


def shown(*hits, since_s=0.0, every_s=60.0, first_s=60.0, **values):
    """Whether caches fill, by each hit rate of the map."""
    caches, found = FillingCaches(), []
    caches.reset(JOB)
    for step, hit in enumerate(hits):
        t_s = first_s + every_s * step
        seen = {"cache_hit_rate": [[np.nan, hit, np.nan]], "running_since_s": since_s}
        caches.observe(blank_snapshot(JOB, t_s, **seen, **values))
        found.append(bool(caches.rows[0]))
    return found


def test_a_cache_fills_until_it_misses_as_often_as_a_minute_ago():
    assert shown(0.1, 0.5, 0.8, 0.9, 0.9, 0.9) == [True, True, True, True, False, False]


def test_a_cache_that_hits_or_that_nobody_measures_does_not_fill():
    assert shown(1.0, 1.0) == [False, False]
    assert shown(np.nan, np.nan) == [False, False]


@pytest.mark.parametrize(("every_s", "fills"), [(10.0, True), (600.0, False)])
def test_the_fall_of_misses_counts_by_the_minute(every_s, fills):
    # 20 % fewer misses: much within ten seconds, little within ten minutes.
    assert shown(0.5, 0.6, every_s=every_s)[-1] is fills


def test_where_no_snapshot_before_tells_a_young_run_has_filling_caches():
    assert shown(0.5, first_s=120.0) == [True]
    assert shown(0.5, first_s=900.0) == [False]


def test_a_cache_is_full_after_an_hour_whatever_its_misses_do():
    assert shown(0.1, 0.5, 0.7, first_s=3500.0) == [False, True, False]


def test_of_a_job_that_is_down_nothing_changes():
    assert shown(0.1, 0.5, status=Status.RESTARTING) == [False, False]
