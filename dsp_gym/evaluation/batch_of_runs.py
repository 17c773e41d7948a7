"""Playing runs of one policy of a benchmark as one batch."""

from __future__ import annotations

import platform
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields, replace
from importlib.metadata import version
from pathlib import Path

import numpy as np
from pydantic import Field

from dsp_gym.arrays import Bools, Floats, Ints
from dsp_gym.backends.simulated.jobs import SimulatedJobs
from dsp_gym.config.model import ConfigModel
from dsp_gym.control.loop import ControlLoop, LoopStep
from dsp_gym.errors import ConfigError
from dsp_gym.evaluation.config import BenchmarkConfig, Entrant
from dsp_gym.evaluation.scorecard import RunRescale, RunTimeline, RunValidity, ScorecardCell
from dsp_gym.evaluation.settling import load_changes, overshoot, settling_s
from dsp_gym.evaluation.shift import Misinformed, Shift
from dsp_gym.guardrails.chain import build_for
from dsp_gym.job.catalog import job_hash, load_job
from dsp_gym.job.cost import one_currency, refuse_free
from dsp_gym.job.sizing import sized
from dsp_gym.job.spec import JobSpec, Prices, Slo
from dsp_gym.job.tables import SOURCE
from dsp_gym.job.validity import Extremes
from dsp_gym.loads.sampler import LoadCell, LoadSampler
from dsp_gym.loop.outcome import Outcome
from dsp_gym.loop.protocols import Policy
from dsp_gym.loop.topology import Topology
from dsp_gym.policies.capabilities import FutureLoad, capabilities_of, without_reasons
from dsp_gym.policies.registry import make
from dsp_gym.simulation.outcome import histogram_quantile
from dsp_gym.version import __version__

OnStep = Callable[[str, int, int, LoopStep], None]
"""Called after each step: the policy's label, decisions taken, decisions in all, and the step."""


@dataclass(frozen=True, slots=True)
class Runs:
    """The rows of a batch: every job under every load with every seed."""

    specs: tuple[JobSpec, ...]
    job: Ints  # (J,) index into specs
    loads: tuple[LoadCell, ...]  # (J,)
    seeds: Ints  # (J,) of the simulation
    rates: Floats  # (J, T) records/s
    same_law: Floats | None = None  # (N, minutes) of other seeds, multiples of the reference rate

    def __len__(self) -> int:
        return len(self.job)

    def take(self, first: int, last: int) -> Runs:
        """Return the rows from the first up to, but not including, the last."""
        part = slice(first, last)
        return Runs(
            self.specs,
            self.job[part],
            self.loads[part],
            self.seeds[part],
            self.rates[part],
            self.same_law,
        )


@dataclass(frozen=True, slots=True)
class RunBatch:
    """Some runs of one policy, with everything needed to play them."""

    entrant: Entrant
    runs: Runs
    config: BenchmarkConfig
    drawn: tuple[int, ...]  # rows whose timeline is kept
    bounding: bool  # whether the policy is asked what is possible
    first: int = 0  # place of its first run among the policy's

    def __len__(self) -> int:
        return len(self.runs)

    def take(self, first: int, last: int) -> RunBatch:
        """Return the runs from the first up to, but not including, the last.

        Returns:
            A batch of them alone.
        """
        return replace(
            self,
            runs=self.runs.take(first, last),
            drawn=tuple(row - first for row in self.drawn if first <= row < last),
            first=self.first + first,
        )

    def split(self, size: int) -> list[RunBatch]:
        """Cut into batches of at most `size` runs, in order.

        Returns:
            Shares that together hold every run once; the last may be smaller.
        """
        return [
            self.take(first, min(first + size, len(self))) for first in range(0, len(self), size)
        ]

    def without(self, done: Iterable[BatchResult]) -> list[RunBatch]:
        """Return the runs that are still to be played.

        Args:
            done: Results of parts of this batch, which do not overlap.

        Returns:
            A batch for each gap between them, in order.
        """
        left, following = [], 0
        for part in sorted(done, key=lambda part: part.first):
            if part.first > following:
                left.append(self.take(following, part.first))
            following = part.first + len(part.cells)
        if following < len(self):
            left.append(self.take(following, len(self)))
        return left


class BatchResult(ConfigModel):
    """The results of a batch."""

    first: int = Field(0, ge=0, description="place of the first run among the policy's")
    cells: tuple[ScorecardCell, ...] = Field(description="every run")
    timelines: tuple[RunTimeline, ...] = Field(description="one run per job")
    validity: tuple[RunValidity, ...] = Field(description="distance from the fit, by part and job")
    possible: tuple[tuple[float, float], ...] | None = Field(
        description="bound and peak cost of each run; none: another policy was asked"
    )


def _validity(label: str, runs: Runs, asked: Extremes) -> tuple[RunValidity, ...]:
    """Say how far a policy went from the fit of each job that has one."""
    found = []
    for k, spec in enumerate(runs.specs):
        rows = np.flatnonzero(runs.job == k)
        if spec.fitted is None or not len(rows):
            continue
        one = asked.validity(rows)
        found.append(
            RunValidity(
                policy=label,
                job=spec.job,
                doublings=one.doublings,
                capacity_factor=one.factor,
                sentences=tuple(one.sentences()),
            )
        )
    return tuple(found)


def play(
    batch: RunBatch, observer: OnStep | None = None, policy: Policy | None = None
) -> BatchResult:
    """Play a batch of runs.

    Args:
        batch: The runs.
        observer: Sees every step; None: nobody does.
        policy: Decides in place of the batch's own; None: that decides.

    Returns:
        The cells and timelines of the runs, and what was possible on them.
    """
    config, runs, entrant = batch.config, batch.runs, batch.entrant
    policy = policy or make(entrant.policy)
    if observer is None and not batch.drawn:
        policy = without_reasons(policy)  # nobody reads them
    chain = build_for(policy, entrant.guardrails)
    shift = config.shift or Shift(name="none")
    options = shift.options(config.simulation)
    jobs = SimulatedJobs(Topology.of(runs.specs, runs.job.tolist()), options)
    jobs.reset(runs.seeds, runs.rates, parallelism=_start(jobs.topology, runs, config))
    can = capabilities_of(policy)
    if can.know_future is not None:
        future = FutureLoad(runs.rates, config.interval_s, runs.same_law)
        can.know_future(jobs.topology, future)
    possible = None
    if batch.bounding and can.cost_bounds is not None:
        bounds = can.cost_bounds()
        possible = tuple(zip(bounds.bound.tolist(), bounds.peak.tolist(), strict=True))
    told = Misinformed(policy, shift.file_error) if shift.file_error > 0 else policy
    loop = ControlLoop(jobs, told, chain, config.interval_s)
    loop.reset(runs.seeds)
    asked = Extremes([runs.specs[k] for k in runs.job])
    record = _Record.of(_steps(loop, config, entrant.name, observer), jobs, asked, batch.drawn)
    names = chain.names if chain is not None else ()
    rows = range(len(runs))
    return BatchResult(
        first=batch.first,
        cells=tuple(_cell(entrant.name, runs, row, record, names, config) for row in rows),
        timelines=tuple(_timeline(entrant.name, runs, row, record, config) for row in batch.drawn),
        validity=_validity(entrant.name, runs, asked),
        possible=possible,
    )


def batch_of(
    config: BenchmarkConfig, entrant: Entrant, base_dir: str | Path | None = None
) -> RunBatch:
    """Return every run of one policy.

    Args:
        config: The benchmark, whose own policies take no part.
        entrant: The policy.
        base_dir: Folder that relative trace paths start from.

    Returns:
        A batch that can be played, or be given another policy; no timeline is kept of it.
    """
    return RunBatch(entrant, runs_of(config, base_dir), config, drawn=(), bounding=False)


def _steps(
    loop: ControlLoop, config: BenchmarkConfig, label: str, observer: OnStep | None
) -> Iterator[LoopStep]:
    """Return one episode, step by step."""
    steps = config.episode_s // config.interval_s
    for k in range(steps):
        step = loop.step()
        if observer is not None:
            observer(label, k + 1, steps, step)
        yield step


def simulation_seed(cell: LoadCell) -> int:
    """Return the seed of outages, noise and faults, another one for each load and seed.

    Returns:
        A number of 63 bits, the same for every policy.
    """
    sequence = np.random.SeedSequence([cell.seed, zlib.crc32(cell.name.encode())])
    return int(sequence.generate_state(1, np.uint64)[0] >> np.uint64(1))


def runs_of(config: BenchmarkConfig, base_dir: str | Path | None) -> Runs:
    """List the runs of a benchmark: every job under every load with every seed.

    Returns:
        The runs with their loads' rates.

    Raises:
        ConfigError: Two jobs have the same name, or prices in two currencies, or a job has none.
    """
    specs = tuple(benchmark_job(name, config) for name in config.jobs)
    names = [spec.job for spec in specs]
    for spec, file in zip(specs, config.jobs, strict=True):
        if names.count(spec.job) > 1:
            raise ConfigError(
                f"two jobs are called '{spec.job}'",
                key="jobs",
                value=file,
                remedy="Give each job file its own 'job' name; results are told apart by it.",
            )
    one_currency(specs)
    refuse_free(specs)
    sampler = LoadSampler(config.loads, base_dir)
    loads = [cell for row in sampler.cells(config.split, config.seeds) for cell in row]
    shapes = np.array([sampler.rates(cell, config.episode_s) for cell in loads])
    reference = np.array([spec.source.rate_per_s for spec in specs])
    seeds = [simulation_seed(cell) for cell in loads]
    return Runs(
        specs=specs,
        job=np.repeat(np.arange(len(specs)), len(loads)),
        loads=tuple(loads) * len(specs),
        seeds=np.array(seeds * len(specs), dtype=np.int64),
        rates=(reference[:, None, None] * shapes).reshape(-1, config.episode_s),
    )


def _start(topology: Topology, runs: Runs, config: BenchmarkConfig) -> Ints | None:
    """Parallelism to start with, the same for every policy; None: what the job files say."""
    if config.start == "job":
        return None
    tables, row = topology.tables, topology.row
    level = tables.start_level[row]
    return sized(tables, row, runs.rates[:, 0], config.start_headroom, np.ones(len(runs)), level)


def benchmark_job(name: str, config: BenchmarkConfig) -> JobSpec:
    """Return the job with the SLO bound and the prices that hold for all jobs of the benchmark.

    Returns:
        The job; without a bound or prices in the config it keeps its own.
    """
    changes: dict[str, Slo | Prices] = {}
    if config.slo_latency_s is not None:
        changes["slo"] = Slo(latency_s=config.slo_latency_s)
    if config.prices is not None:
        changes["prices"] = config.prices
    spec = load_job(name).model_copy(update=changes)
    return spec if config.shift is None else config.shift.job(spec)


@dataclass(frozen=True, slots=True)
class _Record:
    """The outcomes of K intervals of J runs, (K, J)."""

    outcome: dict[str, Floats]
    subtasks: Floats  # decided on, sources left out
    trips: Bools  # (K, J, guardrails)
    latency: dict[str, Floats]  # (J,) by metric
    reasons: dict[int, list[tuple[int, str]]]  # interval and reason of each rescale, by drawn row

    @classmethod
    def of(
        cls,
        steps: Iterator[LoopStep],
        jobs: SimulatedJobs,
        asked: Extremes,
        drawn: tuple[int, ...],
    ) -> _Record:
        tables, row = jobs.topology.tables, jobs.topology.row
        scaled = (tables.kind[row] >= 0) & (tables.kind[row] != SOURCE)
        outcomes, subtasks, trips = [], [], []
        reasons: dict[int, list[tuple[int, str]]] = {run: [] for run in drawn}
        for k, step in enumerate(steps):
            outcomes.append(step.outcome)
            decided, rate = step.guarded, step.outcome.processed / step.outcome.seconds
            asked.take(decided.parallelism, decided.memory_level, rate)
            subtasks.append(np.where(scaled, step.guarded.parallelism, 0).sum(axis=1))
            trips.append(step.guarded.trips)
            for run in drawn:
                if step.outcome.rescales[run] > 0:
                    reasons[run].append((k, reason_of(step, run)))
        names = [field.name for field in fields(Outcome)]
        return cls(
            outcome={name: np.array([getattr(o, name) for o in outcomes]) for name in names},
            subtasks=np.array(subtasks, dtype=np.float64),
            trips=np.array(trips, dtype=bool),
            latency={
                f"latency_p{percent}_s": histogram_quantile(jobs.state.histogram, percent / 100)
                for percent in (50, 95, 99)
            },
            reasons=reasons,
        )


def reason_of(step: LoopStep, run: int) -> str:
    """Return the reason of the last guardrail that changed a decision, or else the policy's own.

    Args:
        step: the turn of the loop.
        run: row of the batch.

    Returns:
        A sentence; "" where none was asked for.
    """
    changed = [one for one in step.guarded.interventions if one.job == run and one.reason]
    if changed:
        return f"{changed[-1].guardrail}: {changed[-1].reason}"
    return step.decision.reasons[run]


def _cell(
    label: str,
    runs: Runs,
    row: int,
    record: _Record,
    guardrails: tuple[str, ...],
    config: BenchmarkConfig,
) -> ScorecardCell:
    series = {name: values[:, row] for name, values in record.outcome.items()}
    # Summed in the order of time, so that the result does not depend on the batch.
    total = {name: float(np.cumsum(values)[-1]) for name, values in series.items()}
    arrival_per_s = total["arrived"] / total["seconds"]
    changes = load_changes(series["arrived"])
    trips = record.trips[:, row]
    return ScorecardCell(
        policy=label,
        job=runs.specs[runs.job[row]].job,
        load=runs.loads[row].name,
        seed=runs.loads[row].seed,
        metrics={
            "slo_s": total["slo_s"],
            "slo_share": total["slo_s"] / total["seconds"],
            **{name: float(values[row]) for name, values in record.latency.items()},
            "lag_s": float(np.mean(series["pending"])) / max(arrival_per_s, 1e-9),
            "core_h": total["core_s"] / 3600,
            "gib_h": total["mib_s"] / 1024 / 3600,
            "cost": total["cost"],
            "cost_provisioned": total["cost_provisioned"],
            "rescales": total["rescales"],
            "down_s": total["down_s"],
            "settling_s": settling_s(
                changes, series["rescales"], series["slo_s"], config.interval_s
            ),
            "overshoot": overshoot(changes, series["rescales"], record.subtasks[:, row]),
            "interventions": float(trips.any(axis=1).sum()),
        },
        trips={name: int(trips[:, g].sum()) for g, name in enumerate(guardrails)},
    )


def _timeline(
    label: str, runs: Runs, row: int, record: _Record, config: BenchmarkConfig
) -> RunTimeline:
    series = {name: values[:, row] for name, values in record.outcome.items()}
    seconds = series["seconds"]
    ends = np.cumsum(seconds)
    spec = runs.specs[runs.job[row]]
    return RunTimeline(
        policy=label,
        job=spec.job,
        load=runs.loads[row].name,
        seed=runs.loads[row].seed,
        t_s=tuple(ends.tolist()),
        target_per_s=tuple((series["arrived"] / seconds).tolist()),
        rate_per_s=tuple((series["processed"] / seconds).tolist()),
        cores=tuple((series["core_s"] / seconds).tolist()),
        memory_mib=tuple((series["mib_s"] / seconds).tolist()),
        latency_p95_s=tuple(series["latency_p95_s"].tolist()),
        slo_latency_s=spec.slo.latency_s,
        rescales=tuple(
            RunRescale(t_s=float(ends[k] - seconds[k]), reason=reason)
            for k, reason in record.reasons[row]
        ),
    )


def versions(specs: tuple[JobSpec, ...]) -> dict[str, str]:
    """Say what the numbers depend on beside the config.

    Returns:
        Versions by package, and hashes by job.
    """
    found = {"dsp-gym": __version__, "python": platform.python_version()}
    found |= {package: version(package) for package in ("numba", "numpy")}
    return found | {f"job {spec.job}": job_hash(spec) for spec in specs}
