"""A lease in a folder that the processes share, on one machine or over NFS.

Each term is a file of its own, which one process makes exclusively and nobody else ever writes; the
greatest number leads. Files know no compare-and-swap, so no file changes hands: a new leader makes
the next one. A holder whose own time has run out makes the next one, too, and does not renew, so
that of a process that wakes up late and one that has waited for it only one gets it.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from dsp_gym.backends.lease import OwnLease, elapsed, new_holder
from dsp_gym.config.strict_json import parse_json
from dsp_gym.errors import StorageError
from dsp_gym.metrics.flink import cleaned

SCHEMA = "dsp-gym/lease/1"

_TERM = "term-"
_KEPT = 2
"""Files of earlier terms that are left: a look at the folder may be older than the next one."""

_TRUST = 0.8
"""Share of its duration for which a holder trusts its lease; others wait for all of it. Clocks may
differ by a fifth in their speed.
"""

_NO_LINKS = frozenset((errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK))


class SharedFolder:
    """A folder whose files appear exclusively and whole.

    Args:
        path: made where it is missing.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def newest(self) -> int:
        """Find the greatest term.

        Returns:
            Its number; 0 without any.
        """
        numbers = (name.removeprefix(_TERM) for name in os.listdir(self.path))
        return max((int(n) for n in numbers if n.isascii() and n.isdecimal()), default=0)

    def read(self, term: int) -> str:
        """Read the file of a term.

        Returns:
            Its text; empty where it is gone.
        """
        try:
            return self._file(term).read_text("utf-8", errors="replace")
        except FileNotFoundError:
            return ""

    def make(self, term: int, text: str) -> bool:
        """Make the file of a term, unless there is one.

        Returns:
            Whether this call has made it.
        """
        part = self._part(text)
        try:
            os.link(part, self._file(term))
        except FileExistsError:
            return os.stat(part).st_nlink > 1  # over NFS the answer of a link may be lost
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            return self._made_without_links(term, text)
        finally:
            part.unlink(missing_ok=True)
        return True

    def replace(self, term: int, text: str) -> None:
        """Replace the file of a term; only the process that made it does."""
        os.replace(self._part(text), self._file(term))

    def forget(self, before: int) -> None:
        """Remove the files of terms before a number."""
        for name in os.listdir(self.path):
            number = name.removeprefix(_TERM)
            if number.isascii() and number.isdecimal() and int(number) < before:
                (self.path / name).unlink(missing_ok=True)

    def _made_without_links(self, term: int, text: str) -> bool:
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY
        try:
            file = os.open(self._file(term), flags, 0o644)
        except FileExistsError:
            return False
        with os.fdopen(file, "w", encoding="utf-8") as opened:
            opened.write(text)
        return True

    def _file(self, term: int) -> Path:
        return self.path / f"{_TERM}{term:08d}"

    def _part(self, text: str) -> Path:
        """Write a text to a file of a name that nobody else has."""
        part = self.path / f".{uuid.uuid4().hex}.part"
        file = os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
        with os.fdopen(file, "w", encoding="utf-8") as opened:
            opened.write(text)  # what a crash of the machine leaves of it, nobody holds
        return part


@dataclass(frozen=True, slots=True)
class _Record:
    """What the file of a term says."""

    holder: str = ""
    lease_s: float = 0.0
    renewals: int = 0
    renewed: str = ""  # by the holder's clock, for people
    released: bool = False
    memory: str | None = None

    @classmethod
    def of(cls, text: str) -> _Record:
        """Read leniently: what cannot be read is held by somebody unknown, until it runs out."""
        try:
            body = parse_json(text)
        except ValueError:
            return cls()
        if not isinstance(body, dict) or body.get("schema") != SCHEMA:
            return cls()
        seconds, memory = body.get("lease_s"), body.get("memory")
        return cls(
            holder=str(body.get("holder", "")),
            lease_s=float(seconds) if isinstance(seconds, int | float) else 0.0,
            renewed=str(body.get("renewed", "")),
            released=body.get("released") is True,
            memory=memory if isinstance(memory, str) else None,
        )

    def text(self) -> str:
        fields = {name: getattr(self, name) for name in self.__slots__}
        return json.dumps({"schema": SCHEMA, **fields}) + "\n"


class FileLease(OwnLease):
    """A lease of one job, as one process sees it.

    Clocks of two machines are never compared: another's lease is over when its file has not changed
    for its duration by the clock here. One's own counts from before it was asked for, and four
    fifths of its duration.

    Args:
        folder: shared with the other processes.
        job: name of the job; each has a folder inside.
        duration_s: how long it holds without being renewed, s.
        holder: this process; no other has that name.
        clock: seconds that only go forward.
        wall_clock: Unix seconds; written down for people.
        files: where the terms are kept; None: in `folder`.
    """

    def __init__(
        self,
        folder: Path,
        job: str,
        duration_s: float = 30.0,
        *,
        holder: str | None = None,
        clock: Callable[[], float] = elapsed,
        wall_clock: Callable[[], float] = time.time,
        files: SharedFolder | None = None,
    ) -> None:
        digest = hashlib.sha256(job.encode()).hexdigest()[:8]
        path = folder / f"{cleaned(job)[:100]}-{digest}"
        super().__init__(str(path), holder or new_holder(), duration_s, clock, wall_clock)
        self._files = files or SharedFolder(path)
        self._number = 0  # of the file that is this process's; 0: none is
        self._record = _Record(self.holder, duration_s)
        self._seen: tuple[int, str, float] | None = None  # a term, its text, first seen when

    def try_acquire(self) -> bool:
        """Take the lease if it is free or over, or renew it.

        Returns:
            True where this process holds the lease now.

        Raises:
            StorageError: The folder cannot be read or written.
        """
        with self._lock:
            try:
                self._files.path.mkdir(parents=True, exist_ok=True)
                return self._tried()
            except OSError as error:
                failed = self._failed(error)
                self._other = str(failed)
                raise failed from error

    def is_held_now(self, for_s: float = 0.0) -> bool:
        """Whether this process holds the lease, by a look at the folder, and for so much longer.

        Args:
            for_s: longest time that what is to be done under it takes, s.

        Returns:
            False also where the folder cannot be read.
        """
        with self._lock:
            try:
                leads = self._leads()
            except OSError:
                return False
            if not leads:
                self._lose()
            return self._clock() + for_s < self._until_s

    def release(self) -> None:
        """Give it up, so that another need not wait; a folder out of reach lets it run out."""
        with self._lock:
            held, number = self._clock() < self._until_s, self._number
            self._lose()
            if held:
                memory = self._record.memory if self.memory is None else self.memory
                record = replace(self._record, released=True, memory=memory)
                with suppress(OSError):
                    self._files.replace(number, record.text())

    def _tried(self) -> bool:
        asked_s, self._other = self._clock(), ""
        if asked_s < self._until_s and self._leads() and self._renewed(asked_s):
            return True
        self._lose()
        newest = self._files.newest()
        text = self._files.read(newest) if newest else ""
        if newest and not self._is_over(newest, text):
            record = _Record.of(text)
            self.memory = None  # older than what its holder remembers
            who = record.holder or "an unknown process"
            self._other = f"another process holds the lease {self.name}: {who}"
            return False
        return self._made(asked_s, newest)

    def _leads(self) -> bool:
        """Whether the greatest term is this process's; somebody may have emptied the folder."""
        number = self._number
        if number == 0 or _Record.of(self._files.read(number)).holder != self.holder:
            return False
        return self._files.newest() == number  # last, so that it is as young as can be

    def _renewed(self, asked_s: float) -> bool:
        """Renew it before it runs out; False: it took too long, and others have not waited."""
        memory = self._record.memory if self.memory is None else self.memory
        record = replace(
            self._record, renewals=self._record.renewals + 1, renewed=self._now(), memory=memory
        )
        self._files.replace(self._number, record.text())
        self._record = record
        if not self._leads() or self._clock() >= self._until_s:
            return False
        self._until_s = asked_s + _TRUST * self.duration_s
        return True

    def _made(self, asked_s: float, newest: int) -> bool:
        """Make the next term; whether it is this process's, and the greatest."""
        before = _Record.of(self._files.read(newest)) if newest else _Record()
        record = _Record(self.holder, self.duration_s, 0, self._now(), memory=before.memory)
        if not self._files.make(newest + 1, record.text()):
            return False
        # The process before may have written until then, and may not any more.
        before = _Record.of(self._files.read(newest)) if newest else before
        if self._files.newest() != newest + 1:
            return False
        self.memory, self.inherited = None, before.memory
        self._number, self._record = newest + 1, replace(record, memory=before.memory)
        self.term += 1  # before it is seen to be held: who acts asks for the term
        self._until_s = asked_s + _TRUST * self.duration_s
        self._files.forget(newest + 1 - _KEPT)
        return self._clock() < self._until_s

    def _is_over(self, term: int, text: str) -> bool:
        """Whether the file of a term has not changed for as long as it holds, or is released."""
        record, now_s = _Record.of(text), self._clock()
        if self._seen is None or self._seen[:2] != (term, text):
            self._seen = term, text, now_s
        lasts_s = record.lease_s if 0 < record.lease_s < float("inf") else self.duration_s
        is_free = record.released or record.holder == self.holder  # that let it run out
        return is_free or now_s - self._seen[2] >= lasts_s

    def _lose(self) -> None:
        self._until_s, self._number = float("-inf"), 0

    def _now(self) -> str:
        return datetime.fromtimestamp(self._wall_clock(), UTC).isoformat(timespec="seconds")

    def _failed(self, error: OSError) -> StorageError:
        return StorageError(
            f"the lease cannot be taken or renewed: {error.strerror or error}",
            file=self._files.path,
            remedy="Name a folder that all processes may write to: where.lease",
        )
