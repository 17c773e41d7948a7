"""One job on a real Flink, from its submission to its end, as most validations run it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from dsp_gym.backends.flink.rest import FlinkRest
from dsp_gym.backends.flink.submission import Submission
from dsp_gym.control.autoscaler import JobAutoscaler
from dsp_gym.control.turn import Turn
from dsp_gym.job.spec import JobSpec
from dsp_gym.loop.configuration import Configuration
from dsp_gym.metrics.window import WindowConfig

WINDOW = WindowConfig(window_s=25, stabilization_s=10)
"""Of jobs that are decided on several times a minute."""


def one_task_each(spec: JobSpec) -> Configuration:
    """One task per vertex; level 0 where there is state.

    Returns:
        The configuration; the level of a vertex without state is -1.
    """
    return Configuration(
        {v.name: 1 for v in spec.vertices},
        {v.name: 0 if v.state is not None else -1 for v in spec.vertices},
    )


@contextmanager
def submitted(
    rest: FlinkRest,
    spec: JobSpec,
    name: str,
    arguments: Mapping[str, str],
    configuration: Configuration,
) -> Iterator[str]:
    """Submit a job; it is cancelled when the block ends, whatever submissions followed.

    Args:
        rest: The cluster.
        spec: The job.
        name: Its name in Flink.
        arguments: Of its program: the load, and what differs from the job file.
        configuration: What it starts with.

    Yields:
        Flink's id of it.
    """
    job_id = Submission.of_spec(spec, arguments, name).submit(rest, configuration)
    try:
        yield job_id
    finally:
        rest.cancel(rest.find_job(name).id)


def constant_load(rate_per_s: float, **more: str) -> dict[str, str]:
    """Write a load of one rate as arguments of a job's program; it begins now.

    Returns:
        The arguments, and those given beside them.
    """
    return {"rate": f"{rate_per_s:.10g}", "epoch-ms": str(round(time.time() * 1000)), **more}


def wait_until(when_s: float) -> None:
    """Sleep until a moment, Unix seconds, unless it has passed."""
    time.sleep(max(0.0, when_s - time.time()))


def on_the_beat(run: JobAutoscaler, epoch_s: float, seconds: int) -> Iterator[Turn]:
    """Decide in step with a load, so that decisions of all runs see the same seconds of it.

    Args:
        run: Decides.
        epoch_s: When the load begins, Unix seconds.
        seconds: How long it lasts.

    Yields:
        Each decision when its interval has passed.
    """
    wait_until(epoch_s)
    run.backend.advance(0)  # what came before the load is nobody's
    for after_s in range(run.interval_s, seconds + 1, run.interval_s):
        decided = run.decide()
        wait_until(epoch_s + after_s)
        yield run.finish(decided)
