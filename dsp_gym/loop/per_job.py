"""Policies written for one job, lifted to the batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar

from dsp_gym.arrays import Ints
from dsp_gym.config.model import ConfigModel
from dsp_gym.errors import PolicyError, did_you_mean
from dsp_gym.loop.decision import ScalingDecision
from dsp_gym.loop.lacking import DEMANDED
from dsp_gym.loop.per_job_state import Kept, Parts
from dsp_gym.loop.protocols import Mask
from dsp_gym.loop.snapshot import JobSnapshot, MetricsSnapshot
from dsp_gym.loop.topology import Topology
from dsp_gym.loop.unknown import NONE, hold_unknown, marked, told

VertexConfiguration = int | tuple[int, int]
"""Wanted parallelism of a vertex, or parallelism and memory level."""

JobFunction = Callable[[JobSnapshot], Mapping[str, VertexConfiguration]]


class NoParameters(ConfigModel):
    """The empty configuration of a function, so that it can be named like any other policy."""


class PerJobPolicy(Kept):
    """A policy from a function of one job; vertices it does not name keep their configuration.

    Those whose metrics are unknown give up nothing (`dsp_gym.loop.unknown`).
    """

    Config = NoParameters

    function: ClassVar[JobFunction]
    name: str = "per-job"

    def __init__(self, config: NoParameters | None = None) -> None:
        self.config = config or NoParameters()
        self._kept = Parts()  # none

    def reset(self, jobs: Topology, seeds: Ints, mask: Mask | None = None) -> None:
        """Do nothing: a function of one snapshot remembers nothing."""

    def decide(self, snapshot: MetricsSnapshot) -> ScalingDecision:
        parallelism, level = snapshot.parallelism.copy(), snapshot.memory_level.copy()
        reasons = []
        for index in range(len(snapshot)):
            # One job after the other in Python: fine for a handful of jobs, slow for thousands.
            job = snapshot.job(index)
            wanted = type(self).function(job)
            for vertex, value in wanted.items():
                column = _column(self.name, job, vertex)
                if isinstance(value, tuple):
                    parallelism[index, column], level[index, column] = value
                else:
                    parallelism[index, column] = value
            reasons.append(self.name)
        seen = marked(snapshot, DEMANDED)
        parallelism, level = hold_unknown(seen, parallelism, level, NONE)
        return ScalingDecision(parallelism, level, told(seen, reasons, ""))


def per_job(function: JobFunction) -> type[PerJobPolicy]:
    """Make a policy class from a function that looks at one job.

    Returns:
        A class that keeps the policy protocol; it needs no arguments.

    >>> @per_job
    ... def one_more(job: JobSnapshot) -> dict[str, int]:
    ...     return {v: int(job.vertex(v, "parallelism") or 1) + 1 for v in job.vertices}
    >>> one_more().name
    'one-more'
    """
    name = function.__name__.replace("_", "-")
    members = {
        "__doc__": function.__doc__,
        "__module__": function.__module__,
        "function": staticmethod(function),
        "name": name,
    }
    return type(function.__name__, (PerJobPolicy,), members)


def _column(policy: str, job: JobSnapshot, vertex: str) -> int:
    if vertex not in job.vertices:
        raise PolicyError(
            f"policy '{policy}' decides for a vertex that the job does not have",
            value=vertex,
            remedy=did_you_mean(vertex, job.vertices),
        )
    return job.vertices.index(vertex)
