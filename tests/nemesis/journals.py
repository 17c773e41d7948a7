"""What a journal that is being written holds, read on from where it was read last."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from dsp_gym.records.base import Body
from dsp_gym.records.journal import read, segments_of

__all__ = ["Tail"]


class Tail:
    """Follows one journal.

    A process may cut off what it has written without the disk's word for it, after a fault of the
    disk; then all of it is read again.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._forget()

    def take_in(self) -> None:
        """Read what was written since."""
        if not self.folder.is_dir():
            return
        try:
            self._read_on()
        except ValueError:
            self._forget()
            self._read_on()

    def check(self) -> None:
        """Read all of it as any reader does: every line whole, numbers without gaps.

        Raises:
            DspGymError: It cannot be read.
        """
        if self.folder.is_dir() and segments_of(self.folder):
            for _ in read(self.folder):
                pass

    def _forget(self) -> None:
        self.kinds: Counter[str] = Counter()
        """Entries of each kind."""
        self.steps: list[Body] = []
        """Steps of the actuator, in order."""
        self.statuses: list[str] = []
        """What the job was at each of these steps, as it was seen last; empty: not seen yet."""
        self._status = ""
        self._offsets: Counter[str] = Counter()
        self._seq = 0

    def _read_on(self) -> None:
        for segment in segments_of(self.folder):
            offset = self._offsets[segment.name]
            with segment.open("rb") as stream:
                if stream.seek(0, 2) < offset:
                    raise ValueError("the segment is shorter than it was")
                stream.seek(offset)
                for line in stream:
                    if not line.endswith(b"\n"):
                        break
                    self._take(json.loads(line))
                    self._offsets[segment.name] += len(line)

    def _take(self, entry: Body) -> None:
        if entry["seq"] != self._seq:
            raise ValueError(f"entry {entry['seq']} follows {self._seq - 1}")
        self._seq += 1
        self.kinds[entry["kind"]] += 1
        if entry["kind"] == "snapshot":
            self._status = str(entry["body"].get("status", ""))
        elif entry["kind"] == "actuation":
            self.steps.append(entry["body"])
            self.statuses.append(self._status)
