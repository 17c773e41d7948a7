"""Single facts: one rule of the autoscaler applied to the input of one of Flink's unit tests.

Each kind of fact is one function from the fact's input to the rule's result.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from baselines.flink_autoscaler import memory
from baselines.flink_autoscaler.answers import Trace, decision
from baselines.flink_autoscaler.documents import (
    Answer,
    Document,
    add_delayed,
    fill_history,
    fill_tracking,
    fill_window,
    number,
    task_managers,
    vertices_of,
    written,
)
from baselines.flink_autoscaler.evaluator import (
    E_CATCH_UP,
    E_DOWN,
    E_TARGET,
    E_TPR,
    E_UP,
    EVALUATED,
    backlog,
    busy_ms_per_s,
    edge_ratio,
    thresholds,
    true_processing_rate,
)
from baselines.flink_autoscaler.job import Job
from baselines.flink_autoscaler.options import Options
from baselines.flink_autoscaler.periods import excluded
from baselines.flink_autoscaler.scaler import (
    INEFFECTIVE,
    LIMITED,
    Limits,
    Pass,
    align,
    coefficient,
    scale,
    scale_vertex,
)
from baselines.flink_autoscaler.settings import Switches
from baselines.flink_autoscaler.state import GLOBALS, SCALING_METRICS
from baselines.flink_autoscaler.units import memory_bytes
from baselines.flink_autoscaler.window import average, observed_rate, rate
from dsp_gym.arrays import Floats, Ints
from dsp_gym.errors import ConfigError, SchemaError, did_you_mean

RELEASE, MAIN = "1.15.0", "main"


def fact(op: str, given: Document, version: str = RELEASE) -> Answer:
    """Apply one rule of the autoscaler to the input of one of Flink's unit tests.

    Args:
        op: Kind of the fact.
        given: Its input.
        version: 1.15.0, or main for the switches that lead there.

    Returns:
        The fields of the fact's `expected`.

    Raises:
        SchemaError: No kind of fact has that name.
    """
    known = _OF_DOCUMENT.keys() | _OF_JOB.keys() | _VALUES.keys()
    if op not in known:
        raise SchemaError(
            "unknown kind of fact", key="op", value=op, remedy=did_you_mean(op, known)
        )
    if op in _OF_DOCUMENT:
        return _OF_DOCUMENT[op](given, version == MAIN)
    job = _job_of(given, version == MAIN)
    if op in _OF_JOB:
        return _OF_JOB[op](given, job)
    return {"value": written(float(_VALUES[op](given, job)))}


def _job_of(given: Document, main: bool) -> Job:
    """Build a job with the fact's options, vertices and window."""
    options = Options.of(given.get("conf", {}))
    alone = {"name": given.get("vertex", "v"), "parallelism": 1, "max_parallelism": 1}
    vertices = [
        {
            **v,
            "parallelism": v.get("metric_parallelism", v["parallelism"]),
            "max_parallelism": v.get("metric_max_parallelism", v["max_parallelism"]),
        }
        for v in given.get("vertices") or [alone]
    ]
    job = Job(
        options,
        vertices_of(vertices),
        switches=_switches_of(options, main),
        tm=task_managers(given),
        steps=64 + len(given.get("steps", ())),
    )
    fill_window(job, given.get("history", []))
    for g, name in enumerate(GLOBALS):
        for at, kind in enumerate(("current", "average")):
            job.evaluated_job[g, at] = number(
                given.get("global_metrics", {}).get(name, {}).get(kind)
            )
    return job


def _switches_of(options: Options, main: bool) -> Switches:
    return Switches.main(options) if main else Switches()


def _samples(job: Job) -> tuple[Ints, Floats]:
    w = job.memory.window
    return w.ts_ms[0, : w.size[0]], w.vertex[0, : w.size[0]]


def _scale(given: Document, job: Job) -> Answer:
    if given["lower_limit"] > given["upper_limit"]:
        return {"raises": True}
    new, _ = scale(
        given["current"],
        float(given["scale_factor"]),
        "HASH" in given["input_ship_strategies"],
        given["num_source_partitions"],
        given["max_parallelism"],
        given["lower_limit"],
        given["upper_limit"],
        job.s.mode,
    )
    return {"new": int(new)}


def _align(given: Document, job: Job) -> Answer:
    if not given["num_source_partitions"] and "HASH" not in given["input_ship_strategies"]:
        return {"new": given["target"]}
    new, _ = align(
        given["current"],
        given["target"],
        given["num_source_partitions"],
        given["max_parallelism"],
        given["lower_limit"],
        given["upper_limit"],
        job.s.mode,
    )
    return {"new": int(new)}


def _metrics(given: Document, job: Job, restart_s: float) -> Floats:
    """Return the evaluated metrics of a test, with thresholds from the configuration."""
    row = np.full(len(EVALUATED), np.nan)
    names = ("true_processing_rate", "target_data_rate", "catch_up_data_rate")
    row[[E_TPR, E_TARGET, E_CATCH_UP]] = [number(given[name]) for name in names]
    row[E_UP], row[E_DOWN] = thresholds(row[E_TARGET], row[E_CATCH_UP], False, job.s, restart_s)
    return row


def _vertex(given: Document, job: Job) -> Answer:
    memory, restart_s = job.memory, float(given["restart_time_s"])
    for entry in given.get("delayed_scale_down", []):
        add_delayed(job, 0, entry)
    results = []
    for step in given["steps"]:
        memory.history.size[:] = 0
        fill_history(job, {"v": step.get("scaling_history", [])})
        new, outside, expected, events, _ = scale_vertex(
            _metrics(step, job, restart_s),
            step["parallelism"],
            Limits(
                "HASH" in step["input_ship_strategies"],
                step["num_source_partitions"],
                step["max_parallelism"],
                job.s.min_parallelism,
                job.s.max_parallelism,
            ),
            job.s,
            Pass(0, 0, step.get("now_ms", 0), restart_s),
            0,
            memory.history,
            memory.delayed,
        )
        raised = ((LIMITED, "ScalingLimited"), (INEFFECTIVE, "IneffectiveScaling"))
        results.append(
            {
                "current": step["parallelism"],
                "new": int(new),
                "outside_utilization_bound": bool(outside),
                "expected_processing_rate": written(float(expected)),
                "event_reasons": [name for flag, name in raised if events & flag],
            }
        )
    return {"results": results}


def _executor(given: Document, job: Job) -> Answer:
    by_name = {v["name"]: v for v in given["vertices"]}
    rows = np.array([_metrics(by_name[name], job, job.restart_s) for name in job.names])
    done = job.decide(0, rows)
    new = job.parallelism if done.recommended is None else done.recommended
    changed = sorted(np.array(job.names)[new != job.parallelism].tolist())
    stored = zip(job.names, job.memory.overrides[0].tolist(), strict=True)
    return {
        "scaled": done.scaled,
        "num_vertices_in_summary": len(changed),
        "vertices_in_summary": changed,
        "event_reasons": done.events,
        "parallelism_overrides": {name: p for name, p in stored if p > 0},
        "config_overrides": done.tuning.overrides,
    }


def _evaluate(given: Document, main: bool) -> Answer:
    switches = _switches_of(Options.of(given["conf"]), main)
    found = decision({**given, "id": None}, switches)
    return {name: found[name] for name in ("evaluated", "global") if name in found}


def _thresholds(given: Document, job: Job) -> Answer:
    up, down = thresholds(
        number(given["target_data_rate"]),
        number(given["catch_up_data_rate"]),
        given["processing_backlog"],
        job.s,
        float(given["restart_time_s"]),
    )
    return {"scale_up_threshold": written(float(up)), "scale_down_threshold": written(float(down))}


def _true_processing_rate(given: Document, job: Job) -> float:
    return true_processing_rate(
        number(given["busy_time_ms_per_s"]),
        number(given["input_rate"]),
        average(_samples(job)[1], 0, SCALING_METRICS.index("OBSERVED_TPR"), job.s.observed_min),
        job.s.observed_switch,
    )


def _busy_time(given: Document, job: Job) -> float:
    return busy_ms_per_s(*_samples(job), 0, given["parallelism"], job.s)


def _rate(given: Document, job: Job) -> float:
    return rate(*_samples(job), 0, SCALING_METRICS.index(given["metric"]))


def _edge_output_ratio(given: Document, job: Job) -> float:
    u, v = job.names.index(given["from"]), job.names.index(given["to"])
    return edge_ratio(job.graph, 0, u, v, *_samples(job))


def _processing_backlog(_given: Document, job: Job) -> Answer:
    return {"value": bool(backlog(job.graph, 0, *_samples(job), job.s.backlog_s))}


def _coefficient(given: Document, job: Job) -> float:
    fill_history(job, {"v": given["scaling_history"]})
    h, count = job.memory.history, job.memory.history.size[0, 0]
    before, rates = h.before[0, 0, :count], h.rate[0, 0, :count]
    return coefficient(before, rates, job.s.scalability_min, job.s.scalability_lowest)


def _observed_tpr(given: Document, job: Job) -> float:
    return observed_rate(
        float(given["records_per_s"]),
        float(given["lag"]),
        float(given["backpressured_ms_per_s"]),
        job.s.observed_lag_s,
        float(given["previous_average"]),
    )


def _observed_tpr_backpressure(given: Document, _job: Job) -> float:
    return observed_rate(
        float(given["records_in_per_s"]),
        0.0,
        float(given["backpressured_ms_per_s"]),
        0.0,
        float("nan"),
    )


def _memory_tuning(given: Document, job: Job) -> Answer:
    before = job.parallelism.tolist()
    after = [given["scaling"].get(n, p) for n, p in zip(job.names, before, strict=True)]
    inputs = [v.inputs for v in job.vertices]
    found = memory.tune(
        job.options, job.tm.memory, job.names, inputs, before, after, job.evaluated_job
    )
    return {"overrides": found.overrides if job.options.tuning else {}}


def _network_segments(given: Document, _main: bool) -> Answer:
    return {
        "value": memory.network_segments(
            given["current_parallelism"],
            given["connected_parallelism"],
            given["ship_strategy"],
            given["buffers_per_channel"],
            given["floating_buffers"],
        )
    }


def _memory_scaling(given: Document, main: bool) -> Answer:
    options = Options.of(given["conf"])
    heap, budget = memory_bytes(given["memory"], "memory"), memory_bytes(given["budget"], "budget")
    if options.tuning_compensation:
        slots, after = given["num_task_slots_used"], _slots_after(given, main)["value"]
        wanted = memory.compensated(heap, memory.task_slots(options), slots, after)
        heap += min(budget, wanted - heap)
    return {"value_bytes": heap}


def _slots_after(given: Document, _main: bool) -> Answer:
    of = given["vertices"].values()
    before = [v["parallelism"] for v in of]
    after = [v.get("new_parallelism", v["parallelism"]) for v in of]
    return {"value": memory.slots_after(given["num_task_slots_used"], before, after)}


def _restart_time(given: Document, job: Job) -> Answer:
    fill_tracking(job, given["tracked_restarts"])
    return {"value_s": job.restart_s}


def _excluded_period(given: Document, _main: bool) -> Answer:
    try:
        options = Options.of(given["conf"])
    except ConfigError:
        return {"valid": False}
    if "now_ms" not in given:
        return {"valid": True}
    return {"valid": True, "excluded": excluded(options.excluded_periods, given["now_ms"])}


def _trace(given: Document, _main: bool) -> Answer:
    run, ticks = Trace(given), []
    for tick in given["ticks"]:
        ticks.append(run.tick(tick))
        if run.job is not None and run.job.memory.window.size[0]:
            ticks[-1]["collected_last"] = {
                vertex: {name: written(value) for name, value in sample.items()}
                for vertex, sample in run.job.last_sample().items()
            }
    return {"ticks": ticks}


_OF_DOCUMENT: dict[str, Callable[[Document, bool], Answer]] = {
    "evaluate": _evaluate,
    "network_segments": _network_segments,
    "memory_scaling": _memory_scaling,
    "slots_after_rescale": _slots_after,
    "excluded_period": _excluded_period,
    "trace": _trace,
}
"""Rules that answer the fact's input alone; the second argument asks for main's switches."""

_OF_JOB: dict[str, Callable[[Document, Job], Answer]] = {
    "scale": _scale,
    "align": _align,
    "vertex": _vertex,
    "executor": _executor,
    "thresholds": _thresholds,
    "processing_backlog": _processing_backlog,
    "memory_tuning": _memory_tuning,
    "restart_time": _restart_time,
}
"""Rules that answer for the fact's job."""

_VALUES: dict[str, Callable[[Document, Job], float]] = {
    "true_processing_rate": _true_processing_rate,
    "busy_time": _busy_time,
    "rate": _rate,
    "edge_output_ratio": _edge_output_ratio,
    "scaling_coefficient": _coefficient,
    "observed_tpr": _observed_tpr,
    "observed_tpr_backpressure": _observed_tpr_backpressure,
}
"""Rules that answer with one number."""
