"""Shifts: jobs that differ in one way from those that policies were tuned and trained on."""

from __future__ import annotations

import zlib
from typing import TypeVar

from pydantic import Field, model_validator

from dsp_gym.arrays import Ints
from dsp_gym.config.model import ConfigModel
from dsp_gym.job.deployment import Scheduler, deployed
from dsp_gym.job.spec import JobSpec, State
from dsp_gym.loop.decision import ScalingDecision
from dsp_gym.loop.protocols import Mask, Policy
from dsp_gym.loop.protocols import State as PolicyState
from dsp_gym.loop.snapshot import MetricsSnapshot, snapshot_of_arrays
from dsp_gym.loop.topology import Topology
from dsp_gym.simulation.options import SimulationOptions

Bounded = TypeVar("Bounded", bound=ConfigModel)


class Shift(ConfigModel):
    """What differs; a shift without changes is the benchmark as it is."""

    name: str = Field(min_length=1, description="label in results")
    rate: float = Field(
        1.0,
        gt=0,
        le=1e4,
        description="factor on the job's reference rate; the times per record are divided by it, "
        "so that the job needs as many tasks as before",
    )
    outage: float = Field(1.0, gt=0, le=100, description="factor on the outage of a rescale")
    scheduler: Scheduler = Field(
        "default",
        description="adaptive: rescales in place, one memory level for all vertices; default: as "
        "the job file says",
    )
    metric_delay_s: int | None = Field(
        None, ge=0, le=300, description="age of the newest sample seen, s; none: the benchmark's"
    )
    file_error: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="share by which the job file that a policy reads is wrong about each vertex's "
        "time per record: too long for some, too short for the others; the job is as it was",
    )

    @model_validator(mode="after")
    def _check_outage(self) -> Shift:
        if self.scheduler == "adaptive" and self.outage != 1.0:
            raise ValueError("the adaptive scheduler has its own outages; leave outage at 1")
        return self

    def job(self, spec: JobSpec) -> JobSpec:
        """Return the job as it runs under the shift.

        Returns:
            The job itself where nothing about it changes.
        """
        if self.rate != 1.0:
            spec = _at_rate(spec, self.rate)
        if self.outage != 1.0:
            seconds = tuple(self.outage * second for second in spec.rescale.outage_s)
            spec = _with(spec, rescale=_with(spec.rescale, outage_s=seconds))
        return spec if self.scheduler == "default" else deployed(spec, "adaptive")

    def options(self, options: SimulationOptions) -> SimulationOptions:
        """Say how the job is measured under the shift.

        Returns:
            The options themselves where nothing about them changes.
        """
        if self.metric_delay_s is None:
            return options
        return _with(options, measurement=_with(options.measurement, delay_s=self.metric_delay_s))


def misread(spec: JobSpec, error: float) -> JobSpec:
    """Return a job file that is wrong about every vertex's time per record.

    Args:
        spec: The job as it is.
        error: Share of the time per record; which vertices are too long and which too short
            follows from their names.

    Returns:
        The job as the file describes it.
    """

    def factor(name: str) -> float:
        sign = 1.0 if zlib.crc32(f"{spec.job}/{name}".encode()) % 2 else -1.0
        return 1.0 + sign * error

    vertices = tuple(
        _with(vertex, cpu_us_per_record=factor(vertex.name) * vertex.cpu_us_per_record)
        for vertex in spec.vertices
    )
    return _with(spec, vertices=vertices)


class Misinformed:
    """A policy that reads wrong job files; what it measures is right.

    Args:
        policy: The policy.
        error: Share by which the files are wrong, see `misread`.
    """

    def __init__(self, policy: Policy, error: float) -> None:
        self.policy, self.error, self.name = policy, error, policy.name
        self._told: Topology | None = None

    def reset(self, jobs: Topology, seeds: Ints, mask: Mask | None = None) -> None:
        if self._told is None or mask is None:
            specs = [misread(spec, self.error) for spec in jobs.specs]
            self._told = Topology.of(specs, jobs.row.tolist())
        self.policy.reset(self._told, seeds, mask)

    def decide(self, snapshot: MetricsSnapshot) -> ScalingDecision:
        assert self._told is not None  # reset comes first
        return self.policy.decide(snapshot_of_arrays(self._told, snapshot.arrays))

    def state(self) -> PolicyState:
        return self.policy.state()

    def restore(self, state: PolicyState) -> None:
        self.policy.restore(state)


def _at_rate(spec: JobSpec, factor: float) -> JobSpec:
    """Return the job with so many times the records, each taking so much less time."""
    vertices = []
    for vertex in spec.vertices:
        changes: dict[str, object] = {"cpu_us_per_record": vertex.cpu_us_per_record / factor}
        if vertex.buffer_records is not None:
            changes["buffer_records"] = vertex.buffer_records * factor
        if vertex.state is not None:
            changes["state"] = _state_at_rate(vertex.state, factor)
        vertices.append(_with(vertex, **changes))
    source = _with(spec.source, rate_per_s=spec.source.rate_per_s * factor)
    return _with(
        spec,
        source=source,
        vertices=tuple(vertices),
        buffer_records=spec.buffer_records * factor,
    )


def _state_at_rate(state: State, factor: float) -> State:
    """State whose reads take so much less time; a window of more records holds as many bytes."""
    times = ("read_hit_us", "read_miss_us", "write_us", "compaction_us")
    changes: dict[str, object] = {name: getattr(state, name) / factor for name in times}
    if state.window is not None:
        changes["keys"] = max(1.0, state.keys * factor)
        changes["value_bytes"] = state.value_bytes / factor
    return _with(state, **changes)


def _with(value: Bounded, **changes: object) -> Bounded:
    return value.model_copy(update=changes)
