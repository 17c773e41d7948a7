"""From the series of a Prometheus to measurements: one for each metric of each subtask.

The identity of a measurement is its job, vertex, subtask, attempt and operator. A label outside it
says who scraped, or where the process ran: series that differ in such labels alone are the same
measurement, and one of them counts. An attempt ends where the next begins, however long its last
values are repeated (Pushgateway) or stay in the look-back window.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from dsp_gym.arrays import Floats
from dsp_gym.errors import FlinkError
from dsp_gym.metrics.flink import Metric
from dsp_gym.metrics.identity import Task
from dsp_gym.metrics.window import FRESH_S

_RATES_DIFFER = 0.05
"""Relative difference of two rates that are not of one measurement."""
_MOST_INSIDE = 0.8
"""Share of samples that lie between another scrape's, from which both are of one counter."""
_SKEW_S = 30.0
"""Most that the clocks of two servers differ by."""
_STALE_GAPS = 2.5
"""Intervals between samples after which a series has missed two scrapes."""
CLOCKS = frozenset({"busy_ms_total", "backpressured_ms_total", "idle_ms_total"})
"""Of these one at least moves while a task runs."""
_COUNTERS = frozenset({"records_in_total", "records_out_total"})

Part = tuple[str, ...]
"""Series' name, metric, operator and state: all in which two values of a subtask differ."""


@dataclass(frozen=True, slots=True)
class Subtask:
    """One subtask of a task, in any attempt."""

    task: Task
    index: int


@dataclass(slots=True)
class Scraped:
    """One series as it was scraped: its labels outside the identity, and its known values."""

    metric: Metric
    labels: Mapping[str, str]
    times: Floats  # Unix seconds, rising
    values: Floats

    def where(self, kept: NDArray[np.bool_]) -> Scraped:
        """Return some of the samples."""
        return Scraped(self.metric, self.labels, self.times[kept], self.values[kept])


@dataclass(slots=True)
class Attempts:
    """The series of one subtask: by attempt and part, each with those of every scrape."""

    by_attempt: dict[int, dict[Part, list[Scraped]]] = field(default_factory=dict)

    def add(self, attempt: int, part: Part, one: Scraped) -> None:
        """Take in a series; one without a known value shows nothing."""
        if len(one.times):
            self.by_attempt.setdefault(attempt, {}).setdefault(part, []).append(one)


class JobMeasurements:
    """The series of one job, sorted into subtasks, attempts and parts.

    `folded` names the labels of series that were left out as copies.

    Args:
        where: address of the Prometheus, for errors.
        tm_id: label of the TaskManager.
    """

    def __init__(self, where: str, tm_id: str = "tm_id") -> None:
        self._where = where
        self._tm_id = tm_id
        self._subtasks: dict[Subtask, Attempts] = {}
        self.folded: set[str] = set()

    def add(self, subtask: Subtask, attempt: int, part: Part, one: Scraped) -> None:
        """Take in a series.

        Args:
            subtask: whose it is.
            attempt: number of the attempt; -1: not labelled.
            part: the value within the subtask.
            one: the series.
        """
        self._subtasks.setdefault(subtask, Attempts()).add(attempt, part, one)

    def tasks(self) -> set[Task]:
        """List the tasks.

        Returns:
            Each once.
        """
        return {subtask.task for subtask in self._subtasks}

    def reporting(self, now_s: float) -> set[Subtask]:
        """Choose the subtasks whose series go on as long as those of their task, until now.

        A subtask that a rescale has taken away leaves samples behind.

        Args:
            now_s: until when samples were asked for, Unix seconds.

        Returns:
            All of a task where samples do not tell how often it is scraped; none of one that has
            not been scraped lately.
        """
        last: dict[Subtask, float] = {}
        gap: dict[Task, float] = {}
        for subtask, one in self.values():
            last[subtask] = max(last.get(subtask, -np.inf), float(one.times[-1]))
            if len(one.times) > 1:
                gaps = float(np.median(np.diff(one.times)))
                gap[subtask.task] = max(gap.get(subtask.task, 0.0), gaps)
        newest: dict[Task, float] = {}
        for subtask, at_s in last.items():
            newest[subtask.task] = max(newest.get(subtask.task, -np.inf), at_s)
        stale_s = {task: _STALE_GAPS * gap.get(task, np.inf) for task in newest}
        return {
            subtask
            for subtask, at_s in last.items()
            if at_s >= newest[subtask.task] - stale_s[subtask.task]
            and newest[subtask.task] >= now_s - max(FRESH_S, stale_s[subtask.task])
        }

    def restarted_s(self) -> float:
        """Find the last restart.

        Returns:
            First sample of the newest attempt of any task; -inf where each had one only.
        """
        restarts = (
            of_task[max(of_task)] for of_task in self._begins().values() if len(of_task) > 1
        )
        return max(restarts, default=-np.inf)

    def _begins(self) -> dict[Task, dict[int, float]]:
        """First sample by task and attempt."""
        begins: dict[Task, dict[int, float]] = {}
        for subtask, attempts in self._subtasks.items():
            of_task = begins.setdefault(subtask.task, {})
            for number, parts in attempts.by_attempt.items():
                of_task[number] = min(_first_s(parts), of_task.get(number, np.inf))
        return begins

    def values(self) -> Iterator[tuple[Subtask, Scraped]]:
        """Go through the measurements; a part may come in several pieces, in the order of time.

        Yields:
            Subtask and series; copies and what an attempt left behind are not among them.

        Raises:
            FlinkError: Series of one measurement count differently.
        """
        begins = self._begins()
        for subtask, attempts in self._subtasks.items():
            ends = self._ends(attempts, begins[subtask.task])
            for number, parts in sorted(attempts.by_attempt.items()):
                for one in self._of_attempt(parts):
                    if one.times[-1] < ends[number]:
                        yield subtask, one
                    elif one.times[0] < ends[number]:
                        yield subtask, one.where(one.times < ends[number])

    @staticmethod
    def _ends(attempts: Attempts, begins: Mapping[int, float]) -> dict[int, float]:
        """When each attempt of a subtask ended, Unix seconds; inf: it has not."""
        numbers = sorted(attempts.by_attempt)
        ends = {a: _first_s(attempts.by_attempt[b]) for a, b in pairwise(numbers)}
        last = numbers[-1]
        # A subtask that its vertex's next attempt does not have is gone, unless it still runs:
        # after the restart of a region only some of the subtasks have another attempt.
        next_s = min((begins[number] for number in begins if number > last), default=np.inf)
        series = (one for copies in attempts.by_attempt[last].values() for one in copies)
        runs_on = np.isinf(next_s) or _moves(series, next_s) is not False
        return {**ends, last: np.inf if runs_on else next_s}

    def _of_attempt(self, parts: Mapping[Part, list[Scraped]]) -> Iterator[Scraped]:
        several = [copies for copies in parts.values() if len(copies) > 1]
        if not several:
            yield from (copies[0] for copies in parts.values())
            return
        names = sorted({n for copies in several for n in _differing(copies)})
        scrapes: dict[_Scrape, list[Scraped]] = {}
        for copies in parts.values():
            for one in copies:
                scrapes.setdefault(tuple(one.labels.get(n, "") for n in names), []).append(one)
        rank = {scrape: place for place, scrape in enumerate(_best_first(scrapes))}
        for copies in parts.values():
            ranked = {rank.get(tuple(c.labels.get(n, "") for n in names)): c for c in copies}
            taken: list[Scraped] = []
            for _, one in sorted((place, c) for place, c in ranked.items() if place is not None):
                for other in taken:
                    if _overlap(one, other):
                        self._fold(other, one)
                free = np.ones(len(one.times), np.bool_)
                for other in taken:
                    gap = _gap_s(other)
                    free &= (one.times <= other.times[0] - gap) | (
                        one.times >= other.times[-1] + gap
                    )
                taken.append(one)
                if free.any():
                    yield one.where(free)

    def _fold(self, kept: Scraped, copy: Scraped) -> None:
        """Note the labels in which a copy differs; refuse what is no copy."""
        names = sorted(_differing([kept, copy]), key=lambda one: (one in self._of_process, one))
        if kept.metric.name in _COUNTERS:
            counts = f"count {kept.metric.name}"
            if self._tm_id in names and _both_rise(kept, copy):
                self._refuse(kept, copy, names, f"{counts} on two TaskManagers at a time")
            if not _same_counter(kept, copy):
                self._refuse(kept, copy, names, f"{counts} at different rates")
        self.folded.update(names)

    @property
    def _of_process(self) -> frozenset[str]:
        """Labels that tell the processes of one cluster apart, and so choose no cluster."""
        return _OF_PROCESS | {self._tm_id}

    def _refuse(self, kept: Scraped, copy: Scraped, names: Sequence[str], why: str) -> NoReturn:
        labels = [
            f"{name} ({kept.labels.get(name, '')!r} and {copy.labels.get(name, '')!r})"
            for name in names
        ]
        raise FlinkError(
            f"{self._where}: two series of one subtask {why}; they differ in {', '.join(labels)}",
            api="prometheus",
            reason="Conflict",
            remedy="Two clusters are behind that address, or two jobs that its labels do not "
            f'tell apart: choose one by a label, {names[0]}="{kept.labels.get(names[0], "")}"',
        )


def _first_s(parts: Mapping[Part, Sequence[Scraped]]) -> float:
    return min(float(one.times[0]) for copies in parts.values() for one in copies)


_OF_PROCESS = frozenset({"host", "instance", "pod", "pod_ip", "container", "node"})

_Scrape = tuple[str, ...]
"""Values of the labels in which copies differ."""


def _differing(copies: Sequence[Scraped]) -> list[str]:
    """Names of the labels in which copies differ, sorted."""
    names = {name for one in copies for name in one.labels}
    return sorted(n for n in names if len({one.labels.get(n) for one in copies}) > 1)


def _best_first(scrapes: Mapping[_Scrape, Sequence[Scraped]]) -> list[_Scrape]:
    """Order scrapes of one subtask: fresh before stale, then the most complete.

    Those of a process that has ended are left out: a Pushgateway repeats its last values, and no
    clock moves, while those of another scrape do.
    """
    since_s = max(min(float(one.times[0]) for one in series) for series in scrapes.values())
    moving = {scrape: _moves(series, since_s) for scrape, series in scrapes.items()}
    alive = [scrape for scrape in scrapes if moving[scrape] is not False]
    if not alive or not any(moving[scrape] for scrape in alive):
        alive = list(scrapes)
    last = {scrape: max(float(one.times[-1]) for one in scrapes[scrape]) for scrape in alive}
    gap = max(_gap_s(one) for scrape in alive for one in scrapes[scrape])
    newest = max(last.values())

    def order(scrape: _Scrape) -> tuple[bool, int, _Scrape]:
        is_stale = last[scrape] < newest - _STALE_GAPS * gap
        return is_stale, -sum(len(one.times) for one in scrapes[scrape]), scrape

    return sorted(alive, key=order)


def _moves(series: Iterable[Scraped], since_s: float = -np.inf) -> bool | None:
    """Whether a clock of a task moved after a moment; None where too little is known of clocks."""
    clocks = [
        (one.metric.name, one.values[one.times >= since_s])
        for one in series
        if one.metric.name in CLOCKS
    ]
    known = [(name, values) for name, values in clocks if len(values) > 2]
    if {name for name, _ in known} < CLOCKS:
        return None
    return any(np.ptp(values) > 0 for _, values in known)


def _overlap(a: Scraped, b: Scraped) -> bool:
    """Whether two series were scraped side by side for two samples or more."""
    both_s = min(a.times[-1], b.times[-1]) - max(a.times[0], b.times[0])
    return bool(both_s >= max(_gap_s(a), _gap_s(b)))


def _both_rise(a: Scraped, b: Scraped) -> bool:
    """Whether two counters rise in the time that both have."""
    since_s, until_s = max(a.times[0], b.times[0]), min(a.times[-1], b.times[-1])
    both = (one.values[(one.times >= since_s) & (one.times <= until_s)] for one in (a, b))
    return all(len(values) > 1 and values[-1] > values[0] for values in both)


def _gap_s(one: Scraped) -> float:
    """Seconds between two samples; 0 of a single one."""
    return float(np.median(np.diff(one.times))) if len(one.times) > 1 else 0.0


def _same_counter(a: Scraped, b: Scraped) -> bool:
    """Whether two series can be samples of one counter, as far as both show since its last restart.

    Samples of one lie between those of the other around them, to within one sample. Else the
    clocks of two servers may differ: their rates over the time that both have must be close, and
    their values what such a difference explains.
    """
    a, b = (one.where(one.times >= _restarted_s(one)) for one in (a, b))
    since_s, until_s = max(a.times[0], b.times[0]), min(a.times[-1], b.times[-1])
    # Those of `a` stay whole: the samples around the first and the last of `b` are among them.
    b = b.where((b.times >= since_s) & (b.times <= until_s))
    if len(b.times) < 2:
        return True
    at = np.searchsorted(a.times, b.times)
    low = a.values[np.maximum(at - 2, 0)]
    high = a.values[np.minimum(at + 1, len(a.values) - 1)]
    if np.mean((low <= b.values) & (b.values <= high)) > _MOST_INSIDE:
        return True
    span_s = float(b.times[0]), float(b.times[-1])
    rises = [np.ptp(np.interp(span_s, one.times, one.values)) for one in (a, b)]
    apart = abs(float(np.median(b.values - np.interp(b.times, a.times, a.values))))
    is_near = apart <= max(*rises) / (span_s[1] - span_s[0]) * _SKEW_S
    return bool(is_near and abs(rises[0] - rises[1]) <= _RATES_DIFFER * max(*rises))


def _restarted_s(counter: Scraped) -> float:
    """First sample since a counter fell last, Unix seconds; its first one if it never did."""
    falls = np.flatnonzero(np.diff(counter.values) < 0)
    return float(counter.times[falls[-1] + 1 if len(falls) else 0])
