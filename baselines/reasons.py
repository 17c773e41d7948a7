"""Reasons in words, written only for the jobs that change."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from dsp_gym.arrays import Ints
from dsp_gym.loop.decision import ScalingDecision
from dsp_gym.loop.snapshot import MetricsSnapshot
from dsp_gym.loop.unknown import ALL, hold_unknown, told

HOLD = "hold"

Why = Callable[[int, int], str]
"""The reason for a change, for a job and a column."""


def amount(value: float) -> str:
    """Write a rate or a count for people: four digits, thousands in full.

    Returns:
        Digits, with commas between thousands; no unit.

    >>> amount(49990.2), amount(0.012346)
    ('49,990', '0.01235')
    """
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def decision(
    snapshot: MetricsSnapshot,
    parallelism: Ints,
    memory_level: Ints,
    why: Why | None,
    keeps: int = ALL,
) -> ScalingDecision:
    """Make a decision whose reasons read `vertex 2 -> 3 (why)`.

    Args:
        snapshot: The metrics. Where a policy has let `LastKnown` fill in what vertices lack, these
            vertices keep their configuration.
        parallelism: (J, V) wanted subtasks.
        memory_level: (J, V) wanted memory levels.
        why: Returns the part in brackets; None leaves all reasons empty, for large batches.
        keeps: Which of these vertices keep it, as `hold_unknown` takes it.

    Returns:
        The decision; its reason is `hold` where no vertex of the job changes.
    """
    parallelism, memory_level = hold_unknown(snapshot, parallelism, memory_level, keeps)
    if why is None:
        # Only jobs that change are worded: most of a batch holds.
        return ScalingDecision(parallelism, memory_level, ("",) * len(snapshot))
    reasons = [HOLD] * len(snapshot)
    for job, moved in _moved(snapshot, parallelism, memory_level):
        names = snapshot.topology.names(job)
        moves = []
        for v in moved:
            before = _written(snapshot.parallelism[job, v], snapshot.memory_level[job, v])
            after = _written(parallelism[job, v], memory_level[job, v])
            moves.append(f"{names[v]} {before} -> {after} ({why(job, v)})")
        reasons[job] = "; ".join(moves)
    return ScalingDecision(parallelism, memory_level, told(snapshot, reasons, HOLD))


def _moved(
    snapshot: MetricsSnapshot, parallelism: Ints, memory_level: Ints
) -> Iterator[tuple[int, list[int]]]:
    """Iterate over the jobs that change, with their changed columns."""
    running, running_level = snapshot.parallelism, snapshot.memory_level
    if len(snapshot) == 1:  # for one job lists are faster than arrays
        pairs = zip(parallelism[0].tolist(), memory_level[0].tolist(), strict=True)
        before = zip(running[0].tolist(), running_level[0].tolist(), strict=True)
        names = snapshot.topology.names(0)
        differing = zip(range(len(names)), pairs, before, strict=False)
        moved = [v for v, wanted, found in differing if wanted != found]
        if moved:
            yield 0, moved
        return
    differs = (parallelism != running) | (memory_level != running_level)
    differs &= snapshot.topology.mask
    for job in np.flatnonzero(differs.any(axis=1)).tolist():
        yield job, np.flatnonzero(differs[job]).tolist()


def _written(parallelism: int, level: int) -> str:
    return f"{parallelism} at {'no memory' if level < 0 else f'level {level}'}"
