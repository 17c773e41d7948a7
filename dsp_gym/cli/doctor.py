"""`dsp-gym doctor`."""

from __future__ import annotations

import typer

from dsp_gym.cli.options import JsonOption
from dsp_gym.cli.output import print_json, print_table

EXAMPLES = "Examples:\n\n  dsp-gym doctor\n\n  dsp-gym doctor --json"


def doctor(as_json: JsonOption = False) -> None:
    """Show versions, extras, Java, caches and name clashes; exit code 1 when something is wrong."""
    from dsp_gym.doctor import diagnose, has_problems

    findings = diagnose()
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
