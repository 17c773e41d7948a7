"""The last rescale of a journal, as far as its steps were written: what a restart takes up."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from dsp_gym.config.strict_json import MISFITS, parse_json
from dsp_gym.records.base import Body
from dsp_gym.records.journal import segments_of
from dsp_gym.redaction import HIDDEN

_SEGMENTS = 2
"""Segments that are looked through, the newest first: about four days of one job."""

_NEEDED = frozenset(("job_id", "trigger_id", "next_id", "arguments", "slot_sharing"))
"""What the intent to stop a job must hold for another process to go on with it."""

_ENDS = frozenset(("reached", "restored", "left", "recovered"))


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A rescale whose end no step shows."""

    t_s: float  # when it was asked for, Unix seconds
    asked: Body  # `from`, `to`, and what decided it
    stopping: Body | None = None  # the intent to stop the job; None: it was not to be stopped yet
    savepoint: Body | None = None  # where the state is, once it was written
    is_submitted: bool = False
    has_failed: bool = False  # it was being taken back
    has_alarmed: bool = False  # a person was called

    @property
    def can_be_taken_up(self) -> bool:
        """Whether its intent says all of it: no secret argument, and no earlier release's."""
        if self.stopping is None or not self.stopping.keys() >= _NEEDED:
            return False
        arguments = self.stopping["arguments"]
        return isinstance(arguments, dict) and HIDDEN not in arguments.values()

    @property
    def location(self) -> str | None:
        """The savepoint; None where none was recorded."""
        return None if self.savepoint is None else str(self.savepoint["location"])

    def after(self, event: str, body: Body) -> Self | None:
        """Take in the next step.

        Returns:
            What is known then; None once the rescale has ended.
        """
        if event in _ENDS:
            return None
        if event == "stopping":
            return replace(self, stopping=body)
        if event == "savepoint":
            return replace(self, savepoint=body)
        if event == "submitted":
            return replace(self, is_submitted=True)
        if event == "alarm":
            return replace(self, has_alarmed=True)
        if event == "failed":
            touched = self.stopping is not None or self.is_submitted
            return replace(self, has_failed=True) if touched else None
        return self


def unfinished(folder: str | Path) -> Unfinished | None:
    """Look for a rescale that was begun and has no end.

    Args:
        folder: of a journal that nobody else writes.

    Returns:
        The last rescale; None where it came to an end, or where there was none.
    """
    found: Unfinished | None = None
    for t_s, body in _steps(Path(folder)):
        event = str(body["event"])
        if event == "asked":
            found = Unfinished(t_s, body)
        elif found is not None:
            found = found.after(event, body)
    return found


def savepoints_left(folder: str | Path) -> list[str]:
    """List savepoints of a journal that nothing has disposed of.

    Returns:
        Locations, the oldest first; the last is the one that the running job was started from.
    """
    left: dict[str, None] = {}
    for _, body in _steps(Path(folder)):
        if body["event"] == "savepoint" and "location" in body:
            left[str(body["location"])] = None
        elif body["event"] == "disposed":
            left.pop(str(body.get("savepoint")), None)
    return list(left)


def submitted_ids(folder: str | Path) -> frozenset[str]:
    """List the ids under which a journal's rescales submitted the job again.

    Returns:
        Flink's ids.
    """
    return frozenset(
        str(body["job_id"])
        for _, body in _steps(Path(folder))
        if body["event"] == "submitted" and "job_id" in body
    )


def _steps(folder: Path) -> Iterator[tuple[float, Body]]:
    """Steps of actuators in the newest segments, with their times."""
    for segment in segments_of(folder)[-_SEGMENTS:]:
        with segment.open("rb") as stream:
            yield from _of_lines(stream)


def _of_lines(lines: Iterable[bytes]) -> Iterator[tuple[float, Body]]:
    """Opening the journal has checked the newest segment; other damage is left out here."""
    for line in lines:
        if b'"kind":"actuation"' not in line:
            continue
        try:
            document = parse_json(line)
            body, t_s = document["body"], float(document["t_s"])
        except MISFITS:
            continue
        if isinstance(body, dict) and "event" in body:
            yield t_s, body
