"""Runs a study as a command: `python -m dsp_gym.studies.NAME`.

A study's function declares its options as those of `dsp-gym` do, in its signature:

    def main(data: DataOption, out: OutOption = None) -> None:
        write_figures(figures_of(data), out)


    if __name__ == "__main__":
        run(main)
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from dsp_gym.config.files import write_atomic
from dsp_gym.errors import DspGymError

DataOption = Annotated[Path, typer.Option(help="Folder of measured data.")]
OutOption = Annotated[Path | None, typer.Option(help="JSON file that the figures are written to.")]
WriteOption = Annotated[bool, typer.Option("--write", help="Write the fitted job files.")]

USER_ERROR = 2
"""Exit code of an error that the user can put right, as `dsp-gym` has it."""


def run(main: Callable[..., object], arguments: Sequence[str] | None = None) -> None:
    """Run a study's function as a command, and exit.

    Args:
        main: the function; its signature declares the options as Typer reads them, its docstring
            is their help. It raises `typer.Exit(1)` where what it claims does not hold.
        arguments: of the command line; None takes those of the process.
    """
    app = typer.Typer(add_completion=False)
    app.command(help=main.__doc__)(main)
    try:
        app(arguments)
    except DspGymError as error:
        typer.echo(f"{type(error).__name__}: {error}", err=True)
        raise SystemExit(USER_ERROR) from None


def keep_figures(figures: object, out: Path | None, indent: int = 1) -> None:
    """Write figures to a file as JSON, if one is named."""
    if out is not None:
        write_atomic(out, json.dumps(figures, indent=indent) + "\n")


def write_figures(figures: object, out: Path | None = None, indent: int | None = None) -> None:
    """Print figures as JSON, and write them, indented, to a file.

    Args:
        figures: what JSON can hold.
        out: the file; None: no file.
        indent: of what is printed; None: one line.
    """
    keep_figures(figures, out, indent or 1)
    typer.echo(json.dumps(figures, indent=indent))


DSP_GYM = "from dsp_gym.cli import main\nmain()"
"""The command line in another process of this environment."""


def dsp_gym(*words: object) -> list[str]:
    """Write a call of `dsp-gym` as words for `subprocess`.

    Returns:
        The command line.
    """
    return [sys.executable, "-c", DSP_GYM, *map(str, words)]
