"""What the gauges of a job show at a load, where they do not show the load itself."""

from __future__ import annotations

from pydantic import Field

from dsp_gym.config.model import ConfigModel
from dsp_gym.job.sourced import Number

Response = tuple[Number, Number, Number, Number, Number]
"""A gauge in a load of 0..1 and a number of tasks: the factors of 1, load, load squared and, times
ln(tasks), of load and load squared. It is at least 0, a share of time at most 1."""


class VertexSignals(ConfigModel):
    """The time gauges of a vertex that shares its core with others."""

    busy: Response = Field(
        (0.0, 0.0, 0.0, 0.0, 0.0), description="share of time that it is busy (Response)"
    )
    backpressured: Response = Field(
        (0.0, 0.0, 0.0, 0.0, 0.0), description="share of time that it is backpressured (Response)"
    )


class Signals(ConfigModel):
    """The gauges of a job whose load they do not show: records of a task over those it does alone.

    Operators that share a core are idle at saturation, and a TaskManager at rest uses CPU. A
    response has the factors of 1, load, load squared, load * ln(tasks), load squared * ln(tasks).
    """

    cpu: Response = Field(description="CPU load of a TaskManager (Response)")
    lag_s: Response = Field(
        (0.0, 0.0, 0.0, 0.0, 0.0),
        description="seconds of load in the lag of the fullest partition while nothing waits, "
        "where partitions are known (Response)",
    )
    vertices: dict[str, VertexSignals] = Field(
        default_factory=dict, description="time gauges by vertex; others are never busy"
    )
