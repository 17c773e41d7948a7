"""The cost of a configuration: requested by the job, and provisioned in whole TaskManagers.

`requested` leaves sources out, as DS2 and Justin do, and counts every other subtask with one core
and heap + network + managed memory of its level; this reproduces Justin's published savings.

Money has the currency of the job file's prices, which is a label: nothing is converted, and costs
in two currencies are never compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dsp_gym.errors import ConfigError
from dsp_gym.job.memory import level_mib
from dsp_gym.job.spec import JobSpec

HOURS_A_MONTH = 730
"""Hours of a month: a year of 365 days in twelve."""


@dataclass(frozen=True, slots=True)
class Resources:
    """Cores and memory in use at one moment."""

    cores: float
    memory_mib: float

    def money_per_hour(self, spec: JobSpec) -> float:
        """Return the price of holding these for an hour, in the job file's currency.

        Returns:
            Money per hour.
        """
        return self.cores * spec.prices.core_hour + self.memory_mib / 1024 * spec.prices.gib_hour


def one_currency(specs: Iterable[JobSpec]) -> str:
    """Return the currency in which all jobs have their prices.

    Returns:
        An ISO 4217 code.

    Raises:
        ConfigError: Two jobs have two currencies.
    """
    jobs: dict[str, str] = {}
    for spec in specs:
        jobs.setdefault(spec.prices.currency, spec.job)
    if len(jobs) > 1:
        named = [f"those of job '{job}' in {currency}" for currency, job in jobs.items()]
        raise ConfigError(
            f"prices differ in their currency, {', '.join(named)}; costs in two currencies are "
            "not compared",
            key="prices.currency",
            remedy="Give all jobs the prices of one currency, "
            "such as {currency: EUR, core_hour: 0.04, gib_hour: 0.004}.",
        )
    return next(iter(jobs))


def requested(
    spec: JobSpec, parallelism: Mapping[str, int], levels: Mapping[str, int]
) -> Resources:
    """Sum the resources that the job requests, sources left out.

    Args:
        spec: the job.
        parallelism: subtasks by vertex name.
        levels: memory level by vertex name (-1: no managed memory).

    Returns:
        Cores and memory in MiB.
    """
    cores = memory = 0.0
    for vertex in spec.vertices:
        if vertex.kind == "source":
            continue
        tasks = parallelism[vertex.name]
        managed = level_mib(spec.memory.base_mib, levels[vertex.name])
        cores += tasks
        memory += tasks * (spec.memory.heap_mib + spec.memory.network_mib + managed)
    return Resources(cores, memory)


def refuse_free(specs: Iterable[JobSpec]) -> None:
    """Refuse jobs without prices: figures of a policy count costs as shares of each other.

    Raises:
        ConfigError: Both prices of a job are zero.
    """
    for spec in specs:
        core, gib = spec.prices.core_hour, spec.prices.gib_hour
        if not core + gib > 0.0:
            raise ConfigError(
                f"job '{spec.job}' costs nothing, and rewards, scorecards and backtests count its "
                "cost as a share of what another configuration costs",
                key="prices",
                value=f"core_hour {core:g}, gib_hour {gib:g}",
                remedy="Give the job file the price of a core or a GiB for an hour, or leave "
                "prices out: the defaults are a cloud's list prices.",
            )
