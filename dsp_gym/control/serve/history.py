"""The last decisions of a loop as curves, and what today has cost: for the live page."""

from __future__ import annotations

import math
from collections import deque

import numpy as np

from dsp_gym.arrays import Floats
from dsp_gym.control.run import Turn
from dsp_gym.job.cost import HOURS_A_MONTH, requested
from dsp_gym.job.tables import SOURCE
from dsp_gym.loop.configuration import Configuration
from dsp_gym.loop.decision import GuardedDecision
from dsp_gym.loop.snapshot import MetricsSnapshot
from dsp_gym.loop.wire import Document

__all__ = ["HISTORY_SCHEMA", "QUANTITIES", "StatusHistory"]

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
        self._made = 0
        self._changes: deque[tuple[float, str]] = deque(maxlen=CHANGES)
        self._wanted = ""
        self._slo_latency_s: float | None = None
        self._currency: str | None = None
        self._today: tuple[float, float, float] | None = None  # since when, running, recommended

    def add(self, turn: Turn) -> None:
        """Take in a decision."""
        row = _row(turn)
        self._spend(row)
        self._rows[self._made % KEPT] = row
        self._made += 1
        seen, guarded = turn.snapshot, turn.guarded
        if seen is None:
            return
        spec = seen.topology.spec(0)
        self._slo_latency_s, self._currency = float(spec.slo.latency_s), spec.prices.currency
        if guarded is None:
            return
        wanted = str(Configuration.of_row(guarded, seen.topology))
        if wanted != self._wanted:
            self._changes.append((turn.t_s, f"{wanted}: {_reason(guarded)[:LONGEST]}"))
            self._wanted = wanted

    def document(self, job: str, acting: str) -> Document:
        """The curves, `dsp-gym/history/1`.

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
            "decisions_made": self._made,
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
        """What the last recommendation costs less than the running configuration.

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
        """Adds what the time since the last decision has cost; a day begins at midnight, UTC."""
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


def _row(turn: Turn) -> Floats:
    """One decision in the order of `QUANTITIES`; NaN: unknown."""
    row: Floats = np.full(len(QUANTITIES), np.nan)
    row[0] = turn.t_s
    seen = turn.snapshot
    if seen is None:
        return row
    load_per_s, lag_s = _arrivals(seen)
    guarded = turn.guarded
    row[1], row[6], row[7] = load_per_s, lag_s, float(seen.latency_p95_s[0])
    row[2], row[4] = _tasks_and_cost(Configuration.of_row(seen, seen.topology), seen)
    if guarded is not None:
        row[3], row[5] = _tasks_and_cost(Configuration.of_row(guarded, seen.topology), seen)
    return row


def _reason(guarded: GuardedDecision) -> str:
    """Why the decision is what it is: the last guardrail that changed it, or the policy."""
    found = guarded.interventions
    return f"{found[-1].guardrail}: {found[-1].reason}" if found else guarded.proposed.reasons[0]


def _tasks_and_cost(wanted: Configuration, seen: MetricsSnapshot) -> tuple[float, float]:
    """Subtasks of a configuration, and its money per hour."""
    spec = seen.topology.spec(0)
    asked = requested(spec, wanted.parallelism, wanted.memory_level)
    return float(sum(wanted.parallelism.values())), asked.money_per_hour(spec)


def _arrivals(seen: MetricsSnapshot) -> tuple[float, float]:
    """Records/s offered to all sources, and their backlog in seconds of that."""
    topology = seen.topology
    sources = np.flatnonzero(topology.tables.kind[topology.row[0]] == SOURCE)
    growth = np.nan_to_num(seen.pending_growth_per_s[0, sources])
    load = float(np.maximum(0.0, seen.records_out_per_s[0, sources] + growth).sum())
    pending = float(seen.pending_records[0, sources].sum())
    return load, pending / load if load > 0 else (0.0 if pending == 0 else math.nan)


def _known(value: float) -> float | None:
    """Four digits of a quantity, all of a time; None for NaN."""
    if not math.isfinite(value):
        return None
    return value if value > 1e8 else float(f"{value:.6g}")
