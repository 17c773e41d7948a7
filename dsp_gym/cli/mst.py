"""The throughput that a configuration sustains: `dsp-gym plan` without `--rate`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import typer

from dsp_gym.cli.options import assignments
from dsp_gym.cli.output import print_json, print_table
from dsp_gym.errors import ConfigError

if TYPE_CHECKING:
    from dsp_gym.job.capacity import MstResult
    from dsp_gym.job.quota import LiftedQuota
    from dsp_gym.job.spec import JobSpec
    from dsp_gym.job.validity import Validity


def show_mst(
    spec: JobSpec,
    configuration: str | None,
    slots: int | None,
    slot_memory_mib: float | None,
    as_json: bool,
) -> None:
    """Print the maximal sustainable throughput (MST) of a configuration, or of task slots.

    Args:
        spec: The job.
        configuration: Vertices that differ from the job file; see `ConfigurationOption`.
        slots: Task slots to place for the highest MST.
        slot_memory_mib: TaskManager process memory per slot, MiB.
        as_json: Print JSON instead of a table.

    Raises:
        ConfigError: Both a configuration and slots are given.
    """
    from dsp_gym.job.capacity import mst
    from dsp_gym.job.placement import place, slots_of, with_slot_memory
    from dsp_gym.job.quota import without_quota
    from dsp_gym.job.validity import validity_of

    if slot_memory_mib is not None:
        spec = with_slot_memory(spec, slot_memory_mib)
    if slots is None:
        result = mst(spec, *assignments(configuration))
    elif configuration is not None:
        raise ConfigError(
            "--slots chooses the configuration itself",
            remedy="Leave out --configuration, or --slots.",
        )
    else:
        result = place(spec, slots).result
    lifted = None if slots is None else without_quota(spec, slots, result)
    tasks = {v.name: v.parallelism for v in result.vertices}
    levels = {v.name: v.memory_level for v in result.vertices}
    used = slots_of(
        {name: count for name, count in tasks.items() if spec.vertex(name).kind != "source"},
        shared=spec.slot_sharing,
    )
    found = validity_of(spec, tasks, levels, result.rate_per_s)
    quota = spec.max_parallelism_per_vertex
    if lifted is not None:
        # What the quota allows is no prediction for the slots that were asked for.
        found = replace(found, half_width=None)
    if as_json:
        document = {"job": spec.job, "slots": used, "slots_asked": slots, "mst": result}
        document["quota"] = None if lifted is None else {"tasks": quota, "lifted": lifted.to_json()}
        print_json({**document, "validity": found.to_json(result.rate_per_s)})
        return
    _print(spec.job, result)
    print_validity(found, result.rate_per_s)
    if slots is not None:
        _print_slots(result, used, slots, int(quota), lifted)
    _print_blocked(result)


def _print_slots(
    result: MstResult, used: int, slots: int, quota: int, lifted: LiftedQuota | None
) -> None:
    if lifted is not None:
        typer.echo(
            f"\nThe quota of {quota:,} tasks per vertex binds: this is the rate of {used:,} slots, "
            f"and no answer for {slots:,}.\nWithout it {slots:,} slots carry {_said(lifted)}."
        )
    elif used < slots:
        typer.echo(
            f"\n{used:,} of {slots:,} slots are used: more carry no more while "
            f"'{result.bottleneck}' is the limit."
        )


def _print_blocked(result: MstResult) -> None:
    for v in result.vertices:
        if v.blocked >= 0.01:
            typer.echo(
                f"\n'{v.name}' takes nothing in for {v.blocked:.0%} of the time: the results of "
                "its window find no room in the buffers after it."
            )


def _said(lifted: LiftedQuota) -> str:
    """The rate and its interval in words."""
    ends = lifted.validity.interval(lifted.rate_per_s)
    known = "" if ends is None else f" (90 % interval: {ends[0]:,.0f} to {ends[1]:,.0f})"
    return f"{lifted.rate_per_s:,.0f} records/s{known}"


def _print(job: str, result: MstResult) -> None:
    typer.echo(f"{job}: {result.rate_per_s:,.0f} records/s, limited by '{result.bottleneck}'")
    print_table(
        ["vertex", "parallelism", "level", "capacity/s", "utilization", "hit rate"],
        [
            [
                v.name,
                v.parallelism,
                "none" if v.memory_level == -1 else v.memory_level,
                f"{v.capacity_per_s:,.0f}",
                f"{v.utilization:.1%}",
                None if v.hit_rate is None else f"{v.hit_rate:.1%}",
            ]
            for v in result.vertices
        ],
        right=["parallelism", "level", "capacity/s", "utilization", "hit rate"],
    )


def print_validity(found: Validity, rate_per_s: float) -> None:
    """Print the 90 % interval of a predicted rate, and everything asked beyond the fit."""
    ends = found.interval(rate_per_s)
    if ends is not None:
        typer.echo(f"90 % interval: {ends[0]:,.0f} to {ends[1]:,.0f} records/s")
    for sentence in found.sentences():
        typer.echo(f"note: {sentence}")
