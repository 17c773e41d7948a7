"""Outages of one run, from events and from samples."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from spark_pipelines.steps.outages import Timeline, outages


def timeline(
    slots: list[int],
    fallen: dict[int, int] | None = None,
    widths: dict[int, dict[str, int]] | None = None,
    pending: dict[int, float] | None = None,
    series: int = 4,
) -> Timeline:
    """Samples at the ends of slots of 5 s."""
    times = np.array(slots, dtype=np.float64) * 5.0
    first = {slots[0]: {"map": 2}}
    changed = [
        [
            {"vertex": vertex, "width": width}
            for vertex, width in (widths or first).get(slot, {}).items()
        ]
        for slot in slots
    ]
    return Timeline(
        slot=np.array(slots),
        first_s=times,
        last_s=times,
        fallen=np.array([(fallen or {}).get(slot, 0) for slot in slots]),
        series=np.full(len(slots), series),
        widths=changed,
        pending=np.array([(pending or {}).get(slot, 0.0) for slot in slots]),
        every_s=np.full(len(slots), 5.0),
    )


def event(t_s: float, kind: str, **body: Any) -> dict[str, Any]:
    return {"t_s": t_s, "kind": kind, "body": json.dumps(body)}


def running(t_s: float, tasks: int, level: int = 0) -> dict[str, Any]:
    return event(t_s, "running", parallelism={"map": tasks}, memory_level={"map": level})


STEADY = timeline(list(range(1, 60)))


def found(seen: Timeline, events: list[dict[str, Any]] | None = None) -> list[dict[str, Any]]:
    rows = list(outages(seen, events or [], max_gap_s=30.0, sample_s=5.0))
    return [row | {"changed": json.loads(row["changed"])} for row in rows]


def test_a_run_that_only_begins_has_no_outage():
    assert found(STEADY) == []
    assert found(STEADY, [running(0.0, 2)]) == []


def test_an_outage_lies_between_stopped_and_running():
    events = [running(0.0, 2), event(50.0, "stopped"), running(62.5, 4, 1)]
    (row,) = found(STEADY, events)
    assert (row["t_s"], row["downtime_s"], row["cause"]) == (50.0, 12.5, "rescale")
    assert row["changed"] == {"map": [2, 4, 0, 1]}


def test_a_job_that_comes_back_as_it_was_has_restarted():
    events = [running(0.0, 2), event(50.0, "failure"), running(60.0, 2)]
    (row,) = found(STEADY, events)
    assert (row["cause"], row["changed"]) == ("restart", {})


def test_the_savepoint_before_an_outage_belongs_to_it():
    events = [
        running(0.0, 2), event(48.0, "savepoint", seconds=2.5, bytes=1000),
        event(50.0, "stopped"), running(60.0, 3), event(80.0, "failure"), running(90.0, 3),
    ]  # fmt: skip
    first, second = found(STEADY, events)
    assert (first["savepoint_s"], first["savepoint_bytes"]) == (2.5, 1000.0)
    assert (second["savepoint_s"], second["savepoint_bytes"]) == (None, None)


def test_the_end_of_a_run_is_no_outage():
    assert found(STEADY, [running(0.0, 2), event(290.0, "stopped")]) == []


def test_without_events_an_outage_lies_where_most_counters_fall():
    slots = [*range(1, 20), *range(24, 40)]
    seen = timeline(slots, {24: 3}, {1: {"map": 2}, 24: {"map": 3}})
    (row,) = found(seen)
    # Last seen at 95 s, then at 120 s: the sample at 120 s tells of the 5 s before it.
    assert (row["t_s"], row["downtime_s"], row["cause"]) == (95.0, 20.0, "rescale")
    assert row["changed"] == {"map": [2, 3, None, None]}


def test_one_counter_that_falls_is_no_restart():
    assert found(timeline(list(range(1, 40)), {20: 1})) == []


def test_counters_that_fall_in_two_slots_are_one_restart():
    assert len(found(timeline(list(range(1, 40)), {20: 2, 21: 2}))) == 1


def test_a_gap_in_which_nothing_changed_is_no_outage():
    assert found(timeline([*range(1, 20), *range(40, 60)])) == []


@pytest.mark.parametrize(("back_at", "expected"), [(30, 35.0), (None, None)])
def test_a_job_has_caught_up_when_its_backlog_is_what_it_was(back_at, expected):
    slots = [*range(1, 20), *range(24, 60)]
    low = 100.0
    pending = {s: low if s < 20 or (back_at and s >= back_at) else 900.0 for s in slots}
    (row,) = found(timeline(slots, {24: 4}, pending=pending))
    assert row["catch_up_s"] == expected  # back up at 115 s, caught up at 150 s


def scraped_in_turn(tasks_by_slot, scrape_slots=3, until=60, restart=30, more=0, pending=None):
    """Two TaskManagers with two tasks each, scraped every 15 s, in slots of their own."""
    slots, widths, fallen, waiting = [], {}, {}, {}
    for slot in range(1, until):
        manager = tasks_by_slot.get(slot % scrape_slots)
        if manager is None or restart <= slot < restart + scrape_slots:
            continue
        slots.append(slot)
        later = slot >= restart
        widths[slot] = {"map": 2 * (manager + 1) + (more if later else 0)}
        if restart + scrape_slots <= slot < restart + 2 * scrape_slots:
            fallen[slot] = 2
        waiting[slot] = pending[manager] if pending else 0.0
    made = timeline(slots, fallen, widths, waiting, series=2)
    return replace(made, every_s=np.full(len(slots), 15.0))


@pytest.mark.parametrize("tasks_by_slot", [{0: 0, 1: 1}, {0: 1, 1: 0}, {0: 0, 2: 1}])
def test_taskmanagers_that_are_scraped_in_turn_restart_once(tasks_by_slot):
    (row,) = found(scraped_in_turn(tasks_by_slot))
    assert (row["cause"], row["changed"]) == ("restart", {})
    assert found(scraped_in_turn(tasks_by_slot, restart=100)) == []


def test_parallelism_and_backlog_are_those_of_all_taskmanagers():
    (row,) = found(scraped_in_turn({0: 1, 1: 0}, more=2, pending={0: 10.0, 1: 500.0}))
    assert (row["cause"], row["changed"]) == ("rescale", {"map": [4, 6, None, None]})
    assert row["catch_up_s"] <= 15.0
