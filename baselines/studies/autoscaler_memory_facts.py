"""Facts about memory, slots, restarts and excluded periods."""

from __future__ import annotations

from baselines.flink_autoscaler import memory
from baselines.flink_autoscaler.documents import Answer, Document, fill_tracking
from baselines.flink_autoscaler.options import Options
from baselines.flink_autoscaler.periods import excluded
from baselines.flink_autoscaler.units import memory_bytes
from baselines.studies.autoscaler_jobs import fill_globals, job_of
from dsp_gym.errors import ConfigError


def memory_tuning(given: Document, main: bool) -> Answer:
    """Tune the memory of a TaskManager after a scaling.

    Returns:
        `overrides`: keys to set.
    """
    job = job_of(given, main)
    fill_globals(job, given["global_metrics"])
    before = job.parallelism.tolist()
    after = [given["scaling"].get(n, p) for n, p in zip(job.names, before, strict=True)]
    inputs = [v.inputs for v in job.vertices]
    found = memory.tune(
        job.options, job.tm.memory, job.names, inputs, before, after, job.evaluated_job
    )
    return {"overrides": found.overrides if job.options.tuning else {}}


def network_segments(given: Document, _main: bool) -> Answer:
    """Count the network segments of a gate.

    Returns:
        `value`: segments.
    """
    return {
        "value": memory.network_segments(
            given["current_parallelism"],
            given["connected_parallelism"],
            given["ship_strategy"],
            given["buffers_per_channel"],
            given["floating_buffers"],
        )
    }


def _parallelisms(given: Document) -> tuple[list[int], list[int]]:
    of = given["vertices"].values()
    return [v["parallelism"] for v in of], [v.get("new_parallelism", v["parallelism"]) for v in of]


def memory_scaling(given: Document, _main: bool) -> Answer:
    """Compensate the heap for removed TaskManagers.

    Returns:
        `value_bytes`: heap.
    """
    options = Options.of(given["conf"])
    heap, budget = memory_bytes(given["memory"], "memory"), memory_bytes(given["budget"], "budget")
    if options.tuning_compensation:
        slots = given["num_task_slots_used"]
        wanted = memory.compensated(
            heap,
            memory.task_slots(options),
            slots,
            memory.slots_after(slots, *_parallelisms(given)),
        )
        heap += min(budget, wanted - heap)
    return {"value_bytes": heap}


def slots_after(given: Document, _main: bool) -> Answer:
    """Count the slots after a scaling.

    Returns:
        `value`: slots.
    """
    return {"value": memory.slots_after(given["num_task_slots_used"], *_parallelisms(given))}


def restart_time(given: Document, main: bool) -> Answer:
    """Choose the restart time that counts.

    Returns:
        `value_s`: seconds.
    """
    job = job_of({"conf": given["conf"]}, main)
    fill_tracking(job, given["tracked_restarts"])
    return {"value_s": job.restart_s}


def excluded_period(given: Document, _main: bool) -> Answer:
    """Read a period and check whether a moment lies in it.

    Returns:
        `valid`, and `excluded` where a moment is given.
    """
    try:
        options = Options.of(given["conf"])
    except ConfigError:
        return {"valid": False}
    if "now_ms" not in given:
        return {"valid": True}
    return {"valid": True, "excluded": excluded(options.excluded_periods, given["now_ms"])}
