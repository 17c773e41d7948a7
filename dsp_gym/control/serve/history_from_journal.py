"""What a journal says of the last hours, so that the curves go on after a restart."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from dsp_gym.config.strict_json import MISFITS
from dsp_gym.records.journal import segments_of

MOST_BYTES = 16 * 2**20
"""Bytes of the journal's end that are read: some hours, within a part of a second."""

TAIL = 400
"""Bytes at the end of a line that hold its kind: its keys are sorted, the body comes first."""


class PastDecision(NamedTuple):
    """One decision of the acting policy, as documents of the wire."""

    snapshot: Mapping[str, Any]
    guard: Mapping[str, Any] | None


def past_decisions(folder: Path, job: str, acting: str, most: int) -> list[PastDecision]:
    """Read the last decisions in a journal.

    A line that cannot be read is left out: curves are for people, and the journal has its own
    checks.

    Args:
        folder: the journal's.
        job: name of the job.
        acting: name of the acting policy.
        most: decisions.

    Returns:
        Decisions in the order of the journal.
    """
    found: list[PastDecision] = []
    for kind, policy, body in _entries(folder, job):
        if kind == "snapshot":
            found.append(PastDecision(body, None))
        elif policy == acting and found:
            found[-1] = found[-1]._replace(guard=body)
    return found[-most:]


def _entries(folder: Path, job: str) -> Iterator[tuple[str, str | None, Mapping[str, Any]]]:
    for line in _lines(folder):
        end = line[-TAIL:]
        if b'"kind":"snapshot"' in end or b'"kind":"guard"' in end:
            with contextlib.suppress(ValueError, *MISFITS):
                entry = json.loads(line)
                if entry["job"] == job:
                    yield entry["kind"], entry["policy"], entry["body"]


def _lines(folder: Path) -> Iterator[bytes]:
    """Read whole lines at the end of the journal."""
    parts, left = [], MOST_BYTES
    for segment in reversed(segments_of(folder)):
        with contextlib.suppress(OSError), segment.open("rb") as stream:
            size = stream.seek(0, 2)
            stream.seek(max(0, size - left))
            if size > left:
                stream.readline()  # the rest of a line
            parts.append(stream.read())
            left -= size
        if left <= 0:
            break
    for part in reversed(parts):
        yield from part.splitlines(keepends=True)
