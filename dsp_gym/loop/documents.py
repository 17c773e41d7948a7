"""The shape of `dsp-gym/snapshot/1` and `dsp-gym/decision/1`, as models with units."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, cast

from pydantic import Field, create_model

from dsp_gym.config.model import ConfigModel
from dsp_gym.job.spec import (
    MOST_PARTITIONS,
    Input,
    Memory,
    Prices,
    Rescale,
    Slo,
    Source,
    TaskManager,
)
from dsp_gym.loop.snapshot import CONFIGURATION, PER_JOB, PER_VERTEX, SNAPSHOT_METRICS

SNAPSHOT_SCHEMA = "dsp-gym/snapshot/1"
DECISION_SCHEMA = "dsp-gym/decision/1"

# Metrics of the JSON documents: all but time, status and configuration, which have keys of their
# own.
JOB_METRICS = tuple(name for name in PER_JOB if name not in ("t_s", "status"))
VERTEX_METRICS = tuple(name for name in PER_VERTEX if name not in CONFIGURATION)

MEANINGS = {
    name: column.sentence
    for name, _, column in SNAPSHOT_METRICS
    if name in JOB_METRICS or name in VERTEX_METRICS
}
"""Sentence of each measured value, for the JSON Schema and the documentation."""


def _metrics_model(model: str, names: Sequence[str], doc: str) -> type[ConfigModel]:
    fields = {name: (float | None, Field(None, description=MEANINGS[name])) for name in names}
    create = cast(Callable[..., type[ConfigModel]], create_model)
    return create(model, __base__=ConfigModel, __doc__=doc, **fields)


_JobMetrics = _metrics_model("JobMetrics", JOB_METRICS, "Metrics of the job; null is unknown.")
_VertexMetrics = _metrics_model(
    "VertexMetrics", VERTEX_METRICS, "Metrics of one vertex; null is unknown."
)


class VertexDocument(ConfigModel):
    """One vertex: fixed facts, the configuration seen running, and metrics."""

    name: str = Field(min_length=1, description="unique within the job")
    kind: Literal["source", "operator", "sink"] = Field("operator", description="role in the graph")
    inputs: tuple[Input, ...] = Field((), description="upstream edges with Flink's ship strategy")
    stateful: bool = Field(False, description="whether it uses managed memory for keyed state")
    scalable: bool = Field(True, description="false: its parallelism is fixed")
    max_parallelism: int = Field(128, ge=1, le=32768, description="key groups")
    partitions: int | None = Field(
        None, ge=1, le=MOST_PARTITIONS, description="source: partitions of its log"
    )
    slot_sharing_group: str | None = Field(
        None, description="Flink's slot sharing group; none: its own group"
    )
    start_parallelism: int | None = Field(
        None, ge=1, description="subtasks the job was submitted with; none: the running parallelism"
    )
    parallelism: int = Field(ge=1, description="subtasks running")
    memory_level: int = Field(-1, ge=-1, description="memory level running; -1: no managed memory")
    metrics: _VertexMetrics = Field(description="metrics; null is unknown")  # type: ignore[valid-type]


class SnapshotDocument(ConfigModel):
    """One job as seen at one moment."""

    schema_: Literal["dsp-gym/snapshot/1"] = Field(alias="schema", description="schema and version")
    job: str = Field(min_length=1, description="which job; lines of one job are its history")
    t_s: float = Field(description="seconds on the collector's clock")
    status: Literal["RUNNING", "SAVEPOINTING", "RESTARTING", "FAILED"] = Field(
        description="job status"
    )
    source: Source = Field(
        default_factory=lambda: Source(rate_per_s=1.0),
        description="reference rate; 1 where there is no job file to know it",
    )
    memory: Memory = Field(default_factory=Memory, description="memory of one slot, and its levels")
    taskmanager: TaskManager = Field(default_factory=TaskManager, description="one TaskManager")
    max_parallelism_per_vertex: int = Field(
        24, ge=1, le=2048, description="highest parallelism a policy may choose (quota)"
    )
    buffer_records: float = Field(2000.0, gt=0, description="records in one subtask's buffers")
    rescale: Rescale = Field(default_factory=Rescale, description="what a rescale costs")
    slo: Slo = Field(default_factory=Slo, description="service level objective")
    prices: Prices = Field(default_factory=Prices, description="money per hour")
    metrics: _JobMetrics = Field(description="metrics of the job")  # type: ignore[valid-type]
    vertices: tuple[VertexDocument, ...] = Field(min_length=2, description="the graph, any order")


class VertexDecision(ConfigModel):
    """The configuration of one vertex."""

    name: str = Field(min_length=1, description="vertex")
    parallelism: int = Field(ge=1, le=32768, description="subtasks")
    memory_level: int = Field(ge=-1, le=32768, description="-1: no managed memory")


class InterventionDocument(ConfigModel):
    """One change of a guardrail."""

    guardrail: str = Field(description="which guardrail")
    reason: str = Field(description="its change and the reason, in words")


class ForecastDocument(ConfigModel):
    """The load that a policy expects."""

    records_in_per_s: float = Field(
        ge=0,
        description="highest quantile of the arrivals of all sources together, over the horizon",
    )
    horizon_s: float = Field(gt=0, description="how far the forecast looks ahead, s")
    quantile: float = Field(
        gt=0, lt=1, description="share of the load's courses that stay below at each moment"
    )
    error: float | None = Field(
        None, ge=0, description="mean relative error of past forecasts; null: not known yet"
    )


class DecisionDocument(ConfigModel):
    """The configuration that one job should run, and the way to it."""

    schema_: Literal["dsp-gym/decision/1"] = Field(alias="schema", description="schema and version")
    job: str = Field(min_length=1, description="the job of the snapshot that was answered")
    t_s: float = Field(description="t_s of that snapshot")
    changed: bool = Field(description="whether this differs from what is running")
    reason: str = Field(description="the policy's reason")
    vertices: tuple[VertexDecision, ...] = Field(description="the allowed configuration")
    cost_per_hour: float | None = Field(
        None, description="money per hour for the resources the allowed configuration requests"
    )
    cost_per_month: float | None = Field(None, description="the same for 730 hours")
    currency: str | None = Field(None, description="of both costs, an ISO 4217 code")
    proposed: tuple[VertexDecision, ...] | None = Field(
        None, description="the policy's own decision; null without guardrails"
    )
    interventions: tuple[InterventionDocument, ...] = Field((), description="guardrails' changes")
    forecast: ForecastDocument | None = Field(
        None,
        description="load that the policy expects, of a policy with a model of it; of /v1/decide",
    )
