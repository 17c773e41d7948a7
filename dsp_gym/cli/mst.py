"""`dsp-gym mst`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from dsp_gym.cli.completion import shipped
from dsp_gym.cli.options import JsonOption
from dsp_gym.cli.output import print_json, print_table
from dsp_gym.cli.validity import print_validity
from dsp_gym.errors import ConfigError

if TYPE_CHECKING:
    from dsp_gym.job.capacity import MstResult

__all__ = ["register"]

_EXAMPLES = """
Examples:

  dsp-gym mst justin-read --parallelism state=8 --level state=2

  dsp-gym mst nexmark-q11 --parallelism session=6 --level session=1,sink=-1

  dsp-gym mst streambed-q5 --slots 48 --slot-memory-mib 2048

  dsp-gym mst nexmark-q5 --slots 12 --json
"""


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command(epilog=_EXAMPLES)(mst)


def mst(
    job: Annotated[
        str,
        typer.Argument(
            help="A shipped job, or the path of a job file.", autocompletion=shipped("jobs")
        ),
    ],
    parallelism: Annotated[
        str | None,
        typer.Option(help="VERTEX=P,...; vertices left out keep the job file's parallelism."),
    ] = None,
    level: Annotated[
        str | None,
        typer.Option(help="VERTEX=X,...: memory level, -1 for none; default: the job file's."),
    ] = None,
    slots: Annotated[
        int | None,
        typer.Option(
            min=1, help="Task slots without sources, with sinks, placed for the highest MST."
        ),
    ] = None,
    slot_memory_mib: Annotated[
        float | None,
        typer.Option(
            min=1,
            help="TaskManager process memory / slots, MiB; its managed memory (fraction 0.4) "
            "becomes level 0.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show the maximal sustainable throughput (MST) of a configuration of a job."""
    from dsp_gym.job.capacity import mst as compute
    from dsp_gym.job.catalog import load_job
    from dsp_gym.job.placement import place, slots_of, with_slot_memory
    from dsp_gym.job.validity import validity_of

    spec = load_job(job)
    if slot_memory_mib is not None:
        spec = with_slot_memory(spec, slot_memory_mib)
    levels = assignments("--level", level)
    if slots is None:
        result = compute(spec, assignments("--parallelism", parallelism), levels)
    elif parallelism is not None or level is not None:
        raise ConfigError(
            "--slots chooses the configuration itself",
            remedy="Leave out --parallelism and --level, or --slots.",
        )
    else:
        result = place(spec, slots).result
    tasks = {v.name: v.parallelism for v in result.vertices if _counts(spec.vertex(v.name).kind)}
    used = slots_of(tasks, shared=spec.slot_sharing)
    found = validity_of(
        spec,
        {v.name: v.parallelism for v in result.vertices},
        {v.name: v.memory_level for v in result.vertices},
        result.rate_per_s,
    )
    if as_json:
        document = {"job": spec.job, "slots": used, "slots_asked": slots, "mst": result}
        print_json({**document, "validity": found.to_json(result.rate_per_s)})
        return
    _print(spec.job, result)
    print_validity(found, result.rate_per_s)
    if slots is not None and used < slots:
        typer.echo(
            f"\n{used:,} of {slots:,} slots are used: more carry no more while "
            f"'{result.bottleneck}' is the limit."
        )
    waiting = [v for v in result.vertices if v.blocked >= 0.01]
    for v in waiting:
        typer.echo(
            f"\n'{v.name}' takes nothing in for {v.blocked:.0%} of the time: the results of its "
            "window find no room in the buffers after it."
        )


def assignments(option: str, text: str | None) -> dict[str, int]:
    """The pairs of `VERTEX=NUMBER,...`.

    Returns:
        Numbers by vertex name, in the order given; empty without a text.

    >>> assignments("--parallelism", "map=3,sink=1")
    {'map': 3, 'sink': 1}
    """
    found: dict[str, int] = {}
    for pair in text.split(",") if text else ():
        name, equals, number = (part.strip() for part in pair.partition("="))
        if not name or not equals or not number.removeprefix("-").isdecimal():
            raise ConfigError(
                f"{option} takes VERTEX=NUMBER,...",
                value=pair,
                remedy=f"For instance: {option} map=3,sink=1",
            )
        if name in found:
            raise ConfigError(f"{option} names '{name}' twice", remedy="Keep one of the two.")
        found[name] = int(number)
    return found


def _counts(kind: str) -> bool:
    return kind != "source"


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
