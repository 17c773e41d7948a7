"""`dsp-gym reproduce`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dsp_gym.cli.options import JsonOption
from dsp_gym.cli.output import counted, print_json, print_table, refuse_unwritable

if TYPE_CHECKING:
    from dsp_gym.studies.reproduce.registry import Check

EXAMPLES = """
Examples:

  dsp-gym reproduce                   every study

  dsp-gym reproduce justin-micro      one of them

  dsp-gym reproduce --list            names of the studies

  dsp-gym reproduce streambed --data ../shared/data --json

  dsp-gym reproduce khaos --recoveries mine.csv

  dsp-gym reproduce espa --runs mine.csv --report runs.html
"""


def reproduce(
    name: Annotated[str | None, typer.Argument(help="One study; default: all of them.")] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="Folder of measured data; default: DSP_GYM_DATA.", file_okay=False),
    ] = None,
    recoveries: Annotated[
        Path | None,
        typer.Option(
            help="Table of recoveries, for khaos: run, checkpoint_interval_s, throughput_per_s, "
            "recovery_s.",
            dir_okay=False,
        ),
    ] = None,
    runs: Annotated[
        Path | None,
        typer.Option(
            help="Table of an autoscaler's runs, for espa: run, query, policy, setting, t_s, "
            "input_rate_per_s, throughput_per_s, lag_records, busy_share, taskmanagers, latency_s.",
            dir_okay=False,
        ),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(metavar="FILE.html", help="Write the courses of espa's runs as a page."),
    ] = None,
    list_only: Annotated[bool, typer.Option("--list", help="List the studies.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Compare published numbers with ours; exit code 1 when a check fails."""
    from dsp_gym.studies.reproduce import registry

    if list_only:
        found = registry.studies()
        if as_json:
            print_json(found)
        else:
            print_table(["study", "about"], list(found.items()))
        return
    if report is not None:
        refuse_unwritable(report, "--report")
    if as_json and recoveries is None:
        rows = registry.rows(name, data, runs, report)
        if rows is not None:
            print_json(rows)
            return
    checks = registry.reproduce(name, data, recoveries, runs, report)
    if as_json:
        print_json(checks)
    else:
        _print_checks(checks)
    if any(check.failed for check in checks):
        raise typer.Exit(1)


def _print_checks(checks: Sequence[Check]) -> None:
    print_table(
        ["check", "claim", "published", "ours", "tolerance", "in fit", "result", "note"],
        [
            [
                check.name,
                check.claim,
                check.published,
                check.ours,
                check.tolerance,
                "yes" if check.used_in_fit else "no",
                {True: "ok", False: "FAILED", None: "–"}[check.passed],
                check.note or "",
            ]
            for check in checks
        ],
    )
    failed = sum(check.failed for check in checks)
    skipped = sum(check.passed is None for check in checks)
    typer.echo(f"{counted(len(checks), 'check')}, {failed} failed, {skipped} reported or skipped")
