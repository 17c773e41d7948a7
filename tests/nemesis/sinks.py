"""The visible output of an exactly-once sink: every count of every word once, in order."""

from __future__ import annotations

import bisect
import itertools
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

__all__ = ["Ledger", "Load", "Violation"]


class Violation(AssertionError):
    """Something that may never be so."""


class Load:
    """A load that pauses: so many seconds of it, then so many of none, over and over.

    Args:
        epoch_s: second 0, Unix seconds.
        rate_per_s: sentences per second while there are any.
        on_s: seconds of load in each period.
        off_s: seconds of pause after them.
        lasts_s: after so many seconds there are no more.
    """

    def __init__(
        self, epoch_s: float, rate_per_s: int, on_s: int, off_s: int, lasts_s: int
    ) -> None:
        period = [rate_per_s] * on_s + [0] * off_s
        periods = -(-lasts_s // len(period))
        self.epoch_s = epoch_s
        self.rates: Sequence[int] = [*period * periods, 0]
        self._due = [0, *itertools.accumulate(self.rates)]

    def due(self, t_s: float) -> int:
        """Sentences that are due; within a second of load all of that second."""
        second = max(0, int(t_s - self.epoch_s))
        return self._due[min(second + 1, len(self._due) - 1)]

    def pauses(self, from_s: float, to_s: float) -> bool:
        """Whether nothing became due in between."""
        return self.due(from_s - 1.0) == self.due(to_s)


class Ledger:
    """Reads the files of the sink as they become visible.

    Args:
        folder: where the sink writes.
        load: of the job.
        words: in a sentence.
    """

    def __init__(self, folder: Path, load: Load, words: int) -> None:
        self.folder, self.load, self._words = folder, load, words
        self.total = 0
        self._read: set[str] = set()
        self._counts: defaultdict[str, list[int]] = defaultdict(list)

    def settled(self) -> str | None:
        """Take in what has become visible since.

        Returns:
            What is still missing; None where every record that is due was written, and no other.

        Raises:
            Violation: A record was written twice, or one that is not due.
        """
        began_s = time.time()
        self._take_in()
        ended_s = time.time()
        due = self._words * self.load.due(ended_s)
        if self.total > due:
            raise Violation(f"{self.folder.name}: {self.total} records written, {due} are due")
        if not self.load.pauses(began_s, ended_s):
            return f"{self.folder.name}: records become due"
        if self.total < due:
            return f"{self.folder.name}: {self.total} of {due} records are written"
        gaps = [word for word, seen in self._counts.items() if seen[-1] != len(seen)]
        if gaps:
            raise Violation(f"{self.folder.name}: counts of {gaps[0]} have gaps")
        return None

    def _take_in(self) -> None:
        new = [file for file in self.folder.glob("part-*") if file.name not in self._read]
        for file in new:
            self._read.add(file.name)
            for line in file.read_text().splitlines():
                word, _, count = line.strip("()").partition(",")
                seen, number = self._counts[word], int(count)
                place = bisect.bisect_left(seen, number)
                if place < len(seen) and seen[place] == number:
                    raise Violation(f"{self.folder.name}: {line} was written twice ({file.name})")
                seen.insert(place, number)
                self.total += 1
