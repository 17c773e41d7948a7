"""Playing a referee: every policy at every setting on the same triples, family by family."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dsp_gym.engine import HERE, Engine
from dsp_gym.errors import ConfigError, did_you_mean
from dsp_gym.evaluation.batch_of_runs import Runs, benchmark_job, simulation_seed
from dsp_gym.evaluation.config import BenchmarkConfig, Entrant, RunSettings
from dsp_gym.evaluation.frontier.config import SweptPolicy
from dsp_gym.evaluation.frontier.play import (
    DAY_S,
    SHIFTS,
    CellRuns,
    Made,
    Table,
    entrants,
    policy_runs,
)
from dsp_gym.evaluation.kept import KeptResults
from dsp_gym.evaluation.referee.config import DrawnFamily, RefereeConfig
from dsp_gym.evaluation.referee.triples import (
    DrawnSet,
    Triple,
    first_of_each_kind,
    missing_traces,
    same_law,
    triples_of,
)
from dsp_gym.evaluation.run import OnRuns, cells_of
from dsp_gym.evaluation.shift import Shift
from dsp_gym.job.cost import refuse_free
from dsp_gym.job.sizing import reference_cost_per_s
from dsp_gym.loads.generate import rates
from dsp_gym.loads.splits import LoadSet, LoadSplit, SeedRange, WeightedLoad
from dsp_gym.loads.traces import TraceLibrary
from dsp_gym.loop.topology import Topology

WHOLE = "all triples"
"""Name of all families together."""


class PlayedTriples(NamedTuple):
    """The runs of some triples, in their order; a job of the tables is a triple."""

    triples: tuple[Triple, ...]
    runs: CellRuns

    def take(self, name: str, places: Sequence[int]) -> PlayedTriples:
        """Return a part.

        Args:
            name: Of the part.
            places: Of its triples.

        Returns:
            Those triples alone.
        """

        def part(table: Table) -> Table:
            return tuple(tuple(setting[place] for place in places) for setting in table)

        runs = self.runs
        policies = tuple(
            one.model_copy(
                update={key: part(getattr(one, key)) for key in ("cost", "late", "rescales")}
            )
            for one in runs.policies
        )
        changes = {
            "cell": name,
            "jobs": tuple(runs.jobs[place] for place in places),
            "reference_cost": tuple(runs.reference_cost[place] for place in places),
            "policies": policies,
        }
        return PlayedTriples(
            tuple(self.triples[place] for place in places), runs.model_copy(update=changes)
        )


def joined(name: str, parts: Sequence[PlayedTriples]) -> PlayedTriples:
    """Put the triples of several families together.

    Args:
        name: Of the whole.
        parts: The families, all with the same policies.

    Returns:
        The triples of all, in the order of the parts.
    """
    first = parts[0].runs

    def whole(place: int, key: str) -> Table:
        tables = [getattr(part.runs.policies[place], key) for part in parts]
        return tuple(sum(settings, ()) for settings in zip(*tables, strict=True))

    policies = tuple(
        one.model_copy(update={key: whole(place, key) for key in ("cost", "late", "rescales")})
        for place, one in enumerate(first.policies)
    )
    changes = {
        "cell": name,
        "jobs": tuple(job for part in parts for job in part.runs.jobs),
        "reference_cost": tuple(cost for part in parts for cost in part.runs.reference_cost),
        "policies": policies,
    }
    triples = tuple(triple for part in parts for triple in part.triples)
    return PlayedTriples(triples, first.model_copy(update=changes))


class PlayedReferee(NamedTuple):
    """The runs of a referee."""

    families: dict[str, PlayedTriples]
    shifts: dict[str, PlayedTriples]  # those without a shift first; none: not played
    left_out: dict[str, str]  # reason by family whose traces are not here


class RefereeRuns(NamedTuple):
    """The part of a set that is played."""

    families: dict[str, tuple[Triple, ...]]
    shifted: dict[str, tuple[Triple, ...]]  # by family
    left_out: dict[str, str]

    @classmethod
    def of(
        cls,
        config: RefereeConfig,
        drawn: DrawnSet,
        wanted: Sequence[str] = (),
        each: int | None = None,
        base_dir: str | Path | None = None,
    ) -> RefereeRuns:
        """Choose the triples to play; the same key gives the same ones, whatever is left out.

        Args:
            config: The referee.
            drawn: The set.
            wanted: Families of load, and `shifts`; none: everything.
            each: Most triples of each kind of jobs in each family; None: all.
            base_dir: Folder that relative trace paths start from.

        Returns:
            Triples by family.

        Raises:
            ConfigError: A name is of no family, or every family is left out.
        """
        offered = [one.name for one in config.loads] + ([SHIFTS] if config.shifts else [])
        for name in wanted:
            if name not in offered:
                raise ConfigError(
                    f"there is no family of load '{name}'",
                    key="--cell",
                    remedy=did_you_mean(name, offered),
                )
        left_out = dict(missing_traces(config, base_dir))
        here = {
            name: triples if each is None else first_of_each_kind(triples, each)
            for name, triples in triples_of(config, drawn).items()
            if name not in left_out
        }
        shifted = {
            family.name: first_of_each_kind(
                here[family.name], family.under_shifts // len(config.jobs)
            )
            for family in config.loads
            if family.name in here and family.under_shifts and config.shifts is not None
        }
        families = {name: one for name, one in here.items() if not wanted or name in wanted}
        if not families and not (SHIFTS in wanted and shifted):
            raise ConfigError("every family of load is left out", key="loads")
        return cls(families, shifted if not wanted or SHIFTS in wanted else {}, left_out)

    def decisions(self, config: RefereeConfig) -> int:
        """Count the decisions of all policies and settings.

        Args:
            config: The referee.

        Returns:
            The number, without looking at any load.
        """
        steps = {one.name: config.episode_of(one) // config.interval_s for one in config.loads}
        return sum(runs * steps[family] for family, runs in self._counted(config))

    def count(self, config: RefereeConfig) -> int:
        """Count the runs of all policies and settings.

        Args:
            config: The referee.

        Returns:
            The number.
        """
        return sum(runs for _, runs in self._counted(config))

    def _counted(self, config: RefereeConfig) -> Iterator[tuple[str, int]]:
        """Yield families of load, and how many runs are of each."""
        for name, triples in self.families.items():
            yield name, len(triples) * settings_of(config.policies)
        if config.shifts is not None:
            each = settings_of(config.shifts.chosen(config.policies)) * len(config.shifts.all())
            for name, triples in self.shifted.items():
                yield name, len(triples) * each


def settings_of(policies: Sequence[SweptPolicy]) -> int:
    """Count the settings of policies, each of their trainings by itself.

    Args:
        policies: The policies.

    Returns:
        Entrants in all.
    """
    return sum((1 + len(one.trainings)) * max(1, len(one.values)) for one in policies)


class _Progress:
    """Adds up the progress of the parts, which are played one after the other."""

    def __init__(self, told: OnRuns | None, total: int) -> None:
        self._told, self._total, self._before = told, total, 0

    def part(self, policies: Sequence[SweptPolicy], triples: Sequence[Triple]) -> OnRuns | None:
        """Return who hears of the next part."""
        told, before, total = self._told, self._before, self._total
        self._before += settings_of(policies) * len(triples)
        if told is None:
            return None
        return lambda label, done, _: told(label, before + done, total)


def play_referee(
    config: RefereeConfig,
    asked: RefereeRuns,
    *,
    base_dir: str | Path | None = None,
    engine: Engine = HERE,
    told: OnRuns | None = None,
    kept: KeptResults | None = None,
) -> PlayedReferee:
    """Play every policy at every setting on triples, and some of them under shifts.

    Args:
        config: The referee.
        asked: The triples to play.
        base_dir: Folder that relative trace paths start from.
        engine: Where runs are played; they do not depend on it.
        told: Hears how many of all runs are done.
        kept: Keeps finished runs, and gives those of an interrupted call.

    Returns:
        The runs.
    """
    progress = _Progress(told, asked.count(config))

    def below(name: str) -> KeptResults | None:
        return None if kept is None else KeptResults(kept.folder / name)

    play = partial(play_triples, config, base_dir=base_dir, engine=engine)
    families = {
        name: play(
            config.policies,
            config.family(name),
            triples,
            told=progress.part(config.policies, triples),
            kept=below(name),
        )
        for name, triples in asked.families.items()
    }
    shifts = {}
    if config.shifts is not None and asked.shifted:
        chosen = config.shifts.chosen(config.policies)
        for number, shift in enumerate(config.shifts.all()):
            parts = [
                play(
                    chosen,
                    config.family(name),
                    triples,
                    shift=shift,
                    told=progress.part(chosen, triples),
                    kept=below(f"{SHIFTS}-{number}-{name}"),
                )
                for name, triples in asked.shifted.items()
            ]
            shifts[shift.name] = joined(shift.name, parts)
    return PlayedReferee(families, shifts, asked.left_out)


def play_triples(
    config: RefereeConfig,
    policies: Sequence[SweptPolicy],
    family: DrawnFamily,
    triples: Sequence[Triple],
    *,
    shift: Shift | None = None,
    base_dir: str | Path | None = None,
    engine: Engine = HERE,
    told: OnRuns | None = None,
    kept: KeptResults | None = None,
) -> PlayedTriples:
    """Play policies at all settings on triples of one family.

    Args:
        config: The referee.
        policies: Those that run.
        family: The family of load.
        triples: Of that family.
        shift: How the jobs differ; None: not at all.
        base_dir: Folder that relative trace paths start from.
        engine: Where runs are played; they do not depend on it.
        told: Hears how many runs are done.
        kept: Keeps finished runs, and gives those of an interrupted call.

    Returns:
        The runs.
    """
    made: Made = [(policy, entrants(policy)) for policy in policies]
    everyone = tuple(one for _, found in made for one in found)
    benchmark, runs = benchmark_of(config, family, triples, everyone, shift, base_dir)
    played = cells_of(benchmark, runs=runs, engine=engine, told=told, kept=kept)
    topology = Topology.of(runs.specs)
    unit = reference_cost_per_s(topology.tables, topology.row, benchmark.start_headroom) * DAY_S
    cell = CellRuns(
        cell=family.name,
        jobs=tuple(triple.label for triple in triples),
        loads=(family.name,),
        seeds=(0,),
        reference_cost=tuple(unit[runs.job].tolist()),
        policies=policy_runs(made, played, (len(triples), 1, 1), DAY_S / benchmark.episode_s),
    )
    return PlayedTriples(tuple(triples), cell)


def benchmark_of(
    config: RefereeConfig,
    family: DrawnFamily,
    triples: Sequence[Triple],
    policies: tuple[Entrant, ...],
    shift: Shift | None = None,
    base_dir: str | Path | None = None,
) -> tuple[BenchmarkConfig, Runs]:
    """Return triples of one family as runs of a benchmark.

    Args:
        config: The referee.
        family: The family of load.
        triples: Of that family.
        policies: Those that run, each at one setting.
        shift: How the jobs differ; None: not at all.
        base_dir: Folder that relative trace paths start from.

    Returns:
        The benchmark, whose loads are named as the triples are, so that it says all that its runs
        depend on; and the runs, one per triple.
    """
    jobs = tuple(dict.fromkeys(triple.job for triple in triples))
    shared = {name: getattr(config, name) for name in RunSettings.model_fields}
    benchmark = BenchmarkConfig(
        policies=policies,
        reference=None,
        clairvoyant=False,
        jobs=jobs,
        loads=LoadSet(
            test=LoadSplit(
                loads=tuple(WeightedLoad(name=one.label, load=one.load) for one in triples),
                seeds=SeedRange.model_validate({"from": 0, "to": 1}),  # names hold the seeds
            )
        ),
        shift=shift,
        **shared | {"episode_s": config.episode_of(family)},
    )
    specs = tuple(benchmark_job(job, benchmark) for job in jobs)
    refuse_free(specs)
    job = np.array([jobs.index(triple.job) for triple in triples])
    traces = TraceLibrary(base_dir)
    shapes = np.array(
        [
            rates(one.load, seed=one.seed, duration_s=benchmark.episode_s, traces=traces)
            for one in triples
        ]
    )
    reference = np.array([spec.source.rate_per_s for spec in specs])
    cells = tuple(one.cell for one in triples)
    return benchmark, Runs(
        specs=specs,
        job=job,
        loads=cells,
        seeds=np.array([simulation_seed(cell) for cell in cells], dtype=np.int64),
        rates=reference[job][:, None] * shapes,
        same_law=same_law(config, family, base_dir),
    )
