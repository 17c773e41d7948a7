"""Histories replayed: the deployed configurations, and each policy with its own consequences.

All jobs of a share are one batch, stretch by stretch, and a row does not depend on the others: how
jobs are spread over processes changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dsp_gym.arrays import Floats, Ints
from dsp_gym.backends.simulated.jobs import SimulatedJobs
from dsp_gym.control.loop import ControlLoop, LoopStep
from dsp_gym.control.modes import INCUMBENT
from dsp_gym.engine import Tell
from dsp_gym.evaluation.backtest.history import JobHistory
from dsp_gym.evaluation.backtest.result import (
    BLOCK_FIELDS,
    JobReplay,
    ReplayedRescale,
    blocks_of,
    thinned,
)
from dsp_gym.evaluation.batch_of_runs import reason_of
from dsp_gym.evaluation.shipped_work import ShippedWork
from dsp_gym.guardrails.chain import build_for
from dsp_gym.guardrails.config import GuardrailsConfig
from dsp_gym.job.tables import SOURCE
from dsp_gym.loop.decision import ScalingDecision
from dsp_gym.loop.protocols import Mask, Policy, State
from dsp_gym.loop.snapshot import MetricsSnapshot
from dsp_gym.loop.topology import Topology
from dsp_gym.policies.config import PolicyConfig
from dsp_gym.policies.registry import make
from dsp_gym.simulation.options import Measurement, SimulationOptions
from dsp_gym.simulation.state import X

__all__ = ["DeployedReplay", "ReplayShare", "play", "played"]

WARM_UP_S = 300
"""The model runs in the first configuration before a stretch: caches and windows fill."""

TOLD_EVERY = 200
"""Decisions between two words about progress."""


@dataclass(frozen=True, slots=True, eq=False)
class ReplayShare:
    """Histories under one policy; `policy` None: the deployed configurations."""

    label: str
    policy: PolicyConfig | None
    guardrails: GuardrailsConfig | None
    histories: tuple[JobHistory, ...]  # of equal intervals and windows
    seed: int = 0


@dataclass(frozen=True, slots=True)
class _Row:
    """One stretch of one history."""

    job: int
    part: slice

    @property
    def slots(self) -> int:
        return int(self.part.stop - self.part.start)


class DeployedReplay:
    """Decides the configuration that was deployed in each slot.

    Args:
        parallelism: (K, J, V); the last slot of a shorter row holds on.
        memory_level: likewise.
    """

    def __init__(self, parallelism: Ints, memory_level: Ints) -> None:
        self.name = INCUMBENT
        self._parallelism, self._level, self._at = parallelism, memory_level, 0

    def reset(self, jobs: Topology, seeds: Ints, mask: Mask | None = None) -> None:
        """Start from the first slot."""
        self._at = 0

    def decide(self, snapshot: MetricsSnapshot) -> ScalingDecision:
        at, self._at = self._at, self._at + 1
        reasons = ("deployed",) * len(snapshot)
        return ScalingDecision(self._parallelism[at].copy(), self._level[at].copy(), reasons)

    def state(self) -> State:
        return {"at": self._at}

    def restore(self, state: State) -> None:
        self._at = int(state["at"])


def play(work: ShippedWork[ReplayShare], tell: Tell[float]) -> tuple[JobReplay, ...]:
    """Replays a share on an engine.

    Returns:
        One result per history, in order.
    """
    with work.unpacked() as policy:
        share = work.work
        return played(share if share.policy is None else replace(share, policy=policy), tell)


def played(share: ReplayShare, tell: Tell[float] = lambda _: False) -> tuple[JobReplay, ...]:
    """Replays a share here.

    Returns:
        One result per history, in order.
    """
    rows = [_Row(j, part) for j, one in enumerate(share.histories) for part in one.stretches()]
    jobs = _started(share, rows)
    steps = max(row.slots for row in rows)
    deployed = DeployedReplay(*_configurations(share.histories, rows, jobs.topology, steps))
    policy: Policy = deployed if share.policy is None else make(share.policy)
    chain = None if share.policy is None else build_for(policy, share.guardrails)
    loop = ControlLoop(jobs, policy, chain, share.histories[0].interval_s)
    loop.reset(_seeds(share, rows))
    outages = _Outages(share.histories, rows, jobs) if share.policy is None else None
    record = _Record(rows, jobs.topology, steps)
    for k in range(steps):
        if outages is not None:
            outages.take(k)
        record.take(k, loop.step())
        if k % TOLD_EVERY == TOLD_EVERY - 1:
            tell((k + 1) / steps)
    return tuple(record.of(j, history, share.label) for j, history in enumerate(share.histories))


def _seeds(share: ReplayShare, rows: Sequence[_Row]) -> Ints:
    """One per row: outages and service times are those of the job and stretch, for all policies."""
    return np.array([share.seed + 1000 * row.part.start for row in rows], dtype=np.int64)


def _started(share: ReplayShare, rows: Sequence[_Row]) -> SimulatedJobs:
    """The models at the begin of each stretch, with the backlog that was observed."""
    window = share.histories[0].window
    measurement = Measurement(window_s=window.window_s, stabilization_s=window.stabilization_s)
    # Each row has tables of its own: in a replay its next outage is the observed one.
    topology = Topology.of([share.histories[row.job].spec for row in rows])
    jobs = SimulatedJobs(topology, SimulationOptions(measurement=measurement, threads=1))
    tasks, level = _configurations(share.histories, rows, topology, 1)
    jobs.reset(
        _seeds(share, rows),
        _rates(share.histories, rows),
        parallelism=tasks[0],
        memory_level=level[0],
    )
    jobs.advance(WARM_UP_S)
    for j, row in enumerate(rows):
        history, first = share.histories[row.job], row.part.start
        lag_s = history.lag_s[max(0, first - 1)]
        if np.isfinite(lag_s):
            kinds = jobs.topology.tables.kind[jobs.topology.row[j]]
            sources = np.flatnonzero(kinds == SOURCE)
            owed = lag_s * history.load_per_s[first] / len(sources)
            jobs.state.vertex[j, sources, X.pending] = owed
    return jobs


def _rates(histories: Sequence[JobHistory], rows: Sequence[_Row]) -> Floats:
    """(J, T) records/s of every second, the warm-up before; the last one holds on."""
    loads = [_every_second(histories[row.job], row.part) for row in rows]
    longest = max(map(len, loads))
    return np.array([np.pad(load, (0, longest - len(load)), mode="edge") for load in loads])


def _every_second(history: JobHistory, part: slice) -> Floats:
    load = np.repeat(np.maximum(history.load_per_s[part], 0.0), history.interval_s)
    return np.concatenate([np.full(WARM_UP_S, load[0]), load])


def _configurations(
    histories: Sequence[JobHistory], rows: Sequence[_Row], topology: Topology, steps: int
) -> tuple[Ints, Ints]:
    """Deployed tasks and levels (K, J, V) of every slot; the last one of a row holds on."""
    found = []
    for name in ("parallelism", "memory_level"):
        values = np.zeros((steps, len(rows), topology.max_vertices), dtype=np.int64)
        for j, row in enumerate(rows):
            own = getattr(histories[row.job], name)[row.part][:steps]
            values[: len(own), j, : own.shape[1]] = own
            values[len(own) :, j, : own.shape[1]] = own[-1]
        found.append(values)
    return found[0], found[1]


class _Outages:
    """Gives the next rescale of a row the duration that was observed."""

    def __init__(
        self, histories: Sequence[JobHistory], rows: Sequence[_Row], jobs: SimulatedJobs
    ) -> None:
        self._jobs = jobs
        self._known: dict[int, list[tuple[int, float]]] = {}
        for j, row in enumerate(rows):
            outages = histories[row.job].outage_s[row.part]
            for k in np.flatnonzero(np.isfinite(outages)).tolist():
                self._known.setdefault(k, []).append((j, float(outages[k])))

    def take(self, k: int) -> None:
        """Set the outages of the rescales that are asked for in a slot."""
        tables, state = self._jobs.topology.tables, self._jobs.state
        for j, outage_s in self._known.get(k, ()):
            row = self._jobs.topology.row[j]
            restore_s = state.vertex[j, :, X.state].sum() / tables.restore_mib_s[row]
            tables.outage_s[row] = max(0.0, outage_s - float(restore_s))


class _Record:
    """Outcomes and decisions of every row, slot by slot."""

    def __init__(self, rows: Sequence[_Row], topology: Topology, steps: int) -> None:
        self._rows, self._topology = rows, topology
        names = ("seconds", "cost", "slo_s", "rescales", "pending_s", "latency_p95_s")
        self._outcome = {name: np.zeros((steps, len(rows))) for name in names}
        self._tasks = np.zeros((steps, len(rows)))
        self._changes: dict[int, list[ReplayedRescale]] = {j: [] for j in range(len(rows))}
        self._slots = np.array([row.slots for row in rows])
        kinds = topology.tables.kind[topology.row]
        self._scaled = (kinds >= 0) & (kinds != SOURCE)

    def take(self, k: int, step: LoopStep) -> None:
        """Take in what a slot brought."""
        for name, values in self._outcome.items():
            values[k] = getattr(step.outcome, name)
        running = step.guarded.parallelism
        self._tasks[k] = np.where(self._scaled, running, 0).sum(axis=1)
        for j in np.flatnonzero((step.outcome.rescales > 0) & (k < self._slots)).tolist():
            self._changes[j].append(self._change(k, j, step))

    def _change(self, k: int, j: int, step: LoopStep) -> ReplayedRescale:
        names, before, after = self._topology.names(j), step.snapshot, step.guarded
        moved = []
        for v, name in enumerate(names):
            old = int(before.parallelism[j, v]), int(before.memory_level[j, v])
            new = int(after.parallelism[j, v]), int(after.memory_level[j, v])
            if old[0] != new[0]:
                moved.append(f"{name} {old[0]} → {new[0]}")
            if old[1] != new[1]:
                moved.append(f"{name} memory level {old[1]} → {new[1]}")
        return ReplayedRescale(slot=k, what=", ".join(moved), reason=reason_of(step, j))

    def of(self, job: int, history: JobHistory, label: str) -> JobReplay:
        """The result of one history, its stretches joined."""
        own = [(j, row) for j, row in enumerate(self._rows) if row.job == job]
        at = np.concatenate([np.arange(row.part.start, row.part.stop) for _, row in own])

        def joined(values: Floats) -> Floats:
            return np.concatenate([values[: row.slots, j] for j, row in own])

        found: Mapping[str, Floats] = {n: joined(v) for n, v in self._outcome.items()}
        changes = [
            one.model_copy(update={"slot": row.part.start + one.slot})
            for j, row in own
            for one in self._changes[j]
        ]
        line = {
            "subtasks": joined(self._tasks),
            "cost_per_h": 3600 * found["cost"] / found["seconds"],
            "latency_s": found["latency_p95_s"],
            "lag_s": found["pending_s"],
        }
        measured = np.isfinite(history.late[at])
        seconds = float(found["seconds"][measured].sum())
        late = float(found["slo_s"][measured].sum()) / seconds if seconds else float("nan")
        return JobReplay(
            policy=label,
            job=history.name,
            blocks=blocks_of(history, at, {name: found[name] for name in BLOCK_FIELDS}),
            late_where_measured=late if seconds else None,
            line=thinned(history, at, line),
            changes=tuple(changes),
        )
