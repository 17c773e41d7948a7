"""Playing a frontier: every policy at every setting of its knob, cell by cell."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field

from dsp_gym.arrays import Floats
from dsp_gym.config.model import ConfigModel
from dsp_gym.engine import HERE, Engine
from dsp_gym.errors import ConfigError
from dsp_gym.evaluation.config import Entrant
from dsp_gym.evaluation.frontier.config import FrontierCell, FrontierConfig, SweptPolicy
from dsp_gym.evaluation.run import Keep, OnRuns, benchmark_job, cells_of, decisions_of
from dsp_gym.evaluation.scorecard import ScorecardCell
from dsp_gym.evaluation.tuning.space import with_params
from dsp_gym.job.sizing import reference_cost_per_s
from dsp_gym.loop.topology import Topology
from dsp_gym.policies.config import PolicyConfig
from dsp_gym.policies.registry import make, resolve

__all__ = ["DAY_S", "CellRuns", "PolicyRuns", "decisions_in", "entrants", "play_cell"]

DAY_S = 86_400

Table = tuple[tuple[tuple[tuple[float, ...], ...], ...], ...]
"""Numbers by setting, job, load and seed."""


class PolicyRuns(ConfigModel):
    """Every run of one policy in one cell; the tables are (settings, jobs, loads, seeds)."""

    policy: str = Field(description="label of the policy")
    rule: bool = Field(description="a tuned rule")
    knob: tuple[str, ...] = Field(description="the parameters that were swept; none: one setting")
    values: tuple[float | None, ...] = Field(description="its values, one per setting")
    cost: Table = Field(description="price of the requested resources per day")
    late: Table = Field(description="share of the time the bound was missed, 0..1")
    rescales: Table = Field(description="rescales per day")


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
    """A policy at each setting of its knob.

    Returns:
        One entrant per value, or the policy as it is where it has no knob.

    Raises:
        ConfigError: The policy has no such parameter, or refuses a value.
    """
    if not policy.knob:
        return (Entrant(policy=policy.policy, name=policy.name, guardrails=policy.guardrails),)
    _, base, _ = resolve(policy.policy)
    found = []
    for value in policy.values:
        config = PolicyConfig(policy=base.policy, params=_turned(base.params, policy, value))
        make(config)  # a wrong knob is refused before anything is played
        found.append(
            Entrant(policy=config, name=f"{policy.name}@{value:g}", guardrails=policy.guardrails)
        )
    return tuple(found)


def _turned(params: Mapping[str, object], policy: SweptPolicy, value: float) -> dict[str, object]:
    """A policy's parameters with its knob at a value."""
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
    """The value a policy's file gives a parameter."""
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
    return sum(decisions_of(config.benchmark(cell, found)) for cell in config.cells())


def play_cell(
    config: FrontierConfig,
    cell: FrontierCell,
    *,
    base_dir: str | Path | None = None,
    engine: Engine = HERE,
    told: OnRuns | None = None,
    kept: Keep | None = None,
) -> CellRuns:
    """Plays every policy at every setting on the jobs and loads of one cell.

    Args:
        config: The frontier.
        cell: Which jobs and loads.
        base_dir: Folder that relative trace paths start from.
        engine: Where runs are played; they do not depend on it.
        told: Hears how many runs are done.
        kept: Keeps each setting's results, and gives those of an interrupted run.

    Returns:
        The runs; the same configuration gives the same ones to the last bit.
    """
    made = [(policy, entrants(policy)) for policy in config.policies]
    benchmark = config.benchmark(cell, tuple(one for _, found in made for one in found))
    played = cells_of(benchmark, base_dir=base_dir, engine=engine, told=told, kept=kept)
    topology = Topology.of([benchmark_job(name, benchmark) for name in benchmark.jobs])
    unit = reference_cost_per_s(topology.tables, topology.row, config.start_headroom)
    by_label: dict[str, list[ScorecardCell]] = {}
    for run in played:
        by_label.setdefault(run.policy, []).append(run)
    first = next(iter(by_label.values()))
    axes = (
        tuple(dict.fromkeys(run.job for run in first)),
        tuple(dict.fromkeys(run.load for run in first)),
        tuple(dict.fromkeys(run.seed for run in first)),
    )
    per_day = DAY_S / benchmark.episode_s

    def table(names: Sequence[str], value: Callable[[ScorecardCell], float]) -> Table:
        # Runs stand in the order of jobs, loads and seeds.
        shape = (len(names), *map(len, axes))
        values = [value(run) for name in names for run in by_label[name]]
        return _nested(np.array(values, dtype=np.float64).reshape(shape))

    policies = []
    for policy, found in made:
        names = [one.name for one in found]
        policies.append(
            PolicyRuns(
                policy=policy.name,
                rule=policy.rule,
                knob=policy.knob,
                values=policy.values or (None,),
                cost=table(names, lambda run: run.metrics["cost"] * per_day),
                late=table(names, lambda run: run.metrics["slo_share"]),
                rescales=table(names, lambda run: run.metrics["rescales"] * per_day),
            )
        )
    return CellRuns(
        cell=cell.name,
        jobs=axes[0],
        loads=axes[1],
        seeds=axes[2],
        reference_cost=tuple((unit * DAY_S).tolist()),
        policies=tuple(policies),
    )


def _nested(values: Floats) -> Table:
    return tuple(
        tuple(tuple(tuple(row) for row in loads) for loads in jobs) for jobs in values.tolist()
    )
