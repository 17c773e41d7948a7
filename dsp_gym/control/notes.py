"""What a loop writes down; a disk that takes nothing more stops the writing, not the loop."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict

import numpy as np

from dsp_gym.loop.outcome import Outcome
from dsp_gym.records.journal import EntryKind, Journal
from dsp_gym.redaction import redacted_values

__all__ = ["Notes", "outcome_to_json"]


class Notes:
    """Writes entries of one job; the actuator's thread may, too.

    After an OSError nothing is written until the disk takes entries again, which is tried once per
    decision; `trouble` says why, and the journal how many entries it lacks.

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
        self.clock = clock
        self._journal, self._policy = journal, policy
        self._lock = threading.RLock()
        self._lost_now = 0

    @property
    def is_kept(self) -> bool:
        """Whether there is a journal."""
        return self._journal is not None

    def __call__(
        self,
        kind: EntryKind,
        body: Mapping[str, object],
        t_s: float | None = None,
        policy: str | None = None,
    ) -> None:
        """Write one entry."""
        if self._journal is None:
            return
        with self._lock:
            if self.trouble is not None:
                self._miss(1)
                return
            try:
                self._journal.append(
                    kind,
                    self.clock() if t_s is None else t_s,
                    self.job,
                    policy or self._policy,
                    body,
                )
            except OSError as error:
                self._stop(error)
                self._miss(1)

    def step(self, event: str, body: Mapping[str, object], policy: str | None = None) -> None:
        """Write one step of an actuator; credentials in its words are hidden."""
        hidden = {key: redacted_values(value) for key, value in body.items()}
        self("actuation", {"event": event, **hidden}, policy=policy)

    @contextmanager
    def decision(self) -> Iterator[None]:
        """Entries of one decision, on disk together when the block ends.

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
        reason, lost = self.trouble, self._lost_now
        self.trouble, self._lost_now = None, 0
        said = f"{lost} entries are missing before this one: {reason}"
        self("error", {"stage": "journal", "reason": said})

    def _stop(self, error: OSError) -> None:
        assert self._journal is not None
        self.trouble = f"{self._journal.folder}: {error.strerror or error}"

    def _miss(self, entries: int) -> None:
        self.lost += entries
        self._lost_now += entries


def outcome_to_json(outcome: Outcome) -> dict[str, float | None]:
    """Write the outcome of the only job as JSON values.

    Returns:
        Value by quantity; None if it is unknown.
    """
    return {
        name: float(values[0]) if np.isfinite(values[0]) else None
        for name, values in asdict(outcome).items()
    }
