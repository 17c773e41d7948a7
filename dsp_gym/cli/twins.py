"""`dsp-gym twins`: every policy drives a twin of the watched job."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dsp_gym.cli.output import print_table

if TYPE_CHECKING:
    from dsp_gym.errors import DspGymError

__all__ = ["register"]

_EXAMPLES = """
Examples:

  dsp-gym twins flink-q11-day                    a journal that ships: to its end

  dsp-gym twins runs/live/orders --json

  dsp-gym twins runs/live --every 15             beside `dsp-gym shadow`, until Ctrl-C
"""
_INTERRUPTED = 130
_PERIODS = {"start": "since the start", "today": "today"}


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command(epilog=_EXAMPLES)(twins)


def twins(
    journal: Annotated[
        Path,
        typer.Argument(
            help="Folder of a journal that `dsp-gym shadow` or `run` writes, folder of the "
            "journals of several jobs, or a shipped name."
        ),
    ],
    every: Annotated[
        float | None,
        typer.Option(
            min=1,
            metavar="S",
            help="Follow the journals: read them every S seconds and write twins.json beside "
            "each. Default: once, to the end of the journals.",
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(min=2, max=1024, help="Twins per policy.")] = 16,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one line of JSON per job instead of tables.")
    ] = False,
) -> None:
    """Simulate every policy in charge of a twin of the watched job, under the observed load.

    A twin has its own rescales, backlog and guardrails, and so shows a policy's consequences before
    it acts. A twin with the deployed configurations gives the model's error; if that is too large,
    the command shows no figures. It only reads the journal.
    """
    if every is None:
        _once(journal, seeds, as_json=as_json)
    else:
        _follow(journal, seeds, every, as_json=as_json)


def _once(journal: Path, seeds: int, *, as_json: bool) -> None:
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn

    from dsp_gym.cli.progress import bar
    from dsp_gym.records.journal import no_journal
    from dsp_gym.whatif.follow import JournalTwins, journals_in

    folders = journals_in(journal)
    if not folders:
        raise no_journal(journal)
    for folder in folders:
        one = JournalTwins(folder, seeds)
        columns = (TextColumn("{task.description:<24}"), BarColumn(), TimeRemainingColumn())
        with bar(*columns) as shown:
            task = shown.add_task(folder.name, total=None)
            one.look(final=True)
            while one.is_behind:
                shown.update(task, completed=one.twins.intervals, total=one.intervals)
                one.look(final=True)
        document = one.twins.document()
        if as_json:
            typer.echo(json.dumps(document, allow_nan=False))
        else:
            _print(document)


def _follow(journal: Path, seeds: int, every: float, *, as_json: bool) -> None:
    from dsp_gym.cli.turns import stopping
    from dsp_gym.whatif.follow import Following

    os.nice(10)  # the loop that writes the journal comes first
    following, stop = Following(journal, seeds), threading.Event()
    said: dict[str, str] = {}
    with stopping(stop) as interrupted:
        while not stop.is_set():
            for name, found in following.look():
                if isinstance(found, dict):
                    said.pop(name, None)
                    typer.echo(json.dumps(found, allow_nan=False) if as_json else _line(found))
                else:
                    _tell(name, found, said)
                if stop.is_set():
                    break
            if not following.is_behind:
                stop.wait(every)
        if interrupted():
            raise typer.Exit(_INTERRUPTED)


def _tell(name: str, error: DspGymError, said: dict[str, str]) -> None:
    """Say what is wrong with a journal, once."""
    if said.get(name) != str(error):
        said[name] = str(error)
        typer.echo(f"{name}: {error}", err=True)


def _line(document: dict[str, Any]) -> str:
    """How the twins of one job fare."""
    from dsp_gym.pages import money

    start = document["periods"].get("start")
    if start is None:
        return f"{document['job']}: no stretch of ten decisions with known outcomes yet"
    if start["distrust"]:
        return f"{document['job']}: {'; '.join(start['distrust'])}"
    told = [
        f"{name} saved {money(one['saved'], document['currency'])}, late {one['later_s']:+.0f} s"
        for name, one in start["policies"].items()
        if name != "incumbent"
    ]
    return f"{document['job']}: {document['intervals']} intervals; {'; '.join(told)}"


def _print(document: dict[str, Any]) -> None:
    from dsp_gym.pages import money

    currency = document["currency"]
    if not document["periods"]:
        typer.echo(_line(document))
    for key, period in document["periods"].items():
        columns = ("policy", "cost", "saved", "late, s", "later, s", "rescales")
        rows = [
            (
                name,
                money(one["cost"], currency),
                money(one["saved"], currency),
                f"{one['late_s']:.0f}",
                f"{one['later_s']:+.0f}",
                f"{one['rescales']:.1f}",
            )
            for name, one in period["policies"].items()
        ]
        title = f"{document['job']}: {_PERIODS[key]}, {period['seconds'] / 3600:.1f} h"
        print_table(columns, rows, title=title, right=columns[1:])
        seen, error = period["observed"], period["error"]
        typer.echo(
            f"observed: {money(seen['cost'], currency)}, late {seen['late_s']:.0f} s, "
            f"{seen['rescales']:.0f} rescales"
        )
        for name, unit in (
            ("cost_per_h", f" {currency}/h"),
            ("slo_share", " late"),
            ("lag_s", " s lag"),
        ):
            said, was = ("–" if v is None else f"{v:.4g}{unit}" for v in error[name])
            typer.echo(f"the model of the incumbent: {said}, observed {was}")
        for text in period["distrust"]:
            typer.echo(f"no figures: {text}")
        typer.echo()
    for name, text in document["failures"].items():
        typer.echo(f"{name} has no twin: {text}", err=True)
