"""What a loop writes down; a disk that takes nothing more stops the writing, not the loop."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import numpy as np

from dsp_gym.backends.base import INTENTS, OnEvent
from dsp_gym.errors import StorageError
from dsp_gym.loop.outcome import Outcome
from dsp_gym.records.journal import EntryKind, Journal
from dsp_gym.redaction import redacted_values

_LOG = logging.getLogger(__name__)

_KEPT_STEPS = 256
"""Steps of actuators that are kept in memory while the disk takes nothing."""


class JournalWriter:
    """Writes entries of one job; the actuator's thread may, too.

    After an OSError nothing is written until the disk takes entries again, which is tried once per
    decision; `trouble` says why, and the journal how many entries it lacks. What was done to a job
    is kept in memory meanwhile, and written first.

    Args:
        journal: where to; None: nowhere.
        job: what the job is called.
        policy: whom an entry is about unless it says otherwise.
        clock: Unix seconds, of entries that name no time.
    """

    def __init__(
        self,
        journal: Journal | None,
        job: str,
        policy: str | None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.job = job
        self.trouble: str | None = None
        self.lost = 0
        """Entries that were not written, or not kept, since the start."""
        self.decided: int | None = None
        """Number of the entry with the decision that was asked of the job last."""
        self.clock = clock
        self._journal, self._policy = journal, policy
        self._lock = threading.RLock()
        self._lost_now = 0
        self._kept: deque[tuple[float, str | None, Mapping[str, object]]] = deque(
            maxlen=_KEPT_STEPS
        )
        self.steps: Counter[str] = Counter()
        """Steps of the actuator since the start, by kind."""

    @property
    def folder(self) -> Path | None:
        """The journal's folder; None: there is no journal."""
        return None if self._journal is None else self._journal.folder

    @property
    def missing(self) -> int:
        """Entries that the journal lacks: those lost, and those it took before its disk failed."""
        taken = 0 if self._journal is None or self.trouble is None else self._journal.unsynced
        return self.lost + taken

    @property
    def is_troubled(self) -> bool:
        """Whether the disk takes no entries."""
        return self.trouble is not None

    def __call__(
        self,
        kind: EntryKind,
        body: Mapping[str, object],
        t_s: float | None = None,
        policy: str | None = None,
    ) -> int | None:
        """Write one entry.

        Returns:
            The number of the entry; None where it was not written.
        """
        if self._journal is None:
            return None
        with self._lock:
            if self.trouble is not None:
                self._miss(1)
                return None
            try:
                return self._journal.append(
                    kind,
                    self.clock() if t_s is None else t_s,
                    self.job,
                    policy or self._policy,
                    body,
                )
            except OSError as error:
                self._stop(error)
                self._miss(1)
                return None

    def step(self, event: str, body: Mapping[str, object], policy: str | None = None) -> int | None:
        """Write one step of an actuator; kept in memory while the disk takes nothing.

        Credentials in its words are hidden.

        Returns:
            The number of its entry; None where it was not written yet.
        """
        with self._lock:
            hidden = {key: redacted_values(value) for key, value in body.items()}
            t_s, told = self.clock(), {"event": event, **hidden}
            number = self("actuation", told, t_s, policy)
            if number is None and self._journal is not None:
                self._kept.append((t_s, policy, told))
            return number

    def intent(self, event: str, body: Mapping[str, object], policy: str | None = None) -> None:
        """Write what is about to be asked of a job; it is on disk when this returns.

        Word for word: a job that was stopped is started again with the arguments that stand here.

        Raises:
            StorageError: It is not, so nothing may be asked.
        """
        with self._lock:
            self("actuation", {"event": event, **body}, policy=policy)
            if self.trouble is not None:
                raise StorageError(
                    f"the journal cannot be written: {self.trouble}",
                    remedy="Free some space, or give the journal a folder that can be written to.",
                )

    @contextmanager
    def decision(self) -> Iterator[None]:
        """Put the entries of one decision on disk together, when the block ends.

        Yields:
            None; entries made inside the block belong to the decision.
        """
        if self._journal is None:
            yield
            return
        with self._lock:
            self._try_again()
            if self.trouble is not None:
                yield
                return
            try:
                with self._journal.decision():
                    yield
            except OSError as error:
                if self.trouble is None:  # of the sync: `__call__` has dealt with its own
                    self._stop(error)

    def _try_again(self) -> None:
        if self.trouble is None or self._journal is None:
            return
        try:
            self._miss(self._journal.recover())
        except OSError as error:
            self._stop(error)
            return
        reason, self.trouble = self.trouble, None
        self._write_kept()
        lost, self._lost_now = self._lost_now, 0
        said = f"{lost} entries are missing before this one: {reason}"
        self("error", {"stage": "journal", "reason": said})
        if self.is_troubled:
            self._lost_now += lost
            self._miss(-1)  # this sentence is said the next time

    def _write_kept(self) -> None:
        """Write what was done to the job meanwhile, with the times at which it was done."""
        waiting, self._kept = self._kept, deque(maxlen=_KEPT_STEPS)
        for step in waiting:
            t_s, policy, told = step
            self("actuation", told, t_s, policy)
            self._miss(-1)  # it was counted when it was not written
            if self.is_troubled:
                self._kept.append(step)

    def _stop(self, error: OSError) -> None:
        assert self._journal is not None
        self.trouble = f"{self._journal.folder}: {error.strerror or error}"

    def _miss(self, entries: int) -> None:
        self.lost += entries
        self._lost_now += entries


def listener(writer: JournalWriter, policy: str, tell: OnEvent) -> OnEvent:
    """Receive the steps of an actuator: written, then passed on without their credentials.

    Args:
        writer: where they are written.
        policy: whose decisions the actuator carries out.
        tell: receives every step after it was written; its failures stop nothing.

    Returns:
        A listener that raises StorageError for an intent that is not on disk, and never else.
    """

    def told(kind: str, body: dict[str, object]) -> None:
        try:
            tell(kind, body)
        except Exception:
            _LOG.exception("step %s could not be passed on", kind)

    def step(kind: str, body: dict[str, object]) -> None:
        writer.steps[kind] += 1
        if kind in INTENTS:
            writer.intent(kind, {**body, "decision": writer.decided}, policy)
        else:
            writer.step(kind, body, policy)
        hidden = {key: redacted_values(value) for key, value in body.items()}
        told(kind, hidden)
        if writer.trouble is not None:
            told("not journaled", {"reason": f"{kind} {hidden}: {writer.trouble}"})

    return step


def outcome_to_json(outcome: Outcome) -> dict[str, float | None]:
    """Write the outcome of the only job as JSON values.

    Returns:
        Value by quantity; None if it is unknown.
    """
    return {
        name: float(values[0]) if np.isfinite(values[0]) else None
        for name, values in asdict(outcome).items()
    }
