"""`dsp-gym shadow`: policies beside a production job, from watching to acting."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dsp_gym.cli.completion import shipped

if TYPE_CHECKING:
    from dsp_gym.control.config import RunConfig
    from dsp_gym.control.modes import Mode
    from dsp_gym.control.places import Elsewhere
    from dsp_gym.control.serve.server import StatusServer

__all__ = ["register"]

HELD = 3
"""Exit code of --once where nothing could be decided."""

_EPILOG = """
Examples:

  dsp-gym shadow shadow-wordcount                     what three policies would do; touches nothing

  dsp-gym shadow shadow-wordcount --once --json       one decision, for CI

  dsp-gym shadow shadow-wordcount --replay recordings/flink-wordcount

  dsp-gym shadow shadow-wordcount --simulated flash-crowd --speed 60 --port 8466

  dsp-gym shadow my-job.yaml --mode active --acting ds2 --apply
"""


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command(epilog=_EPILOG)(shadow)


def shadow(
    config: Annotated[
        str,
        typer.Argument(
            help="What to run: a shipped configs/shadow name, or a YAML file.",
            autocompletion=shipped("shadow"),
        ),
    ],
    mode: Annotated[
        str | None,
        typer.Option(help="off, shadow, advise, canary or active. Default: the configuration's."),
    ] = None,
    apply: Annotated[
        bool, typer.Option("--apply", help="Let the modes advise, canary and active write.")
    ] = False,
    policy: Annotated[
        list[str] | None,
        typer.Option(help="Policies in place of the configuration's; repeat it for several."),
    ] = None,
    acting: Annotated[
        str | None, typer.Option(help="Name of the policy that advises or acts.")
    ] = None,
    replay: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Run on a recording, as fast as it can."),
    ] = None,
    run: Annotated[
        str | None, typer.Option(help="Of the recording only that run. Default: all, in order.")
    ] = None,
    simulated: Annotated[
        str | None,
        typer.Option(
            metavar="LOAD", help="Run on the simulated job under a load, as fast as it can."
        ),
    ] = None,
    speed: Annotated[
        float | None,
        typer.Option(min=0.001, help="Seconds of --replay or --simulated in one real second."),
    ] = None,
    once: Annotated[
        bool,
        typer.Option("--once", help="One decision, then end: 0 if it was made, 3 if it was held."),
    ] = False,
    steps: Annotated[
        int | None, typer.Option(min=1, help="End after so many decisions.", show_default=False)
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
        typer.Option(min=0, max=65535, help="Serve them there; 0: any port that is free."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON Lines, one per decision, then a summary.")
    ] = False,
) -> None:
    """Show beside a running job what policies would do, and let one of them act when you say so.

    Every policy sees the same metrics, passes its own guardrails, and is journaled. In mode shadow
    nothing is written but the journal; canary and active rescale the job and need --apply. Ctrl-C
    ends it cleanly: a rescale under way is finished, and the job is left running.
    """
    from dsp_gym.cli.turns import stopping
    from dsp_gym.control.start import is_of_several, journal_folder, permitted

    settings = _settings(config, mode, policy, acting, port)
    elsewhere = _elsewhere(settings, replay, run, simulated, speed, once, duration)
    found = permitted(settings, apply=apply)
    steps, duration_s = _ends(steps, duration, once)
    stop = threading.Event()
    serves = serve if serve is not None else port is not None or not (once or elsewhere)
    with stopping(stop) as interrupted:
        if elsewhere is None and is_of_several(settings):
            held = _drive_all(
                settings,
                found,
                journal or settings.journal,
                stop,
                steps,
                duration_s,
                as_json=as_json,
                once=once,
                serve=serves,
            )
        else:
            held = _drive(
                settings,
                found,
                elsewhere,
                journal or journal_folder(settings),
                stop,
                steps,
                duration_s,
                as_json=as_json,
                once=once,
                serve=serves,
            )
        was_interrupted = interrupted()
    if was_interrupted:
        raise typer.Exit(130)
    if once and held:
        raise typer.Exit(HELD)


def _settings(
    config: str, mode: str | None, policies: list[str] | None, acting: str | None, port: int | None
) -> RunConfig:
    """The configuration with what the command line changes, checked as a whole."""
    from dsp_gym.config.files import find, parse, read_yaml
    from dsp_gym.control.config import RunConfig

    file = find("shadow", config)
    data = read_yaml(file)
    if isinstance(data, dict):
        changes: dict[str, Any] = {"mode": mode, "acting": acting}
        if policies:
            data = {k: v for k, v in data.items() if k not in ("policy", "policies", "acting")}
            changes["policies"] = policies
        data = {**data, **{k: v for k, v in changes.items() if v is not None}}
        if mode is not None and mode != "canary":
            data.pop("canary", None)
        if port is not None and isinstance(data.get("serve", {}), dict):
            data["serve"] = {**data.get("serve", {}), "port": port}
    return parse(RunConfig, data, file)


def _elsewhere(
    settings: RunConfig,
    replay: Path | None,
    run: str | None,
    load: str | None,
    speed: float | None,
    once: bool,
    duration: str | None,
) -> Elsewhere | None:
    from dsp_gym.cli.simulate import seconds
    from dsp_gym.control.places import Elsewhere
    from dsp_gym.errors import ConfigError

    if replay is not None and load is not None:
        raise ConfigError("--replay and --simulated both say where", remedy="Give one of them.")
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
    return Elsewhere(replay, run, load, lasts_s + skip_s, speed, skip_s)


def _ends(steps: int | None, duration: str | None, once: bool) -> tuple[int | None, float | None]:
    from dsp_gym.cli.simulate import seconds
    from dsp_gym.errors import ConfigError

    if sum((steps is not None, duration is not None, once)) > 1:
        raise ConfigError(
            "--once, --steps and --duration each end the run", remedy="Give one of them."
        )
    return (1 if once else steps), None if duration is None else seconds(duration)


def _drive(
    settings: RunConfig,
    mode: Mode,
    elsewhere: Elsewhere | None,
    folder: Path,
    stop: threading.Event,
    steps: int | None,
    duration_s: float | None,
    *,
    as_json: bool,
    once: bool,
    serve: bool,
) -> bool:
    """Runs the loop; returns whether the last decision was held."""
    from dsp_gym.backends.base import Clock
    from dsp_gym.cli.turns import Printer
    from dsp_gym.control.run import Hooks
    from dsp_gym.control.serve.session import session

    printer = Printer(as_json=as_json, at_once=once)
    with session(
        settings,
        serve=serve,
        mode=mode,
        elsewhere=elsewhere,
        journal=folder,
        hooks=Hooks(printer.decided, printer.passed, printer.happened),
        clock=Clock(stop=stop),
    ) as shown:
        live, names = shown.run, [seat.name for seat in shown.run.seats]
        about = f"{live.spec.job}: {_what(mode, live.acting, names)}; journal {folder}"
        printer.begin(about + _page(shown.server))
        if once:
            live.decide()
        else:
            live.run(steps, duration_s)
    said = {"mode": mode, "acting": live.acting, "journal": folder}
    printer.end(printer.counts.summary | said)
    return printer.counts.last_was_held


def _drive_all(
    settings: RunConfig,
    mode: Mode,
    folder: Path,
    stop: threading.Event,
    steps: int | None,
    duration_s: float | None,
    *,
    as_json: bool,
    once: bool,
    serve: bool,
) -> bool:
    """Runs a loop beside every job a selector names; returns whether a last decision was held."""
    from dsp_gym.cli.turns import Printer
    from dsp_gym.control.serve.fleet import fleet
    from dsp_gym.control.start import acting_name, seat_names

    printer = Printer(as_json=as_json, at_once=once, names_jobs=True)
    acting = acting_name(settings)
    with fleet(
        settings,
        serve=serve,
        mode=mode,
        journal=folder,
        on_decision=lambda job, turn: printer.decided(turn, job),
        on_turn=lambda job, turn: printer.passed(turn, job),
        on_event=lambda job, event, body: printer.happened(event, body, job),
        stop=stop,
    ) as found:
        about = f"{found}: {_what(mode, acting, seat_names(settings))}; journals in {folder}"
        printer.begin(about + _page(found.server))
        found.run(steps, duration_s, once=once)
    said = {"mode": mode, "acting": acting, "journal": folder}
    printer.end(printer.counts.summary | said, "The jobs run on.")
    return printer.counts.last_was_held


def _page(server: StatusServer | None) -> str:
    return "" if server is None else f"; page at {server.url}"


def _what(mode: Mode, acting: str, policies: list[str]) -> str:
    """The mode in words."""
    words = {
        "off": "mode off, nobody is asked",
        "shadow": f"mode shadow, {', '.join(policies)}; nothing is touched",
        "advise": f"mode advise, {acting} says on the job what it would do",
        "canary": f"mode canary, some decisions of {acting} are enacted",
        "active": f"mode active, decisions of {acting} are enacted",
    }
    return words[mode]
