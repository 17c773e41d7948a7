"""The base of all guardrails: a change in place to a working copy, and the protocol around it.

A guardrail only ever clamps a vertex to a range, or replaces a whole job by a configuration, and
both follow from the snapshot and the guardrail's memory, not from the decision. Such steps, one
after the other, change nothing when done again: a chain is idempotent.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import numpy as np

from dsp_gym.arrays import Bools, Ints, plain
from dsp_gym.compiling import njit
from dsp_gym.loop.configuration import Configured
from dsp_gym.loop.decision import GuardedDecision, Intervention, InterventionKind, ScalingDecision
from dsp_gym.loop.per_job_state import Kept, RowMemory
from dsp_gym.loop.protocols import Guardrail, Mask
from dsp_gym.loop.snapshot import MetricsSnapshot
from dsp_gym.loop.topology import JobFacts, Topology
from dsp_gym.numba_handles import direct


class Restriction(Kept):
    """One guardrail. Subclasses implement `restrict` and `reason`.

    A guardrail remembers snapshots in `watch`, and counts decisions in `commit`.
    """

    name: str = ""
    coupled: bool = False
    """True if its change to one vertex depends on the decision for another."""
    weighs: ClassVar[bool] = False
    """True if a decision as a whole passes or not: later changes to it are weighed again."""

    kind: ClassVar[InterventionKind] = "limited"
    """Kind of its interventions."""

    @property
    def replacement(self) -> str | None:
        """Name of the policy that decides instead; None where it only restricts."""
        return None

    @property
    def is_inert(self) -> bool:
        """Whether it never steps in, because its configuration asks for nothing."""
        return False

    def __init__(self, memory: RowMemory | None = None) -> None:
        self._memory = self._kept = memory or RowMemory({})

    def reset(self, jobs: Topology, seeds: Ints, mask: Mask | None = None) -> None:
        self._memory.reset(jobs, mask)

    def restrict(self, snapshot: MetricsSnapshot, parallelism: Ints, level: Ints) -> Bools:
        """Change the working copy in place.

        Returns:
            (J,) flags, True for the jobs it changed.
        """
        raise NotImplementedError

    def reason(self, snapshot: MetricsSnapshot, job: int) -> str:
        """Say why it stepped in; to be called for the jobs it changed, before `commit`.

        Returns:
            One sentence or less, with the values it looked at.
        """
        raise NotImplementedError

    def replaces(self, snapshot: MetricsSnapshot) -> Bools:
        """Return True for the jobs in which `replacement` decides, changed or not, (J,).

        Returns:
            Flags by job; all False for a guardrail that only restricts.
        """
        return np.zeros(len(snapshot), dtype=bool)

    def intervention(
        self, snapshot: MetricsSnapshot, job: int, *, explain: bool = True
    ) -> Intervention:
        """Describe its change to one job; to be called for the jobs it changed, before `commit`.

        Returns:
            The job, the guardrail's name, its kind and the reason, empty without `explain`.
        """
        reason = self.reason(snapshot, job) if explain else ""
        return Intervention(job, self.name, reason, self.kind, self.replacement)

    def allow(self, snapshot: MetricsSnapshot, decision: ScalingDecision) -> GuardedDecision:
        parallelism, level = copied(decision)
        trips = self.restrict(snapshot, parallelism, level)
        said = tuple(self.intervention(snapshot, job) for job in np.flatnonzero(trips).tolist())
        return GuardedDecision(parallelism, level, decision, trips[:, None], said)

    def commit(self, snapshot: MetricsSnapshot, guarded: GuardedDecision) -> None:
        """Record the decision that was enacted; most guardrails watch the snapshot alone."""
        self.watch(snapshot)

    def watch(self, snapshot: MetricsSnapshot) -> None:
        """Remember a snapshot on which no decision was enacted; most guardrails keep nothing."""

    def memories(self) -> tuple[RowMemory, ...] | None:
        """Return all of its memory; None where a part of it is not kept by rows.

        Returns:
            The memories, in a fixed order.
        """
        return (self._memory,)


class Working(NamedTuple):
    """The working copy of a decision on J jobs, changed in place by compiled code."""

    parallelism: Ints  # (J, V)
    memory_level: Ints  # (J, V)
    trips: Bools  # (J,) True where it was changed


def copied(decision: Configured) -> tuple[Ints, Ints]:
    """Copy a decision for guardrails to change.

    Returns:
        Parallelism and memory level, (J, V) each, as compiled code takes them.
    """
    return (
        np.array(decision.parallelism, dtype=np.int64, order="C"),
        np.array(decision.memory_level, dtype=np.int64, order="C"),
    )


def working(parallelism: Ints, level: Ints) -> Working:
    """Make a working copy (J, V) as compiled code takes it, without changes yet.

    Returns:
        The given arrays themselves, and flags (J,) that are all False.
    """
    return Working(parallelism, level, np.zeros(len(parallelism), dtype=bool))


def is_coupled(guardrail: Guardrail) -> bool:
    """Return whether a guardrail's change to one vertex depends on the decision for another.

    Returns:
        True where all vertices of a job have to be decided together.
    """
    return isinstance(guardrail, Restriction) and guardrail.coupled


def hold(snapshot: MetricsSnapshot, rows: Bools, parallelism: Ints, level: Ints) -> Bools:
    """Keep the running configuration in the given rows.

    Returns:
        (J,) flags, True where that changes something.
    """
    return replace(snapshot, rows, snapshot.parallelism, snapshot.memory_level, parallelism, level)


def replace(
    snapshot: MetricsSnapshot,
    rows: Bools,
    wanted_parallelism: Ints,
    wanted_level: Ints,
    parallelism: Ints,
    level: Ints,
) -> Bools:
    """Take another configuration in the given rows.

    Returns:
        (J,) flags, True where that changes something.
    """
    work = working(parallelism, level)
    wanted, wanted_memory = plain(wanted_parallelism), plain(wanted_level)
    _replace(snapshot.topology.facts, rows, wanted, wanted_memory, work)
    return work.trips


@njit(cache=True, nogil=True, borrows=True)
def replace_rows(
    t: JobFacts,
    rows: Bools,
    wanted_parallelism: Ints,
    wanted_level: Ints,
    work: Working,
) -> None:
    """Take the wanted configuration at every vertex v of the given rows j."""
    p, level = work.parallelism, work.memory_level
    for j in range(p.shape[0]):
        if not rows[j]:
            continue
        for v in range(t.n[t.row[j]]):
            if p[j, v] != wanted_parallelism[j, v] or level[j, v] != wanted_level[j, v]:
                p[j, v], level[j, v] = wanted_parallelism[j, v], wanted_level[j, v]
                work.trips[j] = True


_replace = direct(replace_rows)
