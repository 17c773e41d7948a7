"""`dsp-gym journal`: whether a journal is sound, and what it leaves open."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dsp_gym.cli.output import counted

if TYPE_CHECKING:
    from dsp_gym.records.repair import JournalReport

__all__ = ["register"]

_Journal = Annotated[
    Path,
    typer.Argument(metavar="FILE", help="Folder of a job's journal, or one of its segments."),
]


def register(app: typer.Typer) -> None:
    """Adds the group of commands."""
    group = typer.Typer(no_args_is_help=True, help="Check and repair journals of `dsp-gym shadow`.")
    group.command(
        epilog="Examples:\n\n"
        "  dsp-gym shadow flink-q11-day flink-q11-day     writes a journal\n\n"
        "  dsp-gym journal check runs/live/flink-q11"
    )(check)
    group.command(epilog="Examples:\n\n  dsp-gym journal repair runs/live/orders")(repair)
    app.add_typer(group, name="journal")


def check(journal: _Journal) -> None:
    """Find damage, an unfinished rescale and leftover files; exit code 2 when damaged.

    Nothing is written; a journal may be checked while it is being written.
    """
    from dsp_gym.cli.errors import USER_ERROR
    from dsp_gym.records.repair import check as checked

    found = checked(journal)
    _print(journal, found)
    _print_open(journal.parent if journal.is_file() else journal)
    if not found.is_sound:
        if found.damages:
            typer.echo(f"Repair it: dsp-gym journal repair {journal}")
        raise typer.Exit(USER_ERROR)


def repair(journal: _Journal) -> None:
    """Restore damaged lines; exit code 2 when a segment is missing and cannot be restored.

    A line with one flipped bit is restored by its checksum. Any other damaged line is replaced by
    an entry of the same number that says so, and a torn last line is cut off. The segment as it was
    stays beside the new one as NAME.damaged. No loop may be writing the journal.
    """
    from dsp_gym.cli.errors import USER_ERROR
    from dsp_gym.records.repair import repair as repaired

    found = repaired(journal)
    _print(journal, found)
    lost = sum(damage.lost for damage in found.damages)
    restored = sum(len(damage.restored) for damage in found.damages)
    typer.echo(f"{restored} entries restored, {lost} replaced, {found.torn_bytes} bytes cut off.")
    if found.gaps:
        raise typer.Exit(USER_ERROR)


def _print(journal: Path, found: JournalReport) -> None:
    span = ""
    if found.begins_s is not None and found.ends_s is not None:
        span = f", {_time(found.begins_s)} to {_time(found.ends_s)}"
    entries, segments = counted(found.entries, "sound entry"), counted(found.segments, "segment")
    typer.echo(f"{journal}: {entries} in {segments}{span}")
    if not found.entries and not found.torn_bytes:
        typer.echo("  it is empty: no decision was written yet")
    for damage in found.damages:
        typer.echo(f"  {damage}")
    for gap in found.gaps:
        typer.echo(f"  {gap}")
    if found.torn_bytes:
        typer.echo(f"  the last line is torn: {found.torn_bytes} bytes, left out by every reader")


def _print_open(folder: Path) -> None:
    """What a restart would take up, and what takes up space."""
    from dsp_gym.config.temporary import left_in
    from dsp_gym.control.state_store import problem_of
    from dsp_gym.records.rescales import savepoints_left, unfinished

    left = unfinished(folder)
    if left is not None:
        where = f"its state is in {left.location}" if left.location else "no savepoint is recorded"
        typer.echo(
            f"  the rescale asked for at {_time(left.t_s)} has no end: {where}; "
            "`dsp-gym shadow --apply` finishes it when it starts"
        )
    if (problem := problem_of(folder)) is not None:
        typer.echo(f"  {problem}")
    locations = savepoints_left(folder)
    for location in locations[-1:]:
        typer.echo(f"  savepoint of the last rescale, kept: {location}")
    for location in locations[:-1]:
        typer.echo(f"  savepoint that nothing needs: {location}")
    for file in left_in(folder):
        typer.echo(f"  left by a write that was killed, to be removed by the next: {file}")


def _time(t_s: float) -> str:
    return datetime.fromtimestamp(t_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
