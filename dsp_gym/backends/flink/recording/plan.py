"""What `dsp-gym record` reads: one job, in which configurations, under which loads, how long."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from pydantic import Field, model_validator

from dsp_gym.backends.flink.local.settings import ClusterSettings
from dsp_gym.config import files
from dsp_gym.config.model import ConfigModel
from dsp_gym.errors import ConfigError, did_you_mean
from dsp_gym.job.capacity import mst
from dsp_gym.job.memory import NO_MEMORY
from dsp_gym.job.spec import JobSpec
from dsp_gym.loads.generate import rates
from dsp_gym.loads.spec import LoadConfig
from dsp_gym.loop.configuration import Configuration
from dsp_gym.records.manifest import RecordedLoad


class Part(ConfigModel):
    """A configuration; what is left out stands as in the job file, without memory if stateless."""

    parallelism: dict[str, int] = Field(default_factory=dict, description="by vertex")
    memory_level: dict[str, int] = Field(
        default_factory=dict, description="by vertex; -1: no managed memory"
    )


class Design(ConfigModel):
    """Every combination of parallelism and memory level of one vertex."""

    vertex: str = Field(min_length=1, description="the vertex that is varied")
    parallelism: tuple[int, ...] = Field(
        (1, 2, 4),
        min_length=1,
        description="subtasks; 1 shows the cost of a record alone, more show what scaling loses",
    )
    memory_level: tuple[int, ...] = Field(
        (), description="memory levels; none: the job file's, or no memory where it has no state"
    )


class LoadPlan(ConfigModel):
    """One load; exactly one of saturate, rate_per_s, steps and load says which."""

    name: str = Field(min_length=1, pattern=r"^[A-Za-z0-9.-]+$", description="part of runs' names")
    saturate: float | None = Field(
        None,
        gt=1,
        description="constant, that many times what the job file says the configuration carries, "
        "so that the run shows its capacity",
    )
    rate_per_s: float | None = Field(None, gt=0, description="constant, records/s over all sources")
    steps: tuple[tuple[float, float], ...] | None = Field(
        None, min_length=1, description="[second, records/s from then on]; the first at 0"
    )
    load: str | None = Field(None, description="a shipped load, or a load file")
    scale: float = Field(1.0, gt=0, description="load: times the job's reference rate")
    compress: float = Field(
        1.0, ge=1, description="load: its seconds that pass in one; 12 puts two hours into ten min"
    )

    @model_validator(mode="after")
    def _is_one(self) -> LoadPlan:
        given = [k for k in ("saturate", "rate_per_s", "steps", "load") if getattr(self, k)]
        if len(given) != 1:
            raise ValueError(
                f"load {self.name!r}: give one of saturate, rate_per_s, steps and load, "
                f"found {', '.join(given) or 'none'}"
            )
        if self.load is None and (self.scale, self.compress) != (1.0, 1.0):
            raise ValueError(f"load {self.name!r}: scale and compress belong to 'load'")
        return self


class Populate(Part):
    """A run before all others that fills the state; its savepoint is what every run starts from."""

    seconds: int = Field(30, ge=5, le=3600, description="how long it runs")
    rate_per_s: float = Field(
        1e6, gt=0, description="offered rate, records/s; by default more than the operator can take"
    )


class RecordConfig(ConfigModel):
    """A plan of runs of one job."""

    description: str = Field("", description="one sentence for lists")
    job: str = Field(min_length=1, description="the job's file: a shipped name, or a path")
    configurations: tuple[Part, ...] = Field((), description="configurations one by one")
    design: Design | None = Field(None, description="configurations by the combinations")
    loads: tuple[LoadPlan, ...] = Field(min_length=1, description="each with every configuration")
    lead_s: float = Field(
        6.0,
        ge=0,
        le=120,
        description="from submission to the start of the load: about the job's start-up time, so "
        "that runs neither idle long nor begin with a backlog",
    )
    warm_up_s: int = Field(
        10, ge=0, le=600, description="before a run's measured part: cold caches, full buffers"
    )
    seconds: int = Field(40, ge=10, le=7200, description="measured part of a run")
    repeat: int = Field(1, ge=1, le=50, description="how often each run is done")
    populate: Populate | None = Field(None, description="none: every run starts without state")
    order: Literal["interleaved", "as_listed"] = Field(
        "interleaved",
        description="interleaved: neighbours differ in configuration and repeats lie far apart, so "
        "that a machine that grows slower does not look like a property of the job",
    )
    stop: Literal["savepoint", "cancel"] = Field(
        "savepoint", description="how a run ends; savepoint measures its seconds and bytes"
    )
    metrics: Literal["prometheus", "rest"] = Field(
        "prometheus", description="where samples come from"
    )
    cluster: ClusterSettings = Field(
        default_factory=ClusterSettings,
        description="settings of the cluster to start where none runs",
    )
    seed: int = Field(0, ge=0, description="of the records and of loads; plus the repeat's number")

    @model_validator(mode="after")
    def _has_configurations(self) -> RecordConfig:
        if not self.configurations and self.design is None:
            raise ValueError("no configuration is given: write 'design' or 'configurations'")
        names = [load.name for load in self.loads]
        if len(set(names)) < len(names):
            raise ValueError(f"two loads have one name: {', '.join(names)}")
        if self.metrics == "prometheus" and not self.cluster.prometheus:
            raise ValueError("metrics: prometheus, but the cluster is without (prometheus: false)")
        return self

    def sha256(self, spec: JobSpec) -> str:
        """Hash what makes two recordings comparable: plan and job, without their descriptions.

        Returns:
            SHA-256, in hexadecimal.
        """
        plan = self.model_dump(mode="json", exclude={"description", "cluster"})
        text = json.dumps([plan, spec.model_dump(mode="json", exclude={"fitted"})], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class PlannedRun:
    """One run to be done."""

    name: str
    configuration: Configuration
    load: RecordedLoad
    repeat: int
    seed: int


def planned(config: RecordConfig, spec: JobSpec) -> list[PlannedRun]:
    """List the runs of a plan in their order.

    Returns:
        The runs, each with configuration, load and seed.

    Raises:
        ConfigError: A vertex, parallelism or memory level is not the job's, or two runs are equal.
    """
    configurations = list(_configurations(config, spec))
    repeats = range(config.repeat)
    combinations = list(itertools.product(repeats, config.loads, configurations))
    if config.order == "as_listed":
        listed = itertools.product(configurations, config.loads, repeats)
        combinations = [(repeat, load, found) for found, load, repeat in listed]
    runs = []
    for repeat, load, (label, configuration) in combinations:
        seed = config.seed + repeat
        name = f"{label}-{load.name}" + (f"-{repeat + 1}" if config.repeat > 1 else "")
        offered = _load(load, config, spec, configuration, seed)
        runs.append(PlannedRun(name, configuration, offered, repeat, seed))
    names = [run.name for run in runs]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigError(f"the run '{twice[0]}' stands in the plan twice", key="configurations")
    return runs


def populated(config: RecordConfig, spec: JobSpec) -> Configuration | None:
    """The configuration of the run that fills the state; None where there is none.

    Returns:
        Parallelism and memory level by vertex, of the `populate` part.
    """
    part = config.populate
    return None if part is None else _configuration(spec, part, "populate")


def _configurations(config: RecordConfig, spec: JobSpec) -> Iterator[tuple[str, Configuration]]:
    for number, part in enumerate(config.configurations):
        found = _configuration(spec, part, f"configurations[{number}]")
        yield _label(spec, found, [*part.parallelism, *part.memory_level]), found
    if config.design is not None:
        vertex = config.design.vertex
        for tasks in config.design.parallelism:
            for level in config.design.memory_level or (None,):
                levels = {} if level is None else {vertex: level}
                part = Part(parallelism={vertex: tasks}, memory_level=levels)
                found = _configuration(spec, part, "design")
                yield _label(spec, found, [vertex]), found


def _configuration(spec: JobSpec, part: Part, key: str) -> Configuration:
    names = [vertex.name for vertex in spec.vertices]
    for given in (part.parallelism, part.memory_level):
        for name in given:
            if name not in names:
                raise ConfigError(
                    f"job '{spec.job}' has no vertex '{name}'",
                    key=key,
                    remedy=did_you_mean(name, names),
                )
    start = Configuration.of_spec(spec)
    stateless = {v.name: NO_MEMORY for v in spec.vertices if v.state is None}
    found = Configuration(
        dict(start.parallelism) | part.parallelism,
        dict(start.memory_level) | stateless | part.memory_level,
    )
    for name in names:
        highest = spec.vertex(name).max_parallelism
        if not 1 <= found.parallelism[name] <= highest:
            raise ConfigError(
                f"vertex '{name}' can have 1..{highest} subtasks",
                key=f"{key}.parallelism",
                value=found.parallelism[name],
            )
        if not NO_MEMORY <= found.memory_level[name] < spec.memory.levels:
            raise ConfigError(
                f"vertex '{name}' can have memory levels -1..{spec.memory.levels - 1}",
                key=f"{key}.memory_level",
                value=found.memory_level[name],
            )
    return found


def _label(spec: JobSpec, configuration: Configuration, varied: list[str]) -> str:
    """`state4m32`: subtasks and MiB of managed memory of each of the vertices that are varied."""
    mib = configuration.managed_mib(spec)
    names = [v.name for v in spec.vertices if v.name in varied] or [spec.vertices[0].name]
    return "-".join(
        f"{name}{configuration.parallelism[name]}" + (f"m{mib[name]:g}" if name in mib else "")
        for name in names
    )


def _load(
    load: LoadPlan, config: RecordConfig, spec: JobSpec, configuration: Configuration, seed: int
) -> RecordedLoad:
    """A load in records/s."""
    if load.saturate is not None:
        carried = mst(spec, configuration.parallelism, configuration.memory_level).rate_per_s
        return RecordedLoad(name=load.name, steps=((0.0, load.saturate * carried),), saturated=True)
    if load.rate_per_s is not None:
        return RecordedLoad(name=load.name, steps=((0.0, load.rate_per_s),))
    if load.steps is not None:
        return RecordedLoad(name=load.name, steps=load.steps)
    assert load.load is not None  # the model allows exactly one
    shape = files.load_model(LoadConfig, "loads", load.load).load
    duration_s = config.lead_s + config.warm_up_s + config.seconds
    factors = rates(shape, seed=seed, duration_s=duration_s * load.compress, dt_s=load.compress)
    offered = factors * load.scale * spec.source.rate_per_s
    steps: list[tuple[float, float]] = []
    for second, rate in enumerate(offered.tolist()):
        if not steps or steps[-1][1] != rate:
            steps.append((float(second), rate))
    return RecordedLoad(name=load.name, steps=tuple(steps))


def summary(run: PlannedRun) -> Mapping[str, object]:
    """A run in a table.

    Returns:
        Texts by column: `run`, `configuration`, `load` and `rate_per_s`, records/s as one number or
        as least..greatest.
    """
    rates_per_s = [rate for _, rate in run.load.steps]
    low, high = min(rates_per_s), max(rates_per_s)
    return {
        "run": run.name,
        "configuration": str(run.configuration),
        "load": run.load.name,
        "rate_per_s": f"{low:,.0f}" if low == high else f"{low:,.0f}..{high:,.0f}",
    }
