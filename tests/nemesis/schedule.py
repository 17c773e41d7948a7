"""The schedule of faults: a pure function of a seed and the number of a round."""

from __future__ import annotations

import random
from dataclasses import dataclass

__all__ = ["KINDS", "LINKS", "REPLICAS", "Fault", "Round", "round_of"]

REPLICAS = ("direct", "first", "second")
"""Processes of dsp-gym: one that stops and submits its job by itself, two on an API server."""

LINKS = tuple(
    f"{replica}>{peer}"
    for replica, peers in {
        "direct": ("flink", "prometheus"),
        "first": ("api", "flink", "prometheus"),
        "second": ("api", "flink", "prometheus"),
    }.items()
    for peer in peers
)
"""Connections through which a replica reaches something else."""

KINDS = {
    "kill": (*REPLICAS, "taskmanager", "jobmanager"),
    "freeze": (*REPLICAS, "taskmanager", "jobmanager", "prometheus"),
    "cut": LINKS,
    "hold": LINKS,
    "delay": LINKS,
    "deaf": LINKS,
    "drip": LINKS,
    "lie": LINKS,
    "close": LINKS,
    "disk": REPLICAS,
    "clock": REPLICAS,
    "crash": REPLICAS,
    "token": ("first", "second"),
    "rival": ("direct", "operated"),
}
"""Kinds of faults and their targets.

kill: SIGKILL, started again at the end; freeze: SIGSTOP, then SIGCONT; cut: connections break and
none is made; hold: what is sent arrives at the end; delay: later by the value, s; deaf: requests
arrive and answers do not; drip: answers arrive a byte a second; lie: every answer is a page to sign
in, of status 200; close: answers end in their middle; disk: no file grows beyond the value, bytes
more than the journal has; clock: the wall clock of the process steps by the value, s, and back at
the end; crash: SIGKILL that many seconds after a rescale was begun, started again at the end;
token: the API server takes another one, which is in the file so many seconds later; rival: another
controller gives `flatmap` so many tasks.
"""

_ORDER = tuple(KINDS)
_MOST_EXTRA = 2
_BEGIN_S, _LEAST_S, _MOST_S = 4.0, 1.0, 8.0
_FROZEN_JOBMANAGER_S = 6.0
_RIVAL_TASKS = 4
"""More than dsp-gym asks for, so that it is nobody else's."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault."""

    kind: str
    target: str
    at_s: float  # since the round began
    lasts_s: float
    value: float = 0.0

    @property
    def end_s(self) -> float:
        """When it is over, s since the round began."""
        return self.at_s + self.lasts_s

    def __str__(self) -> str:
        value = f" {self.value:g}" if self.value else ""
        return f"{self.kind}{value} {self.target} at {self.at_s:.1f} s for {self.lasts_s:.1f} s"


@dataclass(frozen=True, slots=True)
class Round:
    """The faults of one round, in the order of their begin."""

    number: int  # from 1
    faults: tuple[Fault, ...]


def round_of(seed: int, number: int) -> Round:
    """Draw one round: the first fault goes through all kinds in turn, others are any."""
    draw = random.Random(f"nemesis {seed} {number}")
    turn, place = divmod(number - 1, len(_ORDER))
    kinds = random.Random(f"nemesis {seed} turn {turn}").sample(_ORDER, len(_ORDER))
    chosen = [kinds[place], *(draw.choice(_ORDER) for _ in range(draw.randint(0, _MOST_EXTRA)))]
    faults = [_fault(kind, draw) for kind in chosen]
    kept = {(fault.kind, fault.target): fault for fault in faults}
    return Round(number, tuple(sorted(kept.values(), key=lambda fault: fault.at_s)))


def _fault(kind: str, draw: random.Random) -> Fault:
    target = draw.choice(KINDS[kind])
    at_s = round(draw.uniform(0.0, _BEGIN_S), 1)
    lasts_s = round(draw.uniform(_LEAST_S, _MOST_S), 1)
    value = 0.0
    if kind == "delay":
        value = round(draw.uniform(0.1, 4.0), 1)
    elif kind == "disk":
        value = float(draw.choice((0, 100, 3000)))
    elif kind == "clock":
        value = draw.choice((-1, 1)) * round(draw.uniform(2.0, 600.0), 1)
    elif kind == "drip":
        lasts_s = _MOST_S  # long enough for a turn to end in it
    elif kind == "crash":
        value = round(draw.uniform(0.0, 3.0), 1)
    elif kind == "token":
        value = round(draw.uniform(0.0, lasts_s), 1)
    elif kind == "rival":
        value, lasts_s = float(_RIVAL_TASKS), _MOST_S
    elif target == "jobmanager":
        lasts_s = min(lasts_s, _FROZEN_JOBMANAGER_S)
    return Fault(kind, target, at_s, lasts_s, value)
