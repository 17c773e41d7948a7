"""Running a benchmark: every policy on the same jobs, loads and seeds.

All runs of one policy are one batch, or several batches on an engine: a run does not depend on the
rest of its batch. Loads, seeds and the simulation's random numbers are the same for every
policy, so that differences are the policies' own.
"""

from __future__ import annotations

import platform
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from importlib.metadata import version
from pathlib import Path
from typing import Protocol

import numpy as np

from dsp_gym import __version__
from dsp_gym.arrays import Bools, Floats, Ints
from dsp_gym.backends.simulated.jobs import SimulatedJobs
from dsp_gym.config.files import load_model
from dsp_gym.control.loop import ControlLoop, LoopStep
from dsp_gym.engine import HERE, Engine, Tell, batch_size
from dsp_gym.errors import ConfigError
from dsp_gym.evaluation.carried import Carried, carried, one_thread
from dsp_gym.evaluation.config import BOUND, BenchmarkConfig, Entrant
from dsp_gym.evaluation.saso import load_changes, overshoot, settling_s
from dsp_gym.evaluation.scorecard import RunTimeline, RunValidity, Scorecard, ScorecardCell, score
from dsp_gym.evaluation.shift import Misinformed, Shift
from dsp_gym.guardrails.chain import build_for
from dsp_gym.guardrails.config import GuardrailsConfig
from dsp_gym.job.catalog import load_job
from dsp_gym.job.identity import job_hash
from dsp_gym.job.sizing import sized
from dsp_gym.job.spec import JobSpec, Prices, Slo
from dsp_gym.job.tables import SOURCE
from dsp_gym.job.validity import Extremes
from dsp_gym.loads.sampler import LoadCell, LoadSampler
from dsp_gym.loop.outcome import Outcome
from dsp_gym.loop.protocols import without_words
from dsp_gym.loop.topology import Topology
from dsp_gym.policies.foresight import Bounding, Foreseeing, Foresight, Possible
from dsp_gym.policies.registry import is_installed, make, resolve
from dsp_gym.simulation.outcome import histogram_quantile

__all__ = [
    "PLAN",
    "Keep",
    "OnRuns",
    "OnStep",
    "Share",
    "ShareResult",
    "benchmark_job",
    "cells_of",
    "decisions_of",
    "evaluate",
    "play",
    "share_of",
    "simulation_seed",
    "versions",
]

PLAN = "clairvoyant"
"""The policy that knows the load, and its label."""

OnStep = Callable[[str, int, int, LoopStep], None]
"""Called after each step: the policy's label, decisions taken, decisions in all, and the step."""

OnRuns = Callable[[str, float, int], None]
"""Told of progress: a policy's label, runs done (a part of one counts), runs in all."""


@dataclass(frozen=True, slots=True)
class _Runs:
    """The rows of a batch: every job under every load with every seed."""

    specs: tuple[JobSpec, ...]
    job: Ints  # (J,) index into specs
    loads: tuple[LoadCell, ...]  # (J,)
    seeds: Ints  # (J,) of the simulation
    rates: Floats  # (J, T) records/s

    def __len__(self) -> int:
        return len(self.job)

    def take(self, first: int, last: int) -> _Runs:
        """Rows from the first up to, but not including, the last."""
        part = slice(first, last)
        return _Runs(
            self.specs, self.job[part], self.loads[part], self.seeds[part], self.rates[part]
        )


@dataclass(frozen=True, slots=True)
class Share:
    """Some runs of one policy, with everything needed to play them."""

    entrant: Entrant
    runs: _Runs
    config: BenchmarkConfig
    drawn: tuple[int, ...]  # rows whose timeline is kept
    bounding: bool  # whether the policy is asked what is possible
    first: int = 0  # place of its first run among the policy's

    def __len__(self) -> int:
        return len(self.runs)

    def take(self, first: int, last: int) -> Share:
        """Runs from the first up to, but not including, the last.

        Returns:
            A share of them alone.
        """
        return replace(
            self,
            runs=self.runs.take(first, last),
            drawn=tuple(row - first for row in self.drawn if first <= row < last),
            first=self.first + first,
        )

    def split(self, size: int) -> list[Share]:
        """Cut into shares of at most `size` runs, in order.

        Returns:
            Shares that together hold every run once; the last may be smaller.
        """
        return [
            self.take(first, min(first + size, len(self))) for first in range(0, len(self), size)
        ]

    def without(self, done: Iterable[ShareResult]) -> list[Share]:
        """The runs that are still to be played.

        Args:
            done: Results of parts of this share, which do not overlap.

        Returns:
            A share for each gap between them, in order.
        """
        left, following = [], 0
        for part in sorted(done, key=lambda part: part.first):
            if part.first > following:
                left.append(self.take(following, part.first))
            following = part.first + len(part.cells)
        if following < len(self):
            left.append(self.take(following, len(self)))
        return left


@dataclass(frozen=True, slots=True)
class ShareResult:
    """The results of a share."""

    cells: tuple[ScorecardCell, ...]
    timelines: tuple[RunTimeline, ...]
    possible: Possible | None
    validity: tuple[RunValidity, ...] = ()
    first: int = 0  # place of its first run among the policy's


class Keep(Protocol):
    """Results kept while an evaluation runs; see `dsp_gym.evaluation.kept`."""

    def read(self, share: Share) -> list[ShareResult]:
        """The results of parts of a share that need not be played again; they do not overlap."""
        ...

    def write(self, share: Share, result: ShareResult) -> None:
        """Keep the result of a share."""


def evaluate(
    config: BenchmarkConfig,
    *,
    base_dir: str | Path | None = None,
    observer: OnStep | None = None,
    engine: Engine = HERE,
    told: OnRuns | None = None,
    kept: Keep | None = None,
) -> Scorecard:
    """Runs a benchmark.

    Args:
        config: The benchmark.
        base_dir: Folder that relative trace paths start from.
        observer: Called after each step. With one, all runs are played in this process.
        engine: Where runs are played; the scorecard does not depend on it. In this process all runs
            of a policy are one batch.
        told: Hears how many runs are done.
        kept: Keeps results as they come, and gives those of an earlier call.

    Returns:
        The scorecard; the same config gives the same one to the last bit.
    """
    runs = _runs(config, base_dir)
    parts = _parts(_shares(config, runs), engine, observer, told, kept)
    cells = [cell for part in parts for cell in part.cells]
    found = [part.possible for part in parts if part.possible is not None]
    if found:
        bound, peak = (np.concatenate(values) for values in zip(*found, strict=True))
        cells = _with_bound(cells, runs, Possible(bound, peak))
    rows = score(
        cells,
        reference=config.reference,
        confidence=config.confidence,
        resamples=config.bootstrap,
    )
    return Scorecard(
        reference=config.reference,
        config=config.model_dump(mode="json", by_alias=True),
        versions=versions(runs.specs),
        rows=rows,
        cells=tuple(cells),
        timelines=tuple(timeline for part in parts for timeline in part.timelines),
        validity=_farthest(one for part in parts for one in part.validity),
    )


def cells_of(
    config: BenchmarkConfig,
    *,
    base_dir: str | Path | None = None,
    engine: Engine = HERE,
    told: OnRuns | None = None,
    kept: Keep | None = None,
) -> tuple[ScorecardCell, ...]:
    """Runs a benchmark and keeps the measured values alone: no timelines, rows or comparison.

    Args:
        config: The benchmark.
        base_dir: Folder that relative trace paths start from.
        engine: Where runs are played, as for `evaluate`.
        told: Hears how many runs are done.
        kept: Keeps results as they come, and gives those of an earlier call.

    Returns:
        Every run, policy by policy.
    """
    runs = _runs(config, base_dir)
    shares = [replace(share, drawn=()) for share in _shares(config, runs)]
    parts = _parts(shares, engine, None, told, kept)
    return tuple(cell for part in parts for cell in part.cells)


def _parts(
    shares: Sequence[Share],
    engine: Engine,
    observer: OnStep | None,
    told: OnRuns | None,
    kept: Keep | None,
) -> list[ShareResult]:
    """The results of all shares, in their order; what was kept is not played again."""
    found = [[] if kept is None else list(kept.read(share)) for share in shares]
    gaps = [
        (owner, gap) for owner, share in enumerate(shares) for gap in share.without(found[owner])
    ]
    total = sum(map(len, shares))
    left = sum(len(gap) for _, gap in gaps)
    if observer is not None:
        engine = HERE
    size = left if engine.slots == 1 else batch_size(engine, left)
    work = [(owner, part) for owner, gap in gaps for part in gap.split(size)]
    done, shown = float(total - left), [0.0] * len(work)

    def heard(place: int, share: float) -> None:
        nonlocal done
        part = work[place][1]
        done += len(part) * (share - shown[place])
        shown[place] = share
        if told is not None:
            told(part.entrant.name, done, total)

    results: Iterator[tuple[int, ShareResult]]
    if observer is not None:
        results = ((place, play(part, observer)) for place, (_, part) in enumerate(work))
    else:
        results = engine.map(_play, [_carried(part, engine) for _, part in work], heard)
    for place, result in results:
        owner, part = work[place]
        if kept is not None:
            kept.write(part, result)
        found[owner].append(result)
    return [part for parts in found for part in sorted(parts, key=lambda part: part.first)]


def _carried(share: Share, engine: Engine) -> Carried[Share]:
    """The share with what stands in files here written out."""
    entrant, config = share.entrant, share.config
    _, policy, _ = resolve(entrant.policy)
    if isinstance(entrant.guardrails, str):
        chain = load_model(GuardrailsConfig, "guardrails", entrant.guardrails)
        entrant = entrant.model_copy(update={"guardrails": chain})
    if not engine.shares_disk:
        config = config.model_copy(update={"simulation": one_thread(config.simulation)})
    share = replace(share, entrant=entrant, config=config)
    return carried(share, policy, shares_disk=engine.shares_disk)


def _play(work: Carried[Share], tell: Tell[float]) -> ShareResult:
    def observe(_label: str, taken: int, steps: int, _step: LoopStep) -> None:
        tell(taken / steps)

    with work.unpacked() as policy:
        entrant = work.work.entrant.model_copy(update={"policy": policy})
        return play(replace(work.work, entrant=entrant), observe)


def _farthest(found: Iterable[RunValidity]) -> tuple[RunValidity, ...]:
    """Of each policy and job the part of the runs that went farthest from the fit."""
    kept: dict[tuple[str, str], RunValidity] = {}
    for one in found:
        known = kept.get((one.policy, one.job))
        if known is None or one.doublings > known.doublings:
            kept[one.policy, one.job] = one
    return tuple(kept.values())


def _validity(label: str, runs: _Runs, asked: Extremes) -> tuple[RunValidity, ...]:
    """How far a policy went from the fit of each job that has one."""
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


def play(share: Share, observer: OnStep | None = None) -> ShareResult:
    """Plays the runs of a share as one batch.

    Returns:
        The cells and timelines of the runs, and what was possible on them.
    """
    config, runs, entrant = share.config, share.runs, share.entrant
    policy = make(entrant.policy)
    if observer is None and not share.drawn:
        policy = without_words(policy)  # nobody reads them
    chain = build_for(policy, entrant.guardrails)
    shift = config.shift or Shift(name="none")
    options = shift.options(config.simulation)
    jobs = SimulatedJobs(Topology.of(runs.specs, runs.job.tolist()), options)
    jobs.reset(runs.seeds, runs.rates, parallelism=_start(jobs.topology, runs, config))
    if isinstance(policy, Foreseeing):
        policy.foresee(jobs.topology, Foresight(runs.rates, config.interval_s))
    possible = policy.possible() if share.bounding and isinstance(policy, Bounding) else None
    told = Misinformed(policy, shift.file_error) if shift.file_error > 0 else policy
    loop = ControlLoop(jobs, told, chain, config.interval_s)
    loop.reset(runs.seeds)
    asked = Extremes([runs.specs[k] for k in runs.job])
    record = _Record.of(_steps(loop, config, entrant.name, observer), jobs, asked)
    names = chain.names if chain is not None else ()
    rows = range(len(runs))
    return ShareResult(
        tuple(_cell(entrant.name, runs, row, record, names, config) for row in rows),
        tuple(_timeline(entrant.name, runs, row, record, config) for row in share.drawn),
        possible,
        _validity(entrant.name, runs, asked),
        share.first,
    )


def share_of(
    config: BenchmarkConfig, entrant: Entrant, base_dir: str | Path | None = None
) -> Share:
    """Every run of one policy.

    Args:
        config: The benchmark, whose own policies take no part.
        entrant: The policy.
        base_dir: Folder that relative trace paths start from.

    Returns:
        A share that can be played, or be given another policy; no timeline is kept of it.
    """
    return Share(entrant, _runs(config, base_dir), config, drawn=(), bounding=False)


def decisions_of(config: BenchmarkConfig) -> int:
    """Counts the decisions of all runs of all policies.

    Returns:
        The number, without looking at any load.
    """
    split = dict(config.loads.splits())[config.split]
    seeds = 1 if split.seeds is None else len(split.seeds)
    loads = len(split.loads) * min(seeds, config.seeds or seeds)
    runs = len(_entrants_of(config)) * len(config.jobs) * loads
    return runs * (config.episode_s // config.interval_s)


def _shares(config: BenchmarkConfig, runs: _Runs) -> list[Share]:
    """One share for each policy."""
    # Errors in any policy are found before the first one runs.
    made = [(entrant, make(entrant.policy)) for entrant in _entrants_of(config)]
    for entrant, policy in made:
        build_for(policy, entrant.guardrails)
    able = [entrant.name for entrant, policy in made if isinstance(policy, Bounding)]
    asked = able[0] if able and config.clairvoyant else None
    drawn = tuple(_representative(runs))
    return [Share(entrant, runs, config, drawn, entrant.name == asked) for entrant, _ in made]


def _entrants_of(config: BenchmarkConfig) -> tuple[Entrant, ...]:
    """The config's policies, and the best plan, last, if it is installed."""
    named = [entrant.name for entrant in config.policies]
    if not config.clairvoyant or PLAN in named or not is_installed(PLAN):
        return config.policies
    return (*config.policies, Entrant(policy=PLAN, name=PLAN))


def _with_bound(cells: list[ScorecardCell], runs: _Runs, possible: Possible) -> list[ScorecardCell]:
    """The cells with the possible saving, and the bound as a policy of its own."""
    found = [
        {"bound": float(bound), "peak": float(peak)}
        for bound, peak in zip(possible.bound, possible.peak, strict=True)
    ]
    told = [cell.model_copy(update=found[i % len(runs)]) for i, cell in enumerate(cells)]
    least = [
        cell.model_copy(
            update={
                "policy": BOUND,
                "metrics": {"slo_s": 0.0, "slo_share": 0.0, "cost": found[i]["bound"]},
                "trips": {},
            }
        )
        for i, cell in enumerate(told[: len(runs)])
    ]
    return told + least


def _steps(
    loop: ControlLoop, config: BenchmarkConfig, label: str, observer: OnStep | None
) -> Iterator[LoopStep]:
    """One episode, step by step."""
    steps = config.episode_s // config.interval_s
    for k in range(steps):
        step = loop.step()
        if observer is not None:
            observer(label, k + 1, steps, step)
        yield step


def simulation_seed(cell: LoadCell) -> int:
    """The seed of outages, noise and faults: its own for each load and seed.

    Returns:
        A number of 63 bits, the same for every policy.
    """
    sequence = np.random.SeedSequence([cell.seed, zlib.crc32(cell.name.encode())])
    return int(sequence.generate_state(1, np.uint64)[0] >> np.uint64(1))


def _runs(config: BenchmarkConfig, base_dir: str | Path | None) -> _Runs:
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
    sampler = LoadSampler(config.loads, base_dir)
    loads = [cell for row in sampler.cells(config.split, config.seeds) for cell in row]
    shapes = np.array([sampler.rates(cell, config.episode_s) for cell in loads])
    reference = np.array([spec.source.rate_per_s for spec in specs])
    seeds = [simulation_seed(cell) for cell in loads]
    return _Runs(
        specs=specs,
        job=np.repeat(np.arange(len(specs)), len(loads)),
        loads=tuple(loads) * len(specs),
        seeds=np.array(seeds * len(specs), dtype=np.int64),
        rates=(reference[:, None, None] * shapes).reshape(-1, config.episode_s),
    )


def _start(topology: Topology, runs: _Runs, config: BenchmarkConfig) -> Ints | None:
    """Parallelism to start with, the same for every policy; None: what the job files say."""
    if config.start == "job":
        return None
    tables, row = topology.tables, topology.row
    level = tables.start_level[row]
    return sized(tables, row, runs.rates[:, 0], config.start_headroom, np.ones(len(runs)), level)


def benchmark_job(name: str, config: BenchmarkConfig) -> JobSpec:
    """The job with the SLO bound and the prices that hold for all jobs of the benchmark.

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

    @classmethod
    def of(cls, steps: Iterator[LoopStep], jobs: SimulatedJobs, asked: Extremes) -> _Record:
        tables, row = jobs.topology.tables, jobs.topology.row
        scaled = (tables.kind[row] >= 0) & (tables.kind[row] != SOURCE)
        outcomes, subtasks, trips = [], [], []
        for step in steps:
            outcomes.append(step.outcome)
            decided, rate = step.guarded, step.outcome.processed / step.outcome.seconds
            asked.take(decided.parallelism, decided.memory_level, rate)
            subtasks.append(np.where(scaled, step.guarded.parallelism, 0).sum(axis=1))
            trips.append(step.guarded.trips)
        names = [field.name for field in fields(Outcome)]
        return cls(
            outcome={name: np.array([getattr(o, name) for o in outcomes]) for name in names},
            subtasks=np.array(subtasks, dtype=np.float64),
            trips=np.array(trips, dtype=bool),
            latency={
                f"latency_p{percent}_s": histogram_quantile(jobs.state.histogram, percent / 100)
                for percent in (50, 95, 99)
            },
        )


def _cell(
    label: str,
    runs: _Runs,
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


def _representative(runs: _Runs) -> list[int]:
    """The first load with its first seed, for each job: chosen before any result is known."""
    return [int(np.flatnonzero(runs.job == k)[0]) for k in range(len(runs.specs))]


def _timeline(
    label: str, runs: _Runs, row: int, record: _Record, config: BenchmarkConfig
) -> RunTimeline:
    series = {name: values[:, row] for name, values in record.outcome.items()}
    seconds = series["seconds"]
    spec = runs.specs[runs.job[row]]
    return RunTimeline(
        policy=label,
        job=spec.job,
        load=runs.loads[row].name,
        seed=runs.loads[row].seed,
        t_s=tuple(np.cumsum(seconds).tolist()),
        target_per_s=tuple((series["arrived"] / seconds).tolist()),
        rate_per_s=tuple((series["processed"] / seconds).tolist()),
        cores=tuple((series["core_s"] / seconds).tolist()),
        memory_mib=tuple((series["mib_s"] / seconds).tolist()),
        latency_p95_s=tuple(series["latency_p95_s"].tolist()),
        slo_latency_s=spec.slo.latency_s,
    )


def versions(specs: tuple[JobSpec, ...]) -> dict[str, str]:
    """What the numbers depend on beside the config.

    Returns:
        Versions by package, and hashes by job.
    """
    found = {"dsp-gym": __version__, "python": platform.python_version()}
    found |= {package: version(package) for package in ("numba", "numpy")}
    return found | {f"job {spec.job}": job_hash(spec) for spec in specs}
