"""Running a benchmark: every policy on the same jobs, loads and seeds.

All runs of one policy are one batch, or several batches on an engine: a run does not depend on the
rest of its batch. Loads, seeds and the simulation's random numbers are the same for every
policy, so that differences are the policies' own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from dsp_gym.config.files import load_model
from dsp_gym.control.loop import LoopStep
from dsp_gym.engine import HERE, Engine, Tell, batch_size
from dsp_gym.evaluation.batch_of_runs import (
    BatchResult,
    OnStep,
    RunBatch,
    Runs,
    play,
    runs_of,
    versions,
)
from dsp_gym.evaluation.config import BOUND, BenchmarkConfig, Entrant
from dsp_gym.evaluation.kept import KeptResults
from dsp_gym.evaluation.scorecard import RunValidity, Scorecard, ScorecardCell, score
from dsp_gym.evaluation.shipped_work import ShippedWork, one_thread, ship
from dsp_gym.guardrails.chain import build_for
from dsp_gym.guardrails.config import GuardrailsConfig
from dsp_gym.job.cost import one_currency
from dsp_gym.policies.capabilities import capabilities_of
from dsp_gym.policies.registry import is_installed, make, resolve

PLAN = "clairvoyant"
"""The policy that knows the load, and its label."""

DRAWN_DECISIONS = 40_000
"""Decisions that a scorecard keeps to be drawn, all policies and jobs together; one load of each
job is kept whatever it takes."""

OnRuns = Callable[[str, float, int], None]
"""Told of progress: a policy's label, runs done (a part of one counts), runs in all."""


def evaluate(
    config: BenchmarkConfig,
    *,
    base_dir: str | Path | None = None,
    observer: OnStep | None = None,
    engine: Engine = HERE,
    told: OnRuns | None = None,
    kept: KeptResults | None = None,
) -> Scorecard:
    """Run a benchmark.

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
    runs = runs_of(config, base_dir)
    parts = _parts(_batches(config, runs), engine, observer, told, kept)
    cells = [cell for part in parts for cell in part.cells]
    possible = [pair for part in parts for pair in part.possible or ()]
    if possible:
        cells = _with_bound(cells, runs, possible)
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
        currency=one_currency(runs.specs),
        statistic="mean",
        rows=rows,
        cells=tuple(cells),
        timelines=tuple(timeline for part in parts for timeline in part.timelines),
        validity=_farthest(one for part in parts for one in part.validity),
    )


def cells_of(
    config: BenchmarkConfig,
    *,
    base_dir: str | Path | None = None,
    runs: Runs | None = None,
    engine: Engine = HERE,
    told: OnRuns | None = None,
    kept: KeptResults | None = None,
) -> tuple[ScorecardCell, ...]:
    """Run a benchmark and keep the measured values alone: no timelines, rows or comparison.

    Args:
        config: The benchmark.
        base_dir: Folder that relative trace paths start from.
        runs: The runs of each policy; none: every job under every load with every seed.
        engine: Where runs are played, as for `evaluate`.
        told: Hears how many runs are done.
        kept: Keeps results as they come, and gives those of an earlier call.

    Returns:
        Every run, policy by policy.
    """
    runs = runs_of(config, base_dir) if runs is None else runs
    batches = [replace(batch, drawn=()) for batch in _batches(config, runs)]
    parts = _parts(batches, engine, None, told, kept)
    return tuple(cell for part in parts for cell in part.cells)


def _parts(
    batches: Sequence[RunBatch],
    engine: Engine,
    observer: OnStep | None,
    told: OnRuns | None,
    kept: KeptResults | None,
) -> list[BatchResult]:
    """Return the results of all batches, in their order; what was kept is not played again."""
    found = [[] if kept is None else list(kept.read(batch)) for batch in batches]
    gaps = [
        (owner, gap) for owner, batch in enumerate(batches) for gap in batch.without(found[owner])
    ]
    total = sum(map(len, batches))
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

    results: Iterator[tuple[int, BatchResult]]
    if observer is not None:
        results = ((place, play(part, observer)) for place, (_, part) in enumerate(work))
    else:
        results = engine.map(_play, [_shipped(part, engine) for _, part in work], heard)
    for place, result in results:
        owner, part = work[place]
        if kept is not None:
            kept.write(part, result)
        found[owner].append(result)
    return [part for parts in found for part in sorted(parts, key=lambda part: part.first)]


def _shipped(batch: RunBatch, engine: Engine) -> ShippedWork[RunBatch]:
    """Return the batch with its policy and guardrails read from their files."""
    entrant, config = batch.entrant, batch.config
    _, policy, _ = resolve(entrant.policy)
    if isinstance(entrant.guardrails, str):
        chain = load_model(GuardrailsConfig, "guardrails", entrant.guardrails)
        entrant = entrant.model_copy(update={"guardrails": chain})
    if not engine.shares_disk:
        config = config.model_copy(update={"simulation": one_thread(config.simulation)})
    batch = replace(batch, entrant=entrant, config=config)
    return ship(batch, policy, shares_disk=engine.shares_disk)


def _play(work: ShippedWork[RunBatch], tell: Tell[float]) -> BatchResult:
    def observe(_label: str, taken: int, steps: int, _step: LoopStep) -> None:
        tell(taken / steps)

    with work.unpacked() as policy:
        entrant = work.work.entrant.model_copy(update={"policy": policy})
        return play(replace(work.work, entrant=entrant), observe)


def _farthest(found: Iterable[RunValidity]) -> tuple[RunValidity, ...]:
    """Return the part of the runs of each policy and job that went farthest from the fit."""
    kept: dict[tuple[str, str], RunValidity] = {}
    for one in found:
        known = kept.get((one.policy, one.job))
        if known is None or one.doublings > known.doublings:
            kept[one.policy, one.job] = one
    return tuple(kept.values())


def decisions_of(config: BenchmarkConfig) -> int:
    """Count the decisions of all runs of all policies.

    Returns:
        The number, without looking at any load.
    """
    split = dict(config.loads.splits())[config.split]
    seeds = 1 if split.seeds is None else len(split.seeds)
    loads = len(split.loads) * min(seeds, config.seeds or seeds)
    runs = len(_entrants_of(config)) * len(config.jobs) * loads
    return runs * (config.episode_s // config.interval_s)


def _batches(config: BenchmarkConfig, runs: Runs) -> list[RunBatch]:
    """Return one batch for each policy."""
    # Errors in any policy are found before the first one runs.
    made = [(entrant, make(entrant.policy)) for entrant in _entrants_of(config)]
    for entrant, policy in made:
        build_for(policy, entrant.guardrails)
    able = [entrant.name for entrant, policy in made if capabilities_of(policy).cost_bounds]
    asked = able[0] if able and config.clairvoyant else None
    drawn = tuple(_representative(runs, len(made) * (config.episode_s // config.interval_s)))
    return [RunBatch(entrant, runs, config, drawn, entrant.name == asked) for entrant, _ in made]


def _entrants_of(config: BenchmarkConfig) -> tuple[Entrant, ...]:
    """Return the config's policies, and the best plan, last, if it is installed."""
    named = [entrant.name for entrant in config.policies]
    if not config.clairvoyant or PLAN in named or not is_installed(PLAN):
        return config.policies
    return (*config.policies, Entrant(policy=PLAN, name=PLAN))


def _with_bound(
    cells: list[ScorecardCell], runs: Runs, possible: Sequence[tuple[float, float]]
) -> list[ScorecardCell]:
    """Return the cells with the possible saving, and the bound as one more policy."""
    found = [{"bound": bound, "peak": peak} for bound, peak in possible]
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


def _representative(runs: Runs, decisions: int) -> list[int]:
    """Choose the runs to draw before any result is known: the first seed of each load.

    Args:
        runs: All runs of a policy.
        decisions: Of one run of every policy.

    Returns:
        For each job its first load, and as many more as `DRAWN_DECISIONS` holds.
    """
    firsts: list[list[int]] = []
    for k in range(len(runs.specs)):
        of_job = np.flatnonzero(runs.job == k)
        names = dict.fromkeys(runs.loads[row].name for row in of_job)
        firsts.append([next(int(r) for r in of_job if runs.loads[r].name == n) for n in names])
    each = max(1, DRAWN_DECISIONS // (decisions * len(firsts)))
    return [row for rows in firsts for row in rows[:each]]
