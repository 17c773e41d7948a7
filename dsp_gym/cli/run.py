"""`dsp-gym run`: the control loop on a real job."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dsp_gym.cli.completion import shipped
from dsp_gym.cli.errors import INTERRUPTED
from dsp_gym.cli.output import plain

if TYPE_CHECKING:
    from dsp_gym.live.run import Turn

__all__ = ["register"]

_COLUMNS = f"{'time':8}  {'status':12}  {'rate/s':>9}  {'pending':>9}  {'p95, s':>7}  decision"


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
    from dsp_gym.cli.simulate import seconds
    from dsp_gym.config.files import load_model
    from dsp_gym.errors import ConfigError
    from dsp_gym.live.config import RunConfig
    from dsp_gym.live.start import journal_folder, started

    if steps is not None and duration is not None:
        raise ConfigError("--steps and --duration both end the run", remedy="Give one of them.")
    duration_s = None if duration is None else seconds(duration)
    settings = load_model(RunConfig, "shadow", config)
    if policy is not None:
        settings = settings.model_copy(update={"policy": policy})
    folder = journal or journal_folder(settings)
    counts = {"decisions": 0, "changes": 0, "held": 0}

    def show(turn: Turn) -> None:
        counts["decisions"] += 1
        counts["changes"] += turn.changes
        counts["held"] += turn.held is not None
        if not as_json:
            typer.echo(_line(turn))

    def report(turn: Turn) -> None:
        if as_json:
            typer.echo(json.dumps(plain(_document(turn)), allow_nan=False))

    def tell(event: str, body: dict[str, Any]) -> None:
        if not as_json and event != "not_asked":
            typer.echo(f"{_time(None)}  {_event(event, body)}")

    interrupted = False
    signal.signal(signal.SIGTERM, _interrupt)
    with started(
        settings, apply=apply, journal=folder, on_decision=show, on_turn=report, on_event=tell
    ) as live:
        if not as_json:
            what = "decisions are enacted" if apply else "a dry run, nothing is enacted (--apply)"
            typer.echo(f"{live.jobs.spec.job}: {what}; journal {folder}\n{_COLUMNS}")
        try:
            live.run(steps, duration_s)
        except KeyboardInterrupt:
            interrupted = True
            if not as_json:
                typer.echo("\nInterrupted: a rescale under way is finished first.", err=True)
    summary = {**counts, "applied": apply, "interrupted": interrupted, "journal": folder}
    if as_json:
        typer.echo(json.dumps(plain({"summary": summary}), allow_nan=False))
    else:
        typer.echo(
            f"{counts['decisions']} decisions, {counts['changes']} of them changes, "
            f"{counts['held']} held. The job runs on."
        )
    if interrupted:
        raise typer.Exit(INTERRUPTED)


def _interrupt(*_: object) -> None:
    """Makes of a service manager's SIGTERM what Ctrl-C is: an end that finishes a rescale first."""
    raise KeyboardInterrupt


def _document(turn: Turn) -> dict[str, Any]:
    """One decision for programs."""
    from dsp_gym.live.run import outcome_to_json
    from dsp_gym.loop.wire import decision_to_json

    decision = None
    if turn.snapshot is not None and turn.guarded is not None:
        decision = decision_to_json(turn.guarded, turn.snapshot.job(0))
    return {
        "number": turn.number,
        "t_s": turn.t_s,
        "status": None if turn.snapshot is None else turn.snapshot.job(0).status.name,
        "decision": decision,
        "changed": turn.changes,
        "enacted": turn.changes and turn.applied and turn.held is None,
        "held": turn.held,
        "outcome": None if turn.outcome is None else outcome_to_json(turn.outcome),
    }


def _line(turn: Turn) -> str:
    """One decision for people."""
    if turn.snapshot is None:
        return f"{_time(turn.t_s)}  {'UNKNOWN':12}  held: {turn.held}"
    job = turn.snapshot.job(0)
    sources = [v.name for v in turn.snapshot.topology.spec(0).vertices if v.kind == "source"]
    rate = _sum(job.vertex(name, "records_out_per_s") for name in sources)
    pending = _sum(job.vertex(name, "pending_records") for name in sources)
    latency = job.get("latency_p95_s")
    return (
        f"{_time(turn.t_s)}  {job.status.name:12}  {_number(rate, ',.0f'):>9}  "
        f"{_number(pending, ',.0f'):>9}  {_number(latency, '.3g'):>7}  {_decision(turn)}"
    )


def _decision(turn: Turn) -> str:
    """What would change, and why."""
    from dsp_gym.loop.configuration import Configuration

    if turn.guarded is None or turn.snapshot is None:
        return f"held: {turn.held}"
    topology = turn.snapshot.topology
    asked = Configuration.of_row(turn.guarded, topology)
    why = [turn.guarded.proposed.reasons[0]]
    why += [f"{i.guardrail}: {i.reason}" for i in turn.guarded.interventions]
    reasons = "; ".join(reason for reason in why if reason)
    if turn.held is not None:
        return f"held: {turn.held}"
    if not turn.changes:
        return f"keeps {asked}" + (f" ({reasons})" if reasons else "")
    verb = "changes" if turn.applied else "would change"
    runs = Configuration.of_row(turn.snapshot, topology)
    return f"{verb} {runs} -> {asked}" + (f" ({reasons})" if reasons else "")


def _event(event: str, body: dict[str, Any]) -> str:
    reason = body.get("reason")
    return f"  {event.replace('_', ' ')}" + (f": {reason}" if reason else "")


def _time(t_s: float | None) -> str:
    moment = datetime.now() if t_s is None else datetime.fromtimestamp(t_s)
    return moment.strftime("%H:%M:%S")


def _sum(values: Iterable[float | None]) -> float | None:
    """The sum; None where a part of it is unknown."""
    known = list(values)
    return None if None in known else sum(value or 0.0 for value in known)


def _number(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)
