"""`dsp-gym shadow`: policies beside a production job, from watching to acting."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from dsp_gym.cli.beside import Course, drive, ends, settings_of
from dsp_gym.cli.completion import shipped

if TYPE_CHECKING:
    from dsp_gym.control.backend_of import Substitute
    from dsp_gym.control.config import RunConfig

__all__ = ["register"]

_EPILOG = """
Examples:

  dsp-gym shadow shadow-wordcount                     decisions of three policies; touches nothing

  dsp-gym shadow shadow-wordcount --once --json       one decision, for CI

  dsp-gym shadow flink-q11-day --replay flink-q11-day      a recording that ships

  dsp-gym shadow shadow-wordcount --simulated flash-crowd --speed 60 --port 8466 --public

  dsp-gym shadow shadow-wordcount --simulated diurnal-bursts --start sized --duration 6h

  dsp-gym shadow my-job.yaml --mode active --acting ds2 --apply
"""


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command(epilog=_EPILOG)(shadow)


def shadow(
    config: Annotated[
        str,
        typer.Argument(
            help="Configuration of the run: a shipped configs/shadow name, or a YAML file.",
            autocompletion=shipped("shadow"),
        ),
    ],
    mode: Annotated[
        str | None,
        typer.Option(help="off, shadow, advise, canary or active. Default: the configuration's."),
    ] = None,
    apply: Annotated[
        bool,
        typer.Option(
            "--apply", help="Let the modes advise, canary and active write to the cluster."
        ),
    ] = False,
    policy: Annotated[
        list[str] | None,
        typer.Option(help="Policies in place of the configuration's; repeat."),
    ] = None,
    acting: Annotated[
        str | None, typer.Option(help="Name of the policy that advises or acts.")
    ] = None,
    replay: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Run on a recording, faster than real time: its folder, or a shipped name.",
        ),
    ] = None,
    run: Annotated[
        str | None, typer.Option(help="One run of the recording. Default: all, in order.")
    ] = None,
    simulated: Annotated[
        str | None,
        typer.Option(
            metavar="LOAD", help="Run on the simulated job under a load, faster than real time."
        ),
    ] = None,
    start: Annotated[
        Literal["job", "sized"] | None,
        typer.Option(
            help="With --simulated: start as in the job file, or sized for the first rate.  "
            "[default: job]",
            show_default=False,
        ),
    ] = None,
    speed: Annotated[
        float | None,
        typer.Option(
            min=0.001, help="With --replay or --simulated: simulated seconds per real second."
        ),
    ] = None,
    once: Annotated[
        bool,
        typer.Option(
            "--once", help="Make one decision and end: exit code 0, or 3 if the decision was held."
        ),
    ] = False,
    steps: Annotated[
        int | None, typer.Option(min=1, help="End after that many decisions.", show_default=False)
    ] = None,
    duration: Annotated[
        str | None,
        typer.Option(help="End after that time, such as 90s, 30m or 7d.", show_default=False),
    ] = None,
    journal: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder of the journal. Default: runs/live/JOB."),
    ] = None,
    serve: Annotated[
        bool | None,
        typer.Option(
            "--serve/--no-serve",
            help="Serve page, status and metrics over HTTP. Default: not with --once, --replay or "
            "--simulated.",
            show_default=False,
        ),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65535,
            help="Port of the server; the next one serves probes. 0: any free ports.",
        ),
    ] = None,
    public: Annotated[
        bool,
        typer.Option("--public", help="Serve status and metrics without a token."),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON Lines, one per decision, then a summary.")
    ] = False,
) -> None:
    """Show the decisions of policies beside a running job; with --apply, let one of them act.

    Every policy decides on the same metrics, with its own guardrails; the journal keeps all.
    Mode shadow writes only the journal; canary and active rescale the job and need --apply. Ctrl-C
    ends it cleanly: a rescale under way is finished, and the job is left running.
    """
    from dsp_gym.control.start import permitted

    settings = settings_of(config, mode, policy, acting, port, public=public)
    substitute = _substitute(settings, replay, run, simulated, start, speed, once, duration)
    steps, duration_s = ends(steps, duration, once=once)
    drive(
        Course(
            settings,
            permitted(settings, apply=apply),
            substitute,
            journal,
            steps,
            duration_s,
            as_json=as_json,
            once=once,
            serve=serve
            if serve is not None
            else port is not None or public or not (once or substitute),
        )
    )


def _substitute(
    settings: RunConfig,
    replay: Path | None,
    run: str | None,
    load: str | None,
    start: Literal["job", "sized"] | None,
    speed: float | None,
    once: bool,
    duration: str | None,
) -> Substitute | None:
    from dsp_gym.cli.simulate import seconds
    from dsp_gym.control.backend_of import Substitute
    from dsp_gym.errors import ConfigError

    if replay is not None and load is not None:
        raise ConfigError(
            "--replay and --simulated both set the source", remedy="Give one of them."
        )
    if load is None and start is not None:
        raise ConfigError("--start is for a simulated job", remedy="Add --simulated LOAD.")
    if replay is None and load is None:
        for name, value in (("--run", run), ("--speed", speed)):
            if value is not None:
                raise ConfigError(
                    f"{name} is for a recording or a simulated job",
                    remedy="Add --replay DIR or --simulated LOAD.",
                )
        return None
    skip_s = settings.window.window_s + settings.window.stabilization_s if once else 0
    lasts_s = 86_400 if duration is None else seconds(duration)
    return Substitute(replay, run, load, lasts_s + skip_s, speed, skip_s, start or "job")
