"""Loops beside running jobs, as `dsp-gym shadow` drives them."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from dsp_gym.backends.base import Clock
from dsp_gym.cli.turns import Printer, stopping
from dsp_gym.control.backend_of import Substitute
from dsp_gym.control.config import RunConfig
from dsp_gym.control.modes import ACTING, WRITING, Mode
from dsp_gym.control.serve.fleet import fleet
from dsp_gym.control.serve.session import session
from dsp_gym.control.start import acting_name, journal_folder, policy_names, watches_several
from dsp_gym.errors import StorageError

if TYPE_CHECKING:
    from dsp_gym.control.serve.server import StatusServer

HELD = 3
"""Exit code of `--steps 1` if the decision was held."""


@dataclass(frozen=True, slots=True)
class ShadowRun:
    """Configuration, mode, end and output of one call of the command."""

    settings: RunConfig
    mode: Mode
    substitute: Substitute | None
    journal: Path | None  # folder; None: the configuration's
    steps: int | None  # None: for ever
    duration_s: float | None  # None: for ever
    as_json: bool = False
    serve: bool = False

    @property
    def once(self) -> bool:
        """Whether it makes a single decision, whose interval it does not wait for."""
        return self.steps == 1


def drive(run: ShadowRun) -> None:
    """Run the loop beside one job, or beside every job that a selector names, to its end.

    Raises:
        Exit: The run was interrupted (130), or its only decision was held (3).
        StorageError: The journal lacks entries.
    """
    settings, stop = run.settings, threading.Event()
    several = run.substitute is None and watches_several(settings)
    folder = run.journal or (settings.journal if several else journal_folder(settings))
    printer = Printer(as_json=run.as_json, at_once=run.once, names_jobs=several)
    with stopping(stop) as interrupted:
        (_drive_all if several else _drive)(run, folder, printer, stop)
        was_interrupted = interrupted()
    said = {
        "mode": run.mode,
        "acting": acting_name(settings),
        "applied": run.mode in WRITING,
        "interrupted": was_interrupted,
        "journal": folder,
    }
    ran_on = "The jobs keep running." if several else "The job keeps running."
    printer.end(printer.summary | said, ran_on)
    if printer.missing:
        _tell_missing(printer, folder, interrupted=was_interrupted)
    if was_interrupted:
        raise typer.Exit(130)
    if run.once and printer.last_was_held:
        raise typer.Exit(HELD)


def _tell_missing(printer: Printer, folder: Path, *, interrupted: bool) -> None:
    """Say at the end what the journal lacks, and which decisions were held for want of a record."""
    why = "; ".join(dict.fromkeys(printer.unwritten.values()))
    held = (
        f", and {printer.unrecorded} decisions were held for it: nothing is asked of a job that is "
        "not on disk first"
    )
    error = StorageError(
        f"{printer.missing} entries are missing in the journal"
        + (f" ({why})" if why else "")
        + (held if printer.unrecorded else ""),
        file=folder,
        remedy="Free some space, or name a folder that can be written to: --journal DIR",
    )
    if not interrupted:
        raise error
    typer.echo(str(error), err=True)


def _drive(run: ShadowRun, folder: Path, printer: Printer, stop: threading.Event) -> None:
    """Run the loop beside one job."""
    with session(
        run.settings,
        serve=run.serve,
        mode=run.mode,
        substitute=run.substitute,
        journal=folder,
        hooks=printer.hooks(),
        clock=Clock(stop=stop),
    ) as shown:
        live, names = shown.run, [seat.name for seat in shown.run.policies]
        about = f"{live.spec.job}: {_what(run, live.acting, names)}; journal {folder}"
        printer.begin(about + _page(shown.server), live.backend.platform.proved())
        if run.once:
            live.decide()
        else:
            live.run(run.steps, run.duration_s)
        if stop.is_set() and not run.as_json:
            first = ": a rescale under way is finished first" if run.mode in ACTING else ""
            typer.echo(f"\nInterrupted{first}.", err=True)


def _drive_all(run: ShadowRun, folder: Path, printer: Printer, stop: threading.Event) -> None:
    """Run a loop beside every job that a selector names."""
    settings = run.settings
    with fleet(
        settings,
        serve=run.serve,
        mode=run.mode,
        journal=folder,
        hooks_of=printer.hooks,
        stop=stop,
    ) as found:
        what = _what(run, acting_name(settings), policy_names(settings))
        proof = found.followed.proof
        printer.begin(
            f"{found}: {what}; journals in {folder}{_page(found.server)}",
            None if proof is None else str(proof),
        )
        found.run(run.steps, run.duration_s)


def _page(server: StatusServer | None) -> str:
    if server is None:
        return ""
    closed = not (server.config.public or server.has_tokens)
    hint = "; it shows data with --public, or with serve.token_file" if closed else ""
    return f"{hint}; probes at {server.probe_url}; page at {server.url}"


def _what(run: ShadowRun, acting: str, policies: list[str]) -> str:
    """Say in words how far the acting policy may go."""
    asked = run.settings.mode
    needs = f"; mode {asked} needs --apply" if asked not in ("off", run.mode, "shadow") else ""
    words = {
        "off": "mode off, no policy is asked",
        "shadow": f"mode shadow, {', '.join(policies)}; nothing is touched{needs}",
        "advise": f"mode advise, {acting} posts its recommendations on the job",
        "canary": f"mode canary, some decisions of {acting} are enacted",
        "active": f"mode active, decisions of {acting} are enacted",
    }
    return words[run.mode]
