"""The gate of the job: conditions that hold back a rescale although vertices change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from baselines.flink_autoscaler.memory import task_slots, total_memory
from baselines.flink_autoscaler.options import Options
from baselines.flink_autoscaler.periods import excluded


def under_memory_pressure(options: Options, gc: float, heap_ratio: float) -> bool:
    """Return whether garbage collection or the heap forbids a rescale.

    Returns:
        True where the share of time in garbage collection or the used share of the heap exceeds its
        option; unknown metrics (NaN) exceed nothing.
    """
    # Comparisons with NaN are false.
    return gc > options.gc_threshold or heap_ratio > options.heap_threshold


def may_act(options: Options, unix_ms: int) -> bool:
    """Return whether decisions are executed now: enabled, and in no excluded period.

    Returns:
        Whether a decision made at this time may reach the job.
    """
    return options.scaling_enabled and not excluded(options.excluded_periods, unix_ms)


def exceeds_quota(
    options: Options,
    flink: Mapping[str, str],
    tm_cpu: float,
    tm_memory: int,
    groups: Sequence[str | None],
    parallelism: Sequence[int],
    new: Sequence[int],
) -> bool:
    """Return whether the needed TaskManagers would exceed the quota.

    As in 1.15.0 only changed vertices count, and TaskManagers are rounded down.

    Args:
        options: options with the quota.
        flink: memory keys, tuned ones included.
        tm_cpu: cores of one TaskManager; 0: unknown.
        tm_memory: bytes of one TaskManager according to its resource.
        groups: slot sharing group per vertex; without any there is no check.
        parallelism: running.
        new: wanted.

    Returns:
        True where CPU or memory would exceed its quota; False without a quota or without groups.
    """
    if options.quota_cpu is None and options.quota_memory is None:
        return False
    # Vertices of one slot sharing group share slots: the widest vertex of each group counts.
    before: dict[str, int] = {}
    after: dict[str, int] = {}
    for group, p, q in zip(groups, parallelism, new, strict=True):
        # As in 1.15.0, unchanged vertices are left out of the count.
        if group is not None and p != q:
            before[group] = max(before.get(group, 0), p)
            after[group] = max(after.get(group, 0), q)
    slots = task_slots(options)
    needed = sum(after.values()) // slots
    # A rescale that needs no more TaskManagers passes, even over the quota.
    if needed <= sum(before.values()) // slots:
        return False
    if options.quota_cpu is not None and tm_cpu * needed > options.quota_cpu:
        return True
    # With the tuned size of the process, where tuning is on.
    memory = total_memory(flink, tm_memory)
    return options.quota_memory is not None and memory * needed > options.quota_memory
