"""A journal as arrays: configuration, decisions of every policy and outcome, slot by slot."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from dsp_gym.arrays import Bools, Floats, Ints
from dsp_gym.config.strict_json import MISFITS
from dsp_gym.errors import SchemaError
from dsp_gym.job.spec import CURRENCY
from dsp_gym.loop.snapshot import Status
from dsp_gym.records.base import Body
from dsp_gym.records.journal import Entry, read
from dsp_gym.whatif.history import Decided

_UP = (Status.RUNNING.name, Status.SAVEPOINTING.name)

OUTCOMES = (
    "seconds",
    "arrived",
    "processed",
    "pending",
    "pending_s",
    "latency_p95_s",
    "slo_s",
    "down_s",
    "cost",
    "rescales",
)


TRIP_REST_S = 3600.0
"""A guardrail steps in again after an hour without: in shadow a policy may want the same for hours,
and waver about the bound."""

RESTARTED_S = 1.0
"""A job that runs since a moment later by more than this has restarted, s."""


@dataclass(frozen=True, slots=True)
class ObservedRun:
    """One job over K decision slots."""

    job: str
    vertices: tuple[str, ...]
    t_s: Floats  # (K,)
    up: Bools  # (K,) records are processed while a savepoint is written
    parallelism: Ints  # (K, V) as observed running
    memory_level: Ints
    running_since_s: Floats  # (K,) NaN where it is not known
    outage_s: Floats  # (K,) of the last rescale; NaN where there was none, or it is not known
    pending: Floats  # (K, V) of sources
    state_mib: Floats  # (K, V)
    outcome: Mapping[str, Floats]  # (K,) each; NaN where it is not known
    age_s: Floats  # (K,) of the newest sample behind the outcome, whose counts end there
    arrivals: tuple[Floats, ...]  # (K) of (N, 2) each: when how many had arrived; empty: unknown
    savepoints: (
        Floats  # (N, 2) of stops by the actuator: when they were complete, and their seconds
    )
    decided: Mapping[str, Decided]
    held_s: Floats  # when a slot had no snapshot or no answer; the journal has the reason
    interval_s: float  # between decisions
    configuration: Mapping[str, object] | None  # of the run, where the journal holds it
    simulated: bool = False  # whether the job was one
    currencies: tuple[str, ...] = ()  # of the prices in the snapshots
    other_graphs: Mapping[tuple[str, ...], int] = field(default_factory=dict)
    """Slots that were left out, by the vertices of the graph they are of."""

    def __len__(self) -> int:
        return len(self.t_s)

    def next_up(self) -> Ints:
        """Find, for each slot, the first one from it on in which the job is up.

        Returns:
            Slots (K,); the slot itself if there is none.
        """
        slots = np.arange(len(self))
        after = np.minimum.accumulate(np.where(self.up, slots, len(self))[::-1])[::-1]
        return np.where(after < len(self), after, slots)

    def restarts(self) -> list[slice]:
        """Find where the job was down and came back as it was: failures, and new submissions.

        Returns:
            For each the slots from the last one before it until the job is up again.
        """
        up = np.flatnonzero(self.up)
        before, after = up[:-1], up[1:]
        same = np.all(self.parallelism[after] == self.parallelism[before], axis=1)
        same &= np.all(self.memory_level[after] == self.memory_level[before], axis=1)
        since = self.running_since_s
        later = since[after] > since[before] + RESTARTED_S
        hit = same & (later | (after > before + 1))
        return [slice(a, b) for a, b in zip(before[hit].tolist(), after[hit].tolist(), strict=True)]

    def notes(self) -> list[str]:
        """What to know about the run before trusting a replay of it.

        Returns:
            Sentences.
        """
        found = []
        restarts = len(self.restarts())
        if restarts:
            times = "once" if restarts == 1 else f"{restarts} times"
            found.append(
                f"the job restarted {times} without a rescale; that time is not replayed, and "
                "every policy was as late in it as the job"
            )
        for names, slots in self.other_graphs.items():
            of = "1 decision slot is" if slots == 1 else f"{slots} decision slots are"
            found.append(f"{of} of another graph ({', '.join(names)}) and left out")
        return found


def read_run(folder: str | Path, job: str | None = None) -> ObservedRun:
    """Read the observed run of one job from a journal.

    Args:
        folder: the journal's folder.
        job: name of the job; None: the only one.

    Returns:
        The observed run as arrays over its decision slots.

    Raises:
        SchemaError: The journal holds no decisions, or several jobs and none is named.
    """
    return journal_of(folder).run(job)


def journal_of(folder: str | Path) -> JournalReader:
    """Read a whole journal.

    Returns:
        Its reader, which gives the run of each job.
    """
    reader = JournalReader(folder)
    for entry in read(folder):  # one at a time: a month does not fit in memory
        reader.take(entry)
    return reader


class JournalReader:
    """Reads a journal entry by entry; gives the observed run at any time.

    Args:
        folder: the journal's folder, for errors.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = folder
        self._readings: dict[str, _Reading] = {}

    def take(self, entry: Entry) -> None:
        """Take in the next entry.

        Raises:
            SchemaError: It is none that dsp-gym writes.
        """
        try:
            self._readings.setdefault(entry.job, _Reading()).take(entry)
        except MISFITS as error:
            raise SchemaError(
                f"entry {entry.seq}, a {entry.kind}, was not written by dsp-gym: {error!r}",
                file=self.folder,
                remedy="Name a journal that `dsp-gym shadow` wrote.",
            ) from None

    @property
    def jobs(self) -> list[str]:
        """Names of the jobs with a decision, in the order of the journal."""
        return [name for name, reading in self._readings.items() if reading.slots is not None]

    def run(self, job: str | None = None) -> ObservedRun:
        """The observed run so far.

        Args:
            job: name of the job; None: the only one.

        Returns:
            The observed run as arrays over its decision slots.

        Raises:
            SchemaError: There are no decisions, or several jobs and none is named.
        """
        there = self.jobs
        found = there if job is None else [name for name in there if name == job]
        if not found:
            others = f"; it has {', '.join(there)}" if there else ""
            raise SchemaError(
                f"holds no decisions{f' on {job!r}' if job else ''}{others}",
                file=self.folder,
                remedy="Name a journal that `dsp-gym shadow` wrote.",
            )
        if len(found) > 1:
            raise SchemaError(
                f"holds several jobs: {', '.join(found)}",
                file=self.folder,
                remedy="Read them one by one, each by its name.",
            )
        return self._readings[found[0]].run(found[0])


class _Reading:
    """What the entries of one job say, gone through in their order."""

    def __init__(self) -> None:
        self.slots: _Slots | None = None
        """The newest slot's; None before the first."""
        self._kept: dict[tuple[str, ...], _Slots] = {}
        self._failures: dict[str, dict[str, array[float]]] = {}  # by policy and cause
        self._held = array("d")
        self._configuration: Mapping[str, object] | None = None
        self._simulated = False
        self._currencies: dict[str, None] = {}
        self._savepoints: list[tuple[float, float]] = []

    def take(self, entry: Entry) -> None:
        """Take in the next entry."""
        body, slots = entry.body, self.slots
        if entry.kind == "snapshot":
            names = tuple(vertex["name"] for vertex in body["vertices"])
            self.slots = self._kept.setdefault(names, _Slots(names))
            self.slots.see(body)
            prices = body.get("prices") or {}
            self._currencies[str(prices.get("currency", CURRENCY))] = None
        elif entry.kind == "guard" and slots is not None and entry.policy is not None:
            slots.decide(entry.policy, body)
        elif entry.kind == "outcome" and slots is not None:
            slots.end(body)
        elif entry.kind == "actuation" and body.get("event") == "started":
            self._configuration = body.get("configuration")
            self._simulated = bool(body.get("simulated"))
        elif entry.kind == "actuation" and body.get("event") == "savepoint":
            self._savepoints.append((entry.t_s, float(body["seconds"])))
        elif entry.kind == "actuation" and body.get("event") == "decided":
            if body.get("held") is not None:
                self._held.append(entry.t_s)
        elif entry.kind == "error" and body.get("stage") == "policy" and entry.policy is not None:
            causes = self._failures.setdefault(entry.policy, {})
            times = causes.setdefault(str(body.get("cause")), array("d"))
            times.append(entry.t_s if slots is None else slots.begun_s)
        elif entry.kind == "error" and body.get("stage") == "collector":
            self._held.append(entry.t_s)

    def run(self, job: str) -> ObservedRun:
        """The observed run; slots of another graph than the last one's are left out.

        Returns:
            The run as arrays over its slots, in the order of time.
        """
        slots = self.slots
        assert slots is not None  # as its reader checked
        t_s = slots.of_job("t_s")
        order = np.argsort(t_s, kind="stable")  # a clock may have gone back
        t_s = t_s[order]
        steps = np.diff(t_s)
        return ObservedRun(
            job=job,
            vertices=slots.names,
            t_s=t_s,
            up=slots.of_job("up")[order] > 0,
            parallelism=slots.of_vertices("parallelism")[order].astype(np.int64),
            memory_level=slots.of_vertices("memory_level")[order].astype(np.int64),
            running_since_s=slots.of_job("running_since_s")[order],
            outage_s=slots.of_job("outage_s")[order],
            pending=slots.of_vertices("pending_records")[order],
            state_mib=slots.of_vertices("state_mib")[order],
            outcome={name: slots.of_job(name)[order] for name in OUTCOMES},
            age_s=np.nan_to_num(slots.of_job("data_age_s")[order]),
            arrivals=tuple(slots.arrivals[k] for k in order),
            savepoints=np.array(self._savepoints, np.float64).reshape(-1, 2),
            decided={
                policy: slots.decided(policy, order, self._failures.get(policy, {}))
                for policy in slots.policies(order)
            },
            held_s=np.array(self._held, np.float64),
            # In whole seconds, as it is configured: it must not change with every decision.
            interval_s=max(1.0, round(float(np.median(steps)))) if len(steps) else 60.0,
            configuration=self._configuration,
            simulated=self._simulated,
            currencies=tuple(self._currencies),
            other_graphs={
                names: len(one.arrivals) for names, one in self._kept.items() if one is not slots
            },
        )


_NO_ARRIVALS: Floats = np.empty((0, 2))


class _Slots:
    """Slots of one graph of V vertices, in columns that grow: a slot takes some hundred bytes."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names
        self.arrivals: list[Floats] = []
        of_job = ("t_s", "up", "running_since_s", "outage_s", "data_age_s", *OUTCOMES)
        of_vertices = ("parallelism", "memory_level", "pending_records", "state_mib")
        self._of_job = {name: array("d") for name in of_job}
        self._of_vertices = {name: array("d") for name in of_vertices}
        self._decisions: dict[str, _Decisions] = {}
        self._asked = 0  # policies, of the newest slot

    @property
    def begun_s(self) -> float:
        """When the newest slot began, s."""
        return self._of_job["t_s"][-1]

    def see(self, body: Body) -> None:
        """Begin a slot with its snapshot."""
        metrics, vertices = body["metrics"], body["vertices"]
        known = {
            "t_s": float(body["t_s"]),
            "up": float(body["status"] in _UP),
            "running_since_s": _number(metrics.get("running_since_s")),
            "outage_s": _number(metrics.get("outage_s")),
        }
        for name, column in self._of_job.items():
            column.append(known.get(name, np.nan))
        for name in ("parallelism", "memory_level"):
            self._of_vertices[name].extend(float(int(v[name])) for v in vertices)
        for name in ("pending_records", "state_mib"):
            self._of_vertices[name].extend(_number(v["metrics"].get(name)) for v in vertices)
        self.arrivals.append(_NO_ARRIVALS)
        self._asked = 0

    def decide(self, policy: str, body: Body) -> None:
        """Take in what a policy decided in the newest slot; of several the last counts."""
        decisions = self._decisions.setdefault(policy, _Decisions())
        self._asked += decisions.take(len(self.arrivals) - 1, self._asked, self.names, body)

    def end(self, body: Body) -> None:
        """Take in the outcome of the newest slot; of several the last counts."""
        for name in (*OUTCOMES, "data_age_s"):
            self._of_job[name][-1] = _number(body.get(name))
        found = body.get("arrivals")
        self.arrivals[-1] = np.array(found, np.float64).reshape(-1, 2) if found else _NO_ARRIVALS

    def of_job(self, name: str) -> Floats:
        """One figure of every slot, (K,)."""
        return np.array(self._of_job[name], np.float64)

    def of_vertices(self, name: str) -> Floats:
        """One figure of every slot and vertex, (K, V)."""
        return np.array(self._of_vertices[name], np.float64).reshape(-1, len(self.names))

    def policies(self, order: Ints) -> list[str]:
        """The policies that decided, the earliest first.

        Args:
            order: (K,) slots in the order of time.

        Returns:
            Their names; of one slot in the order of the journal.
        """
        rank = np.argsort(order)
        first = {name: found.first(rank) for name, found in self._decisions.items()}
        return sorted(first, key=lambda name: first[name])

    def decided(self, policy: str, order: Ints, failures: Mapping[str, Sequence[float]]) -> Decided:
        """One policy's decisions on all slots, in the given order."""
        found = self._decisions[policy]
        parallelism, level, proposed = found.tasks(len(order), len(self.names))[:, order]
        trips: dict[str, list[float]] = {}
        last_s: dict[str, float] = {}
        t_s = self.of_job("t_s")
        for slot in order.tolist():
            for name in found.trips.get(slot, ()):
                if t_s[slot] - last_s.get(name, -math.inf) >= TRIP_REST_S:
                    trips.setdefault(name, []).append(t_s[slot])
                last_s[name] = t_s[slot]
        return Decided(
            parallelism,
            level,
            proposed,
            asked=found.asked(len(order))[order],
            trips_s={name: np.array(times) for name, times in trips.items()},
            failures_s={cause: np.array(times) for cause, times in failures.items()},
        )


class _Decisions:
    """One policy's decisions, those that were made only."""

    def __init__(self) -> None:
        self.trips: dict[int, frozenset[str]] = {}  # guardrails by slot
        self._at, self._turn, self._tasks = array("q"), array("q"), array("q")

    def take(self, slot: int, turn: int, names: Sequence[str], body: Body) -> bool:
        """Take in a decision.

        Args:
            slot: in which it was made.
            turn: policies that decided before it in that slot.
            names: of the vertices.
            body: of the journal's entry.

        Returns:
            Whether it is the first one in that slot.
        """
        is_first = not (self._at and self._at[-1] == slot)
        self._at.append(slot)
        self._turn.append(turn)
        wanted, proposed = (
            {v["name"]: v for v in body.get(key) or body["vertices"]}
            for key in ("vertices", "proposed")
        )
        self._tasks.extend(int(wanted[name]["parallelism"]) for name in names)
        self._tasks.extend(int(wanted[name]["memory_level"]) for name in names)
        self._tasks.extend(int(proposed[name]["parallelism"]) for name in names)
        self.trips.pop(slot, None)
        if guardrails := frozenset(str(one["guardrail"]) for one in body.get("interventions", ())):
            self.trips[slot] = guardrails
        return is_first

    def first(self, rank: Ints) -> tuple[int, int]:
        """When it decided first.

        Args:
            rank: (K,) place of each slot in the order of time.

        Returns:
            The slot's place, and how many policies decided before in it.
        """
        ranks = rank[np.array(self._at, np.int64)]
        earliest = int(ranks.argmin())
        return int(ranks[earliest]), self._turn[earliest]

    def asked(self, slots: int) -> Bools:
        """In which slots it decided, (K,)."""
        found = np.zeros(slots, np.bool_)
        found[np.array(self._at, np.int64)] = True
        return found

    def tasks(self, slots: int, vertices: int) -> Ints:
        """Parallelism, memory level and proposed parallelism, (3, K, V); -1 where not asked."""
        found = np.full((3, slots, vertices), -1, np.int64)
        told = np.array(self._tasks, np.int64).reshape(-1, 3, vertices)
        for at, one in zip(self._at, told, strict=True):
            found[:, at] = one
        return found


def _number(value: float | None) -> float:
    return float("nan") if value is None else float(value)
