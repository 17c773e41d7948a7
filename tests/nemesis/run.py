"""Rounds of the nemesis: faults, their end, and all checks."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from dsp_gym.backends.flink.rescale.finishing import BY
from dsp_gym.errors import DspGymError, FlinkError
from tests.nemesis import faults
from tests.nemesis.checks import Checks
from tests.nemesis.schedule import Fault, Round, round_of
from tests.nemesis.sinks import Violation
from tests.nemesis.world import World, world

__all__ = ["Outcome", "Played", "nemesis"]

PATIENCE_S = 120.0
"""How long after the last fault everything may take to be as it must be."""

_TICK_S = 0.05
_LOOK_S = 0.5
_NOTE_S = 10.0
_OUT_OF_REACH = ("cut", "hold", "deaf", "drip", "lie", "close")
_NOTICED_S = 7.0  # an interval, the time limit of an answer, and a second


@dataclass(frozen=True, slots=True)
class Played:
    """A round that was played."""

    round: Round
    seconds: float  # in all
    recovered_s: float  # from the end of its last fault
    trouble: str | None  # None: all held


@dataclass(slots=True)
class Outcome:
    """What came of all rounds."""

    seed: int
    rounds: list[Played] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    """What was done meanwhile: records, rescales, writes, epochs, exits."""

    @property
    def trouble(self) -> str | None:
        """What did not hold in the last round."""
        return self.rounds[-1].trouble if self.rounds else "no round was played"

    def kinds(self) -> Counter[str]:
        """How often each kind of fault was played."""
        return Counter(fault.kind for played in self.rounds for fault in played.round.faults)


def nemesis(
    seed: int,
    folder: Path,
    *,
    seconds: float,
    first: int = 1,
    rounds: int | None = None,
    patience_s: float = PATIENCE_S,
    say: Callable[[str], None] = lambda line: None,
) -> Outcome:
    """Play rounds until the time is over, or one fails.

    Args:
        seed: of the schedule; round `n` is the same for one seed, whatever came before.
        folder: for everything; it stays.
        seconds: no round begins after so many, from when all is up.
        first: number of the first round.
        rounds: at most so many; None: as many as there is time for.
        patience_s: how long after the last fault of a round everything may take to be as it must.
        say: receives a line per round.
    """
    outcome, begun_s = Outcome(seed), time.monotonic()
    with world(folder, round(seconds + 8 * patience_s)) as made:
        checks = Checks(made)
        trouble = _settle(made, checks, 2 * patience_s)
        if trouble is not None:
            outcome.rounds.append(Played(Round(0, ()), 0.0, 0.0, f"before any fault: {trouble}"))
            return outcome
        began_s = time.monotonic()
        say(f"up after {began_s - begun_s:.0f} s")
        while time.monotonic() - began_s < seconds and (
            rounds is None or len(outcome.rounds) < rounds
        ):
            played = _play(made, checks, round_of(seed, first + len(outcome.rounds)), patience_s)
            outcome.rounds.append(played)
            made.note(_line(played))
            say(_line(played))
            if played.trouble is not None:
                break
        outcome.counts = _counts(made, checks)
    return outcome


def _play(made: World, checks: Checks, one: Round, patience_s: float) -> Played:
    """One round: its faults, then everything must come right."""
    began_s = time.monotonic()
    made.pause_file.unlink(missing_ok=True)
    checks.begin()
    moments = sorted(
        [(fault.at_s, 0, fault) for fault in one.faults]
        + [(fault.end_s, 1, fault) for fault in one.faults],
        key=lambda moment: moment[:2],
    )
    late: list[Fault] = []
    try:
        for at_s, is_end, fault in moments:
            while time.monotonic() - began_s < at_s:
                made.tend()
                time.sleep(_TICK_S)
            made.note(f"round {one.number}: {'end of' if is_end else 'begin of'} {fault}")
            (faults.end if is_end else faults.begin)(made, fault)
            if is_end and fault.kind == "drip" and _untold(checks, fault, one):
                late.append(fault)
        made.wait_for_parts()
        healed_s = time.monotonic()
        trouble = _settle(made, checks, patience_s) or _unexpected(checks, one, late)
    finally:
        for fault in one.faults:
            if fault.kind not in ("kill", "crash"):
                faults.end(made, fault)
    ended_s = time.monotonic()
    return Played(one, ended_s - began_s, ended_s - healed_s, trouble)


def _settle(made: World, checks: Checks, patience_s: float) -> str | None:
    """Wait until all is as it must be; else what is not."""
    made.pause_file.touch()
    end = time.monotonic() + patience_s
    noted_s = time.monotonic()
    checks.healed()
    while True:
        made.tend()
        try:
            if made.answer_rivals():
                checks.healed()
            missing = checks.missing()
        except Violation as violation:
            return str(violation)
        except (FlinkError, OSError) as error:
            missing = [f"Flink is out of reach: {error}"]
        except DspGymError as error:
            return f"a journal cannot be read: {error}"
        if not missing:
            return None
        if time.monotonic() > end:
            return f"still after {patience_s:g} s: {'; '.join(missing)}"
        if time.monotonic() - noted_s >= _NOTE_S:
            noted_s = time.monotonic()
            made.note(f"not yet: {'; '.join(missing)}")
        time.sleep(_LOOK_S)


def _unexpected(checks: Checks, one: Round, late: list[Fault]) -> str | None:
    """What a process should have said, or done, at a fault that came alone to it."""
    for fault in one.faults:
        if _untold(checks, fault, one):
            return f"direct did not say that Flink was out of reach: {fault}"
        if fault in late:
            return f"a turn of direct did not end within its deadline: {fault}"
        if fault.kind == "token" and checks.ended_by_itself(fault.target):
            return f"{fault.target} ended, and took the new token up by a restart: {fault}"
        unnoticed_s = checks.rival_went_unnoticed_s(fault.target) if fault.kind == "rival" else None
        if unnoticed_s is not None and unnoticed_s > _NOTICED_S and _is_alone(fault, one):
            return f"{fault.target} noticed another controller after {unnoticed_s:.1f} s: {fault}"
    return None


def _untold(checks: Checks, fault: Fault, one: Round) -> bool:
    """Whether the direct process should have spoken of a fault, and has not.

    It was alone without Flink, and for long enough to notice.
    """
    is_cut = fault.kind in _OUT_OF_REACH and fault.target == "direct>flink"
    must = is_cut and fault.lasts_s >= _NOTICED_S and "direct" not in _others(fault, one)
    return must and not checks.told("direct")


def _others(fault: Fault, one: Round) -> set[str]:
    return {other.target for other in one.faults if other is not fault}


def _is_alone(fault: Fault, one: Round) -> bool:
    return not _others(fault, one)


def _line(played: Played) -> str:
    said = "; ".join(str(fault) for fault in played.round.faults)
    outcome = played.trouble or f"recovered in {played.recovered_s:.1f} s"
    return f"round {played.round.number:3}, {played.seconds:5.1f} s  {said}  -> {outcome}"


def _counts(made: World, checks: Checks) -> Counter[str]:
    found: Counter[str] = Counter()
    for ledger in made.ledgers.values():
        found["records"] += ledger.total
    found["resubmissions"] = sum(
        step["event"] == "submitted" for step in checks.journals["direct"].steps
    )
    taken_up = [
        step.get("by") == BY
        for tail in checks.journals.values()
        for step in tail.steps
        if step["event"] in ("resumed", "recovered")
    ]
    found["finished by a second process"] = sum(taken_up)
    found["finished by a restart"] = len(taken_up) - sum(taken_up)
    found["writes to the resource"] = sum(map(len, checks.writes.of_decision.values()))
    found["epochs"] = len(checks.writes.epochs)
    found["restarts of dsp-gym"] = sum(len(one.exits) for one in made.replicas.values())
    found["restarts by a person"] = sum(len(one.restarts) for one in made.people.values())
    return found
