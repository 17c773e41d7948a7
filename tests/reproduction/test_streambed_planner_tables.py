"""StreamBed's Tables 3 and 4 and Figure 6 on the simulated queries."""

from __future__ import annotations

import pytest

from dsp_gym.studies.reproduce.streambed_planner import TABLES, learned, planned_slots, replays


@pytest.mark.parametrize("query", list(TABLES))
def test_table_4_the_capacity_model_has_the_published_form(query):
    assert learned(query).model["form"] == TABLES[query].form


@pytest.mark.parametrize("query", ["q1", "q2"])
def test_table_3_slots_of_stateless_queries_are_within_two_percent(query):
    ours = planned_slots(query)
    assert not isinstance(ours, str)
    for count, published in zip(ours, TABLES[query].slots, strict=True):
        assert count == pytest.approx(published, rel=0.02)


@pytest.mark.parametrize("query", list(TABLES))
def test_figure_6_no_budget_carries_150_percent_of_its_estimate(query):
    found = replays(query)
    assert len(found) > 5
    assert all(replay.at_150 < 0.99 for replay in found)
