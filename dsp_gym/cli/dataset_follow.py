"""`dsp-gym dataset follow`: a dataset that grows as files arrive."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from dsp_gym.cli.completion import shipped
from dsp_gym.cli.options import JsonOption
from dsp_gym.cli.output import plain

__all__ = ["register_follow"]

_EXAMPLES = """
Examples:

  dsp-gym dataset follow history.yaml                    files that have arrived, then end

  dsp-gym dataset follow history.yaml --every 60         once a minute, until Ctrl-C

  dsp-gym dataset follow history.yaml --every 60 --late 3600
"""
_INTERRUPTED = 130


def register_follow(group: typer.Typer) -> None:
    """Adds the command to the group `dataset`."""
    group.command(epilog=_EXAMPLES)(follow)


def follow(
    config: Annotated[
        str,
        typer.Argument(
            help="A shipped dataset, or the path of a YAML file; the command follows its archives, "
            "journals and recordings.",
            autocompletion=shipped("datasets"),
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder. Default: runs/datasets/NAME.")
    ] = None,
    every: Annotated[
        float | None,
        typer.Option(min=1, metavar="S", help="Look for files every S seconds. Default: once."),
    ] = None,
    late: Annotated[
        float,
        typer.Option(
            min=0,
            metavar="S",
            help="Close a day when the newest row is that many seconds past its end; files that "
            "arrive for a closed day are counted and set aside until the next plain build.",
        ),
    ] = 2 * 86_400.0,
    master: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Spark's master, such as spark://host:7077. Default: this machine's cores.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Update a dataset whenever files arrive.

    Every file is taken once, however often the command is stopped, and the dataset is the one that
    a build of all files makes. Files must arrive whole: written under a name that begins with a
    dot, then renamed. With --json, one line per look.
    """
    import importlib
    import json

    from dsp_gym.config.files import find, load_model
    from dsp_gym.errors import MissingExtraError

    try:
        importlib.import_module("pyspark")
    except ModuleNotFoundError:
        raise MissingExtraError("spark", "following a dataset") from None
    # By name: the library stands below the pipelines.
    streaming: Any = importlib.import_module("spark_pipelines.streaming")
    model: Any = importlib.import_module("spark_pipelines.config").DatasetConfig
    wanted = load_model(model, "datasets", find("datasets", config))
    folder = out or Path("runs/datasets") / wanted.name
    try:
        for seen in streaming.follow(wanted, folder, every_s=every, late_s=late, master=master):
            look = _look(seen, folder)
            typer.echo(json.dumps(plain(look), allow_nan=False) if as_json else _line(look))
    except KeyboardInterrupt:
        typer.echo("Stopped; the same command continues with files that arrive later.", err=True)
        raise typer.Exit(_INTERRUPTED) from None


def _look(seen: Any, folder: Path) -> dict[str, object]:
    built = seen.built
    return {
        "folder": folder,
        "arrived": seen.arrived,
        "late": seen.late,
        "refused": seen.refused,
        "published": built is not None and built.is_new,
        "revision": None if built is None else built.manifest.revision,
        "partitions": 0 if built is None else built.made,
    }


def _line(look: dict[str, object]) -> str:
    """One look in words."""
    made = (
        f"revision {look['revision']}, {look['partitions']} partitions made"
        if look["published"]
        else "nothing new"
    )
    aside = "".join(f", {look[name]} {name}" for name in ("late", "refused") if look[name])
    return f"{look['arrived']} files: {made}{aside}"
