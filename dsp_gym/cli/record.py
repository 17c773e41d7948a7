"""`dsp-gym record`: runs of a real job, in many configurations, kept as a recording."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dsp_gym.cli.inspect import show_recording
from dsp_gym.cli.options import JsonOption, shipped
from dsp_gym.cli.output import counted, print_json, print_table

if TYPE_CHECKING:
    from dsp_gym.backends.flink.recording.plan import RecordConfig
    from dsp_gym.job.spec import JobSpec

EXAMPLES = """
Examples:

  dsp-gym record flink-q1 --plan                   the runs, and how long they take

  dsp-gym record flink-q1                          writes recordings/flink-q1

  dsp-gym record my-plan.yaml --out recordings/mine --home /tmp/cluster

After an interruption the same command continues with the missing runs.
"""


def record(
    config: Annotated[
        str,
        typer.Argument(
            metavar="CONFIG",
            help="A shipped plan, or a YAML file.",
            autocompletion=shipped("recordings"),
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="The recording. Default: recordings/NAME."),
    ] = None,
    home: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="The cluster's folder. A cluster that runs there is used, else one is started "
            "and ended. Default: $XDG_STATE_HOME/dsp-gym/flink.",
        ),
    ] = None,
    plan: Annotated[bool, typer.Option("--plan", help="Show the runs and start nothing.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Record runs of a real Flink job for calibration and replay."""
    from dsp_gym.backends.flink.recording.plan import RecordConfig
    from dsp_gym.config import files
    from dsp_gym.job.catalog import load_job

    chosen = files.load_model(RecordConfig, "recordings", config)
    if plan:
        _show_plan(chosen, load_job(chosen.job), as_json)
        return
    folder = out or Path("recordings") / Path(config).stem
    _record(chosen, folder, home)
    from dsp_gym.records.recording import Recording

    show_recording(Recording.open(folder), as_json)


def _record(config: RecordConfig, out: Path, home: Path | None) -> None:
    from rich.progress import BarColumn, TextColumn

    from dsp_gym.backends.flink.recording import recorder
    from dsp_gym.backends.flink.recording.record import record as fill
    from dsp_gym.cli.progress import bar

    columns = (
        TextColumn("{task.fields[runs]}"),
        BarColumn(),
        TextColumn("{task.fields[left]} left"),
        TextColumn("{task.description}"),
    )
    with bar(*columns, transient=False) as shown:
        task = shown.add_task("", total=1.0, runs="", left="")

        def tell(now: recorder.Progress) -> None:
            shown.update(
                task,
                completed=now.done_s,
                total=now.done_s + now.left_s,
                description=f"{now.run or config.job}: {now.what}",
                runs=f"{now.runs_done}/{now.runs} runs",
                left=_duration(now.left_s),
            )

        fill(config, out, home=home, tell=tell)


def _show_plan(config: RecordConfig, spec: JobSpec, as_json: bool) -> None:
    from dsp_gym.backends.flink.recording.plan import planned, summary
    from dsp_gym.backends.flink.recording.recorder import STOP_S, run_seconds

    runs = planned(config, spec)
    rows = [summary(run) for run in runs]
    total_s = run_seconds(config) * len(runs)
    if config.populate is not None:
        total_s += config.lead_s + config.populate.seconds + STOP_S
    if as_json:
        print_json({"job": spec.job, "runs": rows, "seconds": total_s})
        return
    columns = ["run", "configuration", "load", "rate_per_s"]
    print_table(columns, [[row[c] for c in columns] for row in rows], right=["rate_per_s"])
    typer.echo(f"\n{counted(len(runs), 'run')}, about {_duration(total_s)}.")


def _duration(seconds: float) -> str:
    """Write whole minutes and seconds.

    >>> _duration(75.4)
    '1 min 15 s'
    """
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
