"""Simulate and write the offline datasets of Nexmark Q11, with reference scores.

    python -m dsp_gym.studies.offline_datasets --sizes small
    MINARI_DATASETS_PATH=runs/minari minari list local

A third each of the episodes are random, DS2's and those of `learned-q11`. The same release writes
the same content on every machine of one kind; the digest tells. Their licence is Apache-2.0.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from dsp_gym.config.strict_json import plain
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
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of lines.")] = False,
) -> None:
    """Write them, and print what was written."""
    wanted = dict.fromkeys(one.strip() for one in sizes.split(",") if one.strip())
    written = publish(out, tuple(wanted), replace_them=overwrite)
    if as_json:
        typer.echo(json.dumps(plain(written), indent=2, allow_nan=False))
        return
    for one in written:
        about = f"{one.episodes:,} episodes, {one.steps:,} steps"
        typer.echo(f"{one.id}  {about}, content {one.content_sha256[:16]}")
    if written:
        scores = ", ".join(f"{name} {score:.4g}" for name, score in written[0].scores.items())
        typer.echo(f"\nmean return of an episode on the test loads: {scores}")
    typer.echo(f"licence {LICENSE}")
    typer.echo(f"read them with MINARI_DATASETS_PATH={out.absolute()}")


if __name__ == "__main__":
    run(main)
