"""Histories from the stored state of Flink's autoscaler."""

from __future__ import annotations

import numpy as np
import pytest

from dsp_gym.backends.flink.autoscaler_state import AutoscalerState, states_of_config_maps
from dsp_gym.errors import MetricsError
from dsp_gym.evaluation.backtest.model import fitted
from dsp_gym.evaluation.backtest.stored import stored_history
from tests.simulating import line
from tests.stored_states import IDS, config_map, state

SPEC = line()
NAMES = dict(zip(IDS, [vertex.name for vertex in SPEC.vertices], strict=True))


def read(**given) -> AutoscalerState:
    return states_of_config_maps([config_map("words", state(**given))], "here")[0]


def history(**given):
    return stored_history(read(**given), SPEC, NAMES, 60)


def test_the_load_the_configuration_and_the_busyness_are_told():
    found = history(tasks=(1, 3, 1))
    assert len(found) == 14
    assert found.load_per_s == pytest.approx(np.full(14, 500.0))
    assert found.parallelism.tolist() == [[1, 3, 1]] * 14
    assert found.parts[0].busy["map"] == pytest.approx(0.4)
    assert found.is_dated


def test_it_says_what_it_does_not_know():
    found = history()
    assert not found.tells_lateness
    assert np.isnan(found.latency_s).all()
    said = "; ".join(found.notes)
    for words in ("neither latencies nor cache hit rates", "no backlog is known", "1 earlier resc"):
        assert words in said


def test_a_backlog_tells_how_late_the_job_was():
    found = history(lag=3000.0)
    assert found.tells_lateness
    assert found.lag_s == pytest.approx(np.full(14, 6.0))


def test_three_tracked_restarts_are_the_outages_of_the_model():
    spec = fitted(history(restarts_s=(20.0, 30.0, 40.0))).spec
    assert spec.rescale.outage_s == pytest.approx((22.0, 30.0, 38.0))
    assert history(restarts_s=(20.0, 30.0)).spec.rescale == SPEC.rescale


def test_what_cannot_be_supported_is_refused():
    with pytest.raises(MetricsError, match="has stored 1 samples"):
        history(minutes=1)
    with pytest.raises(MetricsError, match="no stretch of 10 slots"):
        history(minutes=6)
    with pytest.raises(MetricsError, match="no id is known of map"):
        stored_history(read(ids=(IDS[0], IDS[2][::-1], IDS[2])), SPEC, NAMES, 60)
    old = read()
    for one in old.samples:
        for metrics in one.metrics.values():
            metrics.pop("NUM_RECORDS_IN")
    with pytest.raises(MetricsError, match="hold no NUM_RECORDS_IN"):
        stored_history(old, SPEC, NAMES, 60)
