"""A change of a job that somebody else has made: seen, named, and told from one's own.

What is compared is what was *asked* of a job, not what runs: a lost TaskManager, a restart or a
slow rescale lower the running parallelism while nobody has changed anything.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from datetime import UTC, datetime


@dataclass(frozen=True, slots=True)
class Interference:
    """A change that was not this process's."""

    before: str  # configuration that this process knows of
    after: str  # configuration that was found
    seen_s: float  # Unix seconds
    by: str | None = None  # who made it, where that is known

    @property
    def reason(self) -> str:
        """A sentence for people."""
        when = datetime.fromtimestamp(self.seen_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        who = "somebody else" if self.by is None else self.by
        return (
            f"{who} has changed the job, as seen at {when}: from {self.before} to {self.after}; "
            "nothing is asked of it until this process is started again"
        )

    def document(self) -> dict[str, object]:
        """Write it for a journal.

        Returns:
            JSON values by key; the sentence is `reason`.
        """
        return {
            "reason": self.reason,
            "before": self.before,
            "after": self.after,
            "seen_s": self.seen_s,
            "by": self.by,
        }


class InterferenceWatch:
    """Compares what is asked of a job with what this process has asked of it.

    Both are marks: values that are equal as long as nobody changes anything. The first one seen is
    the baseline. A mark that was asked for and is not known to stand may still appear, for the
    answer of a server may be lost or late; one that has stood and was replaced may not.
    """

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self.found: Interference | None = None
        """What was found; it stays until `begin`."""
        self.now = now
        self._stands: Hashable | None = None
        self._asked: set[Hashable] = set()
        self._version = 0  # of the two
        self._lock = threading.Lock()

    def begin(self) -> None:
        """Take the next mark for the baseline."""
        with self._lock:
            self.found, self._stands = None, None
            self._asked.clear()
            self._version += 1

    def asking(self, *marks: Hashable) -> None:
        """Know of marks that are about to be asked for, or may come of it."""
        with self._lock:
            self._asked.update(marks)
            self._version += 1

    def stands(self, mark: Hashable, *, settled: bool = True) -> None:
        """Know that a mark of this process stands.

        Args:
            mark: it.
            settled: whether nothing that was asked before can appear any more.
        """
        with self._lock:
            self._stands = mark
            if settled:
                self._asked.clear()
            self._version += 1

    def version(self) -> int:
        """Number the state, before a mark is read that is to be compared with it.

        Returns:
            Another number after each change.
        """
        with self._lock:
            return self._version

    def is_foreign(self, mark: Hashable, version: int) -> bool:
        """Find out whether a mark is somebody else's.

        Args:
            mark: as it was read.
            version: from before it was read.

        Returns:
            False also where this process has asked for something since.
        """
        with self._lock:
            if version != self._version:
                return False
            if self._stands is None:
                self._stands = mark
            return mark != self._stands and mark not in self._asked
