"""The two ways to deploy a job, one for each scheduler of Flink, and what each of them can do.

Flink's default scheduler sizes the slots of each vertex separately and rescales by a savepoint and
a new submission. Its adaptive scheduler changes parallelism in place, but cuts every TaskManager
into equal slots: one memory level for all vertices. A stock cluster runs one of the two.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np

from dsp_gym.errors import ConfigError
from dsp_gym.job.memory import NO_MEMORY, level_mib
from dsp_gym.job.sizing import reference_cost_per_s
from dsp_gym.job.spec import JobSpec, Rescale
from dsp_gym.job.tables import compile_jobs

Scheduler = Literal["default", "adaptive"]

IN_PLACE_S = (6.0, 10.0, 20.0)
"""Outage of a rescale in place, s: p10, p50, p90 (demeter_cars_outages.csv, reactive)."""

_HEADROOM = 0.7


def deployed(spec: JobSpec, scheduler: Scheduler, level: int | None = None) -> JobSpec:
    """Describe a job as a cluster with this scheduler runs it.

    Args:
        spec: The job.
        scheduler: `default` or `adaptive`.
        level: With `adaptive`, the memory level of every slot; None: the one at which the job's
            reference rate costs least.

    Returns:
        The job itself where its file describes it for this scheduler, else a changed copy.

    Raises:
        ConfigError: There is no such memory level, or one is given for the default scheduler.
    """
    if scheduler == "adaptive":
        return adaptive(spec, cheapest_level(spec) if level is None else level)
    if level is not None:
        raise ConfigError(
            f"job '{spec.job}': one memory level for all vertices belongs to the adaptive "
            "scheduler; the default one gives each vertex its own"
        )
    if spec.rescale.mode == "redeploy":
        return spec
    # Outages of the default scheduler are those of a job file that gives none.
    costs = {"outage_s": Rescale().outage_s, "mode": "redeploy", "preset": None}
    return spec.model_copy(update={"rescale": spec.rescale.model_copy(update=costs)})


def adaptive(spec: JobSpec, level: int) -> JobSpec:
    """Describe a job under the adaptive scheduler, every slot with the memory of one level.

    Args:
        spec: The job.
        level: Memory level, 0 to the largest of the job.

    Returns:
        A job of one memory level that rescales in place, never slower than by the redeployments of
        its job file; without managed memory a task costs as much as with it, because its slot holds
        the memory all the same.
    """
    memory = spec.memory
    if not 0 <= level < memory.levels:
        raise ConfigError(
            f"job '{spec.job}' has no memory level {level}; its levels are 0 to {memory.levels - 1}"
        )
    changes = {
        "base_mib": level_mib(memory.base_mib, level),
        "levels": 1,
        "start_level": 0,
        "uniform": True,
    }
    return rescaled_in_place(spec).model_copy(update={"memory": memory.model_copy(update=changes)})


def found_in_place(spec: JobSpec, levels: Mapping[str, int]) -> JobSpec:
    """Restrict a job file of several memory levels to a job on the adaptive scheduler.

    Policies then decide on tasks alone, and price slots and rescales as that cluster has them.
    Levels keep their numbers, so that recordings can be read with the job file: a job that runs
    above level 0 keeps all its levels, and requests to move one are refused.

    Args:
        spec: The job, as its file describes it.
        levels: Memory level of each vertex as it was submitted; -1: none.

    Returns:
        The job with one level, where it runs at level 0; else with all of them. It rescales in
        place either way.
    """
    return rescaled_in_place(_level_0_alone(spec, levels))


def kept_memory(spec: JobSpec, levels: Mapping[str, int]) -> JobSpec:
    """Restrict a job file of several memory levels to a job whose memory nobody can change.

    Policies then decide on tasks alone. Levels keep their numbers, as in `found_in_place`.

    Args:
        spec: The job, as its file describes it.
        levels: Memory level of each vertex as it was submitted; -1: none.

    Returns:
        The job with one level, where it runs at level 0; else with all of them.

    Raises:
        ConfigError: The job runs at a level that its file does not have.
    """
    memory, highest = spec.memory, max(levels.values(), default=0)
    if highest >= memory.levels:
        raise ConfigError(
            f"job '{spec.job}' runs at memory level {highest}; its file has levels 0 to "
            f"{memory.levels - 1}",
            key="memory.levels",
            remedy="Name the levels of the running job in its file.",
        )
    return _level_0_alone(spec, levels)


def _level_0_alone(spec: JobSpec, levels: Mapping[str, int]) -> JobSpec:
    """Return the job with level 0 in every slot, where it runs at it; else the job itself."""
    if spec.memory.levels == 1 or max(levels.values(), default=0) > 0:
        return spec
    one = {"levels": 1, "start_level": 0, "uniform": True}
    return spec.model_copy(update={"memory": spec.memory.model_copy(update=one)})


def slot_levels(spec: JobSpec) -> dict[str, int]:
    """Return the memory levels where every slot has the same memory.

    Args:
        spec: A job of uniform slots.

    Returns:
        By vertex, 0 where it keeps state, else -1: its slot has memory that it does not use.
    """
    return {v.name: NO_MEMORY if v.state is None else 0 for v in spec.topological_order()}


def rescaled_in_place(spec: JobSpec) -> JobSpec:
    """Return a job whose rescales cost as much as they do in place; its memory is unchanged.

    Args:
        spec: The job.

    Returns:
        The job itself where its file says so already.
    """
    if spec.rescale.mode == "in_place":
        return spec
    shorter = tuple(min(pair) for pair in zip(spec.rescale.outage_s, IN_PLACE_S, strict=True))
    changes = {"mode": "in_place", "outage_s": shorter, "preset": None}
    return spec.model_copy(update={"rescale": spec.rescale.model_copy(update=changes)})


def cheapest_level(spec: JobSpec) -> int:
    """Return the memory level at which a job's reference rate costs least, if all vertices have it.

    Returns:
        0 to the largest level of the job; the lowest of equals.
    """
    # The quota is lifted, so that a level too small for the rate does not look cheap.
    free = spec.model_copy(update={"max_parallelism_per_vertex": 2048})
    choices = [adaptive(free, level) for level in range(spec.memory.levels)]
    cost = reference_cost_per_s(compile_jobs(choices), np.arange(len(choices)), _HEADROOM)
    return int(cost.argmin())
