"""Which of Flink's two schedulers a job should be deployed with, and what that saves.

Both deployments run the same day of load, each under the best plan for it, so that neither is
judged by the habits of some policy.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dsp_gym.arrays import Floats
from dsp_gym.errors import ConfigError
from dsp_gym.evaluation.batch_of_runs import RunBatch, Runs, play
from dsp_gym.evaluation.config import BenchmarkConfig, Entrant
from dsp_gym.evaluation.run import PLAN
from dsp_gym.job.deployment import Scheduler, deployed
from dsp_gym.job.sizing import reference_cost_per_s
from dsp_gym.job.spec import CURRENCY, JobSpec
from dsp_gym.loads.sampler import LoadCell, LoadSampler
from dsp_gym.loads.splits import LoadSet, LoadSplit, SeedRange, WeightedLoad
from dsp_gym.loop.topology import Topology
from dsp_gym.pages import money

DAY = "day-with-bursts"
"""The load that deployments are compared under."""

LATE_WEIGHT = 4.0
"""Price of a late second, in seconds of the reference configuration; as in core-v2."""

_DAY_S, _INTERVAL_S, _HEADROOM = 86_400, 60, 0.7


@dataclass(frozen=True, slots=True)
class Deployment:
    """A job under one scheduler, for a day of load."""

    scheduler: Scheduler
    memory_level: int | None  # of every slot; None: each vertex has its own
    cost_per_day: float
    late_share: float  # of the time, 0..1
    rescales_per_day: float
    price_per_day: float  # money, late time priced in
    currency: str = CURRENCY  # of both


def compare_deployments(
    spec: JobSpec, rate_per_s: float, load: str = DAY, late_weight: float = LATE_WEIGHT
) -> tuple[Deployment, ...]:
    """Run a job for a day under each scheduler, each memory level of the adaptive one by itself.

    Args:
        spec: The job.
        rate_per_s: Records/s over all sources at a load of 1, about the day's peak.
        load: A shipped load or the file of one.
        late_weight: Price of a late second, in seconds of the reference configuration.

    Returns:
        The deployments, the cheapest by price first.

    Raises:
        ConfigError: The rate is not positive.
    """
    if not rate_per_s > 0:
        raise ConfigError("the rate must be above zero", key="--rate", value=rate_per_s)
    source = spec.source.model_copy(update={"rate_per_s": rate_per_s})
    spec = spec.model_copy(update={"source": source})
    kinds: list[tuple[Scheduler, int | None]] = [("default", None)]
    kinds += [("adaptive", level) for level in range(spec.memory.levels)]
    specs = tuple(deployed(spec, scheduler, level) for scheduler, level in kinds)
    chosen = (WeightedLoad.model_validate(load),)
    loads = LoadSet(test=LoadSplit(loads=chosen, seeds=SeedRange(from_=0, to=1)))
    sampler = LoadSampler(loads, None)
    ((cell,),) = sampler.cells("test", 1)
    rates = np.tile(rate_per_s * sampler.rates(cell, _DAY_S), (len(specs), 1))
    cost, late, rescales = _a_day(specs, loads, cell, rates)
    jobs = Topology.of(specs)
    # One unit for all: what the job costs as it is deployed by default.
    unit = float(reference_cost_per_s(jobs.tables, jobs.row, _HEADROOM)[0])
    price = cost + late_weight * late * unit
    found = [
        Deployment(
            scheduler=scheduler,
            memory_level=level,
            cost_per_day=float(cost[j]),
            late_share=float(late[j]) / _DAY_S,
            rescales_per_day=float(rescales[j]),
            price_per_day=float(price[j]),
            currency=spec.prices.currency,
        )
        for j, (scheduler, level) in enumerate(kinds)
    ]
    return tuple(sorted(found, key=lambda one: one.price_per_day))


def verdict(found: tuple[Deployment, ...]) -> str:
    """Return the scheduler to take, and what it saves against the other one at its best.

    Returns:
        A sentence.
    """
    best = found[0]
    other = next(one for one in found if one.scheduler != best.scheduler)
    saved = 1.0 - best.price_per_day / other.price_per_day
    how = (
        "each vertex with its own memory, rescaled by a savepoint"
        if best.memory_level is None
        else f"every task with memory level {best.memory_level}, rescaled in place"
    )
    return (
        f"Deploy it with the {best.scheduler} scheduler, {how}: late time priced in, "
        f"{money(best.price_per_day, best.currency)} per day, {100 * saved:.0f} % less than "
        f"with the {other.scheduler} scheduler."
    )


def _a_day(
    specs: tuple[JobSpec, ...], loads: LoadSet, load: LoadCell, rates: Floats
) -> tuple[Floats, ...]:
    """Return money, late seconds and rescales of a day under the best plan, (J,) each."""
    count = len(specs)
    runs = Runs(specs, np.arange(count), (load,) * count, np.zeros(count, np.int64), rates)
    plan = Entrant(policy=PLAN, name=PLAN)
    config = BenchmarkConfig(
        policies=(plan,),
        reference=None,
        jobs=tuple(spec.job for spec in specs[:1]),
        loads=loads,
        episode_s=_DAY_S,
        interval_s=_INTERVAL_S,
        start_headroom=_HEADROOM,
    )
    cells = play(RunBatch(plan, runs, config, drawn=(), bounding=False)).cells
    return tuple(
        np.array([cell.metrics[name] for cell in cells]) for name in ("cost", "slo_s", "rescales")
    )
