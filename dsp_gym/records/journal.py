"""The journal `dsp-gym/journal/1`: what a loop saw, decided and did, line by line, for good.

JSON Lines in segments named after their first entry. Every line is canonical JSON (sorted keys, no
spaces, ASCII) with the crc32 of itself without that key, so a damaged line is found. What was
synced is never lost; a line that was being written when the machine stopped is dropped.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shlex
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import IO, Literal, get_args

from dsp_gym.config.strict_json import parse_json, plain
from dsp_gym.config.temporary import synced
from dsp_gym.errors import SchemaError, StorageError
from dsp_gym.records.base import Body, other_version
from dsp_gym.records.shipped import folder_of

_PRIVATE = 0o600
"""A journal names hosts, loads and arguments of jobs: only its owner reads it."""

JOURNAL_SCHEMA = "dsp-gym/journal/1"

EntryKind = Literal["snapshot", "decision", "guard", "actuation", "outcome", "error"]

_KINDS = frozenset(get_args(EntryKind))
_FROM_THE_WIRE = frozenset(("snapshot", "decision", "guard"))
"""Kinds whose bodies are documents of `dsp_gym.loop.wire`: their keys are strings."""

_KEYS = frozenset(("schema", "seq", "t_s", "job", "kind", "policy", "body", "crc32"))
_MIB = 2**20
_LATEST_S = 1e15
"""No clock shows so many seconds."""

_LEAST_SEGMENTS = 8


@dataclass(frozen=True, slots=True)
class Entry:
    """One line; `policy` is None where none was involved."""

    seq: int  # from 0, without gaps, over all segments
    t_s: float  # the loop's clock
    job: str
    kind: EntryKind
    policy: str | None
    body: Body

    def line(self) -> bytes:
        """The line as it stands in a segment.

        Returns:
            Canonical JSON in UTF-8 with its CRC-32 under `crc32`, ended by a newline.
        """
        head = {
            "schema": JOURNAL_SCHEMA,
            "seq": self.seq,
            "t_s": self.t_s,
            "job": self.job,
            "kind": self.kind,
            "policy": self.policy,
        }
        # Keys are sorted, so `body` comes first and `crc32` right after it. The body, which is most
        # of the line, is thus written out once for both the sum and the line.
        begin, end = b'{"body":' + _canonical(self.body) + b",", _canonical(head)[1:]
        return b'%b"crc32":%d,%b\n' % (begin, zlib.crc32(begin + end), end)


class Journal:
    """Appends to a journal; one writer at a time.

    A disk that is full, or fails, raises OSError out of `append`, `sync` or `decision`. What was
    synced before stays readable; the journal then takes nothing until `recover` succeeds.

    Args:
        folder: where the segments stand; made if need be. A torn tail is dropped and a journal that
            exists is continued.
        segment_mib: a segment that would grow beyond this is closed and the next one begun.
        max_mib: the oldest segments are deleted so that all together stay below this; None: kept.
        durable: False: entries are given to the system and not waited for, as for a replay, which
            can be done again.
    """

    def __init__(
        self,
        folder: str | Path,
        segment_mib: float = 64,
        max_mib: float | None = None,
        *,
        durable: bool = True,
    ) -> None:
        self.folder = Path(folder)
        self.dropped_bytes = 0
        """Bytes of a torn line that opening the journal dropped."""
        # A segment is dropped whole, so that a small bound needs smaller ones.
        most_mib = segment_mib if max_mib is None else min(segment_mib, max_mib / _LEAST_SEGMENTS)
        self._limit = int(most_mib * _MIB)
        self._most = None if max_mib is None else int(max_mib * _MIB)
        self._durable, self._is_broken = durable, False
        self._size = self._seq = self._segment_seq = 0
        self._whole = 0, 0  # size and next number as of the last sync
        self._batched = False
        self._stream: IO[bytes] | None = None
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock = locked(self.folder)
        try:
            self._reopen()
        except BaseException:
            self._lock.close()
            raise

    def append(self, kind: EntryKind, t_s: float, job: str, policy: str | None, body: Body) -> int:
        """Add an entry; it is on disk when this returns, see `decision`.

        Numbers that are not finite become null, as on the wire.

        Returns:
            The number of the entry.
        """
        if kind not in _KINDS:
            raise SchemaError(
                f"a journal has no entries of kind '{kind}'", remedy=f"Kinds: {_listed()}."
            )
        entry = Entry(self._seq, float(t_s), job, kind, policy, body)
        line = _line(entry)
        stream = self._open_stream()
        if self._is_broken:
            raise OSError(errno.EIO, "the journal takes nothing until it has recovered")
        try:
            if self._size > 0 and self._size + len(line) > self._limit:
                stream = self._next_segment()
            stream.write(line)
        except OSError:
            self._is_broken = True
            raise
        self._size += len(line)
        self._seq += 1
        if not self._batched:
            try:
                self.sync()
            except OSError:
                self._seq -= 1  # the caller knows of this one
                raise
        return entry.seq

    @contextmanager
    def decision(self) -> Iterator[None]:
        """Entries of one decision, synced together when the block ends, however it ends.

        Yields:
            Nothing; the block appends the entries.
        """
        self._batched = True
        try:
            yield
        finally:
            self._batched = False
            if not self._is_broken:
                self.sync()

    def sync(self) -> None:
        """Everything appended so far is on disk when this returns."""
        stream = self._open_stream()
        try:
            stream.flush()
            if self._durable:
                os.fsync(stream.fileno())
        except OSError:
            self._is_broken = True
            raise
        self._whole = self._size, self._seq

    @property
    def unsynced(self) -> int:
        """Entries since the last sync; where that failed they are lost."""
        return self._seq - self._whole[1]

    def recover(self) -> int:
        """Take entries again after an OSError.

        Everything after the last sync is cut off, so that the numbers go on without a gap.

        Returns:
            How many entries were lost.

        Raises:
            OSError: The disk still takes nothing.
        """
        _abandon(self._open_stream())
        lost = self._seq - self._whole[1]
        self._size, self._seq = self._whole
        for segment in segments_of(self.folder):
            if first_seq(segment) > self._segment_seq:  # begun when the disk was full
                segment.unlink()
        stream = self._stream = (self.folder / _segment_name(self._segment_seq)).open("r+b")
        stream.truncate(self._size)
        stream.seek(self._size)
        os.fsync(stream.fileno())
        self._is_broken = False
        return lost

    def close(self) -> None:
        """Sync and let another writer in; closing twice is fine."""
        if self._stream is not None:
            try:
                if not self._is_broken:
                    self.sync()
            finally:
                if self._is_broken:
                    _abandon(self._stream)
                self._stream.close()
                self._stream = None
                self._lock.close()

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self.close()

    def _reopen(self) -> None:
        segments = segments_of(self.folder)
        last = segments[-1] if segments else self.folder / _segment_name(0)
        last.touch(mode=_PRIVATE)
        for segment in segments or [last]:  # those of earlier releases, too
            os.chmod(segment, _PRIVATE)
        synced(self.folder)
        self._seq, whole = first_seq(last), 0
        for entry, end in _entries(last, is_last=True):
            self._seq, whole = entry.seq + 1, end
        self._stream = last.open("r+b")
        self._size = whole
        self.dropped_bytes = self._stream.seek(0, os.SEEK_END) - whole
        self._stream.truncate(whole)
        self._stream.seek(whole)
        self._segment_seq = first_seq(last)
        self.sync()

    def _next_segment(self) -> IO[bytes]:
        self.sync()
        path = self.folder / _segment_name(self._seq)
        begun = os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, _PRIVATE), "wb")
        synced(self.folder)
        self._open_stream().close()
        self._stream, self._size = begun, 0
        self._segment_seq = self._seq
        self._whole = 0, self._seq
        self._drop_oldest()
        return begun

    def _drop_oldest(self) -> None:
        """Make room for one more whole segment below the bound."""
        if self._most is None:
            return
        *older, _ = segments_of(self.folder)
        sizes = {segment: segment.stat().st_size for segment in older}
        for segment in older:
            if sum(sizes.values()) + self._limit <= self._most:
                break
            del sizes[segment]
            segment.unlink()

    def _open_stream(self) -> IO[bytes]:
        if self._stream is None:
            raise StorageError("this journal was closed", file=self.folder)
        return self._stream


def no_journal(path: Path) -> StorageError:
    """The error where a journal was expected.

    Args:
        path: Where.

    Returns:
        The error to raise.
    """
    said = "holds no journal" if path.exists() else "does not exist, so it holds no journal"
    remedy = "Name the folder that `dsp-gym shadow` wrote."
    return StorageError(said, file=path, remedy=remedy)


def read(folder: str | Path) -> Iterator[Entry]:
    """The entries of a journal in order, one at a time; a torn last line is left out.

    A journal may be read while it is written. Of one that is bounded in size the first entries are
    gone; it begins with the oldest segment there is.

    Args:
        folder: its folder, or the name of a shipped journal.

    Returns:
        Entries, numbers rising by one.
    """
    segments = segments_of(folder_of("journals", folder))
    if not segments:
        raise no_journal(Path(folder))
    expected = first_seq(segments[0])
    for position, segment in enumerate(segments):
        if not segment.exists() and position + 1 < len(segments):
            expected = first_seq(segments[position + 1])  # dropped by its writer meanwhile
            continue
        if first_seq(segment) != expected:
            raise SchemaError(
                f"begins with entry {first_seq(segment)}, expected {expected}; a segment is "
                "missing or one is cut short",
                file=segment,
            )
        for entry, _ in _entries(segment, is_last=segment == segments[-1]):
            expected = entry.seq + 1
            yield entry


def _entries(segment: Path, *, is_last: bool) -> Iterator[tuple[Entry, int]]:
    """Entries with the offset at which each ends; the last line of the last segment may be torn."""
    expected, end = first_seq(segment), 0
    size = segment.stat().st_size  # what is appended while this reads is not looked at
    with segment.open("rb") as stream:
        for number, line in enumerate(stream, 1):
            end += len(line)
            if end > size:
                return
            try:
                entry = parsed(line)
                if entry.seq != expected:
                    raise ValueError(f"is entry {entry.seq}, expected {expected}")
            except ValueError as error:
                if is_last and end == size:
                    return
                raise SchemaError(
                    f"line {number} is damaged: {error}",
                    file=segment,
                    remedy="Repair it: dsp-gym inspect "
                    f"{shlex.quote(str(segment.parent))} --repair",
                ) from None
            expected += 1
            yield entry, end


def parsed(line: bytes) -> Entry:
    """Read one line.

    Returns:
        Its entry.

    Raises:
        ValueError: The line is damaged; says how.
        SchemaError: It is of a version that this release does not read.
    """
    if not line.endswith(b"\n"):
        raise ValueError("it has no end")
    document = parse_json(line)
    if not isinstance(document, dict):
        raise ValueError("it is no JSON object")
    schema = document.get("schema")
    if schema != JOURNAL_SCHEMA and isinstance(schema, str):
        raise other_version(schema, JOURNAL_SCHEMA)
    if set(document) != _KEYS:
        raise ValueError(f"its keys are {', '.join(sorted(document))}")
    found = document.pop("crc32")
    if found != zlib.crc32(_canonical(document)):
        raise ValueError("its crc32 does not match")
    del document["schema"]
    entry = Entry(**document)
    if not _is_typed(entry):  # its sum is right all the same: somebody else has written it
        raise ValueError("a value of it has the wrong type")
    return entry


def _is_typed(entry: Entry) -> bool:
    texts = entry.job, entry.kind, "" if entry.policy is None else entry.policy
    return (
        type(entry.seq) is int
        and type(entry.t_s) in (int, float)
        and -_LATEST_S < entry.t_s < _LATEST_S
        and all(isinstance(text, str) for text in texts)
        and isinstance(entry.body, dict)
    )


def _line(entry: Entry) -> bytes:
    """The line of an entry whose body may hold what JSON does not know."""
    if entry.kind in _FROM_THE_WIRE:  # plain already, as a rule
        with contextlib.suppress(TypeError, ValueError):
            return entry.line()
    body = {str(key): plain(item) for key, item in entry.body.items()}
    return replace(entry, body=body).line()


def _canonical(document: Mapping[str, object]) -> bytes:
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return text.encode("ascii")


def segments_of(folder: Path) -> list[Path]:
    """List the segments of a journal.

    Returns:
        Files in the order of their entries.
    """
    return sorted(folder.glob("journal-*.jsonl"))


def _segment_name(first_seq: int) -> str:
    return f"journal-{first_seq:012d}.jsonl"


def first_seq(segment: Path) -> int:
    """Read the number of a segment's first entry from its name.

    Returns:
        The number.

    Raises:
        SchemaError: The file is named otherwise.
    """
    number = segment.stem.removeprefix("journal-")
    if not number.isdecimal():
        raise SchemaError(
            "is not the name of a journal segment", file=segment, remedy="Remove that file."
        )
    return int(number)


def _listed() -> str:
    return ", ".join(get_args(EntryKind))


def locked(folder: Path) -> IO[bytes]:
    """Keep other writers out for as long as the returned file is open.

    Returns:
        The lock file, open.

    Raises:
        StorageError: Another process writes the journal.
    """
    lock = (folder / "lock").open("ab")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        raise StorageError(
            "another process writes this journal", file=folder, remedy="Choose another folder."
        ) from None
    return lock


def _abandon(stream: IO[bytes]) -> None:
    """Close a stream whose buffer cannot be written, without trying again."""
    raw = getattr(stream, "raw", None)
    if raw is not None:
        with contextlib.suppress(OSError):
            raw.close()
