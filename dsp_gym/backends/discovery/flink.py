"""What Flink's REST interface says of its running jobs."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from urllib.parse import quote

from dsp_gym.backends.discovery.found import (
    Backend,
    Edge,
    FoundJob,
    FoundPlace,
    FoundVertex,
    Note,
    rescale_account,
    says_window,
    window_in,
)
from dsp_gym.backends.flink.rest import ENDED, FlinkRest, JobSummary
from dsp_gym.backends.flink.submissions import shown
from dsp_gym.config.strict_json import Document, Json
from dsp_gym.errors import FlinkError, did_you_mean

_MIB = 2.0**20
_CLOCKS = ("accumulateBusyTimeMs", "accumulateBackPressuredTimeMs", "accumulateIdleTimeMs")
"""Together the time since a task started."""
_RATES = (
    "numRecordsInPerSecond",
    "numRecordsOutPerSecond",
    "busyTimeMsPerSecond",
    "numRecordsIn",
    "numRecordsOut",
    *_CLOCKS,
)
_OF_SOURCES = (
    "numRecordsInPerSecond",
    "numRecordsOutPerSecond",
    "numRecordsIn",
    "numRecordsOut",
)
"""Of source operators in a chain, in the order of trust."""
_METER_S = 60.0
"""Flink divides the records of the last minute by 60 s, however short a task has run."""
_LOOKS, _PAUSE_S = 6, 0.5
"""The JobManager fetches metrics when it is asked, and answers at first with older ones or none."""
_LEAST_STATE_BYTES_PER_TASK = 4096
"""Offsets of a source and empty operator state take less."""


def running_jobs(rest: FlinkRest, names: Sequence[str] = ()) -> list[JobSummary]:
    """The jobs of a cluster that have not ended.

    Args:
        rest: the cluster.
        names: of the wanted ones; none: all.

    Returns:
        The jobs in the order of their start.

    Raises:
        FlinkError: Flink does not answer, runs nothing, or nothing of a wanted name.
    """
    alive = [job for job in rest.jobs() if job.state not in ENDED]
    known = {job.name for job in alive}
    for name in names:
        if name not in known:
            raise FlinkError(
                f"{rest.url}: no job named '{shown(name)}' runs",
                reason="NotFound",
                remedy=did_you_mean(name, map(shown, known)),
            )
    if not alive:
        raise FlinkError(
            f"{rest.url}: no job runs there",
            reason="NotFound",
            remedy="Start one, or name another cluster: --flink URL",
        )
    wanted = [job for job in alive if not names or job.name in names]
    return sorted(wanted, key=lambda job: (job.start_s, job.id))


def found_by_rest(
    rest: FlinkRest, job_id: str, sleep: Callable[[float], None] = time.sleep
) -> FoundJob:
    """Look at one running job.

    Args:
        rest: the cluster.
        job_id: Flink's id of the job.
        sleep: waits that many seconds.

    Returns:
        What Flink says of it.

    Raises:
        FlinkError: Flink does not answer as it should.
    """
    with rest.reading():
        job: Document = dict(rest.job(job_id))
        nodes = {str(node["id"]): node for node in job["plan"]["nodes"]}
        checkpoint, state = _checkpointed(rest, job_id)
        settings = settings_of(rest)
        notes: list[Note] = []
        vertices = tuple(
            _vertex(rest, job_id, one, nodes[str(one["id"])], state, sleep)
            for one in _in_order(job["vertices"], nodes)
        )
        groups = {str(one.get("slotSharingGroupId", "")) for one in job["vertices"]}
        sharing = None if "" in groups else len(groups) < len(vertices)
        if sharing and len(groups) > 1:
            text = f"the vertices are in {len(groups)} slot sharing groups; modelled as one"
            notes.append(Note("slot_sharing", text))
        scheduler = settings.get("jobmanager.scheduler", "default").lower()
        return FoundJob(
            name=str(job["name"]),
            job_id=job_id,
            seen_at=rest.url,
            vertices=vertices,
            place=_place(rest, job_id, notes),
            backend=_backend(rest, job_id, settings),
            scheduler=scheduler,
            slot_sharing=sharing,
            savepoints=_folder_of_savepoints(settings),
            rescales=rescale_account(rest, job_id) if scheduler == "adaptive" else None,
            notes=(*notes, *_about_state(checkpoint)),
        )


def _in_order(vertices: Sequence[Document], nodes: Mapping[str, Document]) -> list[Document]:
    """Vertices such that every one stands after its inputs, as far as that goes."""
    waiting, done = list(vertices), []
    while waiting:
        ids = {str(one["id"]) for one in waiting}
        ready = [one for one in waiting if not ids & {e.from_id for e in _edges(nodes, one)}]
        done += ready or waiting
        waiting = [one for one in waiting if ready and one not in ready]
    return done


def _edges(nodes: Mapping[str, Document], vertex: Document) -> list[Edge]:
    found: dict[str, Edge] = {}
    for one in nodes[str(vertex["id"])].get("inputs") or ():
        edge = Edge(str(one["id"]), str(one.get("ship_strategy", "")))
        found.setdefault(edge.from_id, edge)  # a self-join has two of one vertex
    return list(found.values())


def _vertex(
    rest: FlinkRest,
    job_id: str,
    vertex: Document,
    node: Document,
    state: Mapping[str, float],
    sleep: Callable[[float], None],
) -> FoundVertex:
    told = f"{node.get('description', '')} {vertex['name']}"
    path = f"/jobs/{job_id}/vertices/{quote(str(vertex['id']), safe='')}/subtasks/metrics"
    known = [str(one["id"]) for one in _optional(rest, path) or ()]
    own = [
        one for one in known if one.startswith("Source__") and one.rpartition(".")[2] in _OF_SOURCES
    ]
    rates = _rates(rest, path, (*_RATES, *own), sleep) if known else {}
    rates |= _since_start(rates)
    tasks, most = int(vertex["parallelism"]), int(vertex.get("maxParallelism", 0))
    busy = rates.get("busyTimeMsPerSecond", (math.nan, math.nan))[1] / 1000.0
    size = state.get(str(vertex["id"]))
    window = window_in(told)
    return FoundVertex(
        id=str(vertex["id"]),
        task_name=str(vertex["name"]),
        parallelism=max(1, tasks),
        max_parallelism=most if most > 0 else None,
        inputs=tuple(_edges({str(node["id"]): node}, vertex)),
        window=window,
        says_window=window is None and says_window(told),
        busy_share=min(1.0, max(0.0, busy)) if math.isfinite(busy) else None,
        in_per_s=_read_per_s(rates),
        out_per_s=_known(rates.get("numRecordsOutPerSecond")),
        state_bytes=size if size and size > _LEAST_STATE_BYTES_PER_TASK * max(1, tasks) else None,
        has_rocksdb=any(".rocksdb_" in one or ".rocksdb." in one for one in known),
        pending=any(one.endswith(".pendingRecords") for one in known),
        partitions=_partitions(known),
    )


def _since_start(rates: Mapping[str, tuple[float, float]]) -> dict[str, tuple[float, float]]:
    """Rates of tasks that have run for less than a minute, from their counters."""
    ran_s = sum(rates.get(clock, (math.nan, math.nan))[1] for clock in _CLOCKS) / 1000.0
    if not 0 < ran_s < _METER_S:
        return {}
    return {
        rate: (rates[counter][0] / ran_s, rates[counter][1] / ran_s)
        for rate in rates
        if (counter := rate.removesuffix("PerSecond")) != rate and counter in rates
    }


def _known(rate: tuple[float, float] | None) -> float | None:
    """A sum over subtasks that is a number."""
    return rate[0] if rate is not None and math.isfinite(rate[0]) else None


def _read_per_s(rates: Mapping[str, tuple[float, float]]) -> float | None:
    """Records/s that a vertex takes in; of a source those that it reads itself.

    The task's own rate is that of its whole chain, so that of the source operators counts. Where
    they have counters alone, those of the chain's output say how much longer they count.
    """
    into, out = (_known(rates.get(f"numRecords{way}PerSecond")) for way in ("In", "Out"))
    if into:
        return into
    passed = _known(rates.get("numRecordsOut"))
    for end in _OF_SOURCES:
        values = [rates[one][0] for one in rates if one.endswith(f".{end}")]
        total = sum(value for value in values if math.isfinite(value))
        if total > 0 and end.endswith("PerSecond"):
            return total
        if total > 0 and passed and out is not None:
            return out * total / passed
    return into


def _rates(
    rest: FlinkRest, path: str, names: Sequence[str], sleep: Callable[[float], None]
) -> dict[str, tuple[float, float]]:
    """Sum and mean over subtasks; the second answer, as the first may be hours old."""
    found: dict[str, tuple[float, float]] = {}
    for look in range(_LOOKS):
        asked = ",".join(quote(name, safe="") for name in names)
        answer = _optional(rest, f"{path}?get={asked}") or ()
        found = {str(one["id"]): (float(one["sum"]), float(one["avg"])) for one in answer}
        if look > 0 and len(found) == len(names):
            break
        sleep(_PAUSE_S)
    return found


def _partitions(metrics: Sequence[str]) -> int | None:
    """Partitions of a source's log, or its splits, as far as its metrics are named after them."""
    kafka, splits = set(), set()
    for name in metrics:
        head, _, tail = name.partition(".topic.")
        topic, _, partition = tail.partition(".partition.")
        if tail and partition.split(".")[0].isdigit():
            kafka.add((topic, partition.split(".")[0]))
        split = name.partition(".split.")[2].split(".")[0]
        if split and head:
            splits.add(split)
    return len(kafka) or len(splits) or None


def _checkpointed(rest: FlinkRest, job_id: str) -> tuple[bool, dict[str, float]]:
    """Whether a checkpoint was completed, and the bytes of each vertex in the last one."""
    latest = ((_optional(rest, f"/jobs/{job_id}/checkpoints") or {}).get("latest")) or {}
    last = latest.get("completed")
    if not last:
        return False, {}
    details = _optional(rest, f"/jobs/{job_id}/checkpoints/details/{int(last['id'])}") or {}
    tasks: Mapping[str, Document] = details.get("tasks") or {}
    return True, {str(one): float(tasks[one].get("state_size", 0)) for one in tasks}


def _about_state(has_checkpoint: bool) -> tuple[Note, ...]:
    if has_checkpoint:
        return ()
    return (
        Note(
            "vertices",
            "the job has completed no checkpoint, so the size of its state is not known: turn on "
            "execution.checkpointing.interval, and discover again",
        ),
    )


def settings_of(rest: FlinkRest) -> dict[str, str]:
    """Ask for the JobManager's configuration.

    Returns:
        Values by option; empty where they are not shown.
    """
    return {
        str(one["key"]): str(one["value"]) for one in _optional(rest, "/jobmanager/config") or ()
    }


def _folder_of_savepoints(settings: Mapping[str, str]) -> str | None:
    """The option of Flink 2, and that of Flink 1."""
    names = ("execution.checkpointing.savepoint-dir", "state.savepoints.dir")
    return next((settings[name] for name in names if settings.get(name)), None)


def _backend(rest: FlinkRest, job_id: str, settings: Mapping[str, str]) -> Backend | None:
    """The job's own word first: it may set another than the cluster."""
    config = _optional(rest, f"/jobs/{job_id}/checkpoints/config") or {}
    for said in (config.get("state_backend"), settings.get("state.backend.type"),
                 settings.get("state.backend")):  # fmt: skip
        word = str(said or "").lower()
        if "rocksdb" in word or "forst" in word:
            return "rocksdb"
        if "hashmap" in word or "heap" in word or "memory" in word or "filesystem" in word:
            return "heap"
    return None


def _place(rest: FlinkRest, job_id: str, notes: list[Note]) -> FoundPlace:
    managers: Sequence[Document] = (_optional(rest, "/taskmanagers") or {}).get(
        "taskmanagers"
    ) or ()
    managers = [one for one in managers if int(one.get("slotsNumber", 0)) > 0]
    if not managers:
        return FoundPlace()
    sizes = {(one["slotsNumber"], _memory(one, "totalProcessMemory")) for one in managers}
    if len(sizes) > 1:
        text = f"the cluster has TaskManagers of {len(sizes)} sizes; these are of one of them"
        notes.append(Note("taskmanager", text))
    first = managers[0]
    slots = int(first["slotsNumber"])
    given = _allocated(rest, job_id, managers)
    managed = tuple(sorted({mib for one in given if (mib := float(one["managedMemory"])) > 0}))
    if not given:
        managed = (_memory(first, "managedMemory") / slots,)
    heaps = [float(one["taskHeapMemory"]) for one in given]
    cores = float((first.get("totalResource") or {}).get("cpuCores", 0.0))
    return FoundPlace(
        slots=slots,
        cores=cores if cores > 0 else None,
        memory_mib=_memory(first, "totalProcessMemory") or None,
        managed_mib=tuple(mib for mib in managed if mib > 0),
        heap_mib=sorted(heaps)[len(heaps) // 2] if heaps else _memory(first, "taskHeap") / slots,
        network_mib=_memory(first, "networkMemory") / slots,
        slots_total=sum(int(one["slotsNumber"]) for one in managers),
    )


def _allocated(rest: FlinkRest, job_id: str, managers: Sequence[Document]) -> list[Document]:
    """What each slot of the job was given, MiB; with fine-grained resources they differ."""
    found: list[Document] = []
    for one in managers:
        details = _optional(rest, f"/taskmanagers/{quote(str(one['id']), safe='')}") or {}
        for slot in details.get("allocatedSlots") or ():
            resource = slot.get("resource") or {}
            if slot.get("jobId") == job_id and "managedMemory" in resource:
                found.append({"taskHeapMemory": 0.0} | resource)
    return found


def _memory(manager: Document, name: str) -> float:
    """A part of a TaskManager's memory, MiB."""
    return float((manager.get("memoryConfiguration") or {}).get(name, 0)) / _MIB


def _optional(rest: FlinkRest, path: str) -> Json:
    """An answer; None where this release, or this account, does not show it."""
    try:
        return rest.get(path)
    except FlinkError as error:
        if error.reason in ("Unreachable", "Timeout"):
            raise
        return None
