"""`dsp-gym policies`."""

from __future__ import annotations

import inspect
from typing import Annotated

import typer

from dsp_gym.cli.output import JSON_OPTION, print_json, print_table

__all__ = ["list_policies", "register"]

GROUP = "dsp_gym.policies"
"""Entry-point group under which a distribution offers policies."""


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command(
        epilog="Examples:\n\n  dsp-gym policies\n\n  dsp-gym policies --json",
    )(policies)


def list_policies() -> list[dict[str, str | None]]:
    """Every policy by name: those of installed distributions, then the shipped configurations."""
    from importlib.metadata import entry_points

    from dsp_gym.config.files import names

    installed = sorted(entry_points(group=GROUP), key=lambda entry: entry.name)
    found: list[dict[str, str | None]] = [
        {
            "name": entry.name,
            "kind": "policy",
            "where": entry.value,
            "distribution": entry.dist.name if entry.dist else None,
            "about": _first_sentence(entry.value),
        }
        for entry in installed
    ]
    taken = {entry.name for entry in installed}
    found += [
        {
            "name": name,
            "kind": "configuration",
            "where": f"configs/policies/{name}.yaml",
            "distribution": "dsp-gym",
            "about": None,
        }
        for name in names("policies")
        if name not in taken
    ]
    return found


def _first_sentence(target: str) -> str | None:
    """The first line of a policy's docstring, or why it cannot be loaded."""
    import importlib

    module, _, name = target.partition(":")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        return f"cannot be loaded: {error}"
    text = inspect.getdoc(found)
    return text.splitlines()[0] if text else None


def policies(as_json: Annotated[bool, JSON_OPTION] = False) -> None:
    """List the policies that can be named in an experiment or on the command line."""
    found = list_policies()
    if as_json:
        print_json(found)
        return
    print_table(
        ["name", "kind", "where", "about"],
        [[row["name"], row["kind"], row["where"], row["about"]] for row in found],
    )
