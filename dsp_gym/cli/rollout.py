"""`dsp-gym rollout`: episodes of policies on simulated jobs, kept row by row."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dsp_gym.cli.engines import (
    cells_bar,
    open_engine,
)
from dsp_gym.cli.options import JsonOption, MasterOption, WorkersOption, shipped
from dsp_gym.cli.output import counted, print_json, print_table

if TYPE_CHECKING:
    from dsp_gym.datasets.rollouts.format import RolloutManifest

EXAMPLES = """
Examples:

  dsp-gym rollout q11-small                                     into runs/rollouts/q11-small

  dsp-gym rollout q11-small --seeds 2 --out runs/try

  dsp-gym rollout nexmark --workers 4                  four processes here

  dsp-gym rollout nexmark --master spark://host:7077
"""


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
        int | None, typer.Option(min=1, help="Seeds per load. Default: the config's.")
    ] = None,
    master: MasterOption = None,
    workers: WorkersOption = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the output of another configuration.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Run policies on simulated jobs and store every decision with its outcome.

    Writes one Parquet file per episode: jobs × loads × seeds × policies. After an interruption
    the same command continues. The files are the same on every engine.
    """
    from dsp_gym.config.files import find, load_model
    from dsp_gym.datasets.rollouts.plan import RolloutConfig, decisions_of
    from dsp_gym.datasets.rollouts.run import rollout as run

    file = find("rollouts", config)
    wanted = load_model(RolloutConfig, "rollouts", file)
    if seeds is not None:
        wanted = wanted.model_copy(update={"seeds": seeds})
    folder = out or Path("runs/rollouts") / file.stem
    with (
        open_engine("dsp-gym rollout", master, workers, decisions_of(wanted)) as opened,
        cells_bar("episodes") as observer,
    ):
        manifest = run(wanted, folder, engine=opened, observer=observer, overwrite=overwrite)
    summary = _summary(manifest)
    if as_json:
        print_json({"folder": folder, "cells": len(manifest.cells), "policies": summary})
        return
    columns = tuple(summary[0])
    print_table(columns, [tuple(row.values()) for row in summary], right=columns[2:])
    typer.echo(f"\n{counted(len(manifest.cells), 'episode')} in {folder}")


def _summary(manifest: RolloutManifest) -> list[dict[str, str | int]]:
    """Count episodes, decisions and episodes that ended early, by policy and job."""
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
