"""Loops beside running jobs, as `dsp-gym run` and `dsp-gym shadow` drive them."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from dsp_gym.cli.turns import Printer
    from dsp_gym.control.backend_of import Substitute
    from dsp_gym.control.config import RunConfig
    from dsp_gym.control.modes import Mode
    from dsp_gym.control.serve.server import StatusServer

__all__ = ["HELD", "Course", "drive", "ends", "settings_of"]

HELD = 3
"""Exit code of `--once` if the decision was held."""


@dataclass(frozen=True, slots=True)
class Course:
    """Configuration, mode, end and output of a run."""

    settings: RunConfig
    mode: Mode
    substitute: Substitute | None
    journal: Path | None  # folder; None: the configuration's
    steps: int | None  # None: for ever
    duration_s: float | None  # None: for ever
    as_json: bool = False
    once: bool = False  # one decision, and its interval is not waited for
    serve: bool = False


def drive(course: Course) -> None:
    """Run the loop beside one job, or beside every job that a selector names, to its end.

    Raises:
        Exit: The run was interrupted (130), or the only decision of `once` was held (3).
        StorageError: The journal lacks entries.
    """
    from dsp_gym.cli.turns import Printer, stopping
    from dsp_gym.control.modes import WRITING
    from dsp_gym.control.start import acting_name, journal_folder, watches_several

    settings, stop = course.settings, threading.Event()
    several = course.substitute is None and watches_several(settings)
    folder = course.journal or (settings.journal if several else journal_folder(settings))
    printer = Printer(as_json=course.as_json, at_once=course.once, names_jobs=several)
    with stopping(stop) as interrupted:
        (_drive_all if several else _drive)(course, folder, printer, stop)
        was_interrupted = interrupted()
    said = {
        "mode": course.mode,
        "acting": acting_name(settings),
        "applied": course.mode in WRITING,
        "interrupted": was_interrupted,
        "journal": folder,
    }
    ran_on = "The jobs keep running." if several else "The job keeps running."
    printer.end(printer.counts.summary | said, ran_on)
    if printer.counts.missing:
        _tell_missing(printer, folder, interrupted=was_interrupted)
    if was_interrupted:
        raise typer.Exit(130)
    if course.once and printer.counts.last_was_held:
        raise typer.Exit(HELD)


def settings_of(
    config: str,
    mode: str | None = None,
    policies: list[str] | None = None,
    acting: str | None = None,
    port: int | None = None,
    *,
    public: bool = False,
) -> RunConfig:
    """The configuration with what the command line changes, checked as a whole.

    Returns:
        The checked configuration; options that were not given leave the file's values.
    """
    from dsp_gym.config.files import find, parse, read_yaml
    from dsp_gym.control.config import RunConfig

    file = find("shadow", config)
    data = read_yaml(file)
    if isinstance(data, dict):
        changes: dict[str, object] = {"mode": mode, "acting": acting}
        if policies:
            data = {k: v for k, v in data.items() if k not in ("policy", "policies", "acting")}
            changes["policies"] = policies
        data = {**data, **{k: v for k, v in changes.items() if v is not None}}
        if mode is not None and mode != "canary":
            data.pop("canary", None)
        served = {} if port is None else {"port": port, "probe_port": None}
        served |= {"public": True} if public else {}
        if served and isinstance(data.get("serve", {}), dict):
            data["serve"] = {**data.get("serve", {}), **served}
    return parse(RunConfig, data, file)


def ends(
    steps: int | None, duration: str | None, *, once: bool = False
) -> tuple[int | None, float | None]:
    """After how many decisions, and after how many seconds, a run ends.

    Returns:
        Number of decisions and seconds; None for no such limit.
    """
    from dsp_gym.cli.simulate import seconds
    from dsp_gym.errors import ConfigError

    if sum((steps is not None, duration is not None, once)) > 1:
        raise ConfigError(
            "--once, --steps and --duration each end the run", remedy="Give one of them."
        )
    return (1 if once else steps), None if duration is None else seconds(duration)


def _tell_missing(printer: Printer, folder: Path, *, interrupted: bool) -> None:
    """Say at the end what the journal lacks, and which decisions were held for want of a record."""
    from dsp_gym.errors import StorageError

    counts = printer.counts
    why = "; ".join(dict.fromkeys(counts.unwritten.values()))
    held = (
        f", and {counts.unrecorded} decisions were held for it: nothing is asked of a job that is "
        "not on disk first"
    )
    error = StorageError(
        f"{counts.missing} entries are missing in the journal"
        + (f" ({why})" if why else "")
        + (held if counts.unrecorded else ""),
        file=folder,
        remedy="Free some space, or name a folder that can be written to: --journal DIR",
    )
    if not interrupted:
        raise error
    typer.echo(str(error), err=True)


def _drive(course: Course, folder: Path, printer: Printer, stop: threading.Event) -> None:
    """The loop beside one job."""
    from dsp_gym.backends.base import Clock
    from dsp_gym.control.run import Hooks
    from dsp_gym.control.serve.session import session

    with session(
        course.settings,
        serve=course.serve,
        mode=course.mode,
        substitute=course.substitute,
        journal=folder,
        hooks=Hooks(printer.decided, printer.passed, printer.happened),
        clock=Clock(stop=stop),
    ) as shown:
        live, names = shown.run, [seat.name for seat in shown.run.policies]
        about = f"{live.spec.job}: {_what(course.mode, live.acting, names)}; journal {folder}"
        printer.begin(about + _page(shown.server))
        if course.once:
            live.decide()
        else:
            live.run(course.steps, course.duration_s)
        if stop.is_set() and not course.as_json:
            typer.echo("\nInterrupted: a rescale under way is finished first.", err=True)


def _drive_all(course: Course, folder: Path, printer: Printer, stop: threading.Event) -> None:
    """A loop beside every job that a selector names."""
    from dsp_gym.control.serve.fleet import fleet
    from dsp_gym.control.start import acting_name, policy_names

    settings = course.settings
    with fleet(
        settings,
        serve=course.serve,
        mode=course.mode,
        journal=folder,
        on_decision=lambda job, turn: printer.decided(turn, job),
        on_turn=lambda job, turn: printer.passed(turn, job),
        on_event=lambda job, event, body: printer.happened(event, body, job),
        stop=stop,
    ) as found:
        what = _what(course.mode, acting_name(settings), policy_names(settings))
        printer.begin(f"{found}: {what}; journals in {folder}{_page(found.server)}")
        found.run(course.steps, course.duration_s, once=course.once)


def _page(server: StatusServer | None) -> str:
    if server is None:
        return ""
    closed = not (server.config.public or server.has_tokens)
    hint = "; it shows data with --public, or with serve.token_file" if closed else ""
    return f"{hint}; probes at {server.probe_url}; page at {server.url}"


def _what(mode: Mode, acting: str, policies: list[str]) -> str:
    """The mode in words."""
    words = {
        "off": "mode off, no policy is asked",
        "shadow": f"mode shadow, {', '.join(policies)}; nothing is touched",
        "advise": f"mode advise, {acting} posts its recommendations on the job",
        "canary": f"mode canary, some decisions of {acting} are enacted",
        "active": f"mode active, decisions of {acting} are enacted",
    }
    return words[mode]
