"""`dsp-gym rollout`: episodes of policies on simulated jobs, kept row by row."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dsp_gym.cli.completion import shipped
from dsp_gym.cli.engines import ENGINE_OPTION, MASTER_OPTION, SETTING_OPTION, spark_engine
from dsp_gym.cli.output import JSON_OPTION, counted, print_json, print_table

if TYPE_CHECKING:
    from dsp_gym.datasets.rollouts.format import RolloutManifest
    from dsp_gym.datasets.rollouts.run import OnCell

__all__ = ["register"]

_EXAMPLES = """
Examples:

  dsp-gym rollout q11-small                                     into runs/rollouts/q11-small

  dsp-gym rollout my-rollouts.yaml --seeds 2 --out /tmp/try

  dsp-gym rollout my-rollouts.yaml --engine spark --master spark://host:7077
"""


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command(epilog=_EXAMPLES)(rollout)


def rollout(
    config: Annotated[
        str,
        typer.Argument(
            help="Shipped rollouts, or the path of a YAML file.", autocompletion=shipped("rollouts")
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder. Default: runs/rollouts/NAME.")
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Seeds per load; the config's if not given.")
    ] = None,
    engine: Annotated[str, ENGINE_OPTION] = "local",
    master: Annotated[str | None, MASTER_OPTION] = None,
    setting: Annotated[list[str] | None, SETTING_OPTION] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the output of another configuration.")
    ] = False,
    as_json: Annotated[bool, JSON_OPTION] = False,
) -> None:
    """Run policies on simulated jobs and keep every decision with its outcome.

    Writes one Parquet file per episode: jobs × loads × seeds × policies. After an interruption
    the same command continues. The files are the same on every engine.
    """
    from dsp_gym.config.files import find, load_model
    from dsp_gym.datasets.rollouts.config import RolloutConfig
    from dsp_gym.datasets.rollouts.run import rollout as run

    file = find("rollouts", config)
    wanted = load_model(RolloutConfig, "rollouts", file)
    if seeds is not None:
        wanted = wanted.model_copy(update={"seeds": seeds})
    folder = out or Path("runs/rollouts") / file.stem
    with spark_engine(engine, "dsp-gym rollout", master, setting) as spark, _progress() as observer:
        more: dict[str, Any] = {} if spark is None else {"engine": spark.rollouts()}
        manifest = run(wanted, folder, observer=observer, overwrite=overwrite, **more)
    summary = _summary(manifest)
    if as_json:
        print_json({"folder": folder, "cells": len(manifest.cells), "policies": summary})
        return
    columns = tuple(summary[0])
    print_table(columns, [tuple(row.values()) for row in summary], right=columns[2:])
    typer.echo(f"\n{counted(len(manifest.cells), 'episode')} in {folder}")


def _summary(manifest: RolloutManifest) -> list[dict[str, str | int]]:
    """Per policy and job: episodes, decisions, and episodes that ended early."""
    found: dict[tuple[str, str], dict[str, str | int]] = {}
    for cell in manifest.cells:
        row = found.setdefault(
            (cell.policy, cell.job),
            {"policy": cell.policy, "job": cell.job, "episodes": 0, "decisions": 0, "gave up": 0},
        )
        row["episodes"] = int(row["episodes"]) + 1
        row["decisions"] = int(row["decisions"]) + cell.rows - 1
        row["gave up"] = int(row["gave up"]) + (cell.end == "terminated")
    return list(found.values())


@contextmanager
def _progress() -> Iterator[OnCell]:
    """A progress bar on stderr over the cells; none without a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description:<24}"),
        BarColumn(),
        TextColumn("{task.completed:.0f} of {task.total:.0f} episodes"),
        TimeRemainingColumn(),
    )
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task("", total=None)

        def observe(label: str, done: float, total: int) -> None:
            bar.update(task, description=label, completed=done, total=total)

        yield observe
