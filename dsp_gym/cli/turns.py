"""A live loop on the terminal: driven until it is stopped, each decision as lines or as JSON."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from queue import SimpleQueue

import typer

from dsp_gym.cli.output import json_line
from dsp_gym.config.strict_json import plain
from dsp_gym.control.guarded_policy import Judgement
from dsp_gym.control.journal_writer import outcome_to_json
from dsp_gym.control.turn import Hooks, Turn
from dsp_gym.job.cost import requested
from dsp_gym.loop.configuration import Configuration
from dsp_gym.loop.wire import decision_to_json
from dsp_gym.pages import money, number

COLUMNS = f"{'time':8}  {'status':12}  {'rate/s':>9}  {'pending':>9}  {'p95, s':>7}  decision"

FAILED = frozenset(("failed", "refused"))
"""Steps of an actuator by which a change that was decided did not come about."""


class Printer:
    """Counts and prints what loops do: JSON Lines for programs, a table for people.

    Loops of several jobs may call it from threads of their own.

    Args:
        as_json: whether it is for programs.
        at_once: whether JSON is printed when a decision is made, not when its interval has passed.
        names_jobs: whether every line says which job it is about.
    """

    def __init__(self, *, as_json: bool, at_once: bool = False, names_jobs: bool = False) -> None:
        self.as_json, self._at_once, self._names_jobs = as_json, at_once, names_jobs
        self.decisions = self.changes = self.held = self.failures = self.unrecorded = 0
        self._held_last: dict[str, bool] = {}  # by job
        self._missing: dict[str, int] = {}
        self.unwritten: dict[str, str] = {}
        """Why a journal takes nothing, by job."""
        self._lock = threading.Lock()

    def hooks(self, job: str = "") -> Hooks:
        """Make the hooks of an autoscaler.

        Returns:
            Hooks that print the decisions on the job.
        """
        return Hooks(
            lambda turn: self.decided(turn, job),
            lambda turn: self.passed(turn, job),
            lambda event, body: self.happened(event, body, job),
        )

    def begin(self, about: str, proved: str | None = None) -> None:
        """Print the title of the run and the head of the table.

        Args:
            about: the title.
            proved: what is known of the account's rights; beside JSON Lines it goes to stderr.
        """
        proofs = [] if proved is None else [proved[0].upper() + proved[1:]]
        if not self.as_json:
            self._print([about, *proofs, f"{self._cell('job')}{COLUMNS}"])
        for proof in proofs if self.as_json else ():
            typer.echo(proof, err=True)

    def decided(self, turn: Turn, job: str = "") -> None:
        """Print a decision that was made."""
        with self._lock:
            self._held_last[job] = turn.held is not None
            self.decisions += 1
            self.changes += turn.changes
            self.held += turn.held is not None
            self.failures += len(turn.failures)
            self.unrecorded += turn.held_code == "journal"
        self._look(turn, job)
        if not self.as_json:
            self._print(f"{self._cell(job)}{line}" for line in lines(turn))
        elif self._at_once:
            self._print([self._json(turn, job)])

    def passed(self, turn: Turn, job: str = "") -> None:
        """Print a decision whose interval has passed."""
        self._look(turn, job)
        if self.as_json and not self._at_once:
            self._print([self._json(turn, job)])

    def happened(self, event: str, body: dict[str, object], job: str = "") -> None:
        """Print what an actuator did, or that a job came or went; count what it failed at."""
        with self._lock:
            self.failures += event in FAILED
        if not self.as_json:
            self._print([f"{self._cell(job)}{event_line(event, body)}"])

    def end(self, summary: Mapping[str, object], ran_on: str = "The job keeps running.") -> None:
        """Print the summary."""
        if self.as_json and not self._at_once:
            self._print([json_line({"summary": summary})])
        elif not self.as_json:
            lacks = f"{self.missing} entries are missing in the journal. " if self.missing else ""
            failed = f"{self.failures} failures. " if self.failures else ""
            self._print(
                [
                    f"{self.decisions} decisions, {self.changes} of them changes, "
                    f"{self.held} held. {failed}{lacks}{ran_on}"
                ]
            )

    @property
    def missing(self) -> int:
        """Entries that the journals lack."""
        return sum(self._missing.values())

    @property
    def summary(self) -> dict[str, object]:
        """The numbers by name."""
        return {
            "decisions": self.decisions,
            "changes": self.changes,
            "held": self.held,
            "failures": self.failures,
            "missing_entries": self.missing,
        }

    @property
    def last_was_held(self) -> bool:
        """Whether the last decision on a job was held; also where there was none."""
        return any(self._held_last.values()) or not self._held_last

    def _look(self, turn: Turn, job: str) -> None:
        """Tell once that a journal cannot be written, and once that it can."""
        with self._lock:
            said = self._news_of_journal(turn, job)
        if said is not None:
            typer.echo(f"{job}: {said}" if self._names_jobs else said, err=True)

    def _news_of_journal(self, turn: Turn, job: str) -> str | None:
        """Take in how a journal stands.

        Returns:
            What is new of it, in words; None where nothing is.
        """
        before = self.unwritten.get(job)
        self._missing[job] = turn.missing
        if turn.unwritten is None:
            self.unwritten.pop(job, None)
            if before is None:
                return None
            return f"the journal is written again; {turn.missing} entries are missing in all"
        self.unwritten[job] = turn.unwritten
        if before is not None:
            return None
        return f"the journal cannot be written, and decisions are lost: {turn.unwritten}"

    def _json(self, turn: Turn, job: str) -> str:
        return json_line({"job": job, **document(turn)} if self._names_jobs else document(turn))

    def _cell(self, job: str) -> str:
        return f"{job:24}  " if self._names_jobs else ""

    def _print(self, texts: Iterable[str]) -> None:
        with self._lock:
            for text in texts:
                typer.echo(text)


@contextmanager
def stopping(stop: threading.Event) -> Iterator[Callable[[], bool]]:
    """End the loop between two steps after Ctrl-C or a service manager's SIGTERM.

    Nothing is cut off in the middle, neither a line of the journal nor a rescale. A second Ctrl-C
    does not wait.

    Yields:
        A function that returns whether a signal came.
    """
    came: list[int] = []
    told: SimpleQueue[bool] = SimpleQueue()

    def handle(number: int, _: object) -> None:
        if stop.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        came.append(number)
        told.put(True)

    def pass_on() -> None:
        if told.get():
            stop.set()

    # The handler interrupts the main thread anywhere, also where that holds the lock of `stop` to
    # wait for it: to set it there would wait for ever. `SimpleQueue.put` needs no such lock.
    threading.Thread(target=pass_on, name="dsp-gym signals", daemon=True).start()
    before = {n: signal.signal(n, handle) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(came)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        told.put(False)


def document(turn: Turn) -> dict[str, object]:
    """Write one decision for programs.

    Returns:
        JSON values by key: the number and time (s) of the decision, how long it took (s, journal on
        disk included), the job's status, the decision, its outcome, each policy's judgement and
        the failures.
    """
    decision = None
    if turn.snapshot is not None and turn.guarded is not None:
        decision = decision_to_json(turn.guarded, turn.snapshot.job(0))
    found = {
        "number": turn.number,
        "t_s": turn.t_s,
        "seconds": turn.seconds,
        "status": None if turn.snapshot is None else turn.snapshot.job(0).status.name,
        "decision": decision,
        "changed": turn.changes,
        "enacted": turn.changes and turn.applied and turn.held is None,
        "held": turn.held,
        "policies": {one.policy: _judged(turn, one) for one in turn.judgements},
        "failures": [failed.document() for failed in turn.failures],
        "outcome": None if turn.outcome is None else outcome_to_json(turn.outcome),
    }
    plained: dict[str, object] = plain(found)
    return plained


def _judged(turn: Turn, one: Judgement) -> dict[str, object]:
    assert turn.snapshot is not None
    failure = one.failure
    return {
        "decision": decision_to_json(one.guarded, turn.snapshot.job(0)),
        "failure": None if failure is None else failure._asdict(),
        "seconds": one.seconds,
    }


def lines(turn: Turn) -> Iterator[str]:
    """Write one decision for people: a line, and one per policy where there are several.

    Yields:
        Lines of text without a line break.
    """
    if turn.snapshot is None:
        yield f"{_time(turn.t_s)}  {'UNKNOWN':12}  held: {turn.held}"
        return
    job = turn.snapshot.job(0)
    sources = [v.name for v in turn.snapshot.topology.spec(0).vertices if v.kind == "source"]
    rate = _sum(job.vertex(name, "records_in_per_s") for name in sources)
    pending = _sum(job.vertex(name, "pending_records") for name in sources)
    latency = job.get("latency_p95_s")
    several = len(turn.judgements) > 1
    said = f"held: {turn.held}" if turn.held is not None else "watched"
    if not several and turn.judgements:
        said = _decision(turn, turn.judgements[0])
    elif several:
        said = (
            f"held: {turn.held}"
            if turn.held is not None
            else f"runs {Configuration.of_row(turn.snapshot, turn.snapshot.topology)}"
        )
    yield (
        f"{_time(turn.t_s)}  {job.status.name:12}  {_number(rate, ',.0f'):>9}  "
        f"{_number(pending, ',.0f'):>9}  {_number(latency, '.3g'):>7}  {said}"
    )
    if several:
        for one in turn.judgements:
            yield f"{'':10}{one.policy:20}  {_decision(turn, one)}"


def _decision(turn: Turn, one: Judgement) -> str:
    """Say what would change, at which cost, and why."""
    assert turn.snapshot is not None
    acts = turn.guarded is one.guarded
    if acts and turn.held is not None and len(turn.judgements) == 1:
        return f"held: {turn.held}"
    topology = turn.snapshot.topology
    asked = Configuration.of_row(one.guarded, topology)
    runs = Configuration.of_row(turn.snapshot, topology)
    spec = topology.spec(0)
    now, then = (
        requested(spec, one.parallelism, one.memory_level).money_per_hour(spec)
        for one in (runs, asked)
    )
    why = [one.guarded.proposed.reasons[0]]
    why += [f"{i.guardrail}: {i.reason}" for i in one.guarded.interventions]
    reasons = "; ".join(reason for reason in why if reason)
    because = f" ({reasons})" if reasons else ""
    if runs == asked:
        return f"keeps {asked}, {money(now, spec.prices.currency)}/h{because}"
    verb = "changes" if acts and turn.applied and turn.held is None else "would change"
    cost = f"{number(now)} -> {money(then, spec.prices.currency)}/h"
    return f"{verb} {runs} -> {asked}, {cost}{because}"


def event_line(event: str, body: dict[str, object]) -> str:
    """Write a step of the actuator for people.

    Returns:
        Local time, name of the step and its reason, if it has one.
    """
    reason = body.get("reason")
    text = f"  {event.replace('_', ' ')}" + (f": {reason}" if reason else "")
    return f"{datetime.now().strftime('%H:%M:%S')}  {text}"


def _time(t_s: float) -> str:
    """Time of day; of a clock that starts at 0, such as a recording's, the time since, by days."""
    if t_s < 10 * 365 * 86_400:
        moment, days = datetime.fromtimestamp(t_s, UTC), int(t_s // 86_400)
        return moment.strftime(f"{days}d %H:%M" if days else "%H:%M:%S")
    return datetime.fromtimestamp(t_s).strftime("%H:%M:%S")


def _sum(values: Iterable[float | None]) -> float | None:
    """Sum up; None where a part is unknown."""
    known = list(values)
    return None if None in known else sum(value or 0.0 for value in known)


def _number(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)
