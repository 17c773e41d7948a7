"""The size of the house: commands, options, and the length of functions."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from dsp_gym.cli import app

ROOT = Path(__file__).parents[2]
PACKAGES = ("agents", "baselines", "dsp_gym", "spark_pipelines")


BARS = {
    "commands": 30,
    "options": 200,
    "commands of 61 lines or more": 0,
    "functions of 60 lines or more": 25,
    "object.__setattr__": 5,
}
"""How much there may be."""


def leaves(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Name and command of every leaf."""
    if not hasattr(command, "commands"):
        yield " ".join(path), command
        return
    for name, inner in command.commands.items():
        yield from leaves(inner, (*path, name))


def functions(folder: Path) -> Iterator[tuple[int, str]]:
    """Lines and address of every function below a folder."""
    for file in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                yield lines, f"{file.relative_to(ROOT)}:{node.lineno} {node.name}"


def holds(what: str, found: list[str]) -> None:
    """Compare with the bar."""
    assert len(found) <= BARS[what], f"{len(found)} {what}: {found}"


def test_commands_and_options_are_few():
    found = dict(leaves(typer.main.get_command(app)))
    assert not [name for name, command in found.items() if command.hidden]
    holds("commands", list(found))
    options = [
        f"{name} {option.opts[0]}"
        for name, command in found.items()
        for option in command.params
        if option.param_type_name == "option" and option.name != "help"
    ]
    holds("options", options)


def test_no_option_stands_for_any_other():
    for name, command in leaves(typer.main.get_command(app)):
        texts = [f"{p.metavar} {getattr(p, 'help', '')}" for p in command.params]
        assert not [text for text in texts if "KEY=VALUE" in text], name


def test_functions_are_short():
    found = [one for package in PACKAGES for one in functions(ROOT / package)]
    assert len(found) > 3000
    holds("functions of 60 lines or more", [at for lines, at in found if lines >= 60])
    commands = [at for lines, at in functions(ROOT / "dsp_gym" / "cli") if lines > 60]
    holds("commands of 61 lines or more", commands)


def test_frozen_values_are_rarely_changed():
    found = [
        f"{file.relative_to(ROOT)}"
        for package in PACKAGES
        for file in (ROOT / package).rglob("*.py")
        for _ in range(file.read_text("utf-8").count("object.__setattr__"))
    ]
    holds("object.__setattr__", found)
