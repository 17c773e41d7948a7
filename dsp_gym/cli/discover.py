"""`dsp-gym discover`: job files for the jobs that run somewhere."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dsp_gym.cli.output import JSON_OPTION, counted, plain, print_json, print_table
from dsp_gym.errors import ConfigError

if TYPE_CHECKING:
    from dsp_gym.backends.discovery.document import Choices
    from dsp_gym.backends.discovery.found import FoundJob
    from dsp_gym.backends.discovery.writing import Discovered

__all__ = ["register"]

_EXAMPLES = """
Examples:

  dsp-gym discover --flink http://127.0.0.1:8081                      every running job, into jobs/

  dsp-gym discover --flink http://127.0.0.1:8081 --job words --out my-jobs --slo-latency-s 5
"""
_SOURCES = "Name Flink's REST interface: --flink URL; see dsp-gym discover --help."


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command(epilog=_EXAMPLES)(discover)


def discover(
    flink: Annotated[
        str | None, typer.Option(metavar="URL", help="Flink's REST interface.")
    ] = None,
    job: Annotated[
        list[str] | None,
        typer.Option(help="Name of a job in Flink; repeat it for several. Default: all that run."),
    ] = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder of the job files.")] = Path(
        "jobs"
    ),
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace job files that exist.")
    ] = False,
    slo_latency_s: Annotated[
        float, typer.Option(min=0.001, help="Bound on p95 end-to-end latency, s.")
    ] = 2.0,
    core_hour: Annotated[float, typer.Option(min=0, help="Price of a core for an hour.")] = 0.04048,
    gib_hour: Annotated[float, typer.Option(min=0, help="Price of a GiB for an hour.")] = 0.004445,
    max_parallelism: Annotated[
        int | None,
        typer.Option(
            min=1, max=2048, help="Most tasks of a vertex. Default: the slots of the cluster."
        ),
    ] = None,
    as_json: Annotated[bool, JSON_OPTION] = False,
) -> None:
    """Write a job file for every running job, from what Flink says of it.

    Nothing is changed there. What could not be found stands in the file as a comment, with where to
    look. Exit code 1: some jobs got no file.
    """
    from dsp_gym.backends.discovery.document import Choices

    _check(out, flink)
    choices = Choices(slo_latency_s, core_hour, gib_hour, max_parallelism)
    assert flink is not None  # `_check` has seen to it
    _write(_by_rest(flink, job or []), choices, out, overwrite=overwrite, as_json=as_json)


def _check(out: Path, flink: str | None) -> None:
    if flink is None:
        raise ConfigError("nothing says where the jobs run", remedy=_SOURCES)
    if not flink.startswith(("http://", "https://")):
        raise ConfigError(
            "a URL begins with http:// or https://",
            key="--flink",
            value=flink,
            remedy="Write it out: http://127.0.0.1:8081",
        )
    if out.exists() and not out.is_dir():
        raise ConfigError(
            "is a file, not a folder", key="--out", value=str(out), remedy="Name a folder."
        )


def _by_rest(url: str, names: list[str]) -> list[FoundJob]:
    from dsp_gym.backends.discovery.flink import found_by_rest, running_jobs
    from dsp_gym.backends.flink.rest import FlinkRest
    from dsp_gym.cli.progress import bar

    rest = FlinkRest(url)
    jobs = running_jobs(rest, names)
    with bar() as shown:
        task = shown.add_task("jobs", total=len(jobs))
        found = []
        for one in jobs:
            found.append(found_by_rest(rest, one.id))
            shown.advance(task)
    return found


def _write(
    jobs: list[FoundJob], choices: Choices, out: Path, *, overwrite: bool, as_json: bool
) -> None:
    import time

    from dsp_gym.backends.discovery.writing import described, write_all

    made = described(jobs, choices, time.time())
    paths = write_all(made.files, out, overwrite=overwrite)
    if as_json:
        print_json(_document(made, paths))
    else:
        _tell(made, paths)
    if not made.files:
        raise made.refused[0]
    if made.refused:
        raise typer.Exit(1)


def _document(made: Discovered, paths: list[Path]) -> dict[str, object]:
    return {
        "schema": "dsp-gym/discovery/1",
        "jobs": [
            {
                "file": str(path),
                "job": one.spec.job,
                "flink_name": one.found.name,
                "job_id": one.found.job_id,
                "vertices": [vertex.name for vertex in one.spec.vertices],
                "not_found": [plain(note) for note in one.notes],
            }
            for path, one in zip(paths, made.files, strict=True)
        ],
        "refused": [str(error) for error in made.refused],
        "remarks": list(made.remarks),
    }


def _tell(made: Discovered, paths: list[Path]) -> None:
    from dsp_gym.backends.flink.submissions import shown

    if paths:
        print_table(
            ["file", "job in Flink", "vertices", "to look at"],
            [
                [str(path), shown(one.found.name), len(one.spec.vertices), len(one.notes)]
                for path, one in zip(paths, made.files, strict=True)
            ],
            right=["vertices", "to look at"],
        )
        some = shlex.quote(str(paths[0]))
        typer.echo(f"{counted(len(paths), 'job file')} written. Next: dsp-gym simulate {some}")
    for remark in made.remarks:
        typer.echo(f"note: {remark}")
    for error in made.refused if made.files else ():
        typer.echo(f"no file: {error}", err=True)
