"""The last decisions of a loop as curves, and what today has cost: for the live page."""

from __future__ import annotations

import contextlib
import json
import math
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dsp_gym.arrays import Floats
from dsp_gym.config.strict_json import MISFITS
from dsp_gym.control.turn import Turn
from dsp_gym.errors import SchemaError
from dsp_gym.job.cost import HOURS_A_MONTH, requested
from dsp_gym.job.spec import JobSpec
from dsp_gym.job.tables import SOURCE
from dsp_gym.loop.configuration import Configuration, Configured
from dsp_gym.loop.decision import GuardedDecision
from dsp_gym.loop.snapshot import MetricsSnapshot
from dsp_gym.loop.snapshot_stream import SnapshotReader
from dsp_gym.loop.wire import Document, decision_from_json
from dsp_gym.records.journal import segments_of

HISTORY_SCHEMA = "dsp-gym/history/1"

QUANTITIES = (
    "t_s",
    "load_per_s",  # offered to the sources
    "running_tasks",
    "recommended_tasks",  # of the acting policy, after guardrails
    "running_cost_per_h",
    "recommended_cost_per_h",
    "lag_s",  # backlog in seconds of arrivals
    "latency_p95_s",
)

KEPT = 720
"""Decisions: six hours at one in 30 s."""

CHANGES = 100
"""Changes of the recommendation that are kept with their reasons."""

LONGEST = 200
"""Characters of a reason."""

MOST_BYTES = 16 * 2**20
"""Bytes of the journal's end that are read: some hours, within a part of a second."""

TAIL = 400
"""Bytes at the end of a line that hold its kind: its keys are sorted, the body comes first."""

DAY_S = 86_400.0

LONGEST_GAP = 3.0
"""Intervals without a decision after which nothing is known of the cost."""


class StatusHistory:
    """A ring of the last decisions; not safe to be used by two threads at once.

    Args:
        interval_s: between decisions.
    """

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._rows: Floats = np.full((KEPT, len(QUANTITIES)), np.nan)
        self._made = self._recalled = 0
        self._changes: deque[tuple[float, str]] = deque(maxlen=CHANGES)
        self._wanted = ""
        self._slo_latency_s: float | None = None
        self._currency: str | None = None
        self._today: tuple[float, float, float] | None = None  # since when, running, recommended

    def recall(self, folder: Path, job: str, acting: str, spec: JobSpec) -> None:
        """Take in the last decisions of a journal, made before this process was started.

        Args:
            folder: the journal's.
            job: name of the job.
            acting: name of the acting policy.
            spec: the job; decisions on another graph are left out.
        """
        reader, names = SnapshotReader("journal"), {vertex.name for vertex in spec.vertices}
        for one in past_decisions(folder, job, acting, KEPT):
            with contextlib.suppress(SchemaError, *MISFITS):
                seen, guard = reader.read(one.snapshot), one.guard
                if set(seen.topology.names(0)) != names:
                    continue
                made = None if guard is None else decision_from_json([guard], seen.topology)
                said = "" if guard is None else _said(guard)
                self._put(float(seen.t_s[0]), seen, made, spec, said)
        self._recalled = self._made

    def add(self, turn: Turn) -> None:
        """Take in a decision."""
        newest_s = self._rows[(self._made - 1) % KEPT][0]  # NaN before the first
        if self._made == self._recalled and newest_s >= turn.t_s:
            self._made = self._recalled = 0  # of a clock that went back, such as a simulation's
            self._changes.clear()
            self._today = None
        seen, guarded = turn.snapshot, turn.guarded
        spec = None if seen is None else seen.topology.spec(0)
        self._put(turn.t_s, seen, guarded, spec, "" if guarded is None else _reason(guarded))

    def _put(
        self,
        t_s: float,
        seen: MetricsSnapshot | None,
        decided: Configured | None,
        spec: JobSpec | None,
        reason: str,
    ) -> None:
        """Take in one decision; reason: why it is what it is."""
        row: Floats = np.full(len(QUANTITIES), np.nan)
        row[0] = t_s
        if seen is not None and spec is not None:
            row[1], row[6] = _arrivals(seen)
            row[2], row[4] = _tasks_and_cost(Configuration.of_row(seen, seen.topology), spec)
            row[7] = float(seen.latency_p95_s[0])
            self._slo_latency_s, self._currency = float(spec.slo.latency_s), spec.prices.currency
            if decided is not None:
                wanted = Configuration.of_row(decided, seen.topology)
                row[3], row[5] = _tasks_and_cost(wanted, spec)
                if str(wanted) != self._wanted:
                    self._changes.append((t_s, f"{wanted}: {reason[:LONGEST]}"))
                    self._wanted = str(wanted)
        self._spend(row)
        self._rows[self._made % KEPT] = row
        self._made += 1

    def document(self, job: str, acting: str) -> Document:
        """Write the curves, `dsp-gym/history/1`.

        Args:
            job: name of the job.
            acting: name of the acting policy.

        Returns:
            The document, JSON-able: lists of equal length, unknown numbers null.
        """
        first = max(0, self._made - KEPT)
        rows = self._rows[np.arange(first, self._made) % KEPT]
        return {
            "schema": HISTORY_SCHEMA,
            "job": job,
            "acting": acting,
            "decisions_made": self._made - self._recalled,
            "slo_latency_s": self._slo_latency_s,
            "currency": self._currency,
            "curves": {
                name: [_known(value) for value in rows[:, place].tolist()]
                for place, name in enumerate(QUANTITIES)
            },
            "changes": [
                {"t_s": t_s, "text": text}
                for t_s, text in self._changes
                if len(rows) and t_s >= rows[0, 0]
            ],
            "today": None
            if self._today is None
            else dict(zip(("since_s", "running", "recommended"), self._today, strict=True)),
        }

    def saving(self, acting: str) -> Document | None:
        """Compare the cost of the last recommendation with that of the running configuration.

        Args:
            acting: name of the acting policy.

        Returns:
            Money per month, its currency and the policy; None where it is not known.
        """
        row = self._rows[(self._made - 1) % KEPT]
        running, wanted = (float(row[QUANTITIES.index(name)]) for name in _COSTS)
        if not self._made or not math.isfinite(running - wanted):
            return None
        return {
            "per_month": HOURS_A_MONTH * (running - wanted),
            "currency": self._currency,
            "policy": acting,
            "by": "advice",
        }

    def _spend(self, row: Floats) -> None:
        """Add what the time since the last decision has cost; a day begins at midnight, UTC."""
        t_s = float(row[0])
        if self._today is None or t_s // DAY_S != self._today[0] // DAY_S:
            self._today = t_s, 0.0, 0.0
            return
        before = self._rows[(self._made - 1) % KEPT]
        seconds = t_s - float(before[0])
        if not 0 < seconds <= LONGEST_GAP * self._interval_s:
            return
        since_s, *spent = self._today
        running, recommended = (float(before[QUANTITIES.index(name)]) for name in _COSTS)
        if math.isfinite(running) and math.isfinite(recommended):
            hours = seconds / 3600
            self._today = since_s, spent[0] + hours * running, spent[1] + hours * recommended


_COSTS = ("running_cost_per_h", "recommended_cost_per_h")


def _reason(guarded: GuardedDecision) -> str:
    """Say why the decision is what it is: the last guardrail that changed it, or the policy."""
    found = guarded.interventions
    return f"{found[-1].guardrail}: {found[-1].reason}" if found else guarded.proposed.reasons[0]


def _said(guard: Mapping[str, Any]) -> str:
    """Say the same of a guarded decision in a journal as `_reason` of one just made."""
    found = guard["interventions"]
    last = found[-1] if found else None
    return str(guard["reason"]) if last is None else f"{last['guardrail']}: {last['reason']}"


def _tasks_and_cost(wanted: Configuration, spec: JobSpec) -> tuple[float, float]:
    """Count the subtasks of a configuration, and its money per hour."""
    asked = requested(spec, wanted.parallelism, wanted.memory_level)
    return float(sum(wanted.parallelism.values())), asked.money_per_hour(spec)


def _arrivals(seen: MetricsSnapshot) -> tuple[float, float]:
    """Sum the records/s offered to all sources, and their backlog in seconds of that."""
    topology = seen.topology
    sources = np.flatnonzero(topology.tables.kind[topology.row[0]] == SOURCE)
    growth = np.nan_to_num(seen.pending_growth_per_s[0, sources])
    load = float(np.maximum(0.0, seen.records_in_per_s[0, sources] + growth).sum())
    pending = float(seen.pending_records[0, sources].sum())
    return load, pending / load if load > 0 else (0.0 if pending == 0 else math.nan)


def _known(value: float) -> float | None:
    """Round a quantity to six digits, but no time; None for NaN."""
    if not math.isfinite(value):
        return None
    return value if value > 1e8 else float(f"{value:.6g}")


class PastDecision(NamedTuple):
    """One decision of the acting policy, as documents of the wire."""

    snapshot: Mapping[str, Any]
    guard: Mapping[str, Any] | None


def past_decisions(folder: Path, job: str, acting: str, most: int) -> list[PastDecision]:
    """Read the last decisions in a journal.

    A line that cannot be read is left out: curves are for people, and the journal has its own
    checks.

    Args:
        folder: the journal's.
        job: name of the job.
        acting: name of the acting policy.
        most: decisions.

    Returns:
        Decisions in the order of the journal.
    """
    found: list[PastDecision] = []
    for kind, policy, body in _entries(folder, job):
        if kind == "snapshot":
            found.append(PastDecision(body, None))
        elif policy == acting and found:
            found[-1] = found[-1]._replace(guard=body)
    return found[-most:]


def _entries(folder: Path, job: str) -> Iterator[tuple[str, str | None, Mapping[str, Any]]]:
    for line in _lines(folder):
        end = line[-TAIL:]
        if b'"kind":"snapshot"' in end or b'"kind":"guard"' in end:
            with contextlib.suppress(ValueError, *MISFITS):
                entry = json.loads(line)
                if entry["job"] == job:
                    yield entry["kind"], entry["policy"], entry["body"]


def _lines(folder: Path) -> Iterator[bytes]:
    """Read whole lines at the end of the journal."""
    parts, left = [], MOST_BYTES
    for segment in reversed(segments_of(folder)):
        with contextlib.suppress(OSError), segment.open("rb") as stream:
            size = stream.seek(0, 2)
            stream.seek(max(0, size - left))
            if size > left:
                stream.readline()  # the rest of a line
            parts.append(stream.read())
            left -= size
        if left <= 0:
            break
    for part in reversed(parts):
        yield from part.splitlines(keepends=True)
