"""The job of a fact: its options, vertices, window and evaluated metrics."""

from __future__ import annotations

from baselines.flink_autoscaler.documents import (
    Document,
    fill_window,
    number,
    task_managers,
    vertices_of,
)
from baselines.flink_autoscaler.job import Job
from baselines.flink_autoscaler.options import Options
from baselines.flink_autoscaler.settings import Switches
from baselines.flink_autoscaler.state import GLOBALS


def switches_of(options: Options, main: bool) -> Switches:
    """Return the switches of 1.15.0, or of main.

    Returns:
        The behaviours in which the two versions differ, one flag each.
    """
    return Switches.main(options) if main else Switches()


def job_of(given: Document, main: bool, steps: int = 64) -> Job:
    """Build the job of a fact.

    Returns:
        A job with the fact's options, vertices and window.
    """
    options = Options.of(given.get("conf", {}))
    vertices = given.get("vertices") or [{"name": "v", "parallelism": 1, "max_parallelism": 1}]
    job = Job(
        options,
        vertices_of(vertices),
        switches=switches_of(options, main),
        tm=task_managers(given),
        steps=steps,
    )
    fill_window(job, given.get("history", []))
    return job


def fill_globals(job: Job, given: Document) -> None:
    """Put evaluated metrics of the job in place."""
    for g, name in enumerate(GLOBALS):
        for at, kind in enumerate(("current", "average")):
            job.evaluated_job[g, at] = number(given.get(name, {}).get(kind))
