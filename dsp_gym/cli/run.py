"""`dsp-gym run`: the control loop on a real job."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Annotated

import typer

from dsp_gym.cli.completion import shipped

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command(
        epilog="Examples:\n\n"
        "  dsp-gym run flink-wordcount                       what the policy would do\n\n"
        "  dsp-gym run flink-wordcount --apply --duration 20m\n\n"
        "  dsp-gym run my-run.yaml --steps 3 --json"
    )(run)


def run(
    config: Annotated[
        str,
        typer.Argument(
            help="What to run: a shipped configs/shadow name, or a YAML file.",
            autocompletion=shipped("shadow"),
        ),
    ],
    apply: Annotated[
        bool, typer.Option("--apply", help="Rescale the job; without it nothing is touched.")
    ] = False,
    steps: Annotated[
        int | None, typer.Option(min=1, help="End after so many decisions.", show_default=False)
    ] = None,
    duration: Annotated[
        str | None,
        typer.Option(help="End after that time, such as 90s, 30m or 1h.", show_default=False),
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(help="Another policy than the configuration's: name, YAML file or folder."),
    ] = None,
    journal: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder of the journal. Default: runs/live/JOB."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON Lines, one per decision, then a summary.")
    ] = False,
) -> None:
    """Let a policy decide on a job that runs on Flink; its guardrails hold.

    A dry run unless --apply is given: decisions are shown and journaled, and nothing is asked of
    the job. Ctrl-C ends it cleanly: a rescale under way is finished, and the job is left running.
    """
    from dsp_gym.backends.base import Clock
    from dsp_gym.cli.simulate import seconds
    from dsp_gym.cli.turns import Printer, stopping
    from dsp_gym.config.files import load_model
    from dsp_gym.control.config import RunConfig
    from dsp_gym.control.run import Hooks
    from dsp_gym.control.start import journal_folder, mode_of, started
    from dsp_gym.errors import ConfigError

    if steps is not None and duration is not None:
        raise ConfigError("--steps and --duration both end the run", remedy="Give one of them.")
    duration_s = None if duration is None else seconds(duration)
    settings = load_model(RunConfig, "shadow", config)
    if policy is not None:
        settings = settings.model_copy(update={"policy": policy, "policies": (), "acting": None})
    folder = journal or journal_folder(settings)
    printer = Printer(as_json=as_json)
    stop = threading.Event()
    with (
        stopping(stop) as interrupted,
        started(
            settings,
            mode=mode_of(settings, apply=apply),
            journal=folder,
            hooks=Hooks(printer.decided, printer.passed, printer.happened),
            clock=Clock(stop=stop),
        ) as live,
    ):
        what = "decisions are enacted" if apply else "a dry run, nothing is enacted (--apply)"
        printer.begin(f"{live.spec.job}: {what}; journal {folder}")
        live.run(steps, duration_s)
        if interrupted() and not as_json:
            typer.echo("\nInterrupted: a rescale under way is finished first.", err=True)
    counts = printer.counts
    summary = {
        "decisions": counts.decisions,
        "changes": counts.changes,
        "held": counts.held,
        "applied": apply,
        "interrupted": interrupted(),
        "journal": folder,
    }
    printer.end(summary)
    if interrupted():
        raise typer.Exit(130)
