"""Snapshots as they are sent, read without making Python objects of what does not move.

Graph, bounds and prices of a job are in every `dsp-gym/snapshot/1` and hardly ever change. Where
they are the same bytes as in the snapshot before, only metrics and running configuration are read.
Everything else is left to `SnapshotReader`, which refuses in words.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Any

import msgspec

from dsp_gym.config.model import ConfigModel
from dsp_gym.loop.documents import (
    JOB_METRICS,
    VERTEX_METRICS,
    SnapshotDocument,
    VertexDocument,
)
from dsp_gym.loop.snapshot import MetricsSnapshot, Status
from dsp_gym.loop.snapshot_stream import LATEST_S, Known, ReadRow, SnapshotReader
from dsp_gym.loop.wire import Document

DecodedSnapshot = Any
"""A snapshot as msgspec reads it: the fields of `SnapshotDocument`."""

Fixed = tuple[bytes, ...]
"""The bytes of all that is fixed about a job, but for its name."""

_MOVING = ("job", "t_s", "status", "metrics", "vertices")
_MOVING_OF_VERTEX = ("name", "parallelism", "memory_level", "metrics")
_STATUSES = frozenset(Status.__members__)
_NONE = msgspec.Raw(b"")
_UNSET = (b"", b"null")


def _fixed_names(model: type[ConfigModel], moving: tuple[str, ...]) -> list[str]:
    """List the fields of a document that stay as they are, as they stand in JSON."""
    names = [field.alias or name for name, field in model.model_fields.items()]
    return [name for name in names if name not in moving]


def _metrics(name: str, names: tuple[str, ...]) -> Any:
    fields = [(metric, float | None, None) for metric in names]
    return msgspec.defstruct(name, fields, forbid_unknown_fields=True, gc=False)


_OF_JOB = _fixed_names(SnapshotDocument, _MOVING)
_OF_VERTEX = _fixed_names(VertexDocument, _MOVING_OF_VERTEX)
_JobMetrics = _metrics("JobMetrics", JOB_METRICS)
_VertexMetrics = _metrics("VertexMetrics", VERTEX_METRICS)

_SentVertex: Any = msgspec.defstruct(
    "SentVertex",
    [
        ("name", str),
        ("parallelism", int),
        ("metrics", _VertexMetrics),
        ("memory_level", int, -1),
        *((name, msgspec.Raw, _NONE) for name in _OF_VERTEX),
    ],
    forbid_unknown_fields=True,
)
_Sent: Any = msgspec.defstruct(
    "Sent",
    [
        ("job", str),
        ("t_s", float),
        ("status", str),
        ("metrics", _JobMetrics),
        ("vertices", list[_SentVertex]),
        *((name, msgspec.Raw, _NONE) for name in _OF_JOB),
    ],
    forbid_unknown_fields=True,
)
_DECODER = msgspec.json.Decoder(_Sent)
_fixed_of_job = attrgetter(*_OF_JOB)
_fixed_of_vertex = attrgetter(*_OF_VERTEX)
_values = msgspec.structs.astuple


def decode(body: bytes) -> DecodedSnapshot | None:
    """Read a body.

    Args:
        body: JSON.

    Returns:
        The snapshot; None where it needs a closer look.
    """
    try:
        return _DECODER.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _fixed(found: DecodedSnapshot) -> Fixed:
    """Collect what is fixed, as it was sent."""
    vertices = found.vertices
    fixed = [*map(bytes, _fixed_of_job(found))]
    for vertex in vertices:
        fixed += vertex.name.encode(), *map(bytes, _fixed_of_vertex(vertex))
        if bytes(vertex.start_parallelism) in _UNSET:  # the running parallelism stands in for it
            fixed.append(b"%d" % vertex.parallelism)
    return tuple(fixed)


class SnapshotDecoder:
    """Reads the bodies of one job.

    Args:
        where: their origin, for errors.
    """

    def __init__(self, where: str) -> None:
        self._reader = SnapshotReader(where)
        self.fixed: Fixed | None = None

    @property
    def known(self) -> Known | None:
        """What is known of the job."""
        return self._reader.known

    def read(self, document: Document, found: DecodedSnapshot | None) -> MetricsSnapshot:
        """Read the next snapshot of the job, and check all of it.

        Args:
            document: what the body says.
            found: what `decode` made of it.

        Returns:
            A snapshot of one row.

        Raises:
            SchemaError: The document is none, or contradicts itself.
        """
        snapshot = self._reader.read(document)
        if found is None:  # what is fixed may have changed
            self.fixed = None
        elif self.row(found) is None:
            self.fixed = _fixed(found)
        return snapshot

    def row(self, found: DecodedSnapshot) -> ReadRow | None:
        """Read what moved in a snapshot of which all else is the same.

        Args:
            found: what `decode` made of a body.

        Returns:
            Its values; None where it needs a closer look.
        """
        known = self._reader.known
        if known is None or self.fixed is None or _fixed(found) != self.fixed:
            return None
        vertices = found.vertices
        running = [(vertex.parallelism, vertex.memory_level) for vertex in vertices]
        if not (abs(found.t_s) < LATEST_S and found.status in _STATUSES) or not all(
            1 <= tasks <= most and -1 <= level <= highest
            for (tasks, level), (most, highest) in zip(running, known.bounds, strict=True)
        ):
            return None
        of_vertices = [_values(vertex.metrics) for vertex in vertices]
        return ReadRow(found.t_s, found.status, _values(found.metrics), of_vertices, running)
