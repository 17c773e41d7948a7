"""Single facts: one rule of the autoscaler applied to the input of one of Flink's unit tests.

Each kind of fact is one function from the fact's input to the rule's result.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from baselines.flink_autoscaler.answers import Trace, decision
from baselines.flink_autoscaler.documents import (
    Answer,
    Document,
    add_delayed,
    fill_history,
    number,
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
from baselines.flink_autoscaler.settings import settings_of
from baselines.flink_autoscaler.state import (
    SCALING_METRICS,
)
from baselines.flink_autoscaler.window import average, observed_rate, rate
from baselines.studies.autoscaler_jobs import fill_globals, job_of, switches_of
from baselines.studies.autoscaler_memory_facts import (
    excluded_period,
    memory_scaling,
    memory_tuning,
    network_segments,
    restart_time,
    slots_after,
)
from dsp_gym.arrays import Floats, Ints
from dsp_gym.errors import SchemaError, did_you_mean


def fact(op: str, given: Document, version: str = "1.15.0") -> Answer:
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
    if op not in _RULES:
        raise SchemaError(
            "unknown kind of fact", key="op", value=op, remedy=did_you_mean(op, _RULES)
        )
    return _RULES[op](given, version == "main")


def _samples(job: Job) -> tuple[Ints, Floats]:
    w = job.memory.window
    return w.ts_ms[0, : w.size[0]], w.vertex[0, : w.size[0]]


def _scale(given: Document, main: bool) -> Answer:
    options = Options.of(given["conf"])
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
        settings_of(options, switches_of(options, main)).mode,
    )
    return {"new": int(new)}


def _align(given: Document, main: bool) -> Answer:
    options = Options.of(given["conf"])
    if not given["num_source_partitions"] and "HASH" not in given["input_ship_strategies"]:
        return {"new": given["target"]}
    new, _ = align(
        given["current"],
        given["target"],
        given["num_source_partitions"],
        given["max_parallelism"],
        given["lower_limit"],
        given["upper_limit"],
        settings_of(options, switches_of(options, main)).mode,
    )
    return {"new": int(new)}


def _metrics(given: Document, job: Job, restart_s: float) -> Floats:
    """Return the evaluated metrics of a test, with thresholds from the configuration."""
    row = np.full(len(EVALUATED), np.nan)
    row[E_TPR] = number(given["true_processing_rate"])
    row[E_TARGET] = number(given["target_data_rate"])
    row[E_CATCH_UP] = number(given["catch_up_data_rate"])
    row[E_UP], row[E_DOWN] = thresholds(row[E_TARGET], row[E_CATCH_UP], False, job.s, restart_s)
    return row


def _vertex(given: Document, main: bool) -> Answer:
    job = job_of({"conf": given["conf"]}, main, steps=len(given["steps"]) + 8)
    memory, restart_s = job.memory, float(given["restart_time_s"])
    for entry in given.get("delayed_scale_down", []):
        add_delayed(job, 0, entry)
    results = []
    for step in given["steps"]:
        memory.history.size[:] = 0
        fill_history(job, {"v": step.get("scaling_history", [])})
        limits = Limits(
            "HASH" in step["input_ship_strategies"],
            step["num_source_partitions"],
            step["max_parallelism"],
            job.s.min_parallelism,
            job.s.max_parallelism,
        )
        new, outside, expected, events, _ = scale_vertex(
            _metrics(step, job, restart_s),
            step["parallelism"],
            limits,
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


def _executor(given: Document, main: bool) -> Answer:
    vertices = [
        {
            **v,
            "parallelism": v.get("metric_parallelism", v["parallelism"]),
            "max_parallelism": v.get("metric_max_parallelism", v["max_parallelism"]),
        }
        for v in given["vertices"]
    ]
    job = job_of({**given, "vertices": vertices}, main)
    fill_globals(job, given.get("global_metrics", {}))
    by_name = {v["name"]: v for v in given["vertices"]}
    rows = np.array([_metrics(by_name[name], job, job.restart_s) for name in job.names])
    done = job.decide(0, rows)
    changed: list[str] = []
    if done.recommended is not None:
        moved = done.recommended != job.parallelism
        changed = sorted(np.array(job.names)[moved].tolist())
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
    job_switches = switches_of(Options.of(given["conf"]), main)
    found = decision({**given, "id": None}, job_switches)
    return {name: found[name] for name in ("evaluated", "global") if name in found}


def _thresholds(given: Document, main: bool) -> Answer:
    up, down = thresholds(
        number(given["target_data_rate"]),
        number(given["catch_up_data_rate"]),
        given["processing_backlog"],
        job_of(given, main).s,
        float(given["restart_time_s"]),
    )
    return {"scale_up_threshold": written(float(up)), "scale_down_threshold": written(float(down))}


def _true_processing_rate(given: Document, main: bool) -> Answer:
    job = job_of(given, main)
    _, values = _samples(job)
    observed = average(values, 0, SCALING_METRICS.index("OBSERVED_TPR"), job.s.observed_min)
    found = true_processing_rate(
        number(given["busy_time_ms_per_s"]),
        number(given["input_rate"]),
        observed,
        job.s.observed_switch,
    )
    return {"value": written(float(found))}


def _busy_time(given: Document, main: bool) -> Answer:
    job = job_of(given, main)
    ts_ms, values = _samples(job)
    found = busy_ms_per_s(ts_ms, values, 0, given["parallelism"], job.s)
    return {"value": written(float(found))}


def _rate(given: Document, main: bool) -> Answer:
    vertex = {"name": given["vertex"], "parallelism": 1, "max_parallelism": 1}
    ts_ms, values = _samples(job_of({**given, "vertices": [vertex]}, main))
    return {"value": written(float(rate(ts_ms, values, 0, SCALING_METRICS.index(given["metric"]))))}


def _edge_output_ratio(given: Document, main: bool) -> Answer:
    job = job_of(given, main)
    u, v = job.names.index(given["from"]), job.names.index(given["to"])
    return {"value": float(edge_ratio(job.graph, 0, u, v, *_samples(job)))}


def _processing_backlog(given: Document, main: bool) -> Answer:
    job = job_of(given, main)
    return {"value": bool(backlog(job.graph, 0, *_samples(job), job.s.backlog_s))}


def _coefficient(given: Document, main: bool) -> Answer:
    job = job_of({"conf": given["conf"]}, main)
    fill_history(job, {"v": given["scaling_history"]})
    h = job.memory.history
    n = h.size[0, 0]
    found = coefficient(
        h.before[0, 0, :n], h.rate[0, 0, :n], job.s.scalability_min, job.s.scalability_lowest
    )
    return {"value": float(found)}


def _observed_tpr(given: Document, main: bool) -> Answer:
    threshold_s = job_of({"conf": given["conf"]}, main).s.observed_lag_s
    found = observed_rate(
        float(given["records_per_s"]),
        float(given["lag"]),
        float(given["backpressured_ms_per_s"]),
        threshold_s,
        float(given["previous_average"]),
    )
    return {"value": written(float(found))}


def _observed_tpr_backpressure(given: Document, _main: bool) -> Answer:
    found = observed_rate(
        float(given["records_in_per_s"]),
        0.0,
        float(given["backpressured_ms_per_s"]),
        0.0,
        float("nan"),
    )
    return {"value": written(float(found))}


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


_RULES: dict[str, Callable[[Document, bool], Answer]] = {
    "scale": _scale,
    "align": _align,
    "vertex": _vertex,
    "executor": _executor,
    "evaluate": _evaluate,
    "thresholds": _thresholds,
    "true_processing_rate": _true_processing_rate,
    "busy_time": _busy_time,
    "rate": _rate,
    "edge_output_ratio": _edge_output_ratio,
    "processing_backlog": _processing_backlog,
    "scaling_coefficient": _coefficient,
    "observed_tpr": _observed_tpr,
    "observed_tpr_backpressure": _observed_tpr_backpressure,
    "memory_tuning": memory_tuning,
    "network_segments": network_segments,
    "memory_scaling": memory_scaling,
    "slots_after_rescale": slots_after,
    "restart_time": restart_time,
    "excluded_period": excluded_period,
    "trace": _trace,
}
