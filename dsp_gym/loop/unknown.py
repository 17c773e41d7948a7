"""What one vertex does not report costs only that vertex: decisions on all others stand.

- `LastKnown` hands a policy the snapshot with the last known values in the place of those lacking
  (`dsp_gym.loop.lacking`), so that rules that weigh all vertices of a job together treat the others
  as before.
- `hold_unknown` then keeps the running configuration where there is no evidence, or, for policies
  that decide on whole jobs, at least takes nothing away there.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from dsp_gym.arrays import Bools, Ints
from dsp_gym.compiling import njit
from dsp_gym.loop.known_values import (
    KnownValues,
    copy_waiting,
    fill_gaps,
    find_gaps,
    look,
    look_closely,
)
from dsp_gym.loop.lacking import Lacked, Needs
from dsp_gym.loop.per_job_state import Kept, Per, RowMemory
from dsp_gym.loop.protocols import Mask, State
from dsp_gym.loop.snapshot import (
    VERTEX_FLOATS,
    MetricsSnapshot,
    SnapshotArrays,
    snapshot_of_arrays,
)
from dsp_gym.loop.topology import JobFacts, Topology
from dsp_gym.numba_handles import Handle, Handles, direct

_NAMED = 3
"""Most values that a sentence names."""

_LACKED = "unknown"


_FIELDS: dict[str, tuple[Per, bool | int | float]] = {
    "value": ("vertex", np.nan),
    "known_s": ("vertex", -1e18),
    "parallelism": ("vertex", -1),
    "level": ("vertex", -1),
}


class LastKnown(Kept):
    """The last known metrics of every vertex, in the place of those that it lacks.

    The values of a job that reports all that is needed wait in its snapshot until a later one lacks
    some: to copy them each time would take longer than many a decision.

    Args:
        asked: What a decision on a vertex needs.
    """

    def __init__(self, asked: Needs) -> None:
        self._kept = self._memory = RowMemory(_FIELDS, depth={"value": len(asked.rows)})
        self._asked = asked
        self._is_shared = False
        self._start(0)

    def _start(self, jobs: int) -> None:
        self._waits, self._doubtful = np.zeros((2, jobs), np.bool_)
        self._table = partial(KnownValues, self._asked, self._waits, self._doubtful)
        self._recent: MetricsSnapshot | None = None  # in which values wait
        self._last: tuple[MetricsSnapshot, MetricsSnapshot] | None = None

    def reset(self, jobs: Topology, mask: Mask | None = None) -> None:
        """Forget all rows, or only those where the mask is True."""
        self._memory.reset(jobs, mask)
        if mask is None or len(self._waits) != len(jobs):
            self._start(len(jobs))
        else:
            self._waits[mask], self._last = False, None

    def state(self) -> State:
        """Return everything that later answers depend on.

        Returns:
            JSON values; `restore` of them continues exactly.
        """
        self._settle()
        return super().state()

    def restore(self, state: State) -> None:
        """Continue from the values of `state()`."""
        super().restore(state)
        self._start(len(self._memory["known_s"]) if state else len(self._waits))

    def memories(self) -> tuple[RowMemory, ...]:
        """Return the whole memory, which holds all values from now on: its rows may be moved.

        Returns:
            Memories by rows.
        """
        self._settle()
        self._is_shared = True
        return (self._memory,)

    def _settle(self) -> None:
        """Copy all values that wait."""
        if self._recent is not None:
            self._doubtful[:] = True
            copy_waiting(self._recent.topology.handle, self._recent.arrays, self._known)

    @property
    def _known(self) -> Handle[KnownValues]:
        return self._memory.handle(self._table)

    def filled(self, snapshot: MetricsSnapshot, *, remember: bool = True) -> MetricsSnapshot:
        """Return the snapshot with last known values where vertices lack what decisions need.

        Args:
            snapshot: J jobs.
            remember: Whether later snapshots may fall back on the values of this one.

        Returns:
            The snapshot itself where nothing is lacking; otherwise a copy, which `hold_unknown`
            knows. The last snapshot gives the same object again.
        """
        if self._last is not None and self._last[0] is snapshot:
            return self._last[1]
        found, known, recent = snapshot, self._known, self._recent or snapshot
        facts, seen, waits = snapshot.topology.handle, snapshot.arrays, not self._is_shared
        if look(facts, seen, recent.arrays.vertex, known, remember, waits):
            copy_waiting(facts, recent.arrays, known)
            found = _looked(snapshot, known, self._doubtful, remember)
        if remember:
            self._last, self._recent = (snapshot, found), snapshot
        return found


def marked(snapshot: MetricsSnapshot, asked: Needs) -> MetricsSnapshot:
    """Return the snapshot for `hold_unknown`, without any memory and with no value filled in.

    Args:
        snapshot: J jobs.
        asked: What a decision on a vertex needs.

    Returns:
        The snapshot itself where nothing is lacking.
    """
    known = _NOTHING_KNOWN.of(id(asked), lambda: _nothing_known(asked))
    return _looked(snapshot, known, np.ones(len(snapshot), np.bool_), False)


_NOTHING_KNOWN = Handles()
"""By the id of what is asked, which each of them keeps alive."""


def _nothing_known(asked: Needs) -> KnownValues:
    none = np.zeros(0, np.bool_)
    return RowMemory.of_none(_FIELDS, {"value": 0}).arrays(partial(KnownValues, asked, none, none))


def _looked(
    snapshot: MetricsSnapshot, known: Handle[KnownValues], doubtful: Bools, remember: bool
) -> MetricsSnapshot:
    """Return the snapshot, or a copy with last known values where a doubtful job lacks some."""
    facts, seen = snapshot.topology.handle, snapshot.arrays
    if not look_closely(facts, seen, known, doubtful, remember):
        return snapshot
    lacked = Lacked.room(seen.parallelism.shape)
    if not find_gaps(facts, seen, known, doubtful, remember, lacked):
        return snapshot
    copy = seen._replace(vertex=seen.vertex.copy())
    fill_gaps(facts, copy, known, lacked)
    found = snapshot_of_arrays(snapshot.topology, copy)
    found.keep(_LACKED, lacked)
    return found


ALL, UNFILLED, NONE = 2, 1, 0
"""Which vertices without evidence keep their configuration; the others give up nothing."""


def hold_unknown(
    snapshot: MetricsSnapshot, parallelism: Ints, level: Ints, keeps: int = ALL
) -> tuple[Ints, Ints]:
    """Keep the running configuration of vertices where a decision is without evidence.

    Of a source that lacks its backlog the load is known from below: more may be given.

    Args:
        snapshot: J jobs, as `LastKnown.filled` or `marked` returned it.
        parallelism: (J, V) wanted.
        level: (J, V) wanted.
        keeps: `ALL`: every such vertex keeps its configuration. `UNFILLED`: those for which no
            last known value stands in; the others may get more tasks and memory, not less. `NONE`:
            all may get more.

    Returns:
        Parallelism and memory level, (J, V); the given arrays where nothing is lacking.
    """
    lacked = snapshot.kept(_LACKED)
    if not isinstance(lacked, Lacked):
        return parallelism, level
    tasks, memory = (np.array(a, np.int64, order="C") for a in (parallelism, level))
    _hold(snapshot.topology.facts, snapshot.arrays, lacked, keeps, tasks, memory)
    return tasks, memory


def told(snapshot: MetricsSnapshot, reasons: Sequence[str], hold: str) -> tuple[str, ...]:
    """Add to the reasons of a decision which values are lacking.

    Args:
        snapshot: J jobs, as `LastKnown.filled` or `marked` returned it.
        reasons: A sentence per job.
        hold: The sentence for a job that does not change, which gives way.

    Returns:
        The sentences, with "kept: METRIC of 'VERTEX' is unknown" where a value is lacking.
    """
    lacked = snapshot.kept(_LACKED)
    if not isinstance(lacked, Lacked):
        return tuple(reasons)
    found, jobs = list(reasons), snapshot.topology
    tables, row = jobs.tables, jobs.row
    # Of a vertex that nothing can be decided on nothing need be said.
    is_open = (tables.min_parallelism < tables.max_parallelism) | (tables.stateful == 1)
    for j in np.flatnonzero((is_open[row] & (lacked.holder >= 0)).any(axis=1)).tolist():
        said = unknown_values(snapshot, j, is_open[row[j]])
        found[j] = said if reasons[j] in ("", hold) else f"{reasons[j]}; {said}"
    return tuple(found)


def unknown_values(snapshot: MetricsSnapshot, job: int, among: Bools | None = None) -> str:
    """Name the values that decisions on a job lack.

    Args:
        snapshot: As `LastKnown.filled` or `marked` returned it.
        job: A row.
        among: (V,) the vertices whose decisions count; None: all.

    Returns:
        A sentence with metric and vertex of the first few; "" where nothing is lacking.
    """
    lacked = snapshot.kept(_LACKED)
    if not isinstance(lacked, Lacked):
        return ""
    names = snapshot.topology.names(job)
    of = slice(None) if among is None else among
    pairs = zip(lacked.metric[job, of].tolist(), lacked.holder[job, of].tolist(), strict=True)
    values = [f"{VERTEX_FLOATS[m]} of '{names[u]}'" for m, u in dict.fromkeys(pairs) if u >= 0]
    more = f" and {len(values) - _NAMED} more" if len(values) > _NAMED else ""
    verb = "is" if len(values) == 1 else "are"
    return f"kept: {', '.join(values[:_NAMED])}{more} {verb} unknown" if values else ""


@direct
@njit(cache=True, nogil=True)
def _hold(
    t: JobFacts, seen: SnapshotArrays, lacked: Lacked, keeps: int, p: Ints, level: Ints
) -> None:
    """Keep the configuration of vertices v of jobs j without evidence, or its lower bound."""
    for j in range(p.shape[0]):
        for v in range(t.n[t.row[j]]):
            if lacked.holder[j, v] < 0:
                continue
            now, now_level = seen.parallelism[j, v], seen.memory_level[j, v]
            kept = keeps == ALL or (keeps == UNFILLED and not lacked.filled[j, v])
            # A trade of tasks for memory takes away, too.
            takes = p[j, v] < now or level[j, v] < now_level
            if takes or (kept and not lacked.is_bound[j, v]):
                p[j, v], level[j, v] = now, now_level
