"""The model's capacity is known to some per cent: what that leaves open near saturation.

A job that is offered about what it can take is late or not by a few per cent of its capacity. So
the model is also run with its capacity at both ends of the interval that the fit's error on what it
had not seen gives (the section `fitted` of the job file).
"""

from __future__ import annotations

import math

from dsp_gym.job.spec import JobSpec, Vertex

__all__ = ["capacity_factors", "with_capacity"]

COSTS_OF_STATE = ("read_hit_us", "read_miss_us", "write_us", "compaction_us")


def capacity_factors(spec: JobSpec) -> tuple[float, float] | None:
    """The capacity at both ends of its 90 % interval, over the model's own.

    Returns:
        The lower and the upper factor; None where the job file tells no error of its fit.
    """
    error = None if spec.fitted is None else spec.fitted.error
    if error is None or error.within <= 0:
        return None
    return math.exp(-error.within), math.exp(error.within)


def with_capacity(spec: JobSpec, factor: float) -> JobSpec:
    """The job with every record cheaper by a factor, so that it takes as many times as many.

    Returns:
        A copy; its memory, its parallelism and what a rescale costs stay.
    """
    return spec.model_copy(update={"vertices": tuple(_scaled(v, factor) for v in spec.vertices)})


def _scaled(vertex: Vertex, factor: float) -> Vertex:
    update: dict[str, object] = {"cpu_us_per_record": vertex.cpu_us_per_record / factor}
    if vertex.state is not None:
        costs = {name: getattr(vertex.state, name) / factor for name in COSTS_OF_STATE}
        update["state"] = vertex.state.model_copy(update=costs)
    return vertex.model_copy(update=update)
