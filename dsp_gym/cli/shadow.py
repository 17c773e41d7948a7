"""`dsp-gym shadow`: policies beside a running job, from watching to acting."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dsp_gym.cli.options import InsteadOption, seconds, shipped
from dsp_gym.errors import ConfigError

if TYPE_CHECKING:
    from dsp_gym.control.backend_of import Substitute
    from dsp_gym.control.config import RunConfig

EXAMPLES = """
Examples:

  dsp-gym shadow shadow-wordcount                     decisions of three policies; touches nothing

  dsp-gym shadow shadow-wordcount --steps 1 --json    one decision, for CI

  dsp-gym shadow flink-wordcount --apply --sole --duration 20m      rescales the job

  dsp-gym shadow my-job.yaml --mode canary --apply

  dsp-gym shadow jobs                                 the fleet that dsp-gym discover wrote there

  dsp-gym shadow flink-q11-day flink-q11-day          on a recording that ships

  dsp-gym shadow shadow-wordcount diurnal-bursts --duration 6h      on a simulated job

  dsp-gym shadow shadow-wordcount flash-crowd --speed 60 --port 8466 --public
"""

ConfigArgument = Annotated[
    str,
    typer.Argument(
        help="Configuration: a shipped configs/shadow name, a YAML file, or the folder that "
        "dsp-gym discover wrote.",
        autocompletion=shipped("shadow"),
    ),
]
SourceArgument = Annotated[
    str | None,
    typer.Argument(
        help="In place of the cluster, faster than real time: a load, under which the job is "
        "simulated, or a recording's folder. Both have shipped names.",
        show_default=False,
    ),
]
ApplyOption = Annotated[
    bool,
    typer.Option(
        "--apply",
        help="Act as the mode says: advise, canary or active. Default mode with it: active.",
    ),
]
SoleOption = Annotated[
    bool,
    typer.Option(
        "--sole",
        help="With --apply: no other process acts on the job. Without it a lease must be named, "
        "where.lease, which several processes hold one after another.",
    ),
]
StepsOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="End after that many decisions; after 1, without waiting for its outcome, with exit "
        "code 0, or 3 if the decision was held.",
        show_default=False,
    ),
]
SpeedOption = Annotated[
    float | None,
    typer.Option(
        min=0.001,
        help="With SOURCE: simulated seconds per real second. Default: as many as possible.",
    ),
]
ServeOption = Annotated[
    bool | None,
    typer.Option(
        "--serve/--no-serve",
        help="Serve page, status and metrics over HTTP. Default: not with SOURCE or --steps 1.",
        show_default=False,
    ),
]
PortOption = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=65535,
        help="Port of the server; the next one serves probes. 0: any free ports.",
    ),
]


def shadow(
    config: ConfigArgument,
    source: SourceArgument = None,
    mode: Annotated[
        str | None,
        typer.Option(help="off, shadow, advise, canary or active. Default: the configuration's."),
    ] = None,
    apply: ApplyOption = False,
    sole: SoleOption = False,
    policies: InsteadOption = None,
    steps: StepsOption = None,
    duration: Annotated[
        str | None,
        typer.Option(help="End after that time, such as 90s, 30m or 7d.", show_default=False),
    ] = None,
    speed: SpeedOption = None,
    journal: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder of the journal. Default: runs/live/JOB."),
    ] = None,
    serve: ServeOption = None,
    port: PortOption = None,
    public: Annotated[
        bool, typer.Option("--public", help="Serve status and metrics without a token.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON Lines, one per decision, then a summary.")
    ] = False,
) -> None:
    """Show the decisions of policies beside a running job; with --apply, let one of them act.

    Every policy decides on the same metrics, with its own guardrails, and the journal keeps all
    decisions. Without --apply nothing but the journal is written. With --apply the first policy,
    or the one that the configuration names, acts within its guardrails. Ctrl-C ends the command
    cleanly: it finishes a rescale under way, and leaves the job running.
    """
    from dsp_gym.cli.beside import ShadowRun, drive
    from dsp_gym.control.start import check_alone, mode_of

    if steps is not None and duration is not None:
        raise ConfigError("--steps and --duration both end the run", remedy="Give one of them.")
    settings = settings_of(config, mode, policies, port, public=public)
    duration_s = None if duration is None else seconds(duration)
    substitute = _substitute(source, settings, speed, duration_s, once=steps == 1)
    serves_by_default = port is not None or public or not (steps == 1 or substitute)
    goes = mode_of(settings, apply=apply, asked=mode is not None)
    check_alone(settings, goes, sole=sole or substitute is not None)
    drive(
        ShadowRun(
            settings,
            goes,
            substitute,
            journal,
            steps,
            duration_s,
            as_json=as_json,
            serve=serves_by_default if serve is None else serve,
        )
    )


def settings_of(
    config: str,
    mode: str | None = None,
    policies: str | None = None,
    port: int | None = None,
    *,
    public: bool = False,
) -> RunConfig:
    """Read a configuration with what the command line changes, and check it as a whole.

    Returns:
        The checked configuration; options that were not given leave the file's values.
    """
    from dsp_gym.config.files import find, parse, read_yaml
    from dsp_gym.control.config import RunConfig
    from dsp_gym.control.fleet_folder import shadow_file

    file = shadow_file(Path(config)) if Path(config).is_dir() else find("shadow", config)
    data = read_yaml(file)
    if isinstance(data, dict):
        if policies:
            data = {k: v for k, v in data.items() if k not in ("policy", "policies", "acting")}
            data["policies"] = [name.strip() for name in policies.split(",") if name.strip()]
        if mode is not None:
            data = {k: v for k, v in data.items() if k != "canary" or mode == "canary"}
            data["mode"] = mode
        served = {} if port is None else {"port": port, "probe_port": None}
        served |= {"public": True} if public else {}
        if served and isinstance(data.get("serve", {}), dict):
            data = {**data, "serve": {**data.get("serve", {}), **served}}
    return parse(RunConfig, data, file)


def _substitute(
    source: str | None,
    settings: RunConfig,
    speed: float | None,
    duration_s: float | None,
    *,
    once: bool,
) -> Substitute | None:
    """Find what stands in for the cluster; a single decision is made when its window is full."""
    from dsp_gym.control.backend_of import Substitute

    if source is None:
        if speed is not None:
            raise ConfigError(
                "--speed is for a recording or a simulated job",
                remedy="Name one after the configuration: a load, or a recording's folder.",
            )
        return None
    skip_s = settings.window.window_s + settings.window.stabilization_s if once else 0
    return Substitute.of(source, int(duration_s or 86_400) + skip_s, speed, skip_s)
