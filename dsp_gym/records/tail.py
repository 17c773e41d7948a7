"""A journal read as it grows: every call gives the entries that came since the last one."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

from dsp_gym.errors import SchemaError
from dsp_gym.records.journal import Entry, first_seq, no_journal, parsed, segments_of
from dsp_gym.records.shipped import folder_of


class JournalTail:
    """Reads a journal that another process writes.

    A writer whose disk failed cuts off what it had not synced, and one whose journal is bounded
    deletes the oldest segment. What was read before is then no longer what the journal says:
    `begins_anew` is set, and the next call gives all entries from the first on.

    Args:
        folder: the journal's folder, or the name of a shipped one.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = folder_of("journals", folder)
        self.begins_anew = True
        """Whether the next call begins with the journal's first entry."""
        self._first = self._segment = self._offset = self._next = 0
        self._failed: tuple[Path, int] | None = None  # where reading ended before its time

    def entries(self) -> Iterator[Entry]:
        """What was appended since the last call; a line without its end is left for the next one.

        Yields:
            Entries, numbers rising by one.

        Raises:
            StorageError: There is no journal.
            SchemaError: A line is damaged.
        """
        segments = segments_of(self.folder)
        if not segments:
            raise no_journal(self.folder)
        first = first_seq(segments[0])
        if self.begins_anew or first != self._first:
            if not self.begins_anew:
                self.begins_anew = True
                return  # the caller forgets what it knows, and asks again
            self._first = self._segment = self._next = first
            self._offset, self.begins_anew = 0, False
        for segment in segments:
            if first_seq(segment) < self._segment:
                continue
            if first_seq(segment) > self._segment:
                if first_seq(segment) != self._next:
                    self._lost(f"entry {self._next} is missing", segment)
                    return
                self._segment, self._offset = first_seq(segment), 0
            yield from self._of(segment, is_last=segment == segments[-1])
            if self.begins_anew:
                return

    def _of(self, segment: Path, *, is_last: bool) -> Iterator[Entry]:
        try:
            stream = segment.open("rb")
        except FileNotFoundError:  # dropped by its writer meanwhile
            self.begins_anew = True
            return
        with stream:
            size = stream.seek(0, 2)
            if size < self._offset:
                self._lost("it has become shorter", segment)
                return
            stream.seek(self._offset)
            while self._offset < size and (line := stream.readline()).endswith(b"\n"):
                try:
                    entry = parsed(line)
                    if entry.seq != self._next:
                        raise ValueError(f"is entry {entry.seq}, expected {self._next}")
                except ValueError as error:
                    if not (is_last and self._offset + len(line) >= size):
                        self._lost(f"a line at byte {self._offset} is damaged: {error}", segment)
                    return
                self._offset += len(line)
                self._next += 1
                yield entry

    def _lost(self, said: str, segment: Path) -> None:
        """Start over; what is wrong at the same place a second time is damaged."""
        place = segment, self._offset
        if self._failed == place:
            raise SchemaError(
                said,
                file=segment,
                remedy=f"Repair it: dsp-gym inspect {shlex.quote(str(segment.parent))} --repair",
            )
        self._failed, self.begins_anew = place, True
