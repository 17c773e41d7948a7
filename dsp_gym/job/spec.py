"""The content of a job file: vertices, state, memory, TaskManagers, rescale cost, SLO, prices.

A number is bare or `{value, source, ci}`; the source is kept beside the value in `sources`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal

from pydantic import Field, field_validator, model_validator

from dsp_gym.config.model import ConfigModel
from dsp_gym.errors import did_you_mean
from dsp_gym.job.evidence import Evidence
from dsp_gym.job.rescale_presets import RescalePreset, with_preset
from dsp_gym.job.signals import Signals
from dsp_gym.job.sourced import Count, Number

CURRENCY = "USD"
"""Currency of prices that name none."""

MOST_PARTITIONS = 10**6
"""Most partitions of a source's log; Kafka has clusters of fewer."""

MAX_INPUTS = 4
"""Most inputs of one vertex the simulation has room for (Nexmark and word count need two)."""


class Input(ConfigModel):
    """One incoming edge."""

    from_: str = Field(alias="from", description="name of the upstream vertex")
    ship: Literal["FORWARD", "HASH", "REBALANCE"] = Field(
        "HASH", description="Flink's ship strategy; only HASH is exposed to key skew"
    )


class Efficiency(ConfigModel):
    """Share of linear scaling a vertex keeps at parallelism p: e(1) = 1, never increasing."""

    form: Literal["linear", "power", "contention", "few_keys", "usl"] = Field(
        "linear",
        description="linear: 1; power: p^-a; contention: b + (1-b)/(1+a(p-1)); few_keys: the same, "
        "where tasks whose keys are not active wait, and are not busy; "
        "usl: 1/(1+a(p-1)+b p(p-1)), Gunther's universal scalability law, cut where p*e(p) peaks",
    )
    a: Number = Field(0.0, ge=0, le=1, description="first parameter of the form, dimensionless")
    b: Number = Field(0.0, ge=0, le=1, description="second parameter of the form, dimensionless")


class Window(ConfigModel):
    """A window over the vertex's input; results leave when it fires."""

    kind: Literal["tumbling", "sliding", "session"] = Field(description="Flink's window kind")
    length_s: Number = Field(gt=0, description="window length; for a session its gap, in seconds")
    slide_s: Number | None = Field(None, gt=0, description="sliding only: seconds between firings")

    @model_validator(mode="after")
    def _slide_fits(self) -> Window:
        if (self.kind == "sliding") != (self.slide_s is not None):
            raise ValueError("slide_s belongs to sliding windows, and they need it")
        if self.slide_s is not None and self.slide_s > self.length_s:
            raise ValueError("slide_s must not exceed length_s")
        return self


class Popularity(ConfigModel):
    """The frequency with which records read each key."""

    form: Literal["uniform", "zipf"] = Field("uniform", description="popularity law of the keys")
    exponent: Number = Field(0.0, ge=0, le=2, description="Zipf exponent; 0 is uniform")


class State(ConfigModel):
    """Keyed state in RocksDB: its reads and writes per record, and its size."""

    reads: Number = Field(0.0, ge=0, description="state reads per record")
    writes: Number = Field(0.0, ge=0, description="state writes per record")
    keys: Number = Field(ge=1, description="distinct keys over all subtasks")
    value_bytes: Number = Field(
        gt=0, description="payload bytes per key, or per record in a window"
    )
    popularity: Popularity = Field(default_factory=Popularity, description="key popularity")
    window: Window | None = Field(None, description="none: state stays until overwritten")
    prefilled: bool = Field(True, description="every key already has a value when the job starts")
    space_factor: Number = Field(
        1.0, gt=0, description="bytes stored and cached over payload bytes (fitted, declared)"
    )
    unshared_mib: Number = Field(
        0.0,
        ge=0,
        description="part of a subtask's working set that does not shrink with parallelism: "
        "index and filter blocks, timers, compaction reads (fitted, declared)",
    )
    read_hit_us: Number = Field(
        10.0, gt=0, description="microseconds of a read served by MemTable or block cache"
    )
    read_miss_us: Number = Field(
        100.0, gt=0, description="extra microseconds of a read that goes to an SST file"
    )
    write_us: Number = Field(10.0, gt=0, description="microseconds of a write with a full MemTable")
    memtable_coverage: Number = Field(
        0.0,
        ge=0,
        le=4,
        description="keys a MemTable holds over MemTable / entry size: it serves the share "
        "1 - exp(-coverage * MemTable / state of the subtask) of all reads; 0: none",
    )
    churn: Number = Field(
        0.0,
        ge=0,
        lt=1,
        description="share of cached blocks that flushes and compactions have replaced (fitted)",
    )
    index_hits: Number = Field(
        0.0,
        ge=0,
        le=10,
        description="cached index and filter blocks looked up beside each data block: RocksDB's "
        "tickers count them as hits",
    )
    miss_contention: Number = Field(
        0.0,
        ge=0,
        le=2,
        description="relative extra cost of a miss per further subtask: they share a disk",
    )
    block_bytes: Number = Field(
        4096.0,
        gt=0,
        exclude_if=lambda value: value == 4096.0,
        description="RocksDB's block_size: a block mixes the popularity of the keys in it",
    )
    upper_lookups: Number = Field(
        0.0,
        ge=0,
        le=8,
        exclude_if=lambda value: value == 0.0,
        description="data blocks of the tree's upper levels a read looks up beside the last "
        "level's: without Bloom filters about one per level; 0: one level",
    )
    level_ratio: Number = Field(
        10.0,
        ge=1,
        exclude_if=lambda value: value == 10.0,
        description="bytes of the last level over those of all above: RocksDB's "
        "max_bytes_for_level_multiplier",
    )
    index_share: Number = Field(
        0.0,
        ge=0,
        le=0.5,
        exclude_if=lambda value: value == 0.0,
        description="bytes of index and filter blocks over bytes of data blocks; they share "
        "the cache with them",
    )
    level0_files: Number = Field(
        0.0,
        ge=0,
        le=64,
        exclude_if=lambda value: value == 0.0,
        description="files of level 0 that start a compaction: RocksDB's "
        "level0_file_num_compaction_trigger, 4; reads look into those that are there, in place of "
        "upper_lookups; 0: updates cost neither lookups nor compactions",
    )
    compaction_us: Number = Field(
        0.0,
        ge=0,
        exclude_if=lambda value: value == 0.0,
        description="microseconds a subtask loses per block that compactions read; needs "
        "level0_files",
    )
    small_memtable_penalty: Number = Field(
        0.03,
        ge=0,
        le=1,
        description="relative extra write cost with a MemTable of half its full size "
        "(Justin, section 3: (1;128) slightly below (1;256))",
    )

    @model_validator(mode="after")
    def _one_tree(self) -> State:
        if self.level0_files > 0 and self.upper_lookups > 0:
            raise ValueError(
                "level0_files and upper_lookups both say what reads find above the "
                "last level; give one of them"
            )
        if self.compaction_us > 0 and self.level0_files == 0:
            raise ValueError("compaction_us needs level0_files, RocksDB's default is 4")
        return self


class Vertex(ConfigModel):
    """The unit that Flink scales: one job vertex, possibly several chained operators."""

    name: str = Field(min_length=1, description="unique within the job")
    vertex_id: str | None = Field(
        None,
        pattern="[0-9a-f]{32}",
        # Left out of dumps, so that the hash of a job without it stays the same.
        exclude_if=lambda value: value is None,
        description="Flink's id of the vertex, 32 hexadecimal digits: finds its task whatever its "
        "name is; none, or none of that id: the name finds it",
    )
    kind: Literal["source", "operator", "sink"] = Field("operator", description="role in the graph")
    inputs: tuple[Input, ...] = Field((), description="upstream edges; empty for a source")
    share: Number | None = Field(
        None, gt=0, le=1, description="source only: its share of the job's rate; default: equal"
    )
    selectivity: Number = Field(1.0, ge=0, description="records out per record in")
    cpu_us_per_record: Number = Field(gt=0, description="CPU microseconds per record of one task")
    efficiency: Efficiency = Field(default_factory=Efficiency, description="loss with parallelism")
    state: State | None = Field(None, description="absent: stateless")
    max_parallelism: Count = Field(
        128, ge=1, le=32768, description="key groups: Flink's hard upper bound of parallelism"
    )
    distinct_keys: Count | None = Field(
        None,
        ge=1,
        le=10**12,
        description="keys active at one time when they are few (grouping by window end): "
        "more subtasks than keys bring nothing",
    )
    partitions: Count | None = Field(
        None, ge=1, le=MOST_PARTITIONS, description="source only: partitions of its log"
    )
    parallelism: Count = Field(1, ge=1, description="parallelism the job starts with")
    scalable: bool = Field(True, description="false: parallelism is fixed (a sink of one task)")
    buffer_records: Number | None = Field(
        None,
        gt=0,
        # Left out of dumps, so that the hash of a job without it stays the same.
        exclude_if=lambda value: value is None,
        description="records one subtask's input buffers hold; none: the job's buffer_records",
    )


class Memory(ConfigModel):
    """Memory of one task slot. MiB everywhere (what the papers print as MB)."""

    base_mib: Number = Field(158.0, gt=0, description="managed memory of level 0 per subtask")
    levels: Count = Field(3, ge=1, le=8, description="number of levels; level x has base*2^x MiB")
    heap_mib: Number = Field(134.0, ge=0, description="task heap per subtask (Justin's profile)")
    network_mib: Number = Field(39.0, ge=0, description="network memory per subtask (Justin)")
    split: Literal["flink", "justin"] = Field(
        "flink",
        description="flink: block cache 5/6 of managed memory; justin: MemTable up to 64 MiB, "
        "the rest cache",
    )
    start_level: Count = Field(0, ge=-1, le=7, description="level every vertex starts with")
    uniform: bool = Field(
        False,
        exclude_if=lambda value: value is False,
        description="every slot has the managed memory of level 0, used or not, and is paid for "
        "it: the adaptive scheduler; needs levels 1",
    )

    @model_validator(mode="after")
    def _one_size(self) -> Memory:
        if self.uniform and self.levels != 1:
            raise ValueError("uniform slots have one size; set levels to 1")
        return self


class TaskManager(ConfigModel):
    """One TaskManager process."""

    slots: Count = Field(4, ge=1, le=32768, description="task slots per TaskManager")
    cores: Number = Field(4.0, gt=0, description="CPU cores per TaskManager")
    memory_mib: Number = Field(2048.0, gt=0, description="process memory per TaskManager")
    contention: Number = Field(
        0.0,
        ge=0,
        lt=0.5,
        description="rate lost per further slot in use on the same TaskManager (fitted)",
    )


class Rescale(ConfigModel):
    """The cost of a change of configuration."""

    preset: RescalePreset | None = Field(
        None,
        # Left out of dumps, so that the hash of a job without it stays the same.
        exclude_if=lambda value: value is None,
        description="mode and outage_s by name, where they are not given: as measured or reported "
        "by others",
    )
    mode: Literal["redeploy", "in_place"] = Field("redeploy", description="how Flink rescales")
    outage_s: tuple[float, float, float] = Field(
        (56.0, 76.0, 93.0),
        description="seconds without processing, p10/p50/p90, restore of state excluded "
        "(demeter_cars_outages.csv: redeploy 56/76/93, reactive 6/10/20)",
    )
    savepoint_mib_per_s: Number = Field(
        105.0, gt=0, description="savepoint rate to shared storage (Varga et al.: EFS 105 MB/s)"
    )
    restore_mib_per_s: Number = Field(105.0, gt=0, description="restore rate, total state")
    checkpoint_interval_s: Number = Field(
        0.0,
        ge=0,
        le=3600,
        # Left out of dumps, so that the hash of a job without it stays the same.
        exclude_if=lambda value: value == 0.0,
        description="in place: the job resumes from its last checkpoint, up to this many seconds "
        "old, and reads what came since again; 0: nothing is read again",
    )
    cold_s: Number = Field(
        0.0,
        ge=0,
        le=600,
        # Left out of dumps, so that the hash of a job without it stays the same.
        exclude_if=lambda value: value == 0.0,
        description="seconds after a rescale in which the tasks it adds process nothing: their "
        "TaskManagers load and compile code, and their share of the log waits",
    )

    @model_validator(mode="before")
    @classmethod
    def _by_preset(cls, section: object) -> object:
        return with_preset(section)

    @model_validator(mode="after")
    def _quantiles_rise(self) -> Rescale:
        if not 0 <= self.outage_s[0] <= self.outage_s[1] <= self.outage_s[2]:
            raise ValueError("outage_s must be p10 <= p50 <= p90, none negative")
        return self


class Slo(ConfigModel):
    """The service level objective."""

    latency_s: Number = Field(2.0, gt=0, description="bound on p95 end-to-end latency, seconds")


class Prices(ConfigModel):
    """Money per hour; the defaults are AWS Fargate's list prices in us-east-1 (Linux on x86)."""

    currency: str = Field(
        CURRENCY,
        # Left out of dumps, so that a job or benchmark in it reads and hashes as before.
        exclude_if=lambda value: value == CURRENCY,
        description="currency of both prices, an ISO 4217 code: a label, nothing is converted",
    )
    core_hour: Number = Field(0.04048, ge=0, description="per core and hour (cloud list price)")
    gib_hour: Number = Field(0.004445, ge=0, description="per GiB and hour (cloud list price)")

    @field_validator("currency")
    @classmethod
    def _is_a_code(cls, value: str) -> str:
        if re.fullmatch("[A-Z]{3}", value) is None:
            raise ValueError(
                "is no currency: give its ISO 4217 code in three capitals, such as EUR or USD"
            )
        return value


class Source(ConfigModel):
    """The job's offered load."""

    rate_per_s: Number = Field(gt=0, description="reference records/s over all sources (load 1.0)")
    log: bool = Field(
        True,
        description="true: sources read a log, owe what they could not take, report "
        "pendingRecords; false: a generator that emits less while it is held back",
    )


class FlinkProgram(ConfigModel):
    """The way the job is submitted to a real Flink.

    The program takes `--job-name NAME`, `--parallelism VERTEX=P,...`, `--managed-mib VERTEX=M,...`,
    `--slot-sharing per-vertex|default`, options that describe its load, and its own arguments;
    every vertex is one operator (or chain) whose name and uid are the vertex's name.
    """

    program: str = Field(min_length=1, description="name of the job in the jar (--program)")
    jar: str | None = Field(None, description="path of a jar; none: the one of this project")
    entry_class: str = Field("dspgym.flink.Main", description="main class in the jar")
    arguments: dict[str, str | int | float | bool] = Field(
        default_factory=dict, description="further arguments, each passed as --KEY VALUE"
    )


class JobSpec(ConfigModel):
    """One job file."""

    job: str = Field(min_length=1, description="name, as used by `dsp-gym` and environment ids")
    description: str = Field("", description="one sentence for lists")
    used_in_fit: tuple[str, ...] = Field(
        (), description="published numbers this file's parameters were fitted to"
    )
    fit_script: str | None = Field(None, description="command that reproduces the fitted values")
    source: Source = Field(description="offered load")
    vertices: tuple[Vertex, ...] = Field(min_length=2, description="the graph, any order")
    memory: Memory = Field(default_factory=Memory, description="memory of one slot")
    taskmanager: TaskManager = Field(default_factory=TaskManager, description="one TaskManager")
    slot_sharing: bool = Field(
        False,
        description="true: subtasks of different vertices share slots (Flink's default group)",
    )
    max_parallelism_per_vertex: Count = Field(
        24,
        ge=1,
        le=2048,
        description="highest parallelism any policy may choose (quota of the job)",
    )
    buffer_records: Number = Field(
        2000.0,
        gt=0,
        description="records one subtask's input buffers hold (10 buffers of 32 KiB, ~160 B each)",
    )
    rescale: Rescale = Field(default_factory=Rescale, description="what a rescale costs")
    signals: Signals | None = Field(
        None,
        # Left out of dumps, so that the hash of a job without it stays the same.
        exclude_if=lambda value: value is None,
        description="what gauges show at a load; none: busy time and CPU are the load",
    )
    slo: Slo = Field(default_factory=Slo, description="service level objective")
    prices: Prices = Field(default_factory=Prices, description="money per hour")
    flink: FlinkProgram | None = Field(
        None, description="the real job behind this model; none: it can only be simulated"
    )
    fitted: Evidence | None = Field(
        None,
        # Left out of dumps, so that a job without it reads and hashes as before.
        exclude_if=lambda value: value is None,
        description="what the numbers were fitted to and how far the fit was off; written by a "
        "calibration. None: nobody fitted them",
    )

    @model_validator(mode="after")
    def _graph_is_sound(self) -> JobSpec:
        names = [vertex.name for vertex in self.vertices]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"two vertices are named {twice[0]!r}; names must be unique")
        for vertex in self.vertices:
            if (vertex.kind == "source") != (not vertex.inputs):
                raise ValueError(
                    f"vertex {vertex.name!r} is a {vertex.kind} with {len(vertex.inputs)} inputs; "
                    "sources have none, all others at least one"
                )
            if len(vertex.inputs) > MAX_INPUTS:
                raise ValueError(f"vertex {vertex.name!r} has more than {MAX_INPUTS} inputs")
            for edge in vertex.inputs:
                if edge.from_ not in names:
                    raise ValueError(
                        f"vertex {vertex.name!r} reads from unknown vertex {edge.from_!r}; "
                        f"known: {', '.join(names)}"
                    )
            cap = min(vertex.max_parallelism, self.max_parallelism_per_vertex)
            if vertex.parallelism > vertex.max_parallelism:
                raise ValueError(
                    f"vertex {vertex.name!r}: parallelism {vertex.parallelism} is above its "
                    f"{vertex.max_parallelism} key groups (max_parallelism)"
                )
            if vertex.parallelism > cap and vertex.kind == "operator":
                raise ValueError(
                    f"vertex {vertex.name!r}: parallelism {vertex.parallelism} is above "
                    f"max_parallelism_per_vertex {self.max_parallelism_per_vertex}"
                )
        if len(self.topological_order()) < len(self.vertices):
            raise ValueError("the graph has a cycle; a Flink job is a directed acyclic graph")
        if self.memory.start_level >= self.memory.levels:
            raise ValueError("memory.start_level must be below memory.levels")
        return self

    @model_validator(mode="after")
    def _sections_are_of_this_job(self) -> JobSpec:
        names = [vertex.name for vertex in self.vertices]
        named: list[tuple[str, Iterable[str]]] = []
        if self.fitted is not None:
            named += [
                ("fitted.parallelism", self.fitted.parallelism),
                ("fitted.skew", self.fitted.skew),
            ]
        if self.signals is not None:
            named.append(("signals.vertices", self.signals.vertices))
        for key, by_vertex in named:
            for name in by_vertex:
                if name not in names:
                    hint = did_you_mean(name, names) or f"Known: {', '.join(names)}."
                    raise ValueError(f"{key} names the unknown vertex {name!r}. {hint}")
        return self

    def behaviour_json(self) -> str:
        """Return all of the job file that says how the job behaves, for hashes of its identity.

        The section `fitted` is left out: it says how good the numbers are and changes none of them,
        so that a dataset, a policy or a result still belongs to the same job after a fit is tested
        again.

        Returns:
            JSON text.
        """
        return self.model_dump_json(by_alias=True, exclude={"fitted"})

    def topological_order(self) -> tuple[Vertex, ...]:
        """Sort vertices so that each one stands after its inputs; shorter if there is a cycle.

        Returns:
            The vertices, sources first.
        """
        done: dict[str, Vertex] = {}
        waiting = list(self.vertices)
        while waiting:
            ready = [v for v in waiting if all(edge.from_ in done for edge in v.inputs)]
            if not ready:
                break
            done |= {vertex.name: vertex for vertex in ready}
            waiting = [v for v in waiting if v.name not in done]
        return tuple(done.values())

    def vertex(self, name: str) -> Vertex:
        """Return the vertex of that name; KeyError if there is none.

        Returns:
            Its description in the job file.
        """
        return next(v for v in self.vertices if v.name == name)


class UntimedJob(JobSpec):
    """A job whose times per record are unknown, such as one known from its snapshots alone.

    They hold neutral values, which say nothing about its speed.
    """
