"""Outages of one run from its events or its timeline; plain Python, a slot after the other."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dsp_gym.arrays import Floats, Ints
from dsp_gym.records.base import Body

if TYPE_CHECKING:
    import pyarrow as pa

Event = Body
Row = dict[str, Any]
TasksAndLevels = dict[str, tuple[int, int | None]]
"""By vertex: parallelism, and memory level where it is known."""

_DOWN = ("stopped", "failure")

_MOST = 0.5
"""Share of the counting subtasks that start from zero when a job restarts. Those that have counted
nothing yet, or whose sample of that slot is missing, do not show it."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """One run in T slots of the grid, rising."""

    slot: Ints
    first_s: Floats  # oldest and newest sample of the slot
    last_s: Floats
    fallen: Ints  # subtasks whose counters fell
    series: Ints  # subtasks that count
    widths: Sequence[Sequence[Body]]  # vertices that are otherwise parallel from here
    pending: Floats
    every_s: Floats  # since the samples before, of the subtask that waited longest

    @classmethod
    def of(cls, table: pa.Table) -> Timeline:
        """From an Arrow table in any order.

        Returns:
            The run by rising slot; `pending` is NaN where it is not known.
        """
        rows = table.sort_by("slot")
        columns = {name: rows[name].to_numpy() for name in cls.__slots__ if name not in ("widths",)}
        columns["pending"] = np.array(
            [math.nan if v is None else v for v in rows["pending"].to_pylist()], dtype=np.float64
        )
        return cls(widths=rows["widths"].to_pylist(), **columns)

    def slots_per_scrape(self, sample_s: float) -> int:
        """In how many slots all subtasks are sampled: more than one where scrapes are rarer.

        Returns:
            1 or more.
        """
        every_s = float(np.median(self.every_s)) if len(self.every_s) else sample_s
        return max(1, round(every_s / sample_s))

    def over(self, slots: int) -> Timeline:
        """Take in each slot the subtasks of so many that end with it.

        A scrape of several TaskManagers fills several slots, each with the subtasks of some.

        Returns:
            The run with widths and backlogs of all subtasks.
        """
        if slots == 1:
            return self
        told: dict[str, Ints] = {}
        for at, changes in enumerate(self.widths):
            for change in changes:
                of = told.setdefault(change["vertex"], np.full(len(self.slot), -1))
                of[at] = int(change["width"])
        widths: list[list[Body]] = [[] for _ in self.slot]
        for vertex, of in told.items():
            since = np.maximum.accumulate(np.where(of >= 0, np.arange(len(of)), 0))
            highest = np.max([_earlier(of[since], k) for k in range(slots)], axis=0)
            for at in np.flatnonzero(np.diff(highest, prepend=-1)).tolist():
                widths[at].append({"vertex": vertex, "width": int(highest[at])})
        parts = np.array([_earlier(self.pending, k) for k in range(slots)])
        known = np.isfinite(parts).any(axis=0)
        pending = np.where(known, np.nansum(parts, axis=0), np.nan)
        return replace(self, widths=widths, pending=pending)


def _earlier(values: NDArray[np.generic], slots: int) -> NDArray[np.generic]:
    """Values of so many slots before; of the first ones those of the first."""
    return values[np.maximum(np.arange(len(values)) - slots, 0)]


def outages(
    seen: Timeline, events: Sequence[Event], max_gap_s: float, sample_s: float
) -> Iterator[Row]:
    """Rows of `schema.RESCALES` without what names the run.

    Args:
        seen: its samples.
        events: by time.
        max_gap_s: longer without a sample may be an outage.
        sample_s: between samples, as far as the grid shows.

    Returns:
        One row per outage.
    """
    has_events = any(event["kind"] in _DOWN for event in events) or (
        sum(event["kind"] == "running" for event in events) > 1
    )
    each = seen.slots_per_scrape(sample_s)
    seen = seen.over(each)
    found = (
        _from_events(seen, events, sample_s)
        if has_events
        else _from_gaps(seen, max_gap_s, sample_s, each)
    )
    for down_s, up_s, before, after, savepoint in found:
        changed = {
            vertex: [old[0], new[0], old[1], new[1]]
            for vertex, new in sorted(after.items())
            if (old := before.get(vertex, new)) != new
        }
        yield {
            "t_s": down_s,
            "cause": "rescale" if changed else "restart",
            "changed": json.dumps(changed, sort_keys=True),
            "downtime_s": up_s - down_s,
            "savepoint_s": savepoint.get("seconds"),
            "savepoint_bytes": savepoint.get("bytes"),
            "catch_up_s": _catch_up_s(seen, down_s, up_s),
        }


Outage = tuple[float, float, TasksAndLevels, TasksAndLevels, Mapping[str, float]]


def _from_events(seen: Timeline, events: Sequence[Event], sample_s: float) -> Iterator[Outage]:
    """An outage lies between `stopped` or `failure` and the next `running`."""
    before: TasksAndLevels | None = None
    down_s: float | None = None
    savepoint: Mapping[str, float] = {}
    for event in events:
        kind, at_s, body = event["kind"], float(event["t_s"]), json.loads(event["body"] or "{}")
        if kind in _DOWN:
            down_s = at_s if down_s is None else down_s
        elif kind == "savepoint":
            savepoint = {
                key: float(body[key]) for key in ("seconds", "bytes") if body.get(key) is not None
            }
        elif kind == "running":
            after = _configuration(body) or before or {}
            if before is not None:
                since_s = _last_sample(seen, at_s, sample_s) if down_s is None else down_s
                yield since_s, max(at_s, since_s), before, after, savepoint
            before, down_s, savepoint = after, None, {}


def _configuration(body: Body) -> TasksAndLevels:
    levels = body.get("memory_level") or {}
    return {
        vertex: (int(tasks), None if levels.get(vertex) is None else int(levels[vertex]))
        for vertex, tasks in (body.get("parallelism") or {}).items()
    }


def _last_sample(seen: Timeline, up_s: float, sample_s: float) -> float:
    """Begin of an outage without an event: the last sample before the job was up again."""
    earlier = seen.last_s[seen.last_s <= up_s]
    return float(earlier[-1]) if len(earlier) else up_s - sample_s


def _from_gaps(seen: Timeline, max_gap_s: float, sample_s: float, each: int) -> Iterator[Outage]:
    """An outage lies between the last sample before counters fall, and the first one after."""
    if len(seen.slot) == 0:
        return
    begins = [0, *_restarts(seen, max_gap_s, each), len(seen.slot)]
    parts = [_steady(seen, low, high) for low, high in pairwise(begins)]
    fell = seen.fallen > 0
    for number in range(1, len(parts)):
        at = begins[number]
        gap_s = float(seen.first_s[at] - seen.last_s[at - 1])
        if parts[number] == parts[number - 1] and not fell[at : at + each + 1].any():
            continue  # nothing was seen for a while, and nothing has changed
        down_s = float(seen.last_s[at - 1])
        # The first sample covers the time since the one that would have come before it.
        yield down_s, down_s + max(0.0, gap_s - sample_s), parts[number - 1], parts[number], {}


def _restarts(seen: Timeline, max_gap_s: float, each: int) -> list[int]:
    """Slots in which the job is seen for the first time after an outage."""
    gap = np.diff(seen.first_s, prepend=seen.first_s[0]) > max_gap_s
    found: list[int] = []
    until = -1
    for at in range(1, len(seen.slot)):
        if at <= until:
            continue
        # Subtasks are not sampled at one instant: what falls may fall in one slot more.
        fallen = int(seen.fallen[at : at + each + 1].sum())
        counting = max(int(seen.series[max(0, at - each) : at].sum()), 1)
        if (seen.fallen[at] > 0 and fallen >= _MOST * counting) or gap[at]:
            found.append(at)
            until = at + each
    return found


def _steady(seen: Timeline, low: int, high: int) -> TasksAndLevels:
    """The parallelism of each vertex that holds longest in slots low..high - 1."""
    now: dict[str, tuple[int, int]] = {}  # vertex -> width, since which slot
    held: dict[str, dict[int, int]] = {}
    for at in range(high):
        for change in seen.widths[at]:
            vertex, width = change["vertex"], int(change["width"])
            if vertex in now:
                _hold(held, vertex, now[vertex], max(low, now[vertex][1]), at)
            now[vertex] = (width, at)
    for vertex, (width, since) in now.items():
        _hold(held, vertex, (width, since), max(low, since), high)
    return {
        vertex: (max(widths, key=lambda width: widths[width]), None)
        for vertex, widths in held.items()
        if max(widths) > 0  # a value of the whole vertex shows no parallelism
    }


def _hold(
    held: dict[str, dict[int, int]], vertex: str, now: tuple[int, int], since: int, until: int
) -> None:
    if until > since:
        widths = held.setdefault(vertex, {})
        widths[now[0]] = widths.get(now[0], 0) + until - since


def _catch_up_s(seen: Timeline, down_s: float, up_s: float) -> float | None:
    """Seconds from running again until the backlog is back to what it was; None: it never was."""
    known = ~np.isnan(seen.pending)
    earlier = np.flatnonzero(known & (seen.last_s <= down_s))
    later = np.flatnonzero(known & (seen.first_s > up_s))
    if len(earlier) == 0 or len(later) == 0:
        return None
    back = later[seen.pending[later] <= seen.pending[earlier[-1]]]
    return max(0.0, float(seen.last_s[back[0]]) - up_s) if len(back) else None
