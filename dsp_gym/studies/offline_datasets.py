"""Simulate and write the offline datasets of Nexmark Q11, with reference scores.

    python -m dsp_gym.studies.offline_datasets --sizes small
    MINARI_DATASETS_PATH=runs/minari minari list local

A third each of the episodes are random, DS2's and those of `learned-q11`. The same release writes
the same content on every machine of one kind; the digest tells. Their licence is Apache-2.0.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dsp_gym.cli.options import listed
from dsp_gym.cli.output import print_json, print_table
from dsp_gym.datasets.published import LICENSE, publish
from dsp_gym.studies.runner import run


def main(
    out: Annotated[
        Path,
        typer.Option(metavar="DIR", help="Folder of Minari datasets, as MINARI_DATASETS_PATH."),
    ] = Path("runs/minari"),
    sizes: Annotated[
        str, typer.Option(metavar="A,B,C", help="Of small, medium, large.")
    ] = "small,medium,large",
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace Minari datasets of the same names.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Write them, and print what was written."""
    written = publish(out, tuple(listed(sizes)), replace_them=overwrite)
    if as_json:
        print_json(written)
        return
    rows = [(one.id, one.episodes, one.steps, one.content_sha256[:16]) for one in written]
    columns = ("dataset", "episodes", "steps", "content")
    print_table(columns, rows, right=columns[1:3])
    if written:
        scores = ", ".join(f"{name} {score:.4g}" for name, score in written[0].scores.items())
        typer.echo(f"\nmean return of an episode on the test loads: {scores}")
    typer.echo(f"licence {LICENSE}")
    typer.echo(f"read them with MINARI_DATASETS_PATH={out.absolute()}")


if __name__ == "__main__":
    run(main)
