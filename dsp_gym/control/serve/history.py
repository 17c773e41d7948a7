"""The last decisions of a loop as curves, and what today has cost: for the live page.

The running job is one row of numbers for each decision, and so is what each policy recommends.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dsp_gym.arrays import Floats, Ints
from dsp_gym.config.strict_json import MISFITS
from dsp_gym.control.turn import Turn
from dsp_gym.errors import SchemaError
from dsp_gym.job.cost import HOURS_A_MONTH, requested
from dsp_gym.job.spec import JobSpec
from dsp_gym.job.tables import SOURCE
from dsp_gym.loop.backlog import behind
from dsp_gym.loop.configuration import Configuration
from dsp_gym.loop.decision import GuardedDecision
from dsp_gym.loop.snapshot import FAILED, RUNNING, SAVEPOINTING, MetricsSnapshot
from dsp_gym.loop.snapshot_stream import SnapshotReader
from dsp_gym.loop.wire import Document, decision_from_json
from dsp_gym.records.journal import segments_of

HISTORY_SCHEMA = "dsp-gym/history/1"

OBSERVED = (
    "t_s",
    "load_per_s",  # offered to the sources
    "running_tasks",
    "running_cost_per_h",
    "lag_s",  # backlog in seconds of arrivals
    "latency_p95_s",
    "behind",  # 1: late, down, or more than a minute of work waits
)

RECOMMENDED = ("recommended_tasks", "recommended_cost_per_h")
"""Of one policy, after guardrails."""

QUANTITIES = (*OBSERVED, *RECOMMENDED)

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


class PolicyAdvice(NamedTuple):
    """What a policy recommended at one decision."""

    wanted: Configuration
    reason: str


class StatusHistory:
    """A ring of the last decisions; not safe to be used by two threads at once.

    Args:
        interval_s: between decisions.
    """

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._rows: Floats = np.full((KEPT, len(OBSERVED)), np.nan)
        self._made = self._recalled = 0
        self._policies: dict[str, _PolicyHistory] = {}
        self._slo_latency_s: float | None = None
        self._currency: str | None = None
        self._today: tuple[float, float] | None = None  # since when, spent
        self._late_since_s: float | None = None

    def recall(self, folder: Path, job: str, spec: JobSpec) -> None:
        """Take in the last decisions of a journal, made before this process was started.

        Args:
            folder: the journal's.
            job: name of the job.
            spec: the job; decisions on another graph are left out.
        """
        reader, names = SnapshotReader("journal"), {vertex.name for vertex in spec.vertices}
        for one in past_decisions(folder, job, KEPT):
            with contextlib.suppress(SchemaError, *MISFITS):
                seen = reader.read(one.snapshot)
                if set(seen.topology.names(0)) != names:
                    continue
                made = {
                    policy: PolicyAdvice(
                        Configuration.of_row(
                            decision_from_json([guard], seen.topology), seen.topology
                        ),
                        _said(guard),
                    )
                    for policy, guard in one.guards.items()
                }
                self._put(float(seen.t_s[0]), seen, made, spec)
        self._recalled = self._made

    def add(self, turn: Turn) -> None:
        """Take in a decision."""
        newest_s = self._rows[(self._made - 1) % KEPT][0]  # NaN before the first
        if self._made == self._recalled and newest_s >= turn.t_s:
            self._made = self._recalled = 0  # of a clock that went back, such as a simulation's
            self._policies.clear()
            self._today = self._late_since_s = None
        seen = turn.snapshot
        if seen is None:
            self._put(turn.t_s, None, {}, None)
            return
        made = {
            one.policy: PolicyAdvice(
                Configuration.of_row(one.guarded, seen.topology), _reason(one.guarded)
            )
            for one in turn.judgements
        }
        self._put(turn.t_s, seen, made, seen.topology.spec(0))

    def _put(
        self,
        t_s: float,
        seen: MetricsSnapshot | None,
        made: Mapping[str, PolicyAdvice],
        spec: JobSpec | None,
    ) -> None:
        """Take in one decision."""
        row: Floats = np.full(len(OBSERVED), np.nan)
        row[0] = t_s
        if seen is not None and spec is not None:
            row[1], row[4] = _arrivals(seen)
            row[2], row[3] = _tasks_and_cost(Configuration.of_row(seen, seen.topology), spec)
            row[5] = float(seen.latency_p95_s[0])
            row[6] = lateness(seen)
            if seen.status[0] == FAILED:
                row[3] = np.nan  # it does not run, and holds nothing
            self._slo_latency_s, self._currency = float(spec.slo.latency_s), spec.prices.currency
        hours = self._hours_until(t_s)
        self._follow_lateness(t_s, row[6], is_gap=hours == 0.0)
        if self._today is None or t_s // DAY_S != self._today[0] // DAY_S:
            self._today, hours = (t_s, 0.0), 0.0
            for policy in self._policies.values():
                policy.today = 0.0
        cost = float(self._rows[(self._made - 1) % KEPT][_RUNNING])
        if hours > 0 and math.isfinite(cost):
            self._today = self._today[0], self._today[1] + hours * cost
        place = self._made % KEPT
        for name in {*self._policies, *made}:
            own = self._policies.setdefault(name, _PolicyHistory())
            own.put(place, t_s, hours, made.get(name), spec)
        self._rows[place] = row
        self._made += 1

    def _follow_lateness(self, t_s: float, is_behind: float, *, is_gap: bool) -> None:
        """Remember since when the job has been late; what is unknown changes nothing."""
        if is_gap or is_behind == 0.0:
            self._late_since_s = None
        if is_behind == 1.0 and self._late_since_s is None:
            self._late_since_s = t_s

    def _hours_until(self, t_s: float) -> float:
        """Hours since the decision before, whose configurations ran or were wanted meanwhile.

        Returns:
            Hours; 0 after a gap, over which nothing is known of the cost, or before the first.
        """
        seconds = t_s - float(self._rows[(self._made - 1) % KEPT][0]) if self._made else math.nan
        return seconds / 3600 if 0 < seconds <= LONGEST_GAP * self._interval_s else 0.0

    def document(self, job: str, acting: str, policy: str | None = None) -> Document:
        """Write the curves, `dsp-gym/history/1`.

        Args:
            job: name of the job.
            acting: name of the acting policy.
            policy: whose recommendations are shown; None: those of the acting one.

        Returns:
            The document, JSON-able: lists of equal length, unknown numbers null.
        """
        shown = policy or acting
        own = self._policies.get(shown, _PolicyHistory())
        places = self._places()
        rows = np.column_stack([self._rows[places], own.rows[places]])
        first_s = rows[0, 0] if len(rows) else 0.0
        today = None
        if self._today is not None:
            since_s, running = self._today
            today = {"since_s": since_s, "running": running, "recommended": own.today}
        return {
            "schema": HISTORY_SCHEMA,
            "job": job,
            "acting": acting,
            "policy": shown,
            "decisions_made": self._made - self._recalled,
            "slo_latency_s": self._slo_latency_s,
            "currency": self._currency,
            "curves": {
                name: [_known(value) for value in rows[:, place].tolist()]
                for place, name in enumerate(QUANTITIES)
            },
            "changes": [{"t_s": t_s, "text": text} for t_s, text in own.changes if t_s >= first_s],
            "today": today,
        }

    def _places(self) -> Ints:
        """Places of the ring that are filled, in the order of time."""
        return np.arange(max(0, self._made - KEPT), self._made) % KEPT

    def glance(self) -> Glance:
        """Look at the running job.

        Returns:
            Its figures at the last decision, and its lateness in all that are kept.
        """
        rows = self._rows[self._places()]
        if not len(rows):
            return Glance()
        last = dict(zip(OBSERVED, map(_known, rows[-1].tolist()), strict=True))
        is_behind = rows[:, OBSERVED.index("behind")]
        known = is_behind[np.isfinite(is_behind)]
        cost = last["running_cost_per_h"]
        return Glance(
            currency=self._currency,
            cost_per_month=None if cost is None else HOURS_A_MONTH * cost,
            late_since_s=self._late_since_s,
            late_share=float(known.mean()) if len(known) else None,
            slo_latency_s=self._slo_latency_s,
            latency_p95_s=last["latency_p95_s"],
            lag_s=last["lag_s"],
            load_per_s=last["load_per_s"],
        )

    def saving(self, acting: str) -> Document | None:
        """Compare the cost of the recommendations with that of the running configurations.

        One decision would say another amount in every interval: this is the mean of all that are
        kept.

        Args:
            acting: name of the acting policy.

        Returns:
            Money per month, its currency and the policy; None where it is not known.
        """
        own, places = self._policies.get(acting), self._places()
        if own is None:
            return None
        saved = self._rows[places, _RUNNING] - own.rows[places, RECOMMENDED.index(_WANTED)]
        known = saved[np.isfinite(saved)]
        if not len(known):
            return None
        return {
            "per_month": HOURS_A_MONTH * float(known.mean()),
            "currency": self._currency,
            "policy": acting,
            "by": "advice",
        }


class Glance(NamedTuple):
    """The running job at the last decision; None: not known."""

    currency: str | None = None
    cost_per_month: float | None = None
    late_since_s: float | None = None  # None: in time, too
    late_share: float | None = None  # of the decisions that are kept
    slo_latency_s: float | None = None
    latency_p95_s: float | None = None
    lag_s: float | None = None
    load_per_s: float | None = None


class _PolicyHistory:
    """What one policy recommended at the last decisions."""

    def __init__(self) -> None:
        self.rows: Floats = np.full((KEPT, len(RECOMMENDED)), np.nan)
        self.changes: deque[tuple[float, str]] = deque(maxlen=CHANGES)
        self.today = 0.0  # what its recommendations would have cost
        self._wanted = ""
        self._cost_per_h = math.nan  # of the last recommendation

    def put(
        self,
        place: int,
        t_s: float,
        hours: float,
        made: PolicyAdvice | None,
        spec: JobSpec | None,
    ) -> None:
        """Take in one decision, `hours` after the one before."""
        if hours > 0 and math.isfinite(self._cost_per_h):
            self.today += hours * self._cost_per_h
        self.rows[place], self._cost_per_h = math.nan, math.nan
        if made is None or spec is None:
            return
        self.rows[place] = _tasks_and_cost(made.wanted, spec)
        self._cost_per_h = float(self.rows[place, RECOMMENDED.index(_WANTED)])
        if str(made.wanted) != self._wanted:
            self.changes.append((t_s, f"{made.wanted}: {made.reason[:LONGEST]}"))
            self._wanted = str(made.wanted)


_RUNNING = OBSERVED.index("running_cost_per_h")
_WANTED = "recommended_cost_per_h"


def _reason(guarded: GuardedDecision) -> str:
    """Say why the decision is what it is: the last guardrail that changed it, or the policy."""
    found = guarded.interventions
    return f"{found[-1].guardrail}: {found[-1].reason}" if found else guarded.proposed.reasons[0]


def _said(guard: Document) -> str:
    """Say the same of a guarded decision in a journal as `_reason` of one just made."""
    found = guard["interventions"]
    last = found[-1] if found else None
    return str(guard["reason"]) if last is None else f"{last['guardrail']}: {last['reason']}"


def _tasks_and_cost(wanted: Configuration, spec: JobSpec) -> tuple[float, float]:
    """Count the subtasks of a configuration, and its money per hour."""
    asked = requested(spec, wanted.parallelism, wanted.memory_level)
    return float(sum(wanted.parallelism.values())), asked.money_per_hour(spec)


def lateness(seen: MetricsSnapshot) -> float:
    """Say whether a job is late.

    Args:
        seen: of one job.

    Returns:
        1 for a job that is down, late or has work waiting, 0 if in time, NaN if unknown.
    """
    if seen.status[0] not in (RUNNING, SAVEPOINTING) or behind(seen).is_behind[0]:
        return 1.0
    sources = seen.topology.tables.kind[seen.topology.row[0]] == SOURCE
    backlog = seen.pending_records[0, sources] + seen.pending_growth_per_s[0, sources]
    is_known = np.isfinite(seen.latency_p95_s[0]) or np.isfinite(backlog).any()
    return 0.0 if is_known else math.nan


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
    """One decision, as documents of the wire."""

    snapshot: Document
    guards: Mapping[str, Document]
    """The guarded decision of each policy."""


def past_decisions(folder: Path, job: str, most: int) -> list[PastDecision]:
    """Read the last decisions in a journal.

    A line that cannot be read is left out: curves are for people, and the journal has its own
    checks.

    Args:
        folder: the journal's.
        job: name of the job.
        most: decisions.

    Returns:
        Decisions in the order of the journal.
    """
    found: list[tuple[Document, dict[str, Document]]] = []
    for kind, policy, body in _entries(folder, job):
        if kind == "snapshot":
            found.append((body, {}))
        elif policy is not None and found:
            found[-1][1][policy] = body
    return [PastDecision(*one) for one in found[-most:]]


def _entries(folder: Path, job: str) -> Iterator[tuple[str, str | None, Document]]:
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
