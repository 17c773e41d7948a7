"""`dsp-gym doctor`."""

from __future__ import annotations

from typing import Annotated

import typer

from dsp_gym.cli.options import JsonOption, refuse_no_url
from dsp_gym.cli.output import print_json, print_table

EXAMPLES = """
Examples:

  dsp-gym doctor

  dsp-gym doctor --json

  dsp-gym doctor --flink http://127.0.0.1:8081     may jobs of this cluster be read and changed?
"""


def doctor(
    flink: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Flink's REST interface. Shows also its version, and how its jobs may be changed.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show versions, extras, Java, caches and name clashes; exit code 1 when something is wrong."""
    from dsp_gym.doctor import diagnose, has_problems, of_cluster

    refuse_no_url("--flink", flink, "http://127.0.0.1:8081")
    findings = diagnose() + ([] if flink is None else of_cluster(flink))
    if as_json:
        print_json(findings)
    else:
        print_table(
            ["", "what", "found", "to do"],
            [
                [
                    finding.status,
                    f"{finding.subject}: {finding.name}",
                    f"{finding.purpose}: {finding.detail}" if finding.purpose else finding.detail,
                    finding.remedy,
                ]
                for finding in findings
            ],
        )
    if has_problems(findings):
        raise typer.Exit(1)
