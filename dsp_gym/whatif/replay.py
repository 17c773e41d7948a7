"""The replay of a job's history: its model under the observed load, once per policy.

Every policy drives its own jobs, with their rescales, backlog and guardrails; one row follows
the deployed configurations. The replay goes on as the history grows, and is a function of the
history alone: what follows a run live ends in the same numbers as a replay of its journal
afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dsp_gym.arrays import Floats
from dsp_gym.control.modes import INCUMBENT
from dsp_gym.job.validity import Extremes
from dsp_gym.loop.decision import GuardedDecision
from dsp_gym.whatif.history import JobHistory
from dsp_gym.whatif.policies import ReplayedPolicy
from dsp_gym.whatif.result import ReplayedRescale
from dsp_gym.whatif.stretch import Charge, Driven, IncumbentReplay, Stretch, settled_slots

QUANTITIES = ("seconds", "cost", "slo_s", "down_s", "rescales", "pending_s", "latency_p95_s")

SEEDS = 8
"""Jobs of each policy, each with other service times, outages and noise."""


_BLOCK = 512
"""Intervals that share an array."""


class IntervalRows:
    """Rows of numbers that become more, in blocks: arrays of a row each would take thrice the room.

    Args:
        rows: (N, S) the first ones; None: there are none.
    """

    def __init__(self, rows: Floats | None = None) -> None:
        self._blocks = [] if rows is None else [rows]
        self._newest: list[Floats] = []

    def append(self, row: Floats) -> None:
        """Add a row, (S,); it is kept as it is."""
        self._newest.append(row)
        if len(self._newest) == _BLOCK:
            self._blocks.append(np.array(self._newest))
            self._newest.clear()

    def all(self) -> Floats:
        """Return all rows, (N, S)."""
        newest = [np.array(self._newest)] if self._newest else []
        blocks = [*self._blocks, *newest]
        return np.concatenate(blocks) if blocks else np.empty(0)


@dataclass(slots=True)
class PolicyRun:
    """One policy's intervals so far."""

    extremes: Extremes
    values: dict[str, IntervalRows] = field(
        default_factory=lambda: {name: IntervalRows() for name in QUANTITIES}
    )  # (N, S) by quantity
    tasks: list[float] = field(default_factory=list)  # (N,) without sources, mean over the seeds
    changes: list[ReplayedRescale] = field(default_factory=list)  # of the first seed

    def of(self, quantity: str) -> Floats:
        """One quantity of every interval and seed, (N, S)."""
        return self.values[quantity].all()


@dataclass(frozen=True, slots=True, eq=False)
class JobWork:
    """A history and the policies that it is replayed with."""

    history: JobHistory
    entrants: tuple[ReplayedPolicy, ...]
    seeds: int = SEEDS


class HistoryReplay:
    """A job under each of several policies, as far as its history goes.

    Args:
        entrants: the policies.
        seeds: jobs of each policy.
    """

    slots: list[int]  # of the history that were gone through
    runs: dict[str, PolicyRun]
    failures: dict[str, str]  # why a policy is no longer replayed
    _gone: list[slice]  # stretches gone through
    _stretch: Stretch | None
    _at: slice | None  # where the one being gone through stood when it was begun
    _t_s: Floats  # of the intervals up to the last one gone through

    def __init__(self, entrants: Sequence[ReplayedPolicy], seeds: int = SEEDS) -> None:
        self.entrants, self.seeds = tuple(entrants), seeds
        self.begun = 0
        """How often the replay was begun."""
        self._model: tuple[object, ...] | None = None
        self._forget()

    def __len__(self) -> int:
        """Intervals that were gone through."""
        return len(self.slots)

    def follow(self, history: JobHistory, *, final: bool = False, most: int | None = None) -> bool:
        """Go on as far as the history is known.

        Args:
            history: of the job, with its fitted model; longer than before, as a rule.
            final: whether nothing more will come, so that its last intervals are gone through, too.
            most: intervals to go through at most; None: all.

        Returns:
            Whether there is more to go through.
        """
        parts = history.stretches()
        model = _model_of(history)
        if model != self._model or not self._continues(history, parts):
            self._forget()
            self._model = model
            self.begun += 1
        left = len(history) if most is None else most
        for part in parts[len(self._gone) :]:
            is_over = part is not parts[-1] or final
            stretch = self._stretch or self._begin(history, part)
            end = part.stop - part.start if is_over else settled_slots(history, part)
            while stretch.done < end:
                if not left:
                    return True
                self._take(history, part.start + stretch.done, stretch, stretch.step())
                left -= 1
            if part is not parts[-1]:
                self._gone.append(part)
                self._stretch = None
        return False

    def state(self) -> dict[str, Any]:
        """Everything that the replay's future depends on, and what it has come to.

        Returns:
            Arrays and values by name, to be compared.
        """
        return {
            "gone": list(self._gone),
            "stretch": None if self._stretch is None else self._stretch.save(),
            "slots": list(self.slots),
            "values": {name: {q: run.of(q) for q in QUANTITIES} for name, run in self.runs.items()},
            "changes": {name: run.changes for name, run in self.runs.items()},
            "failures": dict(self.failures),
        }

    def _forget(self) -> None:
        self._gone, self.slots, self.runs, self.failures = [], [], {}, {}
        self._stretch = self._at = None
        self._t_s = np.empty(0)

    def _continues(self, history: JobHistory, parts: list[slice]) -> bool:
        """Whether what was gone through is what the history still says."""
        if not np.array_equal(history.t_s[: len(self._t_s)], self._t_s):
            return False
        gone = len(self._gone)
        if parts[:gone] != self._gone:
            return False
        if self._stretch is None or self._at is None:
            return True
        if len(parts) == gone or parts[gone].start != self._at.start:
            return False
        part = parts[gone]
        grown = part.stop - part.start >= self._stretch.done
        return grown and self._stretch.follow(history, part)

    def _begin(self, history: JobHistory, part: slice) -> Stretch:
        charges = {INCUMBENT: Charge(IncumbentReplay(history, part))}
        charges |= {one.label: one.charge() for one in self.entrants}
        self._stretch, self._at = Stretch(history, part, charges, self.seeds), part
        for name in charges:
            run = PolicyRun(Extremes([history.spec] * self.seeds))
            self.runs.setdefault(name, run)
        return self._stretch

    def _take(self, history: JobHistory, slot: int, stretch: Stretch, driven: Driven) -> None:
        """Count one interval."""
        self.failures |= {name: str(error) for name, error in stretch.failures.items()}
        scaled = [v.kind != "source" for v in history.spec.topological_order()]
        seconds = np.maximum(driven.outcome.seconds, 1.0)
        processed = np.nan_to_num(driven.outcome.processed / seconds)
        for name, rows in stretch.rows.items():
            run = self.runs[name]
            for quantity in QUANTITIES:
                run.values[quantity].append(getattr(driven.outcome, quantity)[rows].copy())
            tasks, level = driven.parallelism[rows], driven.memory_level[rows]
            guarded = driven.wanted.get(name)
            if guarded is not None and driven.outcome.rescales[rows[0]] > 0:
                run.changes.append(_change(history, slot, driven, int(rows[0]), guarded))
            shown = tasks if guarded is None else guarded.parallelism
            run.tasks.append(float(shown[:, scaled].sum(axis=1).mean()))
            run.extremes.take(tasks, level, processed[rows])
        self.slots.append(slot)
        self._t_s = history.t_s[: slot + 1]


def _model_of(history: JobHistory) -> tuple[object, ...]:
    """What holds for the whole history; another one makes the replay begin again."""
    return (
        history.spec,
        history.window,
        history.down_share,
        history.tells_latency,
        history.simulated,
    )


def _change(
    history: JobHistory, slot: int, driven: Driven, row: int, guarded: GuardedDecision
) -> ReplayedRescale:
    """A rescale in words: the vertices that change, and the last reason for it."""
    moved = []
    for v, vertex in enumerate(history.spec.topological_order()):
        old = int(driven.parallelism[row, v]), int(driven.memory_level[row, v])
        new = int(guarded.parallelism[0, v]), int(guarded.memory_level[0, v])
        if old[0] != new[0]:
            moved.append(f"{vertex.name} {old[0]} → {new[0]}")
        if old[1] != new[1]:
            moved.append(f"{vertex.name} memory level {old[1]} → {new[1]}")
    said = [one for one in guarded.interventions if one.job == 0 and one.reason]
    reason = f"{said[-1].guardrail}: {said[-1].reason}" if said else guarded.proposed.reasons[0]
    t_s = float(history.t_s[slot] - history.t_s[0])
    return ReplayedRescale(t_s=t_s, what=", ".join(moved), reason=reason)
