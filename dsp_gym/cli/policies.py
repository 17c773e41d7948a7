"""`dsp-gym policies`."""

from __future__ import annotations

import typer

from dsp_gym.cli.options import JsonOption
from dsp_gym.cli.output import print_json, print_table

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command(epilog="Examples:\n\n  dsp-gym policies\n\n  dsp-gym policies --json")(policies)


def policies(as_json: JsonOption = False) -> None:
    """List the policies that can be named in an experiment or on the command line."""
    from dsp_gym.policies.registry import available

    found = available()
    if as_json:
        print_json([{"name": name, "about": about} for name, about in found.items()])
    else:
        print_table(["name", "about"], found.items())
