"""`dsp-gym inspect`: the content of a dataset, a recording or a journal, and its damage."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dsp_gym.cli.errors import USER_ERROR
from dsp_gym.cli.options import JsonOption
from dsp_gym.cli.output import counted, print_json, print_table
from dsp_gym.errors import ConfigError, DatasetError

if TYPE_CHECKING:
    from dsp_gym.datasets.manifest import DatasetManifest
    from dsp_gym.datasets.reader import Dataset
    from dsp_gym.records.recording import Recording
    from dsp_gym.records.repair import JournalReport

EXAMPLES = """
Examples:

  dsp-gym dataset build flink-q11-day

  dsp-gym inspect runs/datasets/flink-q11-day      tables, sources; compares every file

  dsp-gym inspect runs/live/orders                 damage, an unfinished rescale, savepoints

  dsp-gym inspect runs/live/orders --repair        restores damaged lines of a journal
"""


def inspect(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="PATH",
            help="Folder of a dataset, a recording or a job's journal, or a segment.",
        ),
    ],
    repair: Annotated[
        bool,
        typer.Option(
            "--repair",
            help="Journals: restore each damaged line by its checksum, replace those that cannot "
            "be restored, and cut off a torn last line. The old segment stays as NAME.damaged.",
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show what a folder holds, and find damage in it; exit code 2 when there is any.

    Without --repair nothing is written, so a journal may be inspected while it is being written.
    """
    from dsp_gym.datasets.delta import REVISIONS
    from dsp_gym.records.base import MANIFEST

    is_dataset = (path / REVISIONS).is_dir()
    is_recording = (path / MANIFEST).is_file()
    if repair and (is_dataset or is_recording):
        what = "a dataset" if is_dataset else "a recording"
        remedy = "Build it again: dsp-gym dataset build CONFIG --rebuild." if is_dataset else None
        raise ConfigError(f"repairs journals; '{path}' is {what}", key="--repair", remedy=remedy)
    if is_dataset:
        _inspect_dataset(path, as_json)
    elif is_recording:
        from dsp_gym.records.recording import Recording

        show_recording(Recording.open(path), as_json)
    elif repair:
        _repair_journal(path, as_json)
    else:
        _inspect_journal(path, as_json)


# -- datasets


def _inspect_dataset(folder: Path, as_json: bool) -> None:
    from dsp_gym.config.temporary import left_in
    from dsp_gym.datasets.reader import Dataset

    opened = Dataset.open(folder)
    problems = opened.problems()
    parts = [opened.parts(name) for name in opened.manifest.tables]
    files = sum(len(some) for by_partition in parts for some in by_partition.values())
    left = [file for part, _, _ in os.walk(opened.folder) for file in left_in(Path(part))]
    if as_json:
        manifest = opened.manifest.model_dump(mode="json", by_alias=True)
        checked = {"files": files, "problems": problems, "left": left}
        print_json({"folder": opened.folder, **manifest, **checked})
    else:
        _print_dataset(opened)
        typer.echo(f"files    {files}" + ("" if problems else ", all as in the manifest"))
        for file in left:
            typer.echo(f"  left by a write that was killed, to be removed by the next: {file}")
    if problems and as_json:
        raise typer.Exit(USER_ERROR)
    if problems:
        raise DatasetError(
            f"{len(problems)} of its partitions differ from the manifest: {'; '.join(problems)}",
            file=opened.folder,
            remedy="Build it again: dsp-gym dataset build CONFIG --rebuild.",
        )


def _print_dataset(opened: Dataset) -> None:
    from dsp_gym.datasets.delta import REPORTS

    manifest = opened.manifest
    typer.echo(f"{manifest.name}, revision {manifest.revision}, content {manifest.content_sha256}")
    names = tables_of(manifest)
    columns = ("job", "day", "revision", *names)
    rows = [
        (p.job, p.day, p.revision, *(p.tables[n].rows if n in p.tables else None for n in names))
        for p in manifest.partitions
    ]
    print_table(columns, rows, right=columns[2:])
    sources = [
        (s.name, s.kind, s.path, s.clock, len(s.pieces), sum(max(0, p.rows) for p in s.pieces))
        for s in manifest.sources
    ]
    columns = ("source", "kind", "path", "clock", "pieces", "rows")
    typer.echo()
    print_table(columns, sources, right=columns[4:])
    print_accounting(manifest.accounting)
    typer.echo(f"\nreport   {opened.home.at(REPORTS, str(manifest.revision), 'quality.html')}")


def tables_of(manifest: DatasetManifest) -> list[str]:
    """List the tables of a dataset.

    Args:
        manifest: Its manifest.

    Returns:
        Names, sorted.
    """
    return sorted({name for p in manifest.partitions for name in p.tables})


def print_accounting(accounting: Mapping[str, int]) -> None:
    """Print what became of the rows of a dataset's sources.

    Args:
        accounting: Rows by outcome.
    """
    if accounting:
        typer.echo()
        print_table(("outcome", "rows"), list(accounting.items()), right=("rows",))


# -- recordings


def show_recording(recording: Recording, as_json: bool) -> None:
    """Print the runs of a recording, with the rate that each of them took.

    Args:
        recording: The recording.
        as_json: Print JSON instead of a table.
    """
    from dsp_gym.records.recording import recorded_rate

    rows = [
        {
            "run": run.name,
            "configuration": str(run.configuration),
            "offered_per_s": run.load.steps[-1][1],
            "taken_per_s": recorded_rate(run) if run.complete else None,
            "status": "complete" if run.complete else "aborted",
        }
        for run in recording.runs
    ]
    notes = recording.notes()
    if as_json:
        print_json({"folder": recording.folder, "runs": rows, "notes": notes})
        return
    print_table(
        ["run", "configuration", "offered/s", "taken/s", "status"],
        [
            [f"{cell:,.0f}" if isinstance(cell, float) else cell for cell in row.values()]
            for row in rows
        ],
        right=["offered/s", "taken/s"],
    )
    for note in notes:
        typer.echo(note)
    typer.echo(f"Recording: {recording.folder}")


# -- journals


def _inspect_journal(path: Path, as_json: bool) -> None:
    from dsp_gym.records.repair import check

    found = check(path)
    notes = _left_open(path.parent if path.is_file() else path)
    if as_json:
        print_json({"journal": path, "is_sound": found.is_sound, "found": found, "notes": notes})
    else:
        _print_journal(path, found)
        for note in notes:
            typer.echo(f"  {note}")
    if found.damages:
        typer.echo(f"Repair it: dsp-gym inspect {shlex.quote(str(path))} --repair", err=as_json)
    if not found.is_sound:
        raise typer.Exit(USER_ERROR)


def _repair_journal(path: Path, as_json: bool) -> None:
    from dsp_gym.records.repair import repair

    found = repair(path)
    lost = sum(damage.lost for damage in found.damages)
    restored = sum(len(damage.restored) for damage in found.damages)
    if as_json:
        print_json({"journal": path, "restored": restored, "replaced": lost, "found": found})
    else:
        _print_journal(path, found)
        typer.echo(
            f"{restored} entries restored, {lost} replaced, {found.torn_bytes} bytes cut off."
        )
    if found.gaps:
        raise typer.Exit(USER_ERROR)


def _print_journal(journal: Path, found: JournalReport) -> None:
    span = ""
    if found.begins_s is not None and found.ends_s is not None:
        span = f", {_time(found.begins_s)} to {_time(found.ends_s)}"
    entries, segments = counted(found.entries, "sound entry"), counted(found.segments, "segment")
    typer.echo(f"{journal}: {entries} in {segments}{span}")
    if not found.entries and not found.torn_bytes:
        typer.echo("  it is empty: no decision was written yet")
    for damage in (*found.damages, *found.gaps):
        typer.echo(f"  {damage}")
    if found.torn_bytes:
        typer.echo(f"  the last line is torn: {found.torn_bytes} bytes, left out by every reader")


def _left_open(folder: Path) -> list[str]:
    """List what a restart would take up, and what takes up space."""
    from dsp_gym.config.temporary import left_in
    from dsp_gym.control.state_store import problem_of
    from dsp_gym.records.rescales import savepoints_left, unfinished

    notes = []
    if (left := unfinished(folder)) is not None:
        where = f"its state is in {left.location}" if left.location else "no savepoint is recorded"
        notes.append(
            f"the rescale asked for at {_time(left.t_s)} has no end: {where}; "
            "`dsp-gym shadow --apply` finishes it when it starts"
        )
    if (problem := problem_of(folder)) is not None:
        notes.append(problem)
    locations = savepoints_left(folder)
    notes += [f"savepoint of the last rescale, kept: {location}" for location in locations[-1:]]
    notes += [f"savepoint that nothing needs: {location}" for location in locations[:-1]]
    notes += [
        f"left by a write that was killed, to be removed by the next: {file}"
        for file in left_in(folder)
    ]
    return notes


def _time(t_s: float) -> str:
    return datetime.fromtimestamp(t_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
