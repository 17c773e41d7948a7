"""One job under the autoscaler: collect, evaluate, decide, as its control loop does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from baselines.flink_autoscaler.collector import (
    Aggregates,
    CollectionFailed,
    Vertex,
    job_sample,
    vertex_sample,
)
from baselines.flink_autoscaler.evaluator import E_TPR, EVALUATED, evaluate, evaluate_job
from baselines.flink_autoscaler.gate import exceeds_quota, may_act, under_memory_pressure
from baselines.flink_autoscaler.memory import Tuning, tune
from baselines.flink_autoscaler.numbers import hash_order
from baselines.flink_autoscaler.options import Options
from baselines.flink_autoscaler.scaler import (
    EXPECTING,
    INEFFECTIVE,
    LIMITED,
    Pass,
    Recommended,
    scale_vertices,
)
from baselines.flink_autoscaler.settings import Settings, Switches, settings_of
from baselines.flink_autoscaler.state import (
    GC,
    HEAP_RATIO,
    LOAD,
    OBSERVED,
    SCALING_METRICS,
    Delayed,
    Graph,
    Memory,
    Scaling,
    record_restart,
    remember,
    restart_s,
    trim,
)
from baselines.flink_autoscaler.window import append, average, restarted
from dsp_gym.arrays import Bools, Floats, Ints


class EvaluationFailed(RuntimeError):
    """A state in which Flink's classes throw: the pass ends without a decision."""


@dataclass(frozen=True)
class TaskManagers:
    """Resource of one TaskManager; 0: unknown."""

    cpu: float = 0.0
    memory: int = 0  # bytes


@dataclass(frozen=True)
class Changes:
    """Recommended parallelism of every vertex, before the gate."""

    new: Ints
    outside: Bools
    expected: Floats  # EXPECTED_PROCESSING_RATE; NaN: none
    events: Ints
    due: bool  # at least one changed vertex is outside its thresholds
    failed: bool  # Flink throws; later vertices were not asked about

    def expectations(self, names: Sequence[str]) -> dict[str, float]:
        """Return the expected rates of the vertices for which one was recorded.

        Returns:
            EXPECTED_PROCESSING_RATE by vertex, records/s; infinity times 0 records a NaN.
        """
        recorded = zip(names, self.expected.tolist(), self.events.tolist(), strict=True)
        return {name: rate for name, rate, flags in recorded if flags & EXPECTING}


@dataclass
class Outcome:
    """Decision of one pass."""

    scaled: bool = False
    recommended: Ints | None = None  # set once the changes passed the thresholds
    expected: dict[str, float] = field(default_factory=dict)  # by vertex
    tuning: Tuning = field(default_factory=Tuning)
    events: list[str] = field(default_factory=list)
    failed: str | None = None  # the reason of Flink's exception

    def event(self, reason: str) -> None:
        """Note an event; every vertex raises a separate one."""
        self.events.append(reason)


class Job:
    """Vertices, settings and memory of one job."""

    def __init__(
        self,
        options: Options,
        vertices: Sequence[Vertex],
        *,
        switches: Switches | None = None,
        tm: TaskManagers | None = None,
        steps: int = 64,
    ) -> None:
        # steps: most scale-downs that can wait at once, which bounds their queue.
        self.steps, self.switches, self.tm = steps, switches, tm or TaskManagers()
        self.names: tuple[str, ...] = ()
        self.memory = Memory(1, 0, 1, 1)
        self.named = False  # whether the metrics' names were seen since the restart
        self.evaluated: Floats | None = None
        self.evaluated_job = np.full((6, 2), np.nan)
        self.look(options, vertices)

    def look(self, options: Options, vertices: Sequence[Vertex]) -> None:
        """Take up the present configuration and graph."""
        self.options = options
        self.s: Settings = settings_of(options, self.switches or Switches())
        self.vertices = ordered(vertices)
        names = tuple(v.name for v in self.vertices)
        # Two more than kept: one is added before the oldest goes.
        kept = options.history_count + 2
        # Another graph begins with empty memory, as the operator's state store does.
        if names != self.names or kept > self.memory.history.ts_ms.shape[2]:
            self.names = names
            self.named = False
            self.memory = Memory(1, len(names), kept, self.steps)
        self.graph = graph_of(self.vertices, options)
        self.parallelism = np.array([v.parallelism for v in self.vertices], dtype=np.int64)
        self.excluded = np.array(
            [v.name in options.excluded_vertices or v.finished for v in self.vertices]
        )

    @property
    def restart_s(self) -> float:
        """The restart time that counts now, s."""
        return float(
            restart_s(
                self.memory.tracking, 0, self.s.tracking, self.s.restart_s, self.s.restart_limit_s
            )
        )

    def collect(
        self,
        now: int,
        running_ms: int,
        metrics: Mapping[str, Mapping[str, Aggregates]],
        jm: Mapping[str, float] | None,
        tm: Mapping[str, Aggregates] | None,
    ) -> bool | None:
        """Add a sample.

        Returns:
            True if the window is full, None if the job is not ready yet.
        """
        m = self.memory
        if restarted(m.window, 0, running_ms):
            # After a restart the operator asks for the names of metrics again.
            self.named = False
        m.room()
        try:
            rows = [
                vertex_sample(
                    v, metrics.get(v.name, {}), self.options, self._carried(i), named=self.named
                )
                for i, v in enumerate(self.vertices)
            ]
        except CollectionFailed:
            # Metrics are late while a job starts up; afterwards their absence is an error.
            if now < running_ms + self.s.stabilization_ms:
                return None
            raise
        # Flink keeps the names of all vertices or asks for all again.
        self.named = not any(v.finished for v in self.vertices)
        # Legacy sources report no busy time: they are excluded from this pass.
        self.excluded |= np.array([bool(np.isnan(row[LOAD])) for row in rows])
        sample = job_sample(jm, tm)
        return bool(
            append(
                m.window,
                0,
                now,
                running_ms,
                self.s.stabilization_ms,
                self.s.window_ms,
                np.array(rows),
                sample,
            )
        )

    def _carried(self, v: int) -> Callable[[], float]:
        w = self.memory.window
        seen = w.vertex[0, : w.size[0]]
        return lambda: average(seen, v, OBSERVED, self.s.observed_min)

    def trim(self, now: int) -> None:
        """Forget scalings that are too old or too many."""
        m, n = self.memory, len(self.names)
        trim(m.history, m.tracking, 0, n, now, self.s.history_age_ms, self.s.history_count)

    def tidy(self, now: int, running_ms: int) -> None:
        """Trim the memory, and complete the record of a restart."""
        self.trim(now)
        m = self.memory
        record_restart(m.history, m.tracking, 0, len(self.names), running_ms, self.parallelism)

    def evaluate(self) -> Floats:
        """Evaluate every vertex.

        Returns:
            (V, EVALUATED).

        Raises:
            EvaluationFailed: A source's rate is unknown.
        """
        w = self.memory.window
        count = w.size[0]
        # NaN marks metrics that were not evaluated.
        out = np.full((len(self.names), len(EVALUATED)), np.nan)
        if not evaluate(
            self.graph,
            0,
            w.ts_ms[0, :count],
            w.vertex[0, :count],
            self.parallelism,
            self.s,
            self.restart_s,
            out,
        ):
            raise EvaluationFailed("Cannot evaluate metrics without ingestion rate information")
        self.evaluated = out
        self.evaluated_job = evaluate_job(w.job[0, :count])
        return out

    def changes(
        self, now: int, evaluated: Floats, delayed: Delayed, excluded: Bools | None = None
    ) -> Changes:
        """Ask the scaler about every vertex that is not excluded.

        Args:
            now: Time of the pass, ms.
            evaluated: (V, EVALUATED) metrics.
            delayed: Waiting scale-downs, changed in place.
            excluded: (V,) vertices to leave out; None: those of the pass.

        Returns:
            Parallelism and expected rates, before the gate.
        """
        n = len(self.names)
        found = Recommended(
            np.zeros(n, dtype=np.int64),
            np.zeros(n, dtype=bool),
            np.full(n, np.nan),
            np.zeros(n, dtype=np.int64),
        )
        due = scale_vertices(
            self.graph,
            Pass(0, 0, now, self.restart_s),
            evaluated,
            self.parallelism,
            self.excluded if excluded is None else excluded,
            self.s,
            self.memory.history,
            delayed,
            found,
        )
        # Three outcomes: 1 due, 0 none outside its thresholds, -1 Flink fails.
        return Changes(*found, due == 1, due < 0)

    def decide(self, now: int, evaluated: Floats) -> Outcome:
        """Make the pass after the evaluation: scaler, gate, memory of what was applied.

        Returns:
            The decision of the pass.
        """
        done, m, o = Outcome(), self.memory, self.options
        # Last value of garbage collection, average of the heap, as in ScalingExecutor.
        pressure = self.evaluated_job[GC, 0], self.evaluated_job[HEAP_RATIO, 1]
        if under_memory_pressure(o, *pressure):
            done.event("MemoryPressure")
            return done
        changes = self.changes(now, evaluated, m.delayed)
        done.expected = changes.expectations(self.names)
        # Events are raised in the order of a Java HashMap over the vertices (`numbers.hash_order`).
        for v in self.graph.visits[0]:
            if changes.events[v] & LIMITED:
                done.event("ScalingLimited")
            if changes.events[v] & INEFFECTIVE:
                done.event("IneffectiveScaling")
        if changes.failed:
            done.failed = "the scaling coefficient is not a number"
            done.event("AutoscalerError")
        if not changes.due:
            return done
        done.recommended = changes.new
        done.event("ScalingReport")
        # Reported, but not carried out: outside its hours the autoscaler only observes.
        if not may_act(o, now):
            return done
        before, after = self.parallelism.tolist(), changes.new.tolist()
        tuning = tune(
            o,
            self.tm.memory,
            self.names,
            [v.inputs for v in self.vertices],
            before,
            after,
            self.evaluated_job,
        )
        if tuning.recommended:
            done.event("Configuration recommendation")
        # The quota is checked with the memory that tuning would set.
        flink = dict(o.flink) | (tuning.overrides if o.tuning else {})
        groups = [v.slot_sharing_group for v in self.vertices]
        if exceeds_quota(o, flink, self.tm.cpu, self.tm.memory, groups, before, after):
            done.event("ResourceQuotaReached")
            return done
        if o.tuning:
            done.tuning = tuning
        # A column of the block: compiled code wants contiguous memory.
        rates = np.ascontiguousarray(evaluated[:, E_TPR])
        scaling = Scaling(self.parallelism, changes.new, rates, changes.expected)
        remember(m.arrays(), 0, len(self.names), now, scaling)
        done.scaled = True
        return done

    def last_sample(self) -> dict[str, dict[str, float]]:
        """Read the newest sample.

        Returns:
            By vertex and metric; NaN where a metric is missing.
        """
        w = self.memory.window
        newest = w.vertex[0, w.size[0] - 1]
        return {
            name: dict(zip(SCALING_METRICS, row.tolist(), strict=True))
            for name, row in zip(self.names, newest, strict=True)
        }


def ordered(vertices: Sequence[Vertex]) -> list[Vertex]:
    """Sort vertices topologically; otherwise they stay as given.

    Returns:
        The same vertices, inputs first.

    Raises:
        EvaluationFailed: The graph has a cycle, or an input that is no vertex.
    """
    left, done = list(vertices), []
    placed: set[str] = set()
    while left:
        # The first vertex whose inputs are placed: the order among equals stays as given.
        ready = next((v for v in left if placed.issuperset(v.inputs)), None)
        if ready is None:
            raise EvaluationFailed(f"vertex '{left[0].name}' waits for an input that never comes")
        left.remove(ready)
        done.append(ready)
        placed.add(ready.name)
    return done


def graph_of(vertices: Sequence[Vertex], options: Options) -> Graph:
    """Write one graph as arrays.

    Returns:
        A `Graph` with K = 1.
    """
    n = len(vertices)
    column = {v.name: i for i, v in enumerate(vertices)}
    # The width of the input columns; -1 fills rows of vertices with fewer inputs.
    width = max(1, *(len(v.inputs) for v in vertices)) if vertices else 1
    inputs = np.full((1, n, width), -1, dtype=np.int64)
    outputs = np.zeros((1, n), dtype=np.int64)
    for i, v in enumerate(vertices):
        for at, name in enumerate(v.inputs):
            inputs[0, i, at] = column[name]
            outputs[0, column[name]] += 1

    def row(values: list[int]) -> Ints:
        return np.array([values], dtype=np.int64)

    return Graph(
        row([n])[:, 0].copy(),
        inputs,
        outputs,
        np.array([["HASH" in v.inputs.values() for v in vertices]]),
        row([v.max_parallelism for v in vertices]),
        row([v.partitions for v in vertices]),
        row([options.min_parallelism] * n),
        row([options.max_parallelism] * n),
        row(hash_order([v.name for v in vertices])),
    )
