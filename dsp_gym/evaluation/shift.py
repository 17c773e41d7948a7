"""Shifts: jobs that differ in one way from those that policies were tuned and trained on."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import TypeVar

import numpy as np
from pydantic import Field, model_validator

from dsp_gym.arrays import Floats, Ints
from dsp_gym.config.model import ConfigModel
from dsp_gym.job.capacity import vertex_capacity
from dsp_gym.job.deployment import Scheduler, deployed
from dsp_gym.job.sizing import sized
from dsp_gym.job.spec import JobSpec, State
from dsp_gym.job.tables import compile_jobs
from dsp_gym.loop.decision import ScalingDecision
from dsp_gym.loop.protocols import Mask, Policy
from dsp_gym.loop.protocols import State as PolicyState
from dsp_gym.loop.snapshot import MetricsSnapshot, snapshot_of_arrays
from dsp_gym.loop.topology import Topology
from dsp_gym.metrics.samples import SAMPLE_S
from dsp_gym.simulation.options import SimulationOptions

Bounded = TypeVar("Bounded", bound=ConfigModel)


class Shift(ConfigModel):
    """What differs; a shift without changes is the benchmark as it is.

    Changes are left out of dumps where they are none, so that results keep their fingerprints.
    """

    name: str = Field(min_length=1, description="label in results")
    rate: float = Field(
        1.0,
        gt=0,
        le=1e4,
        description="factor on the job's reference rate; the times per record are divided by it, "
        "so that the job needs as many tasks as before",
    )
    outage: float = Field(1.0, gt=0, le=100, description="factor on the outage of a rescale")
    outage_s: float | None = Field(
        None,
        gt=0,
        le=3600,
        exclude_if=lambda value: value is None,
        description="seconds of every rescale's outage, whatever the job's state; none: the job's",
    )
    scheduler: Scheduler = Field(
        "default",
        description="adaptive: rescales in place, one memory level for all vertices; default: as "
        "the job file says",
    )
    max_parallelism: int | None = Field(
        None,
        ge=1,
        le=2048,
        exclude_if=lambda value: value is None,
        description="highest parallelism of a vertex, below the job's own; none: the job's",
    )
    miss_ms: float | None = Field(
        None,
        gt=0,
        le=1000,
        exclude_if=lambda value: value is None,
        description="milliseconds of a state read that misses the cache; a record reads as much "
        "less often as leaves a warm job as busy as before. None: the job's",
    )
    metric_delay_s: int | None = Field(
        None, ge=0, le=300, description="age of the newest sample seen, s; none: the benchmark's"
    )
    lost_samples: float | None = Field(
        None,
        ge=0,
        lt=1,
        exclude_if=lambda value: value is None,
        description="share of metric samples lost, each by itself; none: the benchmark's",
    )
    gaps_per_hour: float | None = Field(
        None,
        gt=0,
        le=60,
        exclude_if=lambda value: value is None,
        description="gaps per hour in which no metrics come; none: the benchmark's",
    )
    gap_s: float = Field(
        120.0,
        ge=SAMPLE_S,
        le=3600,
        exclude_if=lambda value: value == 120.0,
        description="seconds of such a gap",
    )
    slow_per_hour: float | None = Field(
        None,
        gt=0,
        le=60,
        exclude_if=lambda value: value is None,
        description="times per hour that one TaskManager turns slow; none: the benchmark's",
    )
    slow_factor: float = Field(
        0.5,
        gt=0,
        le=1,
        exclude_if=lambda value: value == 0.5,
        description="speed of a slow TaskManager, as a share of its usual speed",
    )
    slow_s: float = Field(
        300.0,
        ge=SAMPLE_S,
        le=86_400,
        exclude_if=lambda value: value == 300.0,
        description="seconds for which it is slow",
    )
    failed_rescales: float | None = Field(
        None,
        ge=0,
        le=1,
        exclude_if=lambda value: value is None,
        description="share of rescales after which the job restarts as it was; none: the "
        "benchmark's",
    )
    deploy_at_s: int | None = Field(
        None,
        ge=SAMPLE_S,
        multiple_of=SAMPLE_S,
        le=7 * 86_400,
        exclude_if=lambda value: value is None,
        description="second of the episode in which somebody deploys another version of the job; "
        "none: never",
    )
    deploy_factor: float = Field(
        2.0,
        gt=0,
        le=100,
        exclude_if=lambda value: value == 2.0,
        description="time per record of that version over that before, sources left out",
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
        if self.outage != 1.0 and self.outage_s is not None:
            raise ValueError("outage multiplies and outage_s replaces the outage; give one of them")
        if self.scheduler == "adaptive" and self.outage != 1.0:
            raise ValueError("the adaptive scheduler has its own outages; leave outage at 1")
        return self

    @model_validator(mode="after")
    def _check_companions(self) -> Shift:
        for name, needed in _COMPANIONS.items():
            changed = getattr(self, name) != Shift.model_fields[name].default
            if changed and getattr(self, needed) is None:
                raise ValueError(f"{name} changes nothing without {needed}; give it too")
        return self

    def check_episode(self, episode_s: int) -> None:
        """Refuse a deploy that no episode of this length reaches.

        Args:
            episode_s: Seconds of an episode.

        Raises:
            ValueError: The deploy comes later.
        """
        if self.deploy_at_s is not None and self.deploy_at_s >= episode_s:
            raise ValueError(
                f"shift '{self.name}': deploy_at_s {self.deploy_at_s} lies beyond the episode of "
                f"{episode_s} s"
            )

    def job(self, spec: JobSpec) -> JobSpec:
        """Return the job as it runs under the shift.

        Returns:
            The job itself where nothing about it changes.
        """
        if self.rate != 1.0:
            spec = _at_rate(spec, self.rate)
        if self.miss_ms is not None:
            spec = _with_misses(spec, 1000.0 * self.miss_ms)
        if self.outage != 1.0:
            seconds = tuple(self.outage * second for second in spec.rescale.outage_s)
            spec = _with(spec, rescale=_with(spec.rescale, outage_s=seconds))
        if self.scheduler == "adaptive":
            spec = deployed(spec, "adaptive")
        if self.outage_s is not None:
            # The outage has the restore of the state in it, which then takes no time of its own.
            costs = {"outage_s": (self.outage_s,) * 3, "restore_mib_per_s": _AT_ONCE}
            spec = _with(spec, rescale=_with(spec.rescale, **costs))
        return spec if self.max_parallelism is None else _capped(spec, self.max_parallelism)

    def options(self, options: SimulationOptions) -> SimulationOptions:
        """Say how the job is measured under the shift, and what goes wrong.

        Returns:
            The options themselves where nothing about them changes.
        """
        measured = _given(delay_s=self.metric_delay_s, missing_probability=self.lost_samples)
        faults = _given(failed_rescale_probability=self.failed_rescales)
        if self.gaps_per_hour is not None:
            faults |= {"metric_gaps_per_hour": self.gaps_per_hour, "gap_s": self.gap_s}
        if self.slow_per_hour is not None:
            faults |= {
                "slow_nodes_per_hour": self.slow_per_hour,
                "slow_factor": self.slow_factor,
                "slow_s": self.slow_s,
            }
        if self.deploy_at_s is not None:
            faults |= {"deploy_at_s": self.deploy_at_s, "deploy_factor": self.deploy_factor}
        changes = _given(
            measurement=_with(options.measurement, **measured) if measured else None,
            faults=_with(options.faults, **faults) if faults else None,
        )
        return _with(options, **changes) if changes else options


_COMPANIONS = {
    "gap_s": "gaps_per_hour",
    "slow_factor": "slow_per_hour",
    "slow_s": "slow_per_hour",
    "deploy_factor": "deploy_at_s",
}
"""Fields that say more about another one, by name."""

_AT_ONCE = 1e12
"""Restore rate at which any state is there at once, MiB/s."""


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


def _with_misses(spec: JobSpec, miss_us: float) -> JobSpec:
    """Return the job whose state reads miss at another price, as busy as before when it is warm."""
    tables = compile_jobs([spec])
    row, rate = np.zeros(1, np.int64), tables.rate_per_s
    level = tables.start_level[row]
    tasks = sized(tables, row, rate, _UTILIZATION, np.ones(1), level)[0]

    def times_s(job: JobSpec) -> Floats:
        """Time of a record of each vertex (V,) as the job starts, s."""
        made = compile_jobs([job])
        found = np.zeros(len(tasks))
        for v, per_s in enumerate(rate[0] * made.ratio[0]):
            found[v] = 1.0 / vertex_capacity(made, 0, v, tasks[v], level[0, v], per_s)[0]
        return found

    places = {vertex.name: v for v, vertex in enumerate(spec.topological_order())}
    reads = {
        one.name: float(one.state.reads)
        for one in spec.vertices
        if one.state is not None and one.state.reads > 0
    }
    wanted, without = times_s(spec), times_s(_with_reads(spec, dict.fromkeys(reads, 0.0)))
    # A record's time is linear in its reads, but for a cache that writes push out of: a few steps.
    for _ in range(_STEPS):
        dear = times_s(_with_reads(spec, reads, miss_us))
        for name in reads:
            v = places[name]
            reads[name] *= float((wanted[v] - without[v]) / (dear[v] - without[v]))
    return _with_reads(spec, reads, miss_us)


_STEPS = 8
"""Steps after which the reads of all shipped jobs give the wanted time within a millionth."""

_UTILIZATION = 0.7
"""Utilization of a vertex at its reference rate: the operator's target, as of a sized start."""


def _with_reads(spec: JobSpec, reads: Mapping[str, float], miss_us: float | None = None) -> JobSpec:
    """Return the job with other reads per record by vertex, and another price of their misses."""
    vertices = []
    for vertex in spec.vertices:
        if vertex.state is not None and vertex.name in reads:
            changes = _given(reads=reads[vertex.name], read_miss_us=miss_us)
            vertex = _with(vertex, state=_with(vertex.state, **changes))
        vertices.append(vertex)
    return _with(spec, vertices=tuple(vertices))


def _capped(spec: JobSpec, most: int) -> JobSpec:
    """Return the job with a quota of so many tasks per vertex."""
    vertices = tuple(
        _with(vertex, parallelism=min(vertex.parallelism, most))
        if vertex.kind == "operator"
        else vertex
        for vertex in spec.vertices
    )
    quota = min(spec.max_parallelism_per_vertex, most)
    return _with(spec, vertices=vertices, max_parallelism_per_vertex=quota)


def _given(**values: object) -> dict[str, object]:
    """Return the values that are not None."""
    return {name: value for name, value in values.items() if value is not None}


def _with(value: Bounded, **changes: object) -> Bounded:
    return value.model_copy(update=changes)
