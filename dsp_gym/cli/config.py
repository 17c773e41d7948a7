"""`dsp-gym config check` and `dsp-gym config schema`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dsp_gym.cli.options import JsonOption
from dsp_gym.cli.output import print_json


def register(app: typer.Typer) -> None:
    """Add the command group."""
    group = typer.Typer(
        help="Check configuration files; print their JSON Schema.", no_args_is_help=True
    )
    group.command(
        epilog="Examples:\n\n"
        "  dsp-gym config check nexmark-q11 --kind jobs\n\n"
        "  dsp-gym config check my-job.yaml --kind jobs --json"
    )(check)
    group.command(
        epilog="Example, for completion in an editor:\n\n"
        "  dsp-gym config schema jobs > job.schema.json"
    )(schema)
    app.add_typer(group, name="config")


def check(
    files: Annotated[
        list[str], typer.Argument(metavar="FILE...", help="Files, or names of shipped ones.")
    ],
    kind: Annotated[
        str | None,
        typer.Option(
            help="Their kind; default: as a comment '# kind: KIND' at the top says, else as their "
            "folder is named."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Check configuration files, and recorded loads they name; exit code 2 when one is wrong."""
    from dsp_gym.config.files import find, load
    from dsp_gym.config.kinds import kind_of
    from dsp_gym.errors import DspGymError
    from dsp_gym.loads.check import check_traces

    results: list[dict[str, object]] = []
    for file in files:
        found = kind
        try:
            found = kind or kind_of(Path(file))
            # A load file is read where a run reads it: its paths start in the current directory.
            base_dir = None if found == "loads" else find(found, file).parent
            check_traces(load(found, file), base_dir)
            results.append({"file": file, "kind": found, "ok": True, "error": None})
        except DspGymError as error:
            message = f"{type(error).__name__}: {error}"
            results.append({"file": file, "kind": found, "ok": False, "error": message})
    if as_json:
        print_json(results)
    else:
        for result in results:
            if result["ok"]:
                typer.echo(f"{result['file']}: fine, kind '{result['kind']}'")
            else:
                typer.echo(result["error"], err=True)
    if not all(result["ok"] for result in results):
        raise typer.Exit(2)


def schema(
    kind: Annotated[str, typer.Argument(help="A folder of configs/, such as jobs or loads.")],
) -> None:
    """Print the JSON Schema of one kind of configuration, for editors."""
    from dsp_gym.config.kinds import model_of

    document = model_of(kind).model_json_schema()
    print_json({"$schema": "https://json-schema.org/draft/2020-12/schema", **document})
