"""The page of commands, from what Typer knows of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer

from dsp_gym.cli import app
from generator.markdown import anchor, first_line, page, plain, table


def command_line() -> str:
    """Every command with its arguments and options."""
    group: Any = typer.main.get_command(app)
    found = list(commands(group, ()))
    rows = [
        [f"[`dsp-gym {name}`](#{anchor('dsp-gym ' + name)})", first_line(command.help)]
        for name, command in found
    ]
    sections = []
    for name, command in found:
        parameters = table(
            ["argument or option", "meaning"],
            [[shown(p), described(p)] for p in command.params if p.name != "help"],
        )
        sections.append(f"## dsp-gym {name}\n\n{(command.help or '').strip()}\n\n{parameters}")
    return page(
        "Commands",
        "Every command has `--help` with examples. Wrong input ends with one message (file, key, "
        "value, remedy) and exit code 2; `--debug` adds the traceback.",
        table(["command", "does"], rows),
        *sections,
    )


def commands(group: Any, prefix: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    """Every command below a group, by its full name; a group's default by the group's."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*prefix, name))
        elif name == getattr(group, "default", None):
            yield " ".join(prefix), command
        else:
            yield " ".join((*prefix, name)), command


def shown(parameter: Any) -> str:
    """How a parameter is written on the command line."""
    if parameter.param_type_name == "argument":
        return f"`{(parameter.metavar or parameter.name).strip('{}').upper()}`"
    return "`" + "`, `".join([*parameter.opts, *parameter.secondary_opts]) + "`"


def described(parameter: Any) -> str:
    """What it means, and its default."""
    text = plain(getattr(parameter, "help", None) or "")
    default = parameter.default
    if parameter.required:
        return f"{text} Required."
    if isinstance(default, bool) or default in (None, ()) or "default" in text.lower():
        return text
    return f"{text} Default: `{default}`."
