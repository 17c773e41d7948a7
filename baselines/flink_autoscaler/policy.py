"""The autoscaler as a policy: it reads snapshots, keeps a window, and decides in batches."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
from pydantic import Field, model_validator

from baselines import reasons
from baselines.flink_autoscaler import batch
from baselines.flink_autoscaler.answers import decision, trace
from baselines.flink_autoscaler.documents import Answer, Document
from baselines.flink_autoscaler.evaluator import EVALUATED
from baselines.flink_autoscaler.gate import exceeds_quota, may_act
from baselines.flink_autoscaler.job import EvaluationFailed
from baselines.flink_autoscaler.numbers import hash_order
from baselines.flink_autoscaler.options import Options
from baselines.flink_autoscaler.settings import Alignment, Switches, settings_of
from baselines.flink_autoscaler.state import (
    Graph,
    Memory,
)
from dsp_gym.arrays import Bools, Floats, Ints
from dsp_gym.config.model import ConfigModel
from dsp_gym.errors import ConfigError, DspGymError, SchemaError
from dsp_gym.loop.decision import ScalingDecision
from dsp_gym.loop.protocols import Mask, State
from dsp_gym.loop.snapshot import MetricsSnapshot
from dsp_gym.loop.topology import Topology
from dsp_gym.policies.capabilities import Capabilities, ExplainingPolicy

AVERAGED = ("LOAD", "TRUE_PROCESSING_RATE", "TARGET_DATA_RATE")
"""Metrics the operator reports as an average over the window; of all others the last value."""
COUNTERS = ("scalings", "errors", "balanced")
MIB = 1024 * 1024
_FORMAT = (
    "A decision has conf, now_ms, vertices and history; a trace has ticks, each with now_ms, "
    "job_running_ts_ms, vertices and flink_metrics."
)
EVER = 10**15


class FlinkAutoscalerConfig(ConfigModel):
    """Parameters of Flink's autoscaler; its own keys stand in `flink_configuration`."""

    flink_configuration: dict[str, object] = Field(
        default_factory=dict,
        description="flinkConfiguration as in a FlinkDeployment, flat or nested: job.autoscaler.* "
        "keys with the operator's names and defaults; keys of other parts of Flink are ignored",
    )
    version: Literal["1.15.0", "main"] = Field(
        "1.15.0", description="release whose rules hold; main sets the three switches below"
    )
    alignment: Alignment | None = Field(
        None, description="alignment with key groups and partitions; none: as the release does"
    )
    tpr_numerator: Literal["rate", "gauge"] | None = Field(
        None, description="rate: records over the window; gauge: mean of per-second rates (main)"
    )
    expected_rate: Literal["clamped", "final"] | None = Field(
        None, description="expected rate from the clamped factor, or the final parallelism (main)"
    )
    interval_s: float = Field(
        60.0, gt=0, description="time between passes, s (kubernetes.operator.reconcile.interval)"
    )
    unix_start_s: float = Field(
        0.0, description="Unix time of t_s = 0, s; for job.autoscaler.excluded.periods"
    )

    @model_validator(mode="after")
    def _readable(self) -> FlinkAutoscalerConfig:
        try:
            # Checked here, so that a wrong key fails when the policy is configured, not in its
            # first pass.
            options = Options.of(self.flink_configuration)
            options.check()
            if options.busy_aggregator == "MIN":
                raise ConfigError(
                    "a snapshot does not hold the busy time of the least busy subtask",
                    key="job.autoscaler.metrics.busy-time.aggregator",
                    value="MIN",
                    remedy="Use MAX or AVG.",
                )
        except DspGymError as error:
            raise ValueError(str(error)) from None
        return self

    def switches(self, options: Options) -> Switches:
        """Combine the release's switches with those configured.

        Returns:
            The switches.
        """
        base = Switches.main(options) if self.version == "main" else Switches()
        return Switches(
            self.alignment or base.alignment,
            self.tpr_numerator or base.tpr_numerator,
            self.expected_rate or base.expected_rate,
        )


class FlinkAutoscaler(ExplainingPolicy):
    """Flink Kubernetes Operator 1.15.0's autoscaler (FLIP-271), with its own keys and defaults."""

    Config = FlinkAutoscalerConfig

    def __init__(self, config: FlinkAutoscalerConfig | None = None) -> None:
        self.name = "flink-autoscaler"
        self.config = config or FlinkAutoscalerConfig()
        self.options = Options.of(self.config.flink_configuration)
        self.settings = settings_of(self.options, self.config.switches(self.options))
        # The operator's default is off; choosing this policy switches it on.
        # An explicit false still switches it off.
        self._off = "enabled" in self.options.given and not self.options.enabled
        # Placeholders until `reset` knows the jobs.
        self._start(0, 0, 2)

    def reset(self, jobs: Topology, seeds: Ints, mask: Mask | None = None) -> None:
        self._graph, self._fixed = _graph(jobs, self.options)
        j, v = len(jobs), jobs.max_vertices
        # A masked reset keeps the arrays: the other jobs go on.
        if mask is None or self._out.new.shape != (j, v):
            self._start(j, v, int(self._graph.highest.max(initial=1)) + 2)
            return
        self._memory.clear(mask)
        self.counters[mask] = 0
        self._out.evaluated[mask] = np.nan

    def _start(self, j: int, v: int, steps: int) -> None:
        self._memory = Memory(j, v, self.options.history_count + 2, steps)
        self.counters = np.zeros((j, len(COUNTERS)), dtype=np.int64)
        self._out = batch.Wanted(
            np.zeros(j, dtype=np.int64),
            np.zeros((j, v), dtype=np.int64),
            np.zeros((j, v), dtype=bool),
            np.full((j, v), np.nan),
            np.zeros((j, v), dtype=np.int64),
            np.full((j, v, len(EVALUATED)), np.nan),
        )

    def state(self) -> State:
        return {"memory": self._memory.state(), "counters": self.counters.tolist()}

    def restore(self, state: State) -> None:
        self._memory.restore(state["memory"])
        self.counters = np.array(state["counters"], dtype=np.int64)

    def decide(self, snapshot: MetricsSnapshot) -> ScalingDecision:
        wanted = snapshot.parallelism.copy()
        if self._off:
            off = (lambda job, v: "job.autoscaler.enabled is false") if self.explain else None
            return reasons.decision(snapshot, wanted, snapshot.memory_level, off)
        m, out = self._memory, self._out
        # Present values of gauges, as the operator reads them, not means over the metrics window.
        seen = self._seen(snapshot)
        # Room before the pass: compiled code appends without growing arrays.
        m.room()
        memory, interval_ms = m.arrays(), round(self.config.interval_s * 1000)
        batch.run_batch(self._graph, seen, self.settings, interval_ms, memory, out)
        # The gate may hold a due rescale back; only accepted ones enter the history.
        accepted = self._gate(snapshot, seen)
        batch.apply(self._graph, seen, out, accepted, memory)
        self.counters[:, 0] += accepted
        self.counters[:, 1] += out.result == batch.FAILED
        self.counters[:, 2] += (out.result >= batch.BALANCED) & ~accepted
        # Stored overrides are applied at the end of every pass, whether it decided or not.
        tables, row = snapshot.topology.tables, snapshot.topology.row
        # Overrides are stored in the job's configuration, so they outlive the pass that set them.
        stored = seen.running[:, None] & (m.overrides > 0) & ~seen.fixed
        np.copyto(wanted, m.overrides, where=stored)
        # Overrides may predate a change of the job's bounds.
        held = np.clip(wanted, tables.min_parallelism[row], tables.max_parallelism[row])
        np.copyto(wanted, held, where=stored)
        why = self._why(accepted) if self.explain else None
        return reasons.decision(snapshot, wanted, snapshot.memory_level, why)

    @property
    def window_samples(self) -> Ints:
        """Samples in the metrics window of each job, (J,)."""
        return self._memory.window.size

    def recommended(self) -> Ints:
        """Return RECOMMENDED_PARALLELISM of the last pass, also where scaling is not allowed.

        Returns:
            (J, V) tasks.
        """
        return self._out.new

    def metrics(self, job: int, names: tuple[str, ...]) -> dict[str, float]:
        """Report one job as the operator does.

        Args:
            job: Row of the batch.
            names: Names of its vertices, in order.

        Returns:
            Values by name of the metric; NaN where the operator reports none.
        """
        report = {
            f"AutoScaler.{name}": float(value)
            for name, value in zip(COUNTERS, self.counters[job], strict=True)
        }
        # Names as the operator registers them with Flink's metric system.
        for v, vertex in enumerate(names):
            start = f"AutoScaler.jobVertexID.{vertex}"
            for e, metric in enumerate(EVALUATED):
                kind = "Average" if metric in AVERAGED else "Current"
                report[f"{start}.{metric}.{kind}"] = float(self._out.evaluated[job, v, e])
            report[f"{start}.RECOMMENDED_PARALLELISM.Current"] = float(self._out.new[job, v])
            report[f"{start}.EXPECTED_PROCESSING_RATE.Current"] = float(self._out.expected[job, v])
        return report

    def capabilities(self) -> Capabilities:
        return replace(super().capabilities(), answer=self.answer)

    @staticmethod
    def answer(document: Document, kind: str = "decision") -> Answer:
        """Answer a document of the inputs of Flink's own classes, for `dsp-gym decide`.

        Args:
            document: A JSON object: the inputs of one pass, or of a run of ticks.
            kind: `decision` or `trace`.

        Returns:
            The fields that Flink's classes give for the same inputs.

        Raises:
            SchemaError: A field is missing or has another type.
        """
        try:
            return trace(document) if kind == "trace" else decision(document)
        except KeyError as error:
            raise SchemaError(f"has no {error}", remedy=_FORMAT) from None
        except (TypeError, ValueError, AttributeError, EvaluationFailed) as error:
            raise SchemaError(f"cannot be read: {error}", remedy=_FORMAT) from None

    def _seen(self, snapshot: MetricsSnapshot) -> batch.Seen:
        mean, hottest = snapshot.busy_ms_per_s, snapshot.busy_max_ms_per_s
        # The hottest subtask is known over the metrics window only; its factor over the mean is
        # applied to the present gauge.
        known = (mean > 0) & (hottest > mean)
        lead = np.where(known, hottest / np.where(known, mean, 1.0), 1.0)
        # A job that never ran: far in the past, so that its window counts as stable.
        since = np.nan_to_num(snapshot.running_since_s, nan=-EVER)
        return batch.Seen(
            snapshot.topology.row,
            _ms(snapshot.t_s),
            _ms(since),
            snapshot.running,
            snapshot.parallelism,
            # Fixed vertices are those that no policy may scale, and those that the options exclude.
            self._fixed[snapshot.topology.row],
            *(
                np.ascontiguousarray(array)
                for array in (
                    snapshot.records_in_total,
                    snapshot.records_out_total,
                    snapshot.records_in_per_s,
                    snapshot.pending_records,
                    snapshot.busy_now_ms_per_s,
                    snapshot.backpressured_now_ms_per_s,
                    lead,
                    snapshot.tm_gc_ms_per_s / 1000.0,
                    snapshot.tm_heap_used_mib / snapshot.tm_heap_max_mib,
                )
            ),
        )

    def _gate(self, snapshot: MetricsSnapshot, seen: batch.Seen) -> Bools:
        o = self.options
        accepted: Bools = self._out.result == batch.DUE
        if not o.scaling_enabled:
            return np.zeros_like(accepted)
        quota = o.quota_cpu is not None or o.quota_memory is not None
        # Without quota or periods every due rescale passes, and no loop in Python is needed.
        if not quota and not o.excluded_periods:
            return accepted
        # Excluded periods are given in UTC; snapshots count from the start of the run.
        start_ms = round(self.config.unix_start_s * 1000)
        for j in np.flatnonzero(accepted).tolist():
            spec, n = snapshot.topology.spec(j), int(self._graph.n[seen.row[j]])
            shared = spec.slot_sharing
            groups = ["all" if shared else name for name in snapshot.topology.names(j)]
            # Sizes in bytes, as Flink's configuration has them.
            memory = round(float(spec.taskmanager.memory_mib) * MIB)
            slots = {"taskmanager.numberOfTaskSlots": str(spec.taskmanager.slots)}
            accepted[j] = may_act(o, start_ms + int(seen.now_ms[j])) and not exceeds_quota(
                o,
                slots,
                float(spec.taskmanager.cores),
                memory,
                groups,
                # Only the job's own vertices: rows are padded to the widest job.
                seen.parallelism[j, :n].tolist(),
                self._out.new[j, :n].tolist(),
            )
        return accepted

    def _why(self, accepted: Bools) -> reasons.Why:
        evaluated = self._out.evaluated

        def reason(job: int, v: int) -> str:
            if not accepted[job]:
                return "stored override, applied again"
            rates = [reasons.amount(value) for value in evaluated[job, v].tolist()]
            _, rate, target, catch_up, _, up, down = rates
            return (
                f"true rate {rate}/s, target {target}/s, catch-up {catch_up}/s, "
                f"thresholds {up} and {down}/s"
            )

        return reason


def _ms(seconds: Floats) -> Ints:
    return np.rint(np.asarray(seconds) * 1000.0).astype(np.int64)


def _graph(jobs: Topology, options: Options) -> tuple[Graph, Bools]:
    """Return graphs of the job files, and the vertices that no policy may scale."""
    tables = jobs.tables
    k, v = tables.kind.shape
    outputs = np.zeros((k, v), dtype=np.int64)
    hashed = np.zeros((k, v), dtype=bool)
    excluded = np.zeros((k, v), dtype=bool)
    visits = np.zeros((k, v), dtype=np.int64)
    for i, spec in enumerate(jobs.specs):
        order = spec.topological_order()
        # Events and failures depend on the order of visits, that of a Java HashMap.
        visits[i, : len(order)] = hash_order([vertex.name for vertex in order])
        for at, vertex in enumerate(order):
            # Key groups matter only where an input is keyed.
            hashed[i, at] = any(edge.ship == "HASH" for edge in vertex.inputs)
            excluded[i, at] = vertex.name in options.excluded_vertices
            for u in tables.upstream[i, at]:
                if u >= 0:
                    outputs[i, u] += 1
    fixed = excluded | (tables.min_parallelism == tables.max_parallelism)
    graph = Graph(
        tables.n,
        tables.upstream,
        outputs,
        hashed,
        tables.key_groups,
        tables.partitions,
        # The tighter of the job file's bounds and the autoscaler's.
        np.maximum(tables.min_parallelism, options.min_parallelism),
        np.minimum(tables.max_parallelism, options.max_parallelism),
        visits,
    )
    return graph, fixed
