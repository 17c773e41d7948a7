"""A journal as arrays: configuration, decisions of every policy and outcome, slot by slot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dsp_gym.arrays import Bools, Floats, Ints
from dsp_gym.errors import SchemaError
from dsp_gym.loop.snapshot import Status
from dsp_gym.records.base import Body
from dsp_gym.records.journal import Entry, read

__all__ = ["ObservedRun", "Decided", "read_course"]


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


@dataclass(frozen=True, slots=True)
class Decided:
    """One policy's decisions on one job over K slots of V vertices; -1 where it was not asked."""

    parallelism: Ints  # (K, V) after guardrails
    memory_level: Ints
    proposed: Ints  # (K, V) parallelism before them
    asked: Bools  # (K,)
    trips: Mapping[str, int]  # slots in which a guardrail changed the decision, by guardrail
    failures: Mapping[str, int]  # by cause


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
    held: int  # slots without a snapshot or an answer; the journal has the reason
    interval_s: float  # between decisions
    configuration: Mapping[str, object] | None  # of the run, where the journal holds it
    simulated: bool = False  # whether the job was one

    def __len__(self) -> int:
        return len(self.t_s)

    @property
    def days(self) -> float:
        """From the first decision to the last."""
        return float(self.t_s[-1] - self.t_s[0] + self.interval_s) / 86_400 if len(self) else 0.0

    @property
    def coverage(self) -> float:
        """Share of the decision slots of that time with a decision and a known outcome."""
        if not len(self):
            return 0.0
        wanted = max(1.0, round((self.t_s[-1] - self.t_s[0]) / self.interval_s) + 1.0)
        made = np.count_nonzero(np.isfinite(self.outcome["seconds"]))
        return float(min(1.0, made / wanted))

    @property
    def tells_latency(self) -> bool:
        """Whether sinks measured the age of records."""
        return bool(np.isfinite(self.outcome["latency_p95_s"]).any())

    def next_up(self) -> Ints:
        """Finds, for each slot, the first one from it on in which the job is up.

        Returns:
            Slots (K,); the slot itself if there is none.
        """
        slots = np.arange(len(self))
        after = np.minimum.accumulate(np.where(self.up, slots, len(self))[::-1])[::-1]
        return np.where(after < len(self), after, slots)

    def segments(self, gap_intervals: float = 3.0, least: int = 10) -> list[slice]:
        """Cuts the course into stretches without a gap, each of at least `least` slots.

        A slot whose outcome is unknown ends a stretch: the load of that time is not known. In a
        journal that holds backlogs, a stretch begins with a known one.

        Returns:
            Slices over the slots.
        """
        known = np.isfinite(self.outcome["arrived"]) & (self.outcome["seconds"] > 0)
        owed = np.isfinite(self.pending).any(axis=1)
        begins = known & (owed | ~owed.any())
        late = np.diff(self.t_s, prepend=self.t_s[:1]) > gap_intervals * self.interval_s
        found, begin = [], None
        for k in range(len(self) + 1):
            ends = k == len(self) or not known[k] or late[k]
            if begin is not None and ends:
                found.append(slice(begin, k))
                begin = None
            if begin is None and k < len(self) and begins[k]:
                begin = k
        return [part for part in found if part.stop - part.start >= least]


def read_course(folder: str | Path, job: str | None = None) -> ObservedRun:
    """Reads the observed run of one job from a journal.

    Args:
        folder: the journal's folder.
        job: name of the job; None: the only one.

    Returns:
        The observed run as arrays over its decision slots.

    Raises:
        SchemaError: The journal holds no decisions, or several jobs and none is named.
    """
    entries = list(read(folder))
    jobs = list(dict.fromkeys(entry.job for entry in entries if entry.kind == "snapshot"))
    if not jobs or (job is not None and job not in jobs):
        there = f"; it has {', '.join(jobs)}" if jobs else ""
        raise SchemaError(
            f"holds no decisions{f' on {job!r}' if job else ''}{there}",
            file=folder,
            remedy="Name a journal that `dsp-gym shadow` or `dsp-gym run` wrote.",
        )
    if job is None and len(jobs) > 1:
        raise SchemaError(
            f"holds several jobs: {', '.join(jobs)}", file=folder, remedy="Name one: --job NAME"
        )
    return _course(job or jobs[0], [e for e in entries if e.job == (job or jobs[0])])


@dataclass(slots=True)
class _Slot:
    seen: Body
    decisions: dict[str, Body]
    outcome: Body


def _course(job: str, entries: Sequence[Entry]) -> ObservedRun:
    slots: list[_Slot] = []
    failures: dict[str, Counter[str]] = {}
    held = 0
    configuration: Mapping[str, object] | None = None
    simulated = False
    savepoints: list[tuple[float, float]] = []
    for entry in entries:
        body = entry.body
        if entry.kind == "snapshot":
            slots.append(_Slot(body, {}, {}))
        elif entry.kind == "guard" and slots and entry.policy is not None:
            slots[-1].decisions[entry.policy] = body
        elif entry.kind == "outcome" and slots:
            slots[-1].outcome = body
        elif entry.kind == "actuation" and body.get("event") == "started":
            configuration = body.get("configuration")
            simulated = bool(body.get("simulated"))
        elif entry.kind == "actuation" and body.get("event") == "savepoint":
            savepoints.append((entry.t_s, float(body["seconds"])))
        elif entry.kind == "actuation" and body.get("event") == "decided":
            held += body.get("held") is not None
        elif entry.kind == "error" and body.get("stage") == "policy" and entry.policy is not None:
            failures.setdefault(entry.policy, Counter())[str(body.get("cause"))] += 1
        elif entry.kind == "error" and body.get("stage") == "collector":
            held += 1
    names = tuple(vertex["name"] for vertex in slots[-1].seen["vertices"])
    slots = [s for s in slots if tuple(v["name"] for v in s.seen["vertices"]) == names]
    t_s = np.array([float(slot.seen["t_s"]) for slot in slots])
    order = np.argsort(t_s, kind="stable")  # a clock may have gone back
    slots, t_s = [slots[i] for i in order], t_s[order]
    steps = np.diff(t_s)
    policies = list(dict.fromkeys(name for slot in slots for name in slot.decisions))
    return ObservedRun(
        job=job,
        vertices=names,
        t_s=t_s,
        up=np.array([slot.seen["status"] in _UP for slot in slots]),
        parallelism=_configured(slots, "parallelism"),
        memory_level=_configured(slots, "memory_level"),
        running_since_s=_of_job(slots, "running_since_s"),
        outage_s=_of_job(slots, "outage_s"),
        pending=_of_vertices(slots, "pending_records"),
        state_mib=_of_vertices(slots, "state_mib"),
        outcome={
            name: np.array([_number(slot.outcome.get(name)) for slot in slots]) for name in OUTCOMES
        },
        age_s=np.nan_to_num(np.array([_number(s.outcome.get("data_age_s")) for s in slots])),
        arrivals=tuple(
            np.array(s.outcome.get("arrivals") or [], np.float64).reshape(-1, 2) for s in slots
        ),
        savepoints=np.array(savepoints, np.float64).reshape(-1, 2),
        decided={name: _decided(slots, name, names, failures.get(name)) for name in policies},
        held=held,
        interval_s=float(np.median(steps)) if len(steps) else 60.0,
        configuration=configuration,
        simulated=simulated,
    )


def _of_job(slots: Sequence[_Slot], metric: str) -> Floats:
    return np.array([_number(s.seen["metrics"].get(metric)) for s in slots])


def _of_vertices(slots: Sequence[_Slot], metric: str) -> Floats:
    return np.array(
        [[_number(v["metrics"].get(metric)) for v in s.seen["vertices"]] for s in slots]
    )


def _configured(slots: Sequence[_Slot], field: str) -> Ints:
    return np.array([[int(v[field]) for v in s.seen["vertices"]] for s in slots], np.int64)


def _decided(
    slots: Sequence[_Slot], policy: str, names: Sequence[str], failures: Counter[str] | None
) -> Decided:
    shape = (len(slots), len(names))
    arrays = {key: np.full(shape, -1, np.int64) for key in ("parallelism", "level", "proposed")}
    asked = np.zeros(len(slots), bool)
    trips: Counter[str] = Counter()
    for k, slot in enumerate(slots):
        body = slot.decisions.get(policy)
        if body is None:
            continue
        asked[k] = True
        wanted, proposed = (
            {v["name"]: v for v in body.get(key) or body["vertices"]}
            for key in ("vertices", "proposed")
        )
        for v, name in enumerate(names):
            arrays["parallelism"][k, v] = wanted[name]["parallelism"]
            arrays["level"][k, v] = wanted[name]["memory_level"]
            arrays["proposed"][k, v] = proposed[name]["parallelism"]
        trips.update(_guardrails(body.get("interventions", ())))
    return Decided(
        arrays["parallelism"],
        arrays["level"],
        arrays["proposed"],
        asked,
        dict(trips),
        dict(failures or {}),
    )


def _guardrails(interventions: Iterable[Body]) -> set[str]:
    return {str(found["guardrail"]) for found in interventions}


def _number(value: float | None) -> float:
    return float("nan") if value is None else float(value)
