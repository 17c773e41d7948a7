"""Decisions and traces as JSON documents, to hold the rules against Flink's real classes.

A decision document gives the content of window and memory, and asks for one pass. A trace gives
Flink's reports tick by tick. NaN and infinities are texts; missing values are NaN.
"""

from __future__ import annotations

import math

import numpy as np

from baselines.flink_autoscaler.collector import CollectionFailed, Vertex, source_partitions
from baselines.flink_autoscaler.documents import (
    Answer,
    Document,
    add_delayed,
    fill_history,
    fill_tracking,
    fill_window,
    task_managers,
    vertices_of,
    written,
)
from baselines.flink_autoscaler.evaluator import (
    E_CATCH_UP,
    E_DOWN,
    E_LAG,
    E_LOAD,
    E_TARGET,
    E_TPR,
    E_UP,
    backlog,
)
from baselines.flink_autoscaler.job import Changes, EvaluationFailed, Job, Outcome
from baselines.flink_autoscaler.memory import REMOVED
from baselines.flink_autoscaler.options import Options
from baselines.flink_autoscaler.settings import Switches
from baselines.flink_autoscaler.state import (
    GLOBALS,
    copied,
)
from dsp_gym.arrays import Floats, Ints


def decision(document: Document, switches: Switches | None = None) -> Answer:
    """Answer one decision document.

    Returns:
        The fields of its `expected["1.15.0"]`, and its id.
    """
    job, now = _job_of(document, switches), int(document["now_ms"])
    w = job.memory.window
    count = w.size[0]
    # The document has the restart time in whole seconds.
    answer: Answer = {"id": document.get("id"), "restart_time_s": int(job.restart_s)}
    failed: str | None = None
    done = Outcome()
    try:
        answer["processing_backlog"] = bool(
            backlog(job.graph, 0, w.ts_ms[0, :count], w.vertex[0, :count], job.s.backlog_s)
        )
        evaluated = job.evaluate()
        answer["evaluated"] = _evaluated(job, evaluated, whole=True)
        if any(sample.get("global_metrics") for sample in document["history"]):
            answer["global"] = {
                name: _pair(*job.evaluated_job[g].tolist()) for g, name in enumerate(GLOBALS)
            }
        # A copy of the waiting scale-downs: this call must not advance them.
        wanted = job.changes(
            now, evaluated, copied(job.memory.delayed), np.zeros(len(job.names), dtype=bool)
        )
        if not wanted.failed:
            answer["vertex_changes"] = _changes(job, wanted)
        done = job.decide(now, evaluated)
        failed = done.failed
    except EvaluationFailed as error:
        failed = str(error)
        done.event("AutoscalerError")
    answer["scaled"] = done.scaled
    # Stored overrides, those of earlier passes included.
    answer["parallelism_overrides"] = _overrides(job)
    if done.tuning.overrides:
        answer["config_overrides"] = done.tuning.overrides
        answer["config_removals"] = list(REMOVED)
    answer["delayed"] = _delayed(job)
    answer["event_reasons"] = done.events
    if failed is not None:
        answer["error"] = failed
    return answer


def _job_of(document: Document, switches: Switches | None) -> Job:
    """Make the job of a decision document, with its samples and past scalings."""
    # A pass per given scale-down and one more: the queue never holds more entries.
    given = document.get("delayed_scale_down") or []
    job = Job(
        Options.of(document.get("conf", {})),
        vertices_of(document["vertices"]),
        switches=switches,
        tm=task_managers(document),
        steps=len(given) + 2,
    )
    # The window is given as it stands after the sample of this pass.
    fill_window(job, document["history"])
    fill_history(job, document.get("scaling_history") or {})
    fill_tracking(job, document.get("tracked_restarts") or [])
    for entry in given:
        if entry["vertex"] in job.names:
            add_delayed(job, job.names.index(entry["vertex"]), entry)
    return job


def trace(document: Document, switches: Switches | None = None) -> Answer:
    """Answer one closed-loop trace.

    Returns:
        `{"id", "ticks": [{"out": ...}]}`.
    """
    run = Trace(document, switches)
    ticks = [{"out": run.tick(tick.get("in", tick))} for tick in document["ticks"]]
    return {"id": document.get("id"), "ticks": ticks}


class Trace:
    """The autoscaler following one job from tick to tick."""

    def __init__(self, document: Document, switches: Switches | None = None) -> None:
        self._conf = document.get("conf")
        self._document = document
        self._switches = switches
        self._config: dict[str, str] = {}
        self.job: Job | None = None
        self.reported: Answer | None = None

    def tick(self, given: Document) -> Answer:
        """Make one pass.

        Returns:
            The answer that a test of the operator would see afterwards.
        """
        options = Options.of(given.get("conf", self._conf) or {})
        # A disabled or stopped job still has a graph, which may have changed.
        vertices = _seen(given)
        if self.job is None:
            steps = len(self._document.get("ticks", ())) + 2
            tm = task_managers({**self._document, **given})
            self.job = Job(options, vertices, switches=self._switches, tm=tm, steps=steps)
        job = self.job
        job.look(options, vertices)
        out: Answer = {"scaled": False, "balanced": False, "error": False}
        events: list[str] = []
        # A disabled autoscaler forgets the job, and its overrides go.
        if not options.enabled:
            job.memory.clear(np.array([True]))
            self._config = {}
        # A job that is not running has no reported metrics.
        elif given.get("job_status", "RUNNING") != "RUNNING":
            self.reported = None
        else:
            try:
                events = self._pass(job, given, out)
            except (CollectionFailed, EvaluationFailed):
                out["error"] = True
                events = ["AutoscalerError"]
        out["window_samples"] = int(job.memory.window.size[0])
        if self.reported is not None:
            out["evaluated"] = self.reported
        out["parallelism_overrides"] = _overrides(job)
        if self._config:
            out["config_overrides"] = self._config
        out["restart_time_s"] = int(job.restart_s)
        out["event_reasons"] = events
        out["delayed"] = _delayed(job)
        return out

    def _pass(self, job: Job, given: Document, out: Answer) -> list[str]:
        now, running_ms = int(given["now_ms"]), int(given["job_running_ts_ms"])
        full = job.collect(
            now,
            running_ms,
            given.get("flink_metrics", {}),
            given.get("jm_metrics"),
            given.get("tm_metrics"),
        )
        if full is None:
            return []
        job.tidy(now, running_ms)
        # One sample gives no rates: evaluation starts with the second.
        if job.memory.window.size[0] < 2:
            return []
        evaluated = job.evaluate()
        self.reported = reported = _evaluated(job, evaluated, whole=False)
        # Evaluated and reported, but the window must be full for a decision.
        if not full:
            return []
        # Recommendations are reported even where no decision follows.
        _recommend(reported, job.parallelism)
        done = job.decide(now, evaluated)
        if done.recommended is not None:
            _recommend(reported, done.recommended)
        for name, rate in done.expected.items():
            reported[name]["EXPECTED_PROCESSING_RATE"] = _pair(rate, math.nan)
        if done.scaled:
            self._config = done.tuning.overrides
        out["error"] = done.failed is not None
        # Balanced: a full pass that neither scaled nor failed.
        out["scaled"], out["balanced"] = done.scaled, not done.scaled and not out["error"]
        return done.events


def _recommend(reported: Answer, parallelism: Ints) -> None:
    for vertex, p in zip(reported.values(), parallelism.tolist(), strict=True):
        vertex["RECOMMENDED_PARALLELISM"] = {"current": p}


def _seen(given: Document) -> list[Vertex]:
    """Read the vertices of a tick; partitions come from the names of a source's metrics."""
    known = dict(given.get("kafka_partitions") or {})
    # Sources name their partitions in their metrics; a document may give them instead.
    for name, metrics in (given.get("flink_metrics") or {}).items():
        known.setdefault(name, source_partitions(metrics))
    return vertices_of(
        {**v, "num_source_partitions": v.get("num_source_partitions") or known.get(v["name"], 0)}
        if not v.get("inputs")
        else v
        for v in given["vertices"]
    )


def _changes(job: Job, wanted: Changes) -> Answer:
    expected = wanted.expectations(job.names)
    changes: Answer = {}
    for v, name in enumerate(job.names):
        current, new = int(job.parallelism[v]), int(wanted.new[v])
        changes[name] = {"current": current, "new": new}
        if new != current:
            changes[name]["outside_utilization_bound"] = bool(wanted.outside[v])
        if name in expected:
            changes[name]["expected_processing_rate"] = written(expected[name])
    return changes


def _evaluated(job: Job, evaluated: Floats, *, whole: bool) -> Answer:
    found: Answer = {}
    for v, (vertex, row) in enumerate(zip(job.vertices, evaluated, strict=True)):
        nan = float("nan")
        metrics: Answer = {
            "LOAD": _pair(nan, row[E_LOAD]),
            "TRUE_PROCESSING_RATE": _pair(nan, row[E_TPR]),
            "TARGET_DATA_RATE": _pair(nan, row[E_TARGET]),
            "CATCH_UP_DATA_RATE": _pair(row[E_CATCH_UP], nan),
        }
        if not math.isnan(row[E_LAG]):
            metrics["LAG"] = _pair(row[E_LAG], nan)
        if whole:
            metrics["PARALLELISM"] = {"current": int(job.parallelism[v])}
            metrics["MAX_PARALLELISM"] = {"current": vertex.max_parallelism}
        else:
            metrics["RECOMMENDED_PARALLELISM"] = None
        metrics["NUM_SOURCE_PARTITIONS"] = {"current": vertex.partitions}
        metrics["SCALE_UP_RATE_THRESHOLD"] = _pair(row[E_UP], nan)
        metrics["SCALE_DOWN_RATE_THRESHOLD"] = _pair(row[E_DOWN], nan)
        found[vertex.name] = metrics
    return found


def _pair(current: float, mean: float) -> dict[str, float | int | str]:
    pair = {"current": float(current), "average": float(mean)}
    # Flink's metrics omit unknown values.
    return {name: written(value) for name, value in pair.items() if not math.isnan(value)}


def _overrides(job: Job) -> dict[str, int]:
    stored = job.memory.overrides[0].tolist()
    return {name: p for name, p in zip(job.names, stored, strict=True) if p > 0}


def _delayed(job: Job) -> Answer:
    d = job.memory.delayed
    return {
        job.names[v]: {
            "first_trigger_ms": int(d.first_ms[0, v]),
            "recommended": [
                {
                    "ts_ms": int(d.ts_ms[0, v, i]),
                    "parallelism": int(d.parallelism[0, v, i]),
                    "outside_utilization_bound": bool(d.outside[0, v, i]),
                }
                for i in range(d.size[0, v])
            ],
        }
        # In the order of the HashMap that the operator iterates over.
        for v in job.graph.visits[0].tolist()
        if d.size[0, v] > 0
    }
