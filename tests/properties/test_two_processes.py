"""Two processes that act on one job of a plain Flink, in random schedules.

Steps are slow, frozen or the last; clocks run apart, and wall clocks are set; writes arrive late.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.two_processes import Alone, Shared, alone, sharing

FIGURES = Path(__file__).parents[2] / "docs" / "figures" / "two-processes.json"
SCHEDULES = 1000


def check_shared(found: Shared) -> None:
    """No write after another process took over, and one process to a term."""
    assert not found.doubled
    assert len({term for _, _, term in found.made}) == len(found.made)


def check_alone(found: Alone) -> None:
    """Who reads another's change stops at once, names it, and changes nothing any more."""
    assert found.blind == 0
    assert not found.at_odds
    for stop in found.stops:
        (seen,) = (
            put
            for put in found.puts
            if put.by != stop.by and f" to source=4 map={put.maps} " in stop.reason
        )
        assert stop.turn - seen.turns.get(stop.by, 0) <= 1


@pytest.mark.parametrize("seed", range(15))
def test_with_a_lease_no_process_writes_after_another_took_over(tmp_path, seed):
    check_shared(sharing(seed, tmp_path / "lease"))


@pytest.mark.parametrize("seed", range(30))
def test_without_one_a_process_stops_within_an_interval_and_names_the_other(seed):
    check_alone(alone(seed))


def test_schedules_hold_what_they_are_about(tmp_path):
    shared = [sharing(seed, tmp_path / str(seed)) for seed in range(5)]
    assert sum(one.handovers for one in shared) > 5
    assert sum(bool(alone(seed).stops) for seed in range(5)) > 2


@pytest.mark.validate
def test_a_thousand_schedules_of_each(tmp_path):
    figures: dict[str, object] = {
        "command": "pytest -m validate tests/properties/test_two_processes.py",
        "schedules": SCHEDULES,
    }
    writes = handovers = doubled = 0
    for seed in range(SCHEDULES):
        shared = sharing(seed, tmp_path / str(seed))
        writes, handovers = writes + len(shared.writes), handovers + shared.handovers
        doubled += len(shared.doubled)
        check_shared(shared)
    figures["with_a_lease"] = {
        "writes": writes, "handovers": handovers, "writes_after_another_took_over": doubled
    }  # fmt: skip
    changes = stops = 0
    for seed in range(SCHEDULES):
        lone = alone(seed)
        changes, stops = changes + len(lone.puts), stops + len(lone.stops)
        check_alone(lone)
    figures["without"] = {
        "changes": changes, "stopped_within_an_interval": stops, "went_on_at_odds": 0
    }  # fmt: skip
    FIGURES.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
