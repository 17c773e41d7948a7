"""Journals that a disk has damaged: what is wrong with one, and what can be made good.

A line carries the CRC-32 of itself, which says not only that a bit has flipped but, tried bit by
bit, which one. A line that cannot be restored is replaced by an entry that says so, under the same
number, so that the journal reads on; the segment as it was stays beside it.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from dsp_gym.config.files import write_atomic
from dsp_gym.config.text import in_words
from dsp_gym.records.journal import Entry, first_seq, locked, no_journal, parsed, segments_of

_SUM = re.compile(rb'"crc32":(\d+),')
_JOINT = re.compile(rb'\}[^\n]\{"body":')
"""Where the end of a line was flipped to another character."""

_FLIPS = tuple(1 << bit for bit in range(8))

_MOST_SUMS = 3
"""Places of a line that are tried as its sum; a body may hold the same words."""

_MOST_MISSING = 10_000
"""Entries that may be missing before a line; of one that claims more the number is wrong."""

_TAIL_BYTES = 400
"""Behind the body of a line, its sum among them."""


@dataclass(frozen=True, slots=True)
class Damage:
    """Consecutive lines of a segment that cannot be read."""

    segment: Path
    line: int  # number of the first one, from 1
    reason: str
    lost: int  # entries that cannot be restored
    restored: tuple[Entry, ...]  # what the lines said

    def __str__(self) -> str:
        what = f"{self.segment.name} line {self.line}: {self.reason}"
        if self.restored:
            what += f"; {len(self.restored)} entries can be restored"
        return what + (f"; {self.lost} entries cannot" if self.lost else "")


@dataclass(frozen=True, slots=True)
class JournalReport:
    """What a journal holds."""

    segments: int
    entries: int  # sound ones
    begins_s: float | None  # Unix seconds of the first and last sound entry
    ends_s: float | None
    damages: tuple[Damage, ...]
    torn_bytes: int  # of a line that was being written when its process ended
    gaps: tuple[str, ...]  # segments that are missing, in words

    @property
    def is_sound(self) -> bool:
        """Whether a reader gets all of it; a torn tail is left out by every reader."""
        return not self.damages and not self.gaps


@dataclass(slots=True)
class _Segment:
    """One segment, taken apart."""

    path: Path
    first: int  # number of its first entry
    end: int | None  # number after its last entry, by the next segment's name; None: the last
    entries: list[Entry]
    damages: list[Damage]
    torn_bytes: int = 0

    @classmethod
    def read(cls, path: Path, end: int | None) -> _Segment:
        """Take a segment apart."""
        segment = cls(path, first_seq(path), end, [], [])
        bad: list[bytes] = []
        number, reason = 0, ""
        lines = path.read_bytes().split(b"\n")
        tail = lines.pop()
        for number, line in enumerate(lines, 1):
            try:
                entry = parsed(line + b"\n")
                if not 0 <= entry.seq - segment.next <= _MOST_MISSING:
                    raise ValueError(f"is entry {entry.seq}, expected {segment.next}")
            except ValueError as error:
                reason = reason if bad else in_words(error)
                bad.append(line)
                continue
            if bad or entry.seq > segment.next:
                said = reason if bad else f"entries {segment.next} to {entry.seq - 1} are missing"
                segment.mend(bad, entry.seq - segment.next, number - len(bad), said)
                bad = []
            segment.entries.append(entry)
        segment.finish(bad, tail, number + 1 - len(bad), reason)
        return segment

    @property
    def next(self) -> int:
        """Number of the next entry."""
        return self.entries[-1].seq + 1 if self.entries else self.first

    def mend(self, bad: list[bytes], missing: int, line: int, reason: str) -> None:
        """Restore what can be restored of lines between two sound ones."""
        found = {one.seq: one for one in _restored(bad, self.next, missing)}
        wanted = range(self.next, self.next + missing)
        restored = tuple(found[seq] for seq in wanted if seq in found)
        lost = missing - len(restored)
        self.damages.append(Damage(self.path, line, reason, lost, restored))
        for seq in wanted:
            self.entries.append(found.get(seq) or self._in_place_of(seq))

    def finish(self, bad: list[bytes], tail: bytes, line: int, reason: str) -> None:
        """Deal with what stands behind the last sound line."""
        if self.end is not None and self.next < self.end:
            lines = bad + ([tail] if tail else [])
            said = reason or f"entries {self.next} to {self.end - 1} are missing"
            self.mend(lines, self.end - self.next, line, said)
            return
        restored = _restored(bad, self.next, len(bad)) if bad else []
        if restored and restored[0].seq == self.next:
            self.mend(bad, restored[-1].seq + 1 - self.next, line, reason)
            bad = []
        self.torn_bytes = sum(len(one) + 1 for one in bad) + len(tail)

    def _in_place_of(self, seq: int) -> Entry:
        """The entry that says that another was lost."""
        before = self.entries[-1] if self.entries else None
        said = f"entry {seq} was damaged on the disk; {self.path.name}.damaged holds its bytes"
        body = {"stage": "journal", "reason": said}
        t_s, job = (0.0, "") if before is None else (before.t_s, before.job)
        return Entry(seq, t_s, job, "error", None, body)


def check(folder: str | Path) -> JournalReport:
    """Look through a journal; nothing is written.

    Args:
        folder: of the journal, or one of its segments.

    Returns:
        What it holds and what is wrong with it.

    Raises:
        StorageError: The folder holds no journal.
        SchemaError: It is of a version that this release does not read.
    """
    return _looked(_folder(folder), lambda segment: None)


def repair(folder: str | Path) -> JournalReport:
    """Restore damaged lines, and replace those that cannot be restored; cut off a torn tail.

    A segment that is changed stays beside the new one as NAME.damaged.

    Args:
        folder: of the journal, or one of its segments.

    Returns:
        What was found before.

    Raises:
        StorageError: The folder holds no journal, another process writes it, or it cannot be
            written.
    """
    where = _folder(folder)
    with closing(locked(where)):
        return _looked(where, _rewrite)


def _rewrite(segment: _Segment) -> None:
    if segment.damages or segment.torn_bytes:
        _keep(segment.path)
        write_atomic(
            segment.path, b"".join(entry.line() for entry in segment.entries), private=True
        )


def _looked(folder: Path, then: Callable[[_Segment], None]) -> JournalReport:
    """Go through the segments, one in memory at a time."""
    damages: list[Damage] = []
    gaps: list[str] = []
    times: list[float] = []
    expected: int | None = None
    count = segments = torn_bytes = 0
    for segment in _segments(folder):
        if expected is not None and expected != segment.first:
            said = f"entries {expected} to {segment.first - 1} are missing"
            gaps.append(f"{said} before {segment.path.name}")
        then(segment)
        mended = sum(damage.lost + len(damage.restored) for damage in segment.damages)
        times += [entry.t_s for entry in segment.entries[:1] + segment.entries[-1:]]
        damages += segment.damages
        torn_bytes += segment.torn_bytes
        count += len(segment.entries) - mended
        segments, expected = segments + 1, segment.next
    begins_s, ends_s = (times[0], times[-1]) if times else (None, None)
    return JournalReport(segments, count, begins_s, ends_s, tuple(damages), torn_bytes, tuple(gaps))


def _segments(folder: Path) -> Iterator[_Segment]:
    paths = segments_of(folder)
    for number, path in enumerate(paths):
        is_last = number + 1 == len(paths)
        # Only a line of this segment can be missing, not a segment of the same name.
        end = None if is_last else min(first_seq(paths[number + 1]), first_seq(path) + _lines(path))
        yield _Segment.read(path, end)


def _lines(path: Path) -> int:
    """Entries that a segment can have held: its lines, and those whose ends were flipped."""
    content = path.read_bytes()
    torn = not content.endswith(b"\n")
    return content.count(b"\n") + len(_JOINT.findall(content)) + torn


def _folder(path: str | Path) -> Path:
    given = Path(path)
    folder = given.parent if given.is_file() else given
    if not segments_of(folder):
        raise no_journal(given)
    return folder


def _keep(segment: Path) -> None:
    """A copy of the segment as it is; an earlier copy is not replaced."""
    copy, number = segment.with_name(f"{segment.name}.damaged"), 1
    while copy.exists():
        number += 1
        copy = segment.with_name(f"{segment.name}.damaged-{number}")
    write_atomic(copy, segment.read_bytes(), private=True)


def _restored(bad: list[bytes], first: int, missing: int) -> list[Entry]:
    """Entries that damaged lines stand for, each with one of its bits flipped."""
    lines = bad
    if len(lines) < missing:
        lines = [part for line in bad for part in _parted(line)]
    if len(lines) > missing:
        joined = _joined(bad)
        lines = [joined] if joined is not None else lines
    found = []
    for line in lines:
        entry = _sound(line) or _flipped(line)
        if entry is not None and first <= entry.seq < first + missing:
            found.append(entry)
    return found


def _parted(line: bytes) -> list[bytes]:
    """The lines that one is made of where the end of a line was flipped."""
    ends = [match.start() + 1 for match in _JOINT.finditer(line)]
    starts = [0, *(end + 1 for end in ends)]
    return [line[a:b] for a, b in zip(starts, [*ends, len(line)], strict=True)]


def _joined(bad: list[bytes]) -> bytes | None:
    """The line that two are parts of where one of its characters was flipped to a line's end."""
    if len(bad) != 2:
        return None
    joined = (bad[0] + bytes((0x0A ^ flip,)) + bad[1] for flip in _FLIPS)
    return next((line for line in joined if _sound(line) is not None), None)


def _sound(line: bytes) -> Entry | None:
    try:
        return parsed(line + b"\n")
    except ValueError:
        return None


def _flipped(line: bytes) -> Entry | None:
    """The entry of a line in which one bit was flipped."""
    stated = list(_SUM.finditer(line))
    for match in stated[: -_MOST_SUMS - 1 : -1]:
        begin, end = line[: match.start()], line[match.end() :]
        entry = _by_sum(begin, match.group(), end)
        if entry is not None:
            return entry
        at, until = match.span()
        entry = _by_trial(line, at, until)
        if entry is not None:
            return entry
    tail = max(0, line.rfind(b",") - _TAIL_BYTES)
    if stated and stated[-1].start() >= tail:
        return None
    return _by_trial(line, tail, len(line))  # it was the name of the sum


def _by_sum(begin: bytes, stated: bytes, end: bytes) -> Entry | None:
    """Flip the bit that accounts for the difference between the sum and what it is of."""
    content = bytearray(begin + end)
    wanted = int(stated[len(b'"crc32":') : -1])
    flipped = _FLIPPED.bit(zlib.crc32(content) ^ wanted, len(content))
    if flipped is None:
        return None
    content[flipped[0]] ^= 1 << flipped[1]
    return _sound(bytes(content[: len(begin)]) + stated + bytes(content[len(begin) :]))


class _Flipped:
    """Which bit was flipped, by the difference of two sums.

    A CRC is linear: a flipped bit changes it by a value that depends only on the bit and its
    distance from the end, so every distance is computed once for all lines.
    """

    def __init__(self) -> None:
        zero = zlib.crc32(b"\0")
        self._table = [zlib.crc32(bytes((byte,))) ^ zero for byte in range(256)]
        self._last = [self._table[flip] for flip in _FLIPS]  # of the next distance, by bit
        self._known: dict[int, int] = {}
        self._distance = 0

    def bit(self, difference: int, length: int) -> tuple[int, int] | None:
        """The byte and its bit, counted from the begin of `length` bytes; None: no single one."""
        if length > _MOST_LINE:
            return None
        while self._distance < length:
            for bit, value in enumerate(self._last):
                self._known.setdefault(value, 8 * self._distance + bit)
            self._last = [self._table[value & 0xFF] ^ (value >> 8) for value in self._last]
            self._distance += 1
        found = self._known.get(difference)
        if found is None or found // 8 >= length:
            return None
        return length - 1 - found // 8, found % 8


_MOST_LINE = 2**18
"""Bytes of a line up to which a flipped bit is looked for; 16 vertices take 20,000."""

_FLIPPED = _Flipped()


def _by_trial(line: bytes, at: int, until: int) -> Entry | None:
    """Flip each bit of a few bytes, until the line is sound."""
    if len(line) > _MOST_LINE:
        return None
    trial = bytearray(line)
    for position in range(at, until):
        for flip in _FLIPS:
            trial[position] ^= flip
            # Without a sum no line is sound; to look for one is a hundred times as fast.
            if _SUM.search(trial, max(0, len(trial) - 2 * _TAIL_BYTES)) is not None:
                entry = _sound(bytes(trial))
                if entry is not None:
                    return entry
            trial[position] ^= flip
    return None
