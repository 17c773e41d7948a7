"""What was found of a running job; None stands for what nobody said."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from dsp_gym.backends.discovery.windows import FoundWindow
from dsp_gym.backends.flink.rescales import RescaleAccount

__all__ = ["Backend", "Edge", "FoundJob", "FoundVertex", "Note", "FoundPlace"]

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
    in_per_s: float | None = None
    out_per_s: float | None = None
    state_bytes: float | None = None  # of its last checkpoint
    has_rocksdb: bool | None = None
    pending: bool | None = None  # a source that reports pendingRecords
    partitions: int | None = None


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
    edges_guessed: bool = False
    rescales: RescaleAccount | None = None
    notes: tuple[Note, ...] = ()
