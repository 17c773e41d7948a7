"""The runs of a validation: planned in an order that makes a part of them useful, and kept.

A finished real run is one JSON file, written whole or not at all, so that whatever ends the command
costs at most the run it was at.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field

from dsp_gym.arrays import Floats, Ints
from dsp_gym.backends.flink.local.settings import ClusterSettings
from dsp_gym.backends.simulated.measured import HALF_S
from dsp_gym.calibration.reread import calibrated
from dsp_gym.config.files import parse, write_atomic
from dsp_gym.config.model import ConfigModel
from dsp_gym.config.strict_json import parse_json
from dsp_gym.errors import ConfigError, DspGymError, LoadError, did_you_mean
from dsp_gym.evaluation.kept import file_hashes
from dsp_gym.evaluation.validation import ComparedPolicy, ValidatedJob, ValidationConfig
from dsp_gym.guardrails.chain import build_for
from dsp_gym.job.catalog import load_job
from dsp_gym.job.placement import slots_of
from dsp_gym.job.sizing import reference_cost_per_s, sized
from dsp_gym.job.spec import JobSpec, Memory
from dsp_gym.loads.generate import rates
from dsp_gym.loads.spec import LoadSpec
from dsp_gym.loads.traces import TraceLibrary
from dsp_gym.loop.configuration import Configuration
from dsp_gym.loop.topology import Topology
from dsp_gym.policies.registry import make, resolve
from dsp_gym.records.hashes import bytes_sha256

AROUND_S = 40.0
"""What a run takes beside its load, s: a submission, the drain, a cancellation."""

SWITCH_S = 40.0
"""What another cluster takes, s: one ends, one starts."""

IN_PLACE_OUTAGE_S = (1.0, 2.0, 4.0)
"""Outage of a rescale in place until one was observed, s: an assumption."""


class RunFigures(ConfigModel):
    """What one policy cost in a run, real or simulated."""

    cost: float = Field(description="price of the requested resources")
    late_s: float = Field(description="real seconds late or down")
    rescales: int = Field(description="rescales asked for")
    failures: int = Field(description="decisions that failed or could not be taken")


class ValidationTotals(RunFigures):
    """Sums over the decisions of a run."""

    seconds: float = Field(description="real seconds of known outcome")
    down_s: float = Field(description="of the late seconds, those without a running job")


class RealRun(ValidationTotals):
    """What one policy cost on a real Flink."""

    schema_: Literal["dsp-gym/validation-run/1"] = Field(
        "dsp-gym/validation-run/1", alias="schema", description="schema and version"
    )
    of: str = Field(description="hash of everything that the run depends on")
    started: str = Field(description="when it began, UTC")
    version: str = Field(description="of dsp-gym")
    flink: str = Field(description="version of Flink")
    turns: int = Field(description="decisions")
    outages_s: tuple[float, ...] = Field(description="of each rescale, without its savepoint, s")
    due: float = Field(description="records of the load")
    emitted: float = Field(description="records the sources emitted, over all resubmissions")
    received: float = Field(description="records the sinks received, over all resubmissions")
    expected: float | None = Field(description="that they should have; none: windows count")

    @property
    def conserved(self) -> bool:
        """Whether every record of the load was emitted and received once."""
        return abs(self.emitted - self.due) <= 1.0 and self.expected in (None, self.received)


@dataclass(frozen=True, slots=True)
class ValidationCase:
    """One job under one load; every policy runs on it."""

    job: ValidatedJob
    spec: JobSpec  # as calibrated
    load: str
    rates: Floats  # (seconds,) records/s, by real second
    start: Configuration
    reference_cost_per_s: float  # of the configuration that carries the peak

    @property
    def label(self) -> str:
        """Name of job and load in results."""
        return f"{self.job.label} {self.load}"

    @property
    def topology(self) -> Topology:
        """The job."""
        return Topology.of([self.spec])

    def with_outage(self, outage_s: tuple[float, float, float] | None) -> ValidationCase:
        """Return the case with the p10, p50 and p90 of its outages, s; None: the case itself."""
        if outage_s is None:
            return self
        rescale = self.spec.rescale.model_copy(update={"outage_s": outage_s})
        return replace(self, spec=self.spec.model_copy(update={"rescale": rescale}))


def columns(start: Configuration, topology: Topology) -> tuple[Ints, Ints]:
    """Write the configuration of the only job as arrays.

    Returns:
        Parallelism and memory level, (1, V) each.
    """
    names = topology.names(0)
    parallelism = [start.parallelism[name] for name in names]
    level = [start.memory_level[name] for name in names]
    return np.array([parallelism], np.int64), np.array([level], np.int64)


def outage_of(outages_s: tuple[float, ...]) -> tuple[float, float, float] | None:
    """Say what outages to draw from those of rescales on a real Flink, savepoints left out.

    Returns:
        p10, p50 and p90, s; None without any.
    """
    if not outages_s:
        return None
    seen = np.maximum(np.array(outages_s) - HALF_S, 0.0)
    low, middle, high = np.quantile(seen, (0.1, 0.5, 0.9)).tolist()
    return low, middle, high


@dataclass(frozen=True, slots=True)
class ValidationRun:
    """One real run."""

    case: ValidationCase
    policy: ComparedPolicy
    repetition: int  # from 0

    @property
    def name(self) -> str:
        """Its name in results, and that of its file."""
        return f"{self.policy.name}-{self.repetition + 1}"

    @property
    def label(self) -> str:
        """Its name for people."""
        return f"{self.case.label} {self.name}"


@dataclass(frozen=True, slots=True)
class PlannedValidation:
    """Everything to be run."""

    config: ValidationConfig
    cases: tuple[ValidationCase, ...]
    runs: tuple[ValidationRun, ...]  # in their order
    left_out: Mapping[str, str]  # reason by job, or by load

    def of_jobs(self, labels: Collection[str]) -> PlannedValidation:
        """Return the runs of some jobs.

        Args:
            labels: Of the jobs; none: all.

        Returns:
            The plan of these jobs alone.

        Raises:
            ConfigError: No run is planned of a job with such a label.
        """
        there = dict.fromkeys(case.job.label for case in self.cases)
        for label in labels:
            if label not in there:
                raise ConfigError(
                    "has no run here", key="--job", value=label, remedy=did_you_mean(label, there)
                )
        if not labels:
            return self
        cases = tuple(case for case in self.cases if case.job.label in labels)
        runs = tuple(run for run in self.runs if run.case.job.label in labels)
        return replace(self, cases=cases, runs=runs, left_out={})

    def seconds(self, runs: Sequence[ValidationRun], running: str = "") -> float:
        """Say how long some runs take, one after the other.

        Args:
            runs: The runs.
            running: How the cluster that runs already rescales; "": none runs.

        Returns:
            Real seconds.
        """
        clusters = [run.case.job.rescaling for run in runs]
        switches = sum(a != b for a, b in zip(clusters, [running, *clusters], strict=False))
        return len(runs) * (self.config.seconds + AROUND_S) + switches * SWITCH_S


def planned(
    config: ValidationConfig, reports: Path, traces: TraceLibrary | None = None
) -> PlannedValidation:
    """Plan the runs: all of one repetition and load before the next.

    Args:
        config: The validation.
        reports: Folder of the reports of the jobs' calibrations.
        traces: Where recorded loads are found.

    Returns:
        The plan; a job without a calibration and a load without its recording are left out with
        the reason.

    Raises:
        ConfigError: A policy, job or guardrail does not exist, the cluster has too few slots, or
            nothing is left.
    """
    for policy in config.policies:
        build_for(make(policy.policy), policy.guardrails)  # refused before anything runs
    left_out: dict[str, str] = {}
    specs: list[tuple[ValidatedJob, JobSpec]] = []
    shapes: dict[str, Floats] = {}
    for job in config.jobs:
        _check_slots(load_job(job.job), config.cluster)
        try:
            specs.append((job, _simulated_job(job, config.cluster, reports)))
        except ConfigError as error:
            left_out[job.label] = str(error)
    for load in config.loads:
        try:
            shapes[load.name] = _shape(config, load.load, traces or TraceLibrary())
        except LoadError as error:
            left_out[load.name] = str(error)
    cases = tuple(
        _case(config, job, spec, name, shape)
        for name, shape in shapes.items()
        for job, spec in specs
    )
    if not cases:
        reasons = "; ".join(f"{what}: {why}" for what, why in left_out.items())
        raise ConfigError(f"every job or load is left out ({reasons})", key="jobs, loads")
    runs = tuple(
        ValidationRun(case, policy, repetition)
        for repetition in range(config.repetitions)
        for load in shapes
        for case in sorted(cases, key=lambda case: case.job.rescaling, reverse=True)
        if case.load == load
        for policy in config.policies
    )
    return PlannedValidation(config, cases, runs, left_out)


def _check_slots(spec: JobSpec, cluster: ClusterSettings) -> None:
    """A policy must not ask for what the cluster lacks: then all would be refused."""
    topology = Topology.of([spec])
    most = dict(zip(topology.names(0), topology.tables.max_parallelism[0].tolist(), strict=False))
    if spec.flink is None:
        raise ConfigError(f"the job {spec.job!r} can only be simulated", key="jobs.job")
    needed = slots_of(most, shared=spec.slot_sharing)
    if needed > cluster.slots:
        raise ConfigError(
            f"{spec.job} takes up to {needed} slots, the cluster has {cluster.slots}",
            key="cluster.slots",
        )


def _simulated_job(job: ValidatedJob, cluster: ClusterSettings, reports: Path) -> JobSpec:
    """Return the calibrated job; in place every slot has one share of the managed memory."""
    spec = load_job(job.job)
    if not Path(job.job).is_file():
        # A recording shows how long a job takes to start, not to be stopped and submitted.
        spec = calibrated(job.job, reports).model_copy(update={"rescale": spec.rescale})
    if job.rescaling == "savepoint":
        return spec
    in_place = {
        "base_mib": cluster.managed_mib / cluster.slots,
        "levels": 1,
        "start_level": 0,
        "uniform": True,
    }
    memory = parse(Memory, spec.memory.model_dump() | in_place, "memory in place")
    rescale = spec.rescale.model_copy(update={"mode": "in_place", "outage_s": IN_PLACE_OUTAGE_S})
    return spec.model_copy(update={"memory": memory, "rescale": rescale})


def _shape(config: ValidationConfig, load: LoadSpec, traces: TraceLibrary) -> Floats:
    """Return a load by real second, as a multiple of the reference rate."""
    slow = rates(load, seed=0, duration_s=float(config.seconds * config.compression), traces=traces)
    return np.asarray(slow.reshape(config.seconds, config.compression).mean(axis=1))


def _case(
    config: ValidationConfig, job: ValidatedJob, spec: JobSpec, load: str, shape: Floats
) -> ValidationCase:
    offered = shape * job.scale * spec.source.rate_per_s
    peak = spec.source.model_copy(update={"rate_per_s": float(offered.max())})
    spec = spec.model_copy(update={"source": peak})  # to policies a load of 1 is its peak
    topology = Topology.of([spec])
    tables, row, names = topology.tables, topology.row, topology.names(0)
    level = tables.start_level[row]
    first = np.array([offered[: 60 // config.compression + 1].mean()])
    tasks = sized(tables, row, first, config.start_headroom, np.ones(1), level)
    start = Configuration(
        dict(zip(names, tasks[0].tolist(), strict=False)),
        dict(zip(names, level[0].tolist(), strict=False)),
    )
    unit = float(reference_cost_per_s(tables, row, config.start_headroom)[0])
    return ValidationCase(job, spec, load, offered, start, unit)


@dataclass(frozen=True, slots=True)
class KeptRuns:
    """The folder of finished real runs."""

    folder: Path
    config: ValidationConfig

    def read(self, run: ValidationRun) -> RealRun | None:
        """Return the result of a run.

        Returns:
            None where there is none, or it is damaged, or of other settings.
        """
        try:
            found = parse(RealRun, parse_json(self.file(run).read_bytes()), self.file(run))
        except (OSError, ValueError, DspGymError):
            return None
        return found if found.of == self.depends_on(run) else None

    def write(self, run: ValidationRun, result: RealRun) -> None:
        """Keep the result of a run."""
        write_atomic(self.file(run), result.model_dump_json(by_alias=True, indent=1) + "\n")

    def file(self, run: ValidationRun) -> Path:
        """Return where the result of a run is kept.

        Returns:
            A path, of a file that need not exist.
        """
        return self.folder / run.case.job.label / run.case.load / f"{run.name}.json"

    def journal(self, run: ValidationRun) -> Path:
        """Return where the journal of a run is written.

        Returns:
            A folder beside its result.
        """
        return self.file(run).with_suffix(".journal")

    def depends_on(self, run: ValidationRun) -> str:
        """Hash everything that a real run depends on, but the version of this program.

        Returns:
            16 hexadecimal digits.
        """
        _, policy, _ = resolve(run.policy.policy)
        given = {"seconds", "compression", "interval_s", "window", "latency_s", "cluster"}
        document = {
            "job": run.case.job.model_dump(mode="json"),
            "behaviour": run.case.spec.behaviour_json(),
            "start": str(run.case.start),
            "rates": bytes_sha256(np.round(run.case.rates, 6).tobytes()),
            "policy": policy.model_dump(mode="json", by_alias=True),
            "files": file_hashes(policy),
            "guardrails": run.policy.model_dump(mode="json", include={"guardrails"}),
            "config": self.config.model_dump(mode="json", include=given),
        }
        return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()[:16]
