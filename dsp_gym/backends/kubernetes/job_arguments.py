"""Memory levels in the arguments of a job of this project (`spec.job.args`)."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from dsp_gym.backends.flink.submission import levels_named
from dsp_gym.job.deployment import slot_levels
from dsp_gym.job.memory import NO_MEMORY, level_mib
from dsp_gym.job.spec import JobSpec

__all__ = ["levels_in", "levels_shown", "with_levels"]

_OPTION = "--managed-mib"


def levels_in(arguments: Sequence[str], spec: JobSpec) -> dict[str, int] | None:
    """Read the memory levels in a job's arguments.

    Returns:
        Level by vertex; None if these are not the arguments of a job of this project, or name no
        memory.
    """
    if "--program" not in arguments:
        return None
    given = dict(itertools.pairwise(arguments))  # an option's value stands behind it
    try:
        return levels_named(given.get(_OPTION, ""), spec)
    except (ValueError, OverflowError):
        return None


def levels_shown(arguments: Sequence[str], spec: JobSpec) -> dict[str, int] | None:
    """Memory levels of a job as its slots have them, whatever its arguments ask for.

    Returns:
        Level by vertex; None where slots differ, and nothing tells how.
    """
    return slot_levels(spec) if spec.memory.uniform else levels_in(arguments, spec)


def with_levels(
    arguments: Sequence[str], levels: Mapping[str, int], spec: JobSpec
) -> tuple[str, ...]:
    """Set other memory levels in a job's arguments.

    Returns:
        The arguments; all else is as it was.
    """
    listed = ",".join(
        f"{name}={round(level_mib(spec.memory.base_mib, level))}"
        for name, level in levels.items()
        if level != NO_MEMORY
    )
    kept = list(arguments)
    if _OPTION in kept:
        at = kept.index(_OPTION)
        del kept[at : at + 2]
    return (*kept, _OPTION, listed) if listed else tuple(kept)
