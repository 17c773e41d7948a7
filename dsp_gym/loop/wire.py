"""Snapshots and decisions as JSON: `dsp-gym/snapshot/1` and `dsp-gym/decision/1`.

One document is one job at one moment. It carries the fixed facts a policy needs (graph, bounds,
memory levels, TaskManagers) beside the metrics, so the sender needs no job file. Unknown is null or
left out. A document of another version is refused, never guessed at.
"""

from __future__ import annotations

import marshal
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from dsp_gym.arrays import finite
from dsp_gym.config.files import parse
from dsp_gym.config.model import ConfigModel
from dsp_gym.config.text import described
from dsp_gym.errors import DspGymError, SchemaError
from dsp_gym.job.cost import HOURS_A_MONTH, requested
from dsp_gym.job.spec import JobSpec, State, UntimedJob, Vertex
from dsp_gym.loop.decision import GuardedDecision, ScalingDecision
from dsp_gym.loop.documents import (
    DECISION_SCHEMA,
    JOB_METRICS,
    MEANINGS,
    SNAPSHOT_SCHEMA,
    VERTEX_METRICS,
    DecisionDocument,
    SnapshotDocument,
    VertexDocument,
)
from dsp_gym.loop.snapshot import JobSnapshot, MetricsSnapshot, Status, unknown_snapshot
from dsp_gym.loop.topology import Topology

__all__ = [
    "DECISION_SCHEMA",
    "MEANINGS",
    "SNAPSHOT_SCHEMA",
    "DecisionDocument",
    "SnapshotDocument",
    "costs_to_json",
    "decision_from_json",
    "decision_to_json",
    "highest_parallelism",
    "json_schema",
    "snapshot_from_json",
    "snapshot_to_json",
]

Document = dict[str, Any]
_Model = TypeVar("_Model", bound=ConfigModel)

_MOST_FIXED = 512
_FIXED: dict[int, tuple[JobSpec, bytes]] = {}
"""Results of `_fixed` by the identity of the job, whose hash would take as long."""

_ELSEWHERE = {
    "dsp-gym/journal": "It is a line of a journal: `dsp-gym backtest` reads its folder. The "
    "snapshots are in it: jq -c 'select(.kind == \"snapshot\").body' SEGMENT.jsonl",
    "dsp-gym/decision": "It is a decision: give the snapshot that it answers.",
    "dsp-gym/snapshot": "It is a snapshot: give the decision that answers it.",
}
"""The next step where a document is of another kind."""

_DOCUMENTS: dict[str, type[ConfigModel]] = {
    SNAPSHOT_SCHEMA: SnapshotDocument,
    DECISION_SCHEMA: DecisionDocument,
}


def json_schema(schema: str) -> Document:
    """Return the JSON Schema of one kind of document, named as in its `schema` key.

    Returns:
        A document in JSON Schema 2020-12.
    """
    if schema not in _DOCUMENTS:
        raise _refusal(schema, _DOCUMENTS)
    body = _DOCUMENTS[schema].model_json_schema(by_alias=True)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": schema, **body}


def snapshot_to_json(job: JobSnapshot, key: str | None = None) -> Document:
    """Write the document of one job of a snapshot.

    Args:
        job: The job.
        key: Name of the job on the wire; by default its name in the job file. Rows of one batch
            that run the same job file need different keys.

    Returns:
        A JSON-able document; unknown is null.
    """
    batch, row = job.batch, job.index
    spec = batch.topology.spec(row)
    fixed, vertices = _fixed(spec)
    return {
        "schema": SNAPSHOT_SCHEMA,
        "job": key or spec.job,
        "t_s": float(batch.t_s[row]),
        "status": job.status.name,
        **fixed,
        "metrics": {name: finite(getattr(batch, name)[row]) for name in JOB_METRICS},
        "vertices": _vertices_to_json(batch, row, vertices),
    }


def snapshot_from_json(
    documents: Sequence[Mapping[str, object]], where: str = "snapshot"
) -> MetricsSnapshot:
    """Read a batch from one document per job; `where` names their origin in errors.

    Returns:
        A snapshot with one row per document, in their order.
    """
    if not documents:
        raise SchemaError("there is no snapshot to read", file=where)
    # Check all documents before the first array is filled: a batch is read whole or not.
    messages = [_read(SnapshotDocument, SNAPSHOT_SCHEMA, d, where) for d in documents]
    topology = _topology([_skeleton(message, where) for message in messages])
    seen = unknown_snapshot(topology)
    for row, message in enumerate(messages):
        seen.t_s[row], seen.status[row] = message.t_s, Status[message.status]
        _fill(seen, row, JOB_METRICS, message.metrics)
        by_name = {vertex.name: vertex for vertex in message.vertices}
        for column, name in enumerate(topology.names(row)):
            vertex = by_name[name]
            seen.parallelism[row, column] = vertex.parallelism
            seen.memory_level[row, column] = vertex.memory_level
            _fill(seen, (row, column), VERTEX_METRICS, vertex.metrics)
    return seen


def decision_to_json(
    decision: ScalingDecision | GuardedDecision, job: JobSnapshot, key: str | None = None
) -> Document:
    """Write the document that answers one job of a snapshot with its row of a decision.

    Returns:
        A JSON-able document.
    """
    row, batch = job.index, job.batch
    guarded = decision if isinstance(decision, GuardedDecision) else None
    proposed = None if guarded is None else guarded.proposed
    wanted = decision if isinstance(decision, ScalingDecision) else decision.proposed
    configured = _configuration(decision, job)
    running = zip(batch.parallelism[row].tolist(), batch.memory_level[row].tolist(), strict=True)
    changed = any(
        (one["parallelism"], one["memory_level"]) != found
        for one, found in zip(configured, running, strict=False)  # columns beyond the vertices
    )
    return {
        "schema": DECISION_SCHEMA,
        "job": key or batch.topology.spec(row).job,
        "t_s": float(batch.t_s[row]),
        "changed": changed,
        "reason": wanted.reasons[row],
        "vertices": configured,
        **costs_to_json(
            batch.topology.spec(row),
            {one["name"]: one["parallelism"] for one in configured},
            {one["name"]: one["memory_level"] for one in configured},
        ),
        "proposed": None if proposed is None else _configuration(proposed, job),
        "interventions": [
            {"guardrail": found.guardrail, "reason": found.reason}
            for found in (() if guarded is None else guarded.interventions)
            if found.job == row
        ],
    }


def costs_to_json(
    spec: JobSpec, parallelism: Mapping[str, int], levels: Mapping[str, int]
) -> Document:
    """Return the cost of a configuration, as decisions and the status report it.

    Args:
        spec: The job, with its prices.
        parallelism: Subtasks by vertex.
        levels: Memory level by vertex.

    Returns:
        Money per hour and per month for the requested resources, and the currency.
    """
    per_hour = requested(spec, parallelism, levels).money_per_hour(spec)
    return {
        "cost_per_hour": per_hour,
        "cost_per_month": HOURS_A_MONTH * per_hour,
        "currency": spec.prices.currency,
    }


def decision_from_json(
    documents: Sequence[Mapping[str, object]], topology: Topology, where: str = "decision"
) -> ScalingDecision:
    """Read the allowed configurations of a batch, one document per row of the topology.

    Returns:
        Parallelism and memory level, (J, V), and the reasons.
    """
    if len(documents) != len(topology):
        raise SchemaError(
            f"{len(documents)} decisions for {len(topology)} jobs",
            file=where,
            remedy="Give one decision per job, in the order of the jobs.",
        )
    shape = (len(topology), topology.max_vertices)
    parallelism, level = np.zeros(shape, np.int64), np.full(shape, -1, np.int64)
    reasons = []
    for row, document in enumerate(documents):
        message = _read(DecisionDocument, DECISION_SCHEMA, document, where)
        by_name = {vertex.name: vertex for vertex in message.vertices}
        names = topology.names(row)
        if set(by_name) != set(names) or len(by_name) != len(message.vertices):
            raise SchemaError(
                f"decides on {', '.join(v.name for v in message.vertices)}; "
                f"job '{message.job}' has {', '.join(names)}",
                file=where,
                key="vertices",
                remedy="Name each vertex once.",
            )
        for column, name in enumerate(names):
            parallelism[row, column] = by_name[name].parallelism
            level[row, column] = by_name[name].memory_level
        reasons.append(message.reason)
    return ScalingDecision(parallelism, level, tuple(reasons))


def _read(model: type[_Model], schema: str, document: Mapping[str, object], where: str) -> _Model:
    """Read the document as a model; its version is checked first."""
    if not isinstance(document, Mapping):
        raise SchemaError(f"holds {described(document)}, expected a JSON object", file=where)
    if document.get("schema") != schema:
        raise _refusal(document.get("schema"), [schema], where)
    try:
        return parse(model, dict(document), where)
    except SchemaError:
        raise
    except DspGymError as error:
        raise SchemaError(
            error.message, file=where, key=error.key, value=error.value, remedy=error.remedy
        ) from None


def _refusal(schema: object, read: Iterable[str], where: str | None = None) -> SchemaError:
    known = " and ".join(f"'{name}'" for name in read)
    remedy = f"This release of dsp-gym reads {known}."
    if schema is None:
        return SchemaError("the key 'schema' is missing", file=where, remedy=remedy)
    kind = str(schema).rpartition("/")[0]
    wanted = {name.rpartition("/")[0] for name in read}
    said = "this version is not read here"
    if kind not in wanted:
        said, remedy = "is a document of another kind", _ELSEWHERE.get(kind, remedy)
    return SchemaError(said, file=where, key="schema", value=schema, remedy=remedy)


def _skeleton(message: SnapshotDocument, where: str) -> JobSpec:
    """Make a job file from the facts of the message; other fields keep neutral values."""
    groups = [vertex.slot_sharing_group for vertex in message.vertices]
    try:
        for vertex in message.vertices:
            _check_bounds(message, vertex)
        spec = parse(
            UntimedJob,
            {
                "job": message.job,
                "source": message.source,
                "vertices": [_skeleton_vertex(message, vertex) for vertex in message.vertices],
                "memory": message.memory,
                "taskmanager": message.taskmanager,
                # Every vertex in one named group shares slots; anything else does not.
                "slot_sharing": None not in groups and len(set(groups)) == 1,
                "max_parallelism_per_vertex": message.max_parallelism_per_vertex,
                "buffer_records": message.buffer_records,
                "rescale": message.rescale,
                "slo": message.slo,
                "prices": message.prices,
            },
            where,
        )
    except DspGymError as error:
        raise SchemaError(
            error.message, file=where, key=error.key, value=error.value, remedy=error.remedy
        ) from None
    return spec


def _check_bounds(message: SnapshotDocument, vertex: VertexDocument) -> None:
    """Refuse a running configuration out of the job's bounds: policies look it up in tables."""
    highest = highest_parallelism(vertex, message.max_parallelism_per_vertex)
    if vertex.parallelism > highest:
        raise SchemaError(
            f"vertex '{vertex.name}' runs {vertex.parallelism} subtasks, the highest is {highest}",
            key="vertices",
            remedy="Raise max_parallelism_per_vertex (quota) or max_parallelism (key groups).",
        )
    if vertex.memory_level >= message.memory.levels:
        raise SchemaError(
            f"vertex '{vertex.name}' runs level {vertex.memory_level}, the job has levels "
            f"-1..{message.memory.levels - 1}",
            key="vertices",
            remedy="Give the job's number of levels in memory.levels.",
        )


def highest_parallelism(vertex: VertexDocument | Vertex, quota: int) -> int:
    """Return the most subtasks a vertex may run.

    Args:
        vertex: A vertex of a document or of a job file.
        quota: Quota of the job, for the vertices that a policy scales.

    Returns:
        Number of subtasks.
    """
    fixed = vertex.kind == "source" or not vertex.scalable
    return min(vertex.max_parallelism, vertex.max_parallelism if fixed else quota)


def _skeleton_vertex(message: SnapshotDocument, vertex: VertexDocument) -> Vertex:
    start = vertex.start_parallelism or vertex.parallelism
    return Vertex(
        name=vertex.name,
        kind=vertex.kind,
        inputs=vertex.inputs,
        cpu_us_per_record=1.0,
        state=State(keys=1.0, value_bytes=1.0) if vertex.stateful else None,
        max_parallelism=vertex.max_parallelism,
        partitions=vertex.partitions,
        parallelism=min(start, highest_parallelism(vertex, message.max_parallelism_per_vertex)),
        scalable=vertex.scalable,
    )


def _topology(specs: list[JobSpec]) -> Topology:
    """Compile equal jobs once."""
    # Jobs are frozen values, so a dictionary finds equal ones.
    distinct = {spec: row for row, spec in enumerate(dict.fromkeys(specs))}
    return Topology.of(list(distinct), [distinct[spec] for spec in specs])


def _fixed(spec: JobSpec) -> tuple[Document, list[Document]]:
    """Return the constant part of a job's documents: of the job, and of each vertex."""
    known = _FIXED.get(id(spec))
    if known is None or known[0] is not spec:
        parts = (
            _job_to_json(spec),
            [
                _vertex_to_json(vertex, shared=spec.slot_sharing)
                for vertex in spec.topological_order()
            ],
        )
        if len(_FIXED) >= _MOST_FIXED:
            _FIXED.pop(next(iter(_FIXED)), None)
        # Loading a marshalled copy takes less time than copying nested dictionaries.
        known = _FIXED[id(spec)] = spec, marshal.dumps(parts)
    made: tuple[Document, list[Document]] = marshal.loads(known[1])  # a copy that may be changed
    return made


def _job_to_json(spec: JobSpec) -> Document:
    return {
        "source": spec.source.model_dump(),
        "memory": spec.memory.model_dump(),
        "taskmanager": spec.taskmanager.model_dump(),
        "max_parallelism_per_vertex": spec.max_parallelism_per_vertex,
        "buffer_records": spec.buffer_records,
        "rescale": spec.rescale.model_dump(mode="json"),
        "slo": spec.slo.model_dump(),
        "prices": {"currency": spec.prices.currency, **spec.prices.model_dump()},
    }


def _vertex_to_json(vertex: Vertex, *, shared: bool) -> Document:
    return {
        "name": vertex.name,
        "kind": vertex.kind,
        "inputs": [edge.model_dump(by_alias=True) for edge in vertex.inputs],
        "stateful": vertex.state is not None,
        "scalable": vertex.scalable,
        "max_parallelism": vertex.max_parallelism,
        "partitions": vertex.partitions,
        "slot_sharing_group": "default" if shared else None,
        "start_parallelism": vertex.parallelism,
    }


def _vertices_to_json(
    batch: MetricsSnapshot, row: int, vertices: Sequence[Document]
) -> list[Document]:
    tasks, levels = batch.parallelism[row].tolist(), batch.memory_level[row].tolist()
    metrics = {
        name: [x if math.isfinite(x) else None for x in getattr(batch, name)[row].tolist()]
        for name in VERTEX_METRICS
    }
    return [
        {
            **vertex,
            "parallelism": tasks[column],
            "memory_level": levels[column],
            "metrics": {name: values[column] for name, values in metrics.items()},
        }
        for column, vertex in enumerate(vertices)
    ]


def _configuration(decision: ScalingDecision | GuardedDecision, job: JobSnapshot) -> list[Document]:
    tasks, levels = (
        decision.parallelism[job.index].tolist(),
        decision.memory_level[job.index].tolist(),
    )
    return [
        {"name": name, "parallelism": tasks[column], "memory_level": levels[column]}
        for column, name in enumerate(job.vertices)
    ]


def _fill(
    seen: MetricsSnapshot, at: int | tuple[int, int], names: Sequence[str], metrics: ConfigModel
) -> None:
    for name in names:
        value = getattr(metrics, name)
        if value is not None:
            getattr(seen, name)[at] = value
