"""Playing a frontier: every policy at every setting of its knob, cell by cell."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Literal, NamedTuple

import numpy as np
from pydantic import Field

from dsp_gym.arrays import Floats
from dsp_gym.config.model import ConfigModel
from dsp_gym.engine import HERE, Engine
from dsp_gym.errors import ConfigError, LoadError, did_you_mean
from dsp_gym.evaluation.batch_of_runs import benchmark_job
from dsp_gym.evaluation.config import BenchmarkConfig, Entrant
from dsp_gym.evaluation.frontier.config import FrontierConfig, SweptPolicy
from dsp_gym.evaluation.kept import KeptResults
from dsp_gym.evaluation.run import OnRuns, cells_of, decisions_of
from dsp_gym.evaluation.scorecard import ScorecardCell
from dsp_gym.job.sizing import reference_cost_per_s
from dsp_gym.loop.topology import Topology
from dsp_gym.policies.config import PolicyConfig, with_params
from dsp_gym.policies.registry import make, resolve

DAY_S = 86_400

SHIFTS = "shifts"
"""Name of the runs under shifts, beside those of the cells."""

Table = tuple[tuple[tuple[tuple[float, ...], ...], ...], ...]
"""Numbers by setting, job, load, and training and seed."""


class PolicyRuns(ConfigModel):
    """Every run of one policy in one cell.

    The tables are (settings, jobs, loads, trainings * seeds), the seeds of one training together.
    """

    policy: str = Field(description="label of the policy")
    rule: bool = Field(description="a tuned rule")
    yardstick: bool = Field(False, description="others are compared with it, though it is no rule")
    fallback: str | None = Field(None, description="label of its fallback; none: not told")
    trainings: int = Field(1, ge=1, description="trainings of the policy, with different seeds")
    knob: tuple[str, ...] = Field(description="the parameters that were swept; none: one setting")
    values: tuple[float | None, ...] = Field(description="its values, one per setting")
    cost: Table = Field(description="price of the requested resources per day")
    late: Table = Field(description="share of the time the bound was missed, 0..1")
    rescales: Table = Field(description="rescales per day")

    def runs(self, table: Literal["cost", "late", "rescales"]) -> Floats:
        """Return one of the tables.

        Returns:
            (settings, jobs, loads, trainings, seeds).
        """
        found = np.array(getattr(self, table), dtype=np.float64)
        return found.reshape(*found.shape[:3], self.trainings, -1)


class CellRuns(ConfigModel):
    """Every run of one cell."""

    schema_: Literal["dsp-gym/frontier-cell/1"] = Field(
        "dsp-gym/frontier-cell/1", alias="schema", description="schema and version"
    )
    cell: str = Field(description="name of the cell")
    jobs: tuple[str, ...] = Field(description="jobs, in the order of the tables")
    loads: tuple[str, ...] = Field(description="loads, in the order of the tables")
    seeds: tuple[int, ...] = Field(description="seeds of each load, in the order of the tables")
    reference_cost: tuple[float, ...] = Field(
        description="cost per day of each job's reference configuration"
    )
    policies: tuple[PolicyRuns, ...] = Field(description="the policies")


def entrants(policy: SweptPolicy) -> tuple[Entrant, ...]:
    """Return a policy at each setting of its knob, each of its trainings in turn.

    Returns:
        One entrant per training and value; one per training where the policy has no knob.

    Raises:
        ConfigError: The policy has no such parameter, or refuses a value.
    """
    found = []
    for number, source in enumerate((policy.policy, *policy.trainings)):
        label = policy.name if number == 0 else f"{policy.name}#{number + 1}"
        if not policy.knob:
            found.append(Entrant(policy=source, name=label, guardrails=policy.guardrails))
            continue
        _, base, _ = resolve(source)
        for value in policy.values:
            params = _turned(base.params, policy, value)
            config = PolicyConfig(policy=base.policy, params=params)
            make(config)  # a wrong knob is refused before anything is played
            found.append(
                Entrant(policy=config, name=f"{label}@{value:g}", guardrails=policy.guardrails)
            )
    return tuple(found)


def _turned(params: Mapping[str, object], policy: SweptPolicy, value: float) -> dict[str, object]:
    """Return a policy's parameters with its knob at a value."""
    first, *others = policy.knob
    changes = {first: value}
    if others:
        now = _number(params, policy, first)
        changes |= {path: value * _number(params, policy, path) / now for path in others}
    turned = dict(params)
    for path, number in changes.items():
        change: dict[str, object] | float = number
        for key in reversed(path.split("/")):
            change = {key: change}
        assert isinstance(change, dict)  # a path has at least one key
        turned = with_params(turned, change)
    return turned


def _number(params: Mapping[str, object], policy: SweptPolicy, path: str) -> float:
    """Return the value a policy's file gives a parameter."""
    found: object = params
    for key in path.split("/"):
        found = found.get(key) if isinstance(found, Mapping) else None
    if not isinstance(found, int | float) or found == 0:
        raise ConfigError(
            f"policy '{policy.name}' gives no number for '{path}'",
            key="knob",
            value=", ".join(policy.knob),
            remedy="Parameters swept together keep their ratio, so the policy's file must name "
            "each of them.",
        )
    return float(found)


def decisions_in(config: FrontierConfig) -> int:
    """Decisions of all cells, by which an engine is sized.

    Returns:
        Runs times decisions, over all cells and settings.
    """
    found = tuple(one for policy in config.policies for one in entrants(policy))
    count = sum(decisions_of(config.benchmark(cell, found)) for cell in config.cells())
    if config.shifts is None:
        return count
    shifted = tuple(one for policy in config.shifted() for one in entrants(policy))
    every = config.shifts.all()
    return count + sum(decisions_of(config.shift_benchmark(one, shifted)) for one in every)


class PlayedFrontier(NamedTuple):
    """The runs of a frontier."""

    cells: tuple[CellRuns, ...]
    shifts: tuple[CellRuns, ...]  # those without a shift first; none: not played
    left_out: dict[str, str]  # reason by name of a cell whose recorded loads are not here


def play_frontier(
    config: FrontierConfig,
    wanted: Sequence[str] = (),
    *,
    engine: Engine = HERE,
    told: OnRuns | None = None,
    kept: KeptResults | None = None,
) -> PlayedFrontier:
    """Play the cells and shifts of a frontier.

    Args:
        config: The frontier.
        wanted: Names of cells, and `shifts`; none: everything.
        engine: Where runs are played; they do not depend on it.
        told: Hears how many runs of a cell are done.
        kept: Keeps finished runs, and gives those of an interrupted run.

    Returns:
        The runs.

    Raises:
        ConfigError: A name is of no cell, or every cell is left out.
    """
    known = {cell.name: cell for cell in config.cells()}
    shifts = () if config.shifts is None else config.shifts.all()
    offered = [*known, *([SHIFTS] if shifts else [])]
    for name in wanted:
        if name not in offered:
            raise ConfigError(
                f"there is no cell '{name}'", key="--cell", remedy=did_you_mean(name, offered)
            )

    def below(name: str) -> KeptResults | None:
        return None if kept is None else KeptResults(kept.folder / name)

    played, left_out = [], {}
    for name in (name for name in known if not wanted or name in wanted):
        try:
            played.append(
                play_cell(
                    name,
                    config.policies,
                    partial(config.benchmark, known[name]),
                    engine=engine,
                    told=told,
                    kept=below(name),
                )
            )
        except LoadError as error:
            if known[name].loads != "recorded":
                raise
            left_out[name] = str(error)
    shifted = [
        play_cell(
            shift.name,
            config.shifted(),
            partial(config.shift_benchmark, shift),
            engine=engine,
            told=told,
            kept=below(f"{SHIFTS}-{number}"),
        )
        for number, shift in enumerate(shifts if not wanted or SHIFTS in wanted else ())
    ]
    if not played and not shifted:
        raise ConfigError("every cell is left out", key="loads.recorded")
    return PlayedFrontier(tuple(played), tuple(shifted), left_out)


def play_cell(
    name: str,
    policies: Sequence[SweptPolicy],
    benchmark_of: Callable[[tuple[Entrant, ...]], BenchmarkConfig],
    *,
    engine: Engine = HERE,
    told: OnRuns | None = None,
    kept: KeptResults | None = None,
) -> CellRuns:
    """Play every policy at every setting on the jobs and loads of one cell, or under one shift.

    Args:
        name: Name of the cell or the shift.
        policies: Those that run.
        benchmark_of: Makes the benchmark of the settings.
        engine: Where runs are played; they do not depend on it.
        told: Hears how many runs are done.
        kept: Keeps each setting's results, and gives those of an interrupted run.

    Returns:
        The runs; the same configuration gives the same ones to the last bit.
    """
    made = [(policy, entrants(policy)) for policy in policies]
    benchmark = benchmark_of(tuple(one for _, found in made for one in found))
    played = cells_of(benchmark, engine=engine, told=told, kept=kept)
    return _runs_of(name, made, benchmark, played)


Made = Sequence[tuple[SweptPolicy, tuple[Entrant, ...]]]
"""Policies, each with an entrant per training and setting."""


def _runs_of(
    name: str, made: Made, benchmark: BenchmarkConfig, played: Sequence[ScorecardCell]
) -> CellRuns:
    """Return the runs of all policies, in tables."""
    topology = Topology.of([benchmark_job(job, benchmark) for job in benchmark.jobs])
    unit = reference_cost_per_s(topology.tables, topology.row, benchmark.start_headroom)
    first = [run for run in played if run.policy == played[0].policy]
    jobs, loads = (
        tuple(dict.fromkeys(getattr(run, key) for run in first)) for key in ("job", "load")
    )
    seeds = tuple(dict.fromkeys(run.seed for run in first))
    shape = (len(jobs), len(loads), len(seeds))
    return CellRuns(
        cell=name,
        jobs=jobs,
        loads=loads,
        seeds=seeds,
        reference_cost=tuple((unit * DAY_S).tolist()),
        policies=policy_runs(made, played, shape, DAY_S / benchmark.episode_s),
    )


def policy_runs(
    made: Made, played: Sequence[ScorecardCell], shape: tuple[int, int, int], per_day: float
) -> tuple[PolicyRuns, ...]:
    """Return the runs of every policy in tables.

    Args:
        made: The policies with their entrants.
        played: The runs of all entrants, those of each in the order of jobs, loads and seeds.
        shape: How many jobs, loads and seeds there are.
        per_day: Days in the unit of cost and rescales: one divided by the days of an episode.

    Returns:
        The policies in their order.
    """
    by_label: dict[str, list[ScorecardCell]] = {}
    for run in played:
        by_label.setdefault(run.policy, []).append(run)

    def table(
        found: Sequence[Entrant], trainings: int, value: Callable[[ScorecardCell], float]
    ) -> Table:
        # Runs are in the order of jobs, loads and seeds; entrants in that of trainings, settings.
        whole = np.array(
            [value(run) for one in found for run in by_label[one.name]], dtype=np.float64
        ).reshape(trainings, len(found) // trainings, *shape)
        whole = np.moveaxis(whole, 0, 3)
        return _nested(whole.reshape(*whole.shape[:3], -1))

    policies = []
    for policy, found in made:
        trainings = 1 + len(policy.trainings)
        policies.append(
            PolicyRuns(
                policy=policy.name,
                rule=policy.rule,
                yardstick=policy.yardstick,
                fallback=policy.fallback,
                trainings=trainings,
                knob=policy.knob,
                values=policy.values or (None,),
                cost=table(found, trainings, lambda run: run.metrics["cost"] * per_day),
                late=table(found, trainings, lambda run: run.metrics["slo_share"]),
                rescales=table(found, trainings, lambda run: run.metrics["rescales"] * per_day),
            )
        )
    return tuple(policies)


def _nested(values: Floats) -> Table:
    return tuple(
        tuple(tuple(tuple(row) for row in loads) for loads in jobs) for jobs in values.tolist()
    )
