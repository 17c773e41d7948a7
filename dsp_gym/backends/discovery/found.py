"""What was found of a running job, windows in the names of its operators included.

None stands for what nobody said.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from dsp_gym.backends.flink.rest import FlinkRest
from dsp_gym.config.strict_json import Document
from dsp_gym.errors import FlinkError

FEW = 3
"""Fewest completed rescales whose durations stand for those to come, the job's start among them."""

_LONGEST_S = 86_400.0


@dataclass(frozen=True, slots=True)
class RescaleAccount:
    """The completed rescales of a job since it started."""

    completed: int  # its first start among them
    failed: int
    shortest_s: float  # from the cause to the new configuration; 0 where none was completed
    median_s: float
    p90_s: float
    last_s: float | None  # of the latest that was completed; None: there was none

    @property
    def outage_s(self) -> tuple[float, float, float] | None:
        """Durations as a job file has them, the shortest for p10; None where there are too few."""
        if self.completed < FEW or self.p90_s <= 0:
            return None
        return self.shortest_s, self.median_s, self.p90_s


def rescale_account(rest: FlinkRest, job_id: str) -> RescaleAccount | None:
    """Flink's account of the rescales of a job.

    Args:
        rest: the cluster.
        job_id: Flink's id of the job.

    Returns:
        The account; None where Flink keeps none: before 2.3, under another scheduler, or switched
        off.

    Raises:
        FlinkError: Flink does not answer, or answers what it never writes.
    """
    try:
        summary = rest.get(f"/jobs/{job_id}/rescales/summary")
        overview = rest.get(f"/jobs/{job_id}/rescales/overview")
    except FlinkError as error:
        if error.reason == "NotFound":
            return None
        raise
    with rest.reading():
        counts = _object(summary, "rescalesCounts")
        took = _object(summary, "completedRescalesDurationStatsInMillis")
        last = _object(overview, "latest").get("completed")
        found = RescaleAccount(
            completed=_count(counts, "completed"),
            failed=_count(counts, "failed"),
            shortest_s=_duration_s(took, "min"),
            median_s=_duration_s(took, "p50"),
            p90_s=_duration_s(took, "p90"),
            last_s=None if last is None else _between(last),
        )
        if not found.shortest_s <= found.median_s <= found.p90_s:
            raise ValueError(f"durations of rescales do not rise: {took!r}")
        return found


def _object(document: object, key: str) -> Document:
    if not isinstance(document, dict) or not isinstance(document[key], dict):
        raise TypeError(f"'{key}' is no object")
    found: Document = document[key]
    return found


def _count(document: Document, key: str) -> int:
    value = document[key]
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"'{key}' is {value!r}, expected a count")
    return value


def _duration_s(document: Document, key: str) -> float:
    """Of milliseconds; Flink writes "NaN" for the quantiles of nothing."""
    value = document[key]
    if value == "NaN":
        return 0.0
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"'{key}' is {value!r}, expected milliseconds")
    seconds = float(value) / 1000.0
    if not 0 <= seconds <= _LONGEST_S:
        raise ValueError(f"'{key}' is {value!r} ms, expected up to a day")
    return seconds


def _between(rescale: object) -> float | None:
    """How long one rescale took; None where it has not ended."""
    if not isinstance(rescale, dict):
        raise TypeError("'completed' is no object")
    begun, ended = rescale["startTimestampInMillis"], rescale["endTimestampInMillis"]
    return None if ended is None else _duration_s({"took": ended - begun}, "took")


Kind = Literal["tumbling", "sliding", "session"]

_SECONDS = {"ms": 1e-3, "s": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_UNITS = {"milli": 1e-3, "second": 1.0, "minute": 60.0, "hour": 3600.0, "day": 86_400.0}
_SPAN = r"\s*+\[?\s*+([0-9.]+\s*[A-Za-z]+)"
_STREAM: tuple[tuple[Kind, re.Pattern[str]], ...] = (
    ("tumbling", re.compile(r"Tumbling(?:Event|Processing)TimeWindows\((\d+)")),
    ("sliding", re.compile(r"Sliding(?:Event|Processing)TimeWindows\((\d+),\s*(\d+)")),
    ("session", re.compile(r"(?:Event|Processing)TimeSessionWindows\((\d+)")),
)
"""DataStream: milliseconds."""
_SIZE, _SLIDE = re.compile(f"size={_SPAN}"), re.compile(f"slide={_SPAN}")
_TABLE: tuple[tuple[Kind, str, tuple[re.Pattern[str], ...]], ...] = (
    ("tumbling", "TUMBLE(", (_SIZE,)),
    ("sliding", "HOP(", (_SIZE, _SLIDE)),
    ("session", "SESSION(", (re.compile(f"gap={_SPAN}"),)),
    ("tumbling", "CUMULATE(", (re.compile(f"max_size={_SPAN}"),)),
)
"""SQL and Table API: spans with a unit, each after the one before."""
_MOST = 20_000


@dataclass(frozen=True, slots=True)
class FoundWindow:
    """A window and its lengths in seconds."""

    kind: Kind
    length_s: float  # of a session its gap
    slide_s: float | None = None


def window_in(text: str) -> FoundWindow | None:
    """The window that an operator's description names.

    Args:
        text: description or name, as Flink's plan has it.

    Returns:
        The first window; None where none, or no length, is named.

    >>> window_in("Window(SlidingEventTimeWindows(10000, 2000), EventTimeTrigger, Count)")
    FoundWindow(kind='sliding', length_s=10.0, slide_s=2.0)
    >>> window_in("WindowAggregate(window=[TUMBLE(time_col=[t], size=[1 min])])").length_s
    60.0
    """
    text = text[:_MOST]
    for kind, pattern in _STREAM:
        found = pattern.search(text)
        if found is not None:
            return _window(kind, [float(span) / 1000.0 for span in found.groups()])
    for kind, function, patterns in _TABLE:
        spans = _spans(text, function, patterns)
        if spans:
            return _window(kind, spans)
    return None


def says_window(text: str) -> bool:
    """Whether a name speaks of a window, with or without its length.

    Returns:
        True where the word is in it.
    """
    return (
        re.search(r"window|session|tumbl|sliding|\bHOP\b", text[:_MOST], re.IGNORECASE) is not None
    )


def _spans(text: str, function: str, patterns: Sequence[re.Pattern[str]]) -> list[float]:
    """The spans after the name of a function, s; none where one of them is not there."""
    at = text.find(function)
    spans: list[float] = []
    for pattern in patterns if at >= 0 else ():
        found = pattern.search(text, at)
        if found is None:
            return []
        spans.append(_seconds(found[1]))
        at = found.end()
    return spans


def _window(kind: Kind, spans: list[float]) -> FoundWindow | None:
    if not all(0 < span < 1e9 for span in spans):
        return None
    slide_s = min(spans[1], spans[0]) if kind == "sliding" else None
    return FoundWindow(kind, spans[0], slide_s)


def _seconds(span: str) -> float:
    """A span such as `10 s` or `5 minutes`; 0 for one that is not known."""
    number, unit = re.fullmatch(r"([0-9.]+)\s*([A-Za-z]+)", span.strip()).groups()  # type: ignore[union-attr]  # the pattern that found it has both
    try:
        value = float(number)
    except ValueError:
        return 0.0
    long = next((s for name, s in _UNITS.items() if unit.lower().startswith(name)), 0.0)
    return value * (_SECONDS.get(unit.lower()) or long)


Backend = Literal["rocksdb", "heap"]
"""Where keyed state is kept; ForSt counts as RocksDB, whose memory it shares the rules of."""


@dataclass(frozen=True, slots=True)
class Note:
    """Something the reader of a job file must know about one of its keys."""

    key: str  # dotted, such as `memory.base_mib` or `vertices.map.state`
    text: str


@dataclass(frozen=True, slots=True)
class Edge:
    """One incoming edge."""

    from_id: str
    ship: str  # Flink's word


@dataclass(frozen=True, slots=True)
class FoundVertex:
    """One vertex of a running job."""

    id: str
    task_name: str
    parallelism: int
    max_parallelism: int | None = None
    inputs: tuple[Edge, ...] = ()
    window: FoundWindow | None = None
    says_window: bool = False  # its name has the word, and no length
    busy_share: float | None = None  # mean over subtasks, 0..1
    in_per_s: float | None = None  # of a source: what it reads itself
    out_per_s: float | None = None
    state_bytes: float | None = None  # of its last checkpoint
    has_rocksdb: bool | None = None
    pending: bool | None = None  # a source that reports pendingRecords
    arrived_per_s: float | None = None  # read, and waiting longer and longer, over the same time
    partitions: int | None = None

    @property
    def read_per_s(self) -> float | None:
        """Records/s taken in; of a source that counts no input those it gives out."""
        return self.in_per_s or (self.in_per_s if self.inputs else self.out_per_s)

    @property
    def arriving_per_s(self) -> float | None:
        """Records/s that arrive at a source: what it reads and what waits longer and longer.

        After a restart a source reads what came meanwhile, too, which is no part of the load.
        """
        return self.arrived_per_s or self.read_per_s


@dataclass(frozen=True, slots=True)
class FoundPlace:
    """What one TaskManager and its slots have; MiB everywhere."""

    slots: int | None = None
    cores: float | None = None
    memory_mib: float | None = None
    managed_mib: tuple[float, ...] = ()  # of the slots of the job, or of every slot
    heap_mib: float | None = None  # of one slot
    network_mib: float | None = None  # of one slot
    slots_total: int | None = None  # of the cluster


@dataclass(frozen=True, slots=True)
class FoundJob:
    """One running job."""

    name: str  # in Flink; any text at all
    job_id: str
    seen_at: str  # who said so, for the head of the file
    vertices: tuple[FoundVertex, ...]
    place: FoundPlace = field(default_factory=FoundPlace)
    backend: Backend | None = None
    scheduler: str | None = None  # Flink's word
    slot_sharing: bool | None = None
    rescales: RescaleAccount | None = None
    notes: tuple[Note, ...] = ()
    savepoints: str | None = None  # the cluster's own folder for them
    resource: str | None = None  # on Kubernetes, such as "FlinkDeployment NAMESPACE/NAME"
