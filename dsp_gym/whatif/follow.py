"""Twins beside the journals of a folder: they follow what is appended, and say how they fare."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dsp_gym.control.beside import write_twins
from dsp_gym.errors import DspGymError
from dsp_gym.records.journal import segments_of
from dsp_gym.records.shipped import folder_of
from dsp_gym.records.tail import JournalTail
from dsp_gym.whatif.journal import CourseReader
from dsp_gym.whatif.replay import Twins

__all__ = ["Following", "JournalTwins", "journals_in"]

AT_ONCE = 200
"""Intervals between two documents of twins that go through a journal."""


def journals_in(folder: str | Path) -> list[Path]:
    """Find the journals of a folder: itself, or those of several jobs inside it.

    Returns:
        Folders in the order of their names; empty if there is no journal.
    """
    found = folder_of("journals", folder)
    if segments_of(found):
        return [found]
    return sorted(one for one in found.glob("*") if one.is_dir() and segments_of(one))


class JournalTwins:
    """The twins of one journal.

    Args:
        folder: the journal's.
        seeds: twins of each policy.
    """

    def __init__(self, folder: Path, seeds: int) -> None:
        self.folder, self.seeds = folder, seeds
        self.intervals = 0
        """Intervals of the journal."""
        self._tail = JournalTail(folder)
        self._reader = CourseReader(folder)
        self.twins = Twins(folder, seeds)
        self._is_behind = False

    def look(self, *, final: bool = False, most: int | None = AT_ONCE) -> bool:
        """Take in what was appended, and go on.

        Args:
            final: whether nothing more will be appended.
            most: intervals to go through at most; None: all.

        Returns:
            Whether the twins have gone on.

        Raises:
            DspGymError: The journal or what it names cannot be read.
        """
        if not (self._read() or self._is_behind or final):
            return False
        before = self.twins.begun, self.twins.intervals
        course = self._reader.course()
        self.intervals = len(course)
        self._is_behind = True  # should this raise, it is tried again
        self._is_behind = self.twins.follow(course, final=final, most=most)
        return (self.twins.begun, self.twins.intervals) != before

    @property
    def is_behind(self) -> bool:
        """Whether there is more to go through."""
        return self._is_behind

    def _read(self) -> bool:
        """Take in new entries; whether an interval has ended."""
        ended = False
        while True:
            if self._tail.begins_anew:
                self._reader = CourseReader(self.folder)
            for entry in self._tail.entries():
                self._reader.take(entry)
                ended = ended or entry.kind == "outcome"
            if not self._tail.begins_anew:
                return ended


class Following:
    """Twins beside every journal of a folder, those to come included.

    Args:
        folder: of one journal, or of the journals of several jobs.
        seeds: twins of each policy.
    """

    def __init__(self, folder: Path, seeds: int) -> None:
        self.folder, self.seeds = folder, seeds
        self._known: dict[Path, JournalTwins] = {}

    @property
    def is_behind(self) -> bool:
        """Whether some twins have more to go through at once."""
        return any(one.is_behind for one in self._known.values())

    def look(self) -> Iterator[tuple[str, dict[str, Any] | DspGymError]]:
        """Go on with every journal, and write beside it how its twins fare.

        A journal in trouble does not keep the others waiting.

        Yields:
            By journal the document of twins that went on, or what went wrong.
        """
        there = journals_in(self.folder)
        for gone in self._known.keys() - set(there):
            del self._known[gone]
        for folder in there:
            try:
                one = self._known.setdefault(folder, JournalTwins(folder, self.seeds))
                if not one.look():
                    continue
                document = one.twins.document()
                write_twins(folder, document)
                yield folder.name, document
            except DspGymError as error:
                yield folder.name, error
