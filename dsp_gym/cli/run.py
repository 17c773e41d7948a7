"""`dsp-gym run`: the control loop on a real job."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dsp_gym.cli.beside import Course, drive, ends, settings_of
from dsp_gym.cli.completion import shipped

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command(
        epilog="Examples:\n\n"
        "  dsp-gym run flink-wordcount                       a dry run: decisions only\n\n"
        "  dsp-gym run flink-wordcount --apply --duration 20m\n\n"
        "  dsp-gym run my-run.yaml --steps 3 --json"
    )(run)


def run(
    config: Annotated[
        str,
        typer.Argument(
            help="Configuration of the run: a shipped configs/shadow name, or a YAML file.",
            autocompletion=shipped("shadow"),
        ),
    ],
    apply: Annotated[
        bool, typer.Option("--apply", help="Rescale the job; without it the run is dry.")
    ] = False,
    steps: Annotated[
        int | None, typer.Option(min=1, help="End after that many decisions.", show_default=False)
    ] = None,
    duration: Annotated[
        str | None,
        typer.Option(help="End after that time, such as 90s, 30m or 1h.", show_default=False),
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(help="Policy in place of the configuration's: name, YAML file or folder."),
    ] = None,
    journal: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder of the journal. Default: runs/live/JOB."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON Lines, one per decision, then a summary.")
    ] = False,
) -> None:
    """Let a policy scale a running Flink job within its guardrails.

    A dry run unless --apply is given: decisions are shown and journaled, and the job is not
    touched. Ctrl-C ends it cleanly: a rescale under way is finished, and the job is left running.
    """
    from dsp_gym.control.start import mode_of

    settings = settings_of(config, policies=None if policy is None else [policy])
    steps, duration_s = ends(steps, duration)
    mode = mode_of(settings, apply=apply)
    drive(Course(settings, mode, None, journal, steps, duration_s, as_json=as_json))
