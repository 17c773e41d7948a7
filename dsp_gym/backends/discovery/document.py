"""A job file for what was found: numbers with their source, comments for what was not found."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from dsp_gym.backends.discovery.found import FoundJob, FoundVertex, Note
from dsp_gym.backends.discovery.names import vertex_names
from dsp_gym.backends.flink.submissions import moment, shown
from dsp_gym.config import files
from dsp_gym.config.strict_yaml import dump_yaml, parse_yaml
from dsp_gym.errors import DspGymError, FlinkError
from dsp_gym.job.deployment import IN_PLACE_S
from dsp_gym.job.spec import MAX_INPUTS, JobSpec, Prices, Slo
from dsp_gym.redaction import redacted

_ASSUMED_US, _ASSUMED_PER_S = 10.0, 1000.0
_ENTRY_BYTES, _ASSUMED_KEYS = 100.0, 10_000.0
_ACCESS_US = 10.0
_MOST_TASKS = 2048
_SAME = 0.02
"""Relative difference of two rates of one source that scrapes at two moments explain."""
_SHIPS = {"FORWARD": "FORWARD", "HASH": "HASH", "REBALANCE": "REBALANCE", "RESCALE": "REBALANCE"}
_FIT = "fit it: dsp-gym calibrate URL --job THIS-FILE"
_LEAST_SHARE = 1e-6
_MEASURED = "measured by Flink over the last minute"


@dataclass(frozen=True, slots=True)
class Choices:
    """What nobody can look up."""

    slo: Slo = field(default_factory=Slo)
    prices: Prices = field(default_factory=Prices)


@dataclass(frozen=True, slots=True)
class Written:
    """A job file, not yet on disk."""

    stem: str
    found: FoundJob
    spec: JobSpec
    text: str
    notes: tuple[Note, ...]  # what was not found, or was found otherwise than it can be modelled


def job_file(found: FoundJob, stem: str, choices: Choices, now_s: float) -> Written:
    """Write down what was found of a job.

    Args:
        found: the job.
        stem: name of the job file, which is the job's name in it.
        choices: what nobody can look up.
        now_s: Unix seconds, for the head of the file.

    Returns:
        The file's text, which reads as a job file.

    Raises:
        FlinkError: A job file cannot describe such a job.
    """
    _refuse(found)
    names, lost = vertex_names([vertex.task_name for vertex in found.vertices])
    draft = _Draft(found, dict(zip([v.id for v in found.vertices], names, strict=True)), choices)
    draft.notes += found.notes
    if not all(_has_id(vertex) for vertex in found.vertices):
        for task in lost:
            draft.say(
                "vertices",
                f"no name tells the task '{shown(task)}' from the others, and its id is not "
                "known: discover it from Flink, --flink URL, or let Prometheus keep the label "
                "task_id",
            )
    document = draft.document(stem)
    text = _text(document, draft.notes, _head(found, stem, now_s))
    try:
        spec = files.parse(JobSpec, parse_yaml(text, file=stem), stem)
    except DspGymError as error:
        raise FlinkError(
            f"the job '{shown(found.name)}' cannot be described by a job file: {error.message}",
            reason="Unsupported",
            remedy=error.remedy,
        ) from error
    return Written(stem, found, spec, text, tuple(draft.notes))


def _refuse(found: FoundJob) -> None:
    """Refuse what the model has no room for."""
    why, remedy = None, None
    crowded = [v for v in found.vertices if len(v.inputs) > MAX_INPUTS]
    if len(found.vertices) < 2:
        why = "all its operators are chained into one vertex, and the model needs two or more"
        remedy = (
            "Break the chain: .disableChaining() behind the source, or "
            "pipeline.operator-chaining.enabled: false."
        )
    elif crowded:
        why = (
            f"its vertex '{shown(crowded[0].task_name)}' has {len(crowded[0].inputs)} inputs, "
            f"{MAX_INPUTS} are the most"
        )
    if why is not None:
        raise FlinkError(
            f"the job '{shown(found.name)}' is not written: {why}",
            reason="Unsupported",
            remedy=remedy,
        )


class _Draft:
    """The sections of one job file, and what has to be said about them."""

    def __init__(self, found: FoundJob, names: dict[str, str], choices: Choices) -> None:
        self.found, self.names, self.choices = found, names, choices
        self.notes: list[Note] = []
        self._read = {edge.from_id for vertex in found.vertices for edge in vertex.inputs}

    def say(self, key: str, text: str) -> None:
        self.notes.append(Note(key, text))

    def document(self, stem: str) -> dict[str, Any]:
        """The job file as data, in the order of a job file."""
        sources = [vertex for vertex in self.found.vertices if not vertex.inputs]
        return {
            "job": stem,
            "description": f"Discovered: {len(self.found.vertices)} vertices of a running job.",
            "source": self._source(sources),
            "vertices": [self._vertex(vertex, sources) for vertex in self.found.vertices],
            "memory": self._memory(),
            "taskmanager": self._taskmanager(),
            "slot_sharing": self._slot_sharing(),
            "max_parallelism_per_vertex": self._most_tasks(),
            "rescale": self._rescale(),
            "slo": {"latency_s": float(self.choices.slo.latency_s)},
            "prices": {
                "currency": self.choices.prices.currency,
                "core_hour": float(self.choices.prices.core_hour),
                "gib_hour": float(self.choices.prices.gib_hour),
            },
        }

    def _source(self, sources: Sequence[FoundVertex]) -> dict[str, Any]:
        rates = [vertex.arriving_per_s for vertex in sources]
        pending = [vertex.pending for vertex in sources]
        total = sum(rate for rate in rates if rate)
        if not total:
            self.say(
                "source.rate_per_s",
                "no rate of the sources was found: look at numRecordsInPerSecond of the sources "
                "in Flink's web page, and write their sum here",
            )
        section: dict[str, Any] = {
            "rate_per_s": _sourced(total, _MEASURED)
            if total
            else _sourced(_ASSUMED_PER_S, "assumption: nothing was measured")
        }
        if not any(pending):
            section["log"] = False
            self.say(
                "source.log",
                "no source reports pendingRecords, so the job is taken for one whose load is not "
                "kept while it is down; a source that reads Kafka or another log: log: true",
            )
        return section

    def _vertex(self, vertex: FoundVertex, sources: Sequence[FoundVertex]) -> dict[str, Any]:
        name = self.names[vertex.id]
        kind = "operator" if vertex.id in self._read else "sink"
        kind = kind if vertex.inputs else "source"
        section: dict[str, Any] = {"name": name}
        if _has_id(vertex):
            section["vertex_id"] = vertex.id
        if kind != "operator":
            section["kind"] = kind
        if vertex.inputs:
            section["inputs"] = [self._input(name, e.from_id, e.ship) for e in vertex.inputs]
        total = sum(one.arriving_per_s or 0.0 for one in sources)
        if kind == "source" and len(sources) > 1 and total:
            # One that is idle or has ended: no share would mean an equal one.
            share = (vertex.arriving_per_s or 0.0) / total
            section["share"] = _rounded(max(_LEAST_SHARE, share))
        if kind == "operator" or (kind == "source" and _passes_on(vertex)):
            section["selectivity"] = self._selectivity(name, vertex)
        cost_us = self._cost_us(name, vertex, kind)
        state = self._state(name, vertex, kind, cost_us)
        if state is not None and "reads" in state:
            cost_us -= state["read_hit_us"] + state["write_us"]
        measured = any(n.key == f"vertices.{name}.cpu_us_per_record" for n in self.notes)
        text = "assumption: nothing was measured" if measured else f"{_MEASURED}, not fitted"
        section["cpu_us_per_record"] = _sourced(cost_us, text)
        if state is not None:
            section["state"] = state
        section |= self._bounds(name, vertex, kind)
        return section

    def _input(self, name: str, from_id: str, ship: str) -> dict[str, str]:
        if ship and ship not in _SHIPS:
            self.say(
                f"vertices.{name}.inputs",
                f"Flink ships {shown(ship)} there, which is modelled as REBALANCE",
            )
        return {"from": self.names[from_id], "ship": _SHIPS.get(ship, "REBALANCE")}

    def _selectivity(self, name: str, vertex: FoundVertex) -> object:
        if vertex.in_per_s and vertex.out_per_s is not None:
            return _sourced(vertex.out_per_s / vertex.in_per_s, _MEASURED)
        self.say(
            f"vertices.{name}.selectivity",
            "records out per record in were not found: numRecordsOut / numRecordsIn of the vertex "
            f"in Flink's web page, or {_FIT}",
        )
        return 1.0

    def _cost_us(self, name: str, vertex: FoundVertex, kind: str) -> float:
        """Microseconds of one task per record, state access included."""
        rate = vertex.read_per_s
        if rate and vertex.busy_share:
            return vertex.busy_share * vertex.parallelism / rate * 1e6
        why = "it took no record" if not rate else "it was never busy"
        if vertex.busy_share is None:
            why = "Flink shows no busy time of it"
        self.say(
            f"vertices.{name}.cpu_us_per_record",
            f"the time per record was not found, {why}: discover again under load, or {_FIT}",
        )
        return _ASSUMED_US

    def _state(
        self, name: str, vertex: FoundVertex, kind: str, cost_us: float
    ) -> dict[str, Any] | None:
        key = f"vertices.{name}.state"
        if vertex.says_window:
            self.say(
                key,
                "its name speaks of a window, but no length was found: write window: {kind: "
                "tumbling, sliding or session, length_s: N} into its state, from the program",
            )
        has = vertex.state_bytes or vertex.has_rocksdb or vertex.window
        if not has or (kind == "source" and not vertex.has_rocksdb):
            return None
        size = vertex.state_bytes
        state: dict[str, Any] = {}
        if self.found.backend != "heap":
            each_us = min(_ACCESS_US, cost_us / 4.0)
            state |= {"reads": 1, "writes": 1, "read_hit_us": _rounded(each_us)}
            state["write_us"] = _rounded(each_us)
            self.say(
                key,
                "one read and one write per record are assumed, and the time of each: count the "
                "accesses in the program; latencies are in state.latency-track metrics; "
                f"keys and value_bytes {_size_text(size)}",
            )
        else:
            self.say(key, f"it is kept on the heap: only its size counts; {_size_text(size)}")
        keys = max(1.0, size / _ENTRY_BYTES) if size else _ASSUMED_KEYS
        state["keys"] = _rounded(keys)
        state["value_bytes"] = _ENTRY_BYTES
        state["prefilled"] = False
        if vertex.window is not None:
            window = {"kind": vertex.window.kind, "length_s": vertex.window.length_s}
            slide = vertex.window.slide_s
            state["window"] = window | ({} if slide is None else {"slide_s": slide})
        return state

    def _bounds(self, name: str, vertex: FoundVertex, kind: str) -> dict[str, Any]:
        section: dict[str, Any] = {"parallelism": vertex.parallelism}
        most = vertex.max_parallelism
        if most is None:
            self.say(
                f"vertices.{name}.max_parallelism",
                "the number of key groups was not found, Flink's default of 128 or more is "
                "assumed: it is the job's maxParallelism in Flink's REST answer /jobs/ID",
            )
            most = max(128, vertex.parallelism)
        section["max_parallelism"] = max(1, min(most, 32768), vertex.parallelism)
        if section["max_parallelism"] == 1:
            section["scalable"] = False
        if kind == "source" and vertex.partitions:
            section["partitions"] = vertex.partitions
        elif kind == "source":
            self.say(
                f"vertices.{name}.partitions",
                "the partitions of its log were not found: for Kafka, kafka-topics --describe; "
                "more tasks than partitions bring nothing",
            )
        return section

    def _memory(self) -> dict[str, Any]:
        place, section = self.found.place, {}
        if self.found.backend is None:
            self.say(
                "memory",
                "the state backend was not found: state.backend.type in the job's configuration; "
                "RocksDB is assumed",
            )
        section = self._managed()
        for name, value, setting in (
            ("heap_mib", place.heap_mib, "taskmanager.memory.task.heap.size"),
            ("network_mib", place.network_mib, "taskmanager.memory.network.*"),
        ):
            if value is not None:
                section[name] = _rounded(value)
            else:
                self.say(f"memory.{name}", f"not found: {setting} over the slots of a TaskManager")
        return section

    def _managed(self) -> dict[str, Any]:
        sizes = self.found.place.managed_mib
        if len(sizes) > 1:
            levels = 1
            while sizes[0] * 2 ** (levels - 1) < sizes[-1] and levels < 8:
                levels += 1
            listed = ", ".join(f"{mib:g}" for mib in sizes)
            self.say(
                "memory",
                f"slots of the job have {listed} MiB of managed memory; which vertex has which is "
                "not known: start_level is the level of all",
            )
            return {"base_mib": _rounded(sizes[0]), "levels": levels}
        if not sizes:
            self.say(
                "memory.base_mib",
                "managed memory of a slot was not found: taskmanager.memory.managed.size over "
                "taskmanager.numberOfTaskSlots",
            )
            return {"levels": 1, "uniform": True}
        return {"base_mib": _rounded(sizes[0]), "levels": 1, "uniform": True}

    def _taskmanager(self) -> dict[str, Any]:
        place, section = self.found.place, {}
        for name, value, setting in (
            ("slots", place.slots, "taskmanager.numberOfTaskSlots"),
            ("cores", place.cores, "taskmanager.cpu.cores, or the CPU request of its pod"),
            ("memory_mib", place.memory_mib, "taskmanager.memory.process.size"),
        ):
            if value is not None:
                section[name] = value if name == "slots" else _rounded(float(value))
            else:
                self.say(f"taskmanager.{name}", f"not found, the default is assumed: {setting}")
        return section

    def _slot_sharing(self) -> bool:
        if self.found.slot_sharing is None:
            self.say("slot_sharing", "not found; Flink's default, one group for all, is assumed")
            return True
        return self.found.slot_sharing

    def _most_tasks(self) -> int:
        running = max(vertex.parallelism for vertex in self.found.vertices)
        self.say(
            "max_parallelism_per_vertex",
            "the quota of the job is nowhere to be looked up; this is what the cluster has slots "
            "for, or the job runs with. Set it here",
        )
        return min(_MOST_TASKS, max(running, self.found.place.slots_total or 0))

    def _rescale(self) -> dict[str, Any]:
        in_place, account = self.found.scheduler == "adaptive", self.found.rescales
        mode = "in_place" if in_place else "redeploy"
        outage_s = None if account is None else account.outage_s
        if account is not None and outage_s is not None:
            self.say(
                "rescale",
                f"outages are what Flink counted of {account.completed} completed rescales, the "
                "first start among them (shortest, median, p90); the speed of storage is assumed",
            )
            return {"mode": mode, "outage_s": [_rounded(seconds) for seconds in outage_s]}
        said = ""
        if in_place and account is None:
            said = (
                "Flink keeps no account of rescales: it does since 2.3, where "
                "web.adaptive-scheduler.rescale-history.size is above 0; "
            )
        elif account is not None:
            said = f"Flink has counted {account.completed} completed rescales, too few; "
        self.say(
            "rescale",
            f"{said}outages of another job's rescales are assumed (p10, p50, p90), and the speed "
            "of its storage; a calibration measures them where the job was rescaled",
        )
        return {"mode": mode, "outage_s": list(IN_PLACE_S) if in_place else [56.0, 76.0, 93.0]}


def _has_id(vertex: FoundVertex) -> bool:
    return re.fullmatch("[0-9a-f]{32}", vertex.id) is not None


def _passes_on(source: FoundVertex) -> bool:
    """Whether operators chained to a source pass on fewer or more records than it reads."""
    read, out = source.in_per_s, source.out_per_s
    return bool(read and out and abs(out / read - 1.0) > _SAME)


def _size_text(size: float | None) -> str:
    if size:
        return (
            f"are the {size / 2**20:.3g} MiB of its last checkpoint in values of "
            f"{_ENTRY_BYTES:g} B; keys are in the metric rocksdb.estimate-num-keys"
        )
    return (
        "are assumed: its size is in the last checkpoint's details, in Flink's web page under "
        "Checkpoints, its keys in the metric rocksdb.estimate-num-keys"
    )


def _sourced(value: float, source: str) -> dict[str, object]:
    return {"value": _rounded(value), "source": source}


def _rounded(value: float) -> float:
    short = float(f"{value:.4g}")
    return int(short) if short == int(short) and abs(short) < 1e15 else short


def _head(found: FoundJob, stem: str, now_s: float) -> list[str]:
    told = [
        f"Written by dsp-gym discover at {moment(now_s)} UTC, from {redacted(found.seen_at)}. What "
        "was not found stands in comments, with where to look."
    ]
    if found.name != stem:
        told.append(
            f"In Flink the job is named '{shown(found.name)}': job_name in the configuration of "
            "dsp-gym shadow, --job FILE=NAME of dsp-gym calibrate. Its id is "
            f"{shown(found.job_id)}."
        )
    return told


def _text(document: dict[str, Any], notes: Sequence[Note], head: Sequence[str]) -> str:
    """The file: every section below what there is to say about it."""
    lines = [line for text in head for line in _comment(text)]
    for key, value in document.items():
        of_section = [n for n in notes if n.key.partition(".")[0] == key]
        if key != "vertices":
            lines += _comments(of_section, key)
            lines.append(_dumped({key: value}).rstrip("\n"))
            continue
        lines += _comments([n for n in of_section if n.key == key], key)
        lines.append("vertices:")
        for vertex in value:
            start = f"vertices.{vertex['name']}."
            lines += _comments([n for n in of_section if n.key.startswith(start)], start)
            lines.append(_dumped([vertex]).rstrip("\n"))
    return "\n".join(lines) + "\n"


def _dumped(value: object) -> str:
    scalar = isinstance(value, dict) and not isinstance(next(iter(value.values())), dict | list)
    return dump_yaml(value, flow=False if scalar else None)


def _comments(notes: Sequence[Note], section: str) -> list[str]:
    found = []
    for note in notes:
        field = note.key.removeprefix(section).strip(".")
        found += _comment(f"{field}: {note.text}" if field else note.text)
    return found


def _comment(text: str) -> list[str]:
    safe = "".join(c if c.isprintable() else "?" for c in text)
    return [f"# {line}" for line in textwrap.wrap(safe, 96)]
