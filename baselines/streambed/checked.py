"""A plan on the simulator, checked against the throughput of the job file.

The explorer's surface is a fit to budgets of a small testbed; far beyond them it may ask for many
times the slots a rate needs, or for too few. The simulation carries the throughput of the job file,
so a plan takes at least the slots that carry the rate, and at most those with head-room.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from baselines.streambed.bids2 import Operator, bids2
from baselines.streambed.optimizer import operators, profile_mib
from baselines.streambed.simulated import with_unlimited_sources
from dsp_gym.errors import ConfigError
from dsp_gym.job.capacity import MstResult, mst
from dsp_gym.job.placement import place, smallest
from dsp_gym.job.spec import JobSpec

MORE_SLOTS = 1.1
"""Head-room in slots: most slots over the fewest, where a tenth of the rate takes more."""


@dataclass(frozen=True, slots=True)
class HeldPlan:
    """Slots of one profile that carry a rate, and the load they carry."""

    slots: int
    parallelism: Mapping[str, int]  # without sources
    mst_per_s: float
    changed: str | None  # why it is not the surface's answer; None: it is


def mst_of(spec: JobSpec, parallelism: Mapping[str, int], level: int) -> float:
    """Compute the load a configuration carries when sources are never the limit.

    Args:
        spec: The job.
        parallelism: Tasks by vertex; sources may be left out.
        level: Memory level of every vertex.

    Returns:
        Records/s.
    """
    free = with_unlimited_sources(spec)
    levels = {vertex.name: level for vertex in free.vertices if vertex.kind != "source"}
    tasks = {name: p for name, p in parallelism.items() if name in levels}
    return mst(free, tasks, levels).rate_per_s


def held(
    spec: JobSpec,
    known: list[Operator],
    level: int,
    rates_per_s: tuple[float, float],
    surface_slots: int | None,
) -> HeldPlan | None:
    """Find the slots of one profile for a rate.

    Args:
        spec: The job.
        known: Its vertices with the measured rates, for BIDS2.
        level: Memory level of every vertex.
        rates_per_s: The rate, and the rate with head-room.
        surface_slots: Slots by the surface; None: more than the job file allows.

    Returns:
        The surface's slots where they carry the rate with no more than the head-room to spare, else
        the job file's; None where the job file allows no slots that carry the rate.
    """
    free = with_unlimited_sources(spec)
    fewest = smallest(free, rates_per_s[0], level)
    if fewest is None:
        return None
    wide = smallest(free, rates_per_s[1], level)
    least = _slots(spec, _tasks(fewest))
    most = math.ceil(MORE_SLOTS * least)
    found = fewest
    if wide is not None and _slots(spec, _tasks(wide)) <= most:
        most, found = _slots(spec, _tasks(wide)), wide
    elif not spec.slot_sharing:
        found = place(free, most, level).result
    if found.rate_per_s < rates_per_s[0]:
        found = fewest
    if surface_slots is not None and least <= surface_slots <= most:
        placed = bids2(known, surface_slots)
        carried = mst_of(spec, placed.parallelism, level)
        if carried >= rates_per_s[0]:
            return HeldPlan(surface_slots, placed.parallelism, carried, None)
    tasks = {name: p for name, p in _tasks(found).items() if spec.vertex(name).kind != "source"}
    slots = sum(tasks.values())
    asked = "more than the job file allows" if surface_slots is None else f"{surface_slots:,}"
    why = (
        f"the model fitted to the trials asks for {asked}; by the job file {least:,} carry the rate"
    )
    return HeldPlan(slots, tasks, found.rate_per_s, why)


def source_notes(spec: JobSpec, rate_per_s: float) -> tuple[str, ...]:
    """Name sources whose tasks in the job file are too few for a rate.

    Returns:
        One sentence for each, with the tasks that would suffice.
    """
    notes = []
    sources = [v for v in spec.vertices if v.kind == "source"]
    shares = [1 / len(sources) if s.share is None else s.share for s in sources]
    for source, share in zip(sources, shares, strict=True):
        of_one = 1e6 / source.cpu_us_per_record / (share / sum(shares))
        if of_one * source.parallelism < rate_per_s:
            notes.append(
                f"source '{source.name}': the {source.parallelism} tasks of the job file carry "
                f"{of_one * source.parallelism:,.4g} records/s; the rate takes "
                f"{math.ceil(rate_per_s / of_one):,}"
            )
    return tuple(notes)


def unreachable(spec: JobSpec, levels: tuple[int, ...], rate_per_s: float) -> ConfigError:
    """Name the vertex that keeps a job from a rate, and the way to lift its bound.

    Returns:
        The error to raise.
    """
    free = with_unlimited_sources(spec)
    most = {o.name: o.most for o in operators(spec, None)}
    tried = []
    for level in levels:
        at = dict.fromkeys(most, level)
        tried.append(mst(free, most, at))
    best = max(tried, key=lambda result: result.rate_per_s)
    vertex = spec.vertex(best.bottleneck)
    return ConfigError(
        f"no budget of job '{spec.job}' reaches {rate_per_s:,.4g} records/s: vertex "
        f"'{vertex.name}' may have {most[vertex.name]} tasks, which carry {best.rate_per_s:,.4g}/s",
        key="rate",
        value=rate_per_s,
        remedy=_remedy(spec, vertex.name, most[vertex.name]),
    )


def _remedy(spec: JobSpec, name: str, most: int) -> str:
    vertex = spec.vertex(name)
    if not vertex.scalable:
        return f"Let '{name}' scale: scalable: true in the job file; or plan for a lower rate."
    bound = (
        "the quota (max_parallelism_per_vertex of the job file)"
        if most == spec.max_parallelism_per_vertex
        else f"its key groups (max_parallelism of vertex '{name}' in the job file)"
    )
    return f"Lift {bound}: --max-slots {4 * most}, or plan for a lower rate."


def _tasks(found: MstResult) -> dict[str, int]:
    return {vertex.name: vertex.parallelism for vertex in found.vertices}


def _slots(spec: JobSpec, parallelism: Mapping[str, int]) -> int:
    return sum(p for name, p in parallelism.items() if spec.vertex(name).kind != "source")


def slot_cost(spec: JobSpec, level: int) -> float:
    """Price one slot of a profile.

    Returns:
        Money per hour.
    """
    mib = profile_mib(spec, level)
    return spec.prices.core_hour + mib / 1024 * spec.prices.gib_hour
