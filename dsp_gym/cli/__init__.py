"""The command line: each command is one module, which imports what it needs when it runs."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import Annotated

import typer

from dsp_gym.cli.errors import Commands
from dsp_gym.compile_bar import ask_for_compile_bar

__all__ = ["app", "main"]

_MODULES: tuple[str, ...] = (
    "list",
    "simulate",
    "rollout",
    "dataset",
    "train",
    "evaluate",
    "backtest",
    "tune",
    "plan",
    "record",
    "discover",
    "calibrate",
    "validate",
    "reproduce",
    "decide",
    "shadow",
    "inspect",
    "bench",
    "flink",
    "policy",
    "config",
    "doctor",
)
"""Modules of this package in the order of `--help`; all import fast.

Each adds the command, or group of commands, that it is named after: by a function of that name and
``EXAMPLES``, or by ``register(app)``.
"""

_HELP = "Train, compare and safely deploy autoscaling policies for Apache Flink jobs."
_EXAMPLES = """
Examples:

  dsp-gym list jobs                                the jobs to choose from

  dsp-gym config check nexmark-q11 --kind jobs

  dsp-gym doctor                                   is everything installed?
"""

app: typer.Typer
"""All commands; built on first use."""


def _show_version(wanted: bool) -> None:
    if wanted:
        from dsp_gym import __version__

        typer.echo(f"dsp-gym {__version__}")
        raise typer.Exit


def _options(
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error; works anywhere.")
    ] = False,
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version.", is_eager=True, callback=_show_version),
    ] = False,
) -> None:
    """Declare both options; `debug` acts in `Commands`, `version` in its callback."""


def _with(modules: Sequence[str]) -> typer.Typer:
    """Build the command line with the commands of some modules."""
    made = typer.Typer(
        name="dsp-gym",
        cls=Commands,
        help=_HELP,
        epilog=_EXAMPLES,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    made.callback(help=_HELP)(_options)
    for name in modules:
        module = importlib.import_module(f"dsp_gym.cli.{name}")
        if hasattr(module, "register"):  # a group of commands, or one that is not named as it is
            module.register(made)
        else:
            made.command(epilog=module.EXAMPLES)(getattr(module, name))
    return made


def __getattr__(name: str) -> typer.Typer:
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()["app"] = made = _with(_MODULES)
    return made


def main() -> None:
    """Run the command line: the entry point of `dsp-gym`.

    It builds the named command only, which saves a fifth of a second. Help, completion and unknown
    names need the name and the help of all of them, not their options.
    """
    named = _named()
    _use_one_thread_of_blas(named)
    ask_for_compile_bar()
    (_with([named]) if named in _MODULES else _outline())(prog_name="dsp-gym")


def _use_one_thread_of_blas(named: str) -> None:
    """Keep NumPy's and SciPy's linear algebra to one thread, unless the user says otherwise.

    The matrices of policies and planners are small: more threads mostly wait for each other, which
    takes two to four times the processor time. Compiled code has threads of its own. PyTorch, which
    trains, may stand on the same library. To be called before NumPy is imported.
    """
    if named != "train":
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def _named() -> str:
    """Find the command to run or to complete; empty where none is, or not wholly typed."""
    words = sys.argv[1:]
    if "_DSP_GYM_COMPLETE" in os.environ:
        line = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS", "")
        words = f"{line}|".split()[1:-1]
    return next((word for word in words if not word.startswith("-")), "")


def _outline() -> typer.Typer:
    """Build all commands by name and help, to list them: typer takes long to read their options."""
    made = _with(_MODULES)
    for command in made.registered_commands:
        command.callback = _stub(command.callback)
    for group in made.registered_groups:
        if group.typer_instance is not None:
            group.typer_instance.registered_commands.clear()
            group.typer_instance.registered_groups.clear()
    return made


def _stub(command: Callable[..., object] | None) -> Callable[[], None]:
    """Make a command of the same name and help without options."""

    def stub() -> None: ...

    stub.__name__ = getattr(command, "__name__", "")
    stub.__doc__ = command.__doc__
    return stub
