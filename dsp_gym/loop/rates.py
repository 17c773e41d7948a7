"""DS2's model of a job: true rates, selectivities, demand and optimal parallelism.

Kalavri et al., "Three steps is all you need", OSDI 2018, equations 1-8, for a whole batch in one
compiled pass. The ds2 policy, the environment's features of DS2 and the capacity floor share it.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, cast

import numpy as np

from dsp_gym.arrays import ColumnIndex, Floats, Ints, indices
from dsp_gym.compiling import njit
from dsp_gym.job.tables import SOURCE
from dsp_gym.loop.snapshot import VERTEX, MetricsSnapshot, SnapshotArrays
from dsp_gym.loop.topology import JobFacts
from dsp_gym.numba_handles import direct

SourceRate = Literal["offered", "observed"]
"""The rate that the sources count with.

offered: arrivals (observed output plus growth of the backlog), where pending records are seen.
observed: the sources' output, the only rate there is when a generator without a log is held back by
backpressure, as in Justin's runs.
"""


OFFERED = ("ds2_rates", "offered")
"""Key under which a snapshot keeps `ds2_rates` of the offered rate."""


RATES: ColumnIndex = indices("RATES", ("true_rate_per_task", "selectivity", "demand", "optimal"))
"""Place of each of the model's quantities in `Ds2Rates.block`."""


class Ds2Rates(NamedTuple):
    """The model's quantities per vertex; NaN where the metrics do not suffice."""

    block: Floats
    """(len(RATES), J, V): all quantities, as compiled code takes them."""

    @classmethod
    def room(cls, snapshot: MetricsSnapshot) -> Ds2Rates:
        """Allocate room for the rates of a snapshot.

        Returns:
            Rates that are not filled in yet.
        """
        return cls(np.empty((len(RATES), *snapshot.arrays.parallelism.shape)))

    @property
    def true_rate_per_task(self) -> Floats:
        """Records/s that one subtask processes when never idle or blocked, (J, V)."""
        return np.asarray(self.block[RATES.true_rate_per_task])

    @property
    def selectivity(self) -> Floats:
        """Records out per record in, (J, V)."""
        return np.asarray(self.block[RATES.selectivity])

    @property
    def demand(self) -> Floats:
        """Records/s that the vertex would receive if nothing upstream held it back, (J, V)."""
        return np.asarray(self.block[RATES.demand])

    @property
    def optimal(self) -> Floats:
        """Fractional parallelism, (J, V); the running one where it cannot be changed."""
        return np.asarray(self.block[RATES.optimal])

    def take(self, rows: Ints) -> Ds2Rates:
        """Copy the rates of some of the jobs.

        Args:
            rows: (n,) rows.

        Returns:
            Copies for n jobs.
        """
        return Ds2Rates(self.block.take(rows, axis=1))


def ds2_rates(snapshot: MetricsSnapshot, source_rate: SourceRate = "offered") -> Ds2Rates:
    """Compute all quantities of DS2's model from one snapshot, once for each snapshot.

    A vertex that was never busy has shown nothing about its speed: its rate is NaN, not 0, and so
    is its parallelism. A vertex whose bounds leave no choice (source, sink of one task) keeps its
    parallelism.

    Returns:
        The same object for every caller with this snapshot; do not write into it.
    """
    key = ("ds2_rates", source_rate)
    known = snapshot.kept(key)
    if known is None:
        return snapshot.keep(key, computed(snapshot, source_rate))
    return cast(Ds2Rates, known)


def room_for_rates(snapshot: MetricsSnapshot, source_rate: SourceRate) -> tuple[Ds2Rates, bool]:
    """Return the rates of a snapshot, or room that the caller fills by `traverse` at once.

    Returns:
        The rates, (J, V) each, which the snapshot keeps; and whether they are filled.
    """
    key = ("ds2_rates", source_rate)
    known = snapshot.kept(key)
    if known is not None:
        return cast(Ds2Rates, known), True
    return snapshot.keep(key, Ds2Rates.room(snapshot)), False


def computed(snapshot: MetricsSnapshot, source_rate: SourceRate) -> Ds2Rates:
    """Compute DS2's model again; `ds2_rates` does so once for each snapshot.

    Returns:
        The model's quantities, for this caller alone.
    """
    seen = snapshot.arrays
    rates = Ds2Rates.room(snapshot)
    jobs, vertices = seen.parallelism.shape
    room, offered = np.empty(vertices), source_rate == "offered"
    _traverse(snapshot.topology.facts, seen, offered, 0, jobs, rates.block, room)
    return rates


@njit(cache=True, nogil=True, borrows=True)
def traverse(
    t: JobFacts,
    seen: SnapshotArrays,
    offered: bool,
    low: int,
    high: int,
    rates: Floats,
    emitted: Floats,
) -> None:
    """Fill the rates of jobs low..high-1 (row j, job file k), along vertices v from the sources.

    `emitted` is room (V,) for the output of a vertex if nothing held it back, records/s:
    o_j[lambda_o]* of equation 8; u is an input of v.
    """
    vertices = seen.parallelism.shape[1]
    records_in, records_out = (
        seen.vertex[VERTEX.records_in_per_s],
        seen.vertex[VERTEX.records_out_per_s],
    )
    busy, growth = seen.vertex[VERTEX.busy_ms_per_s], seen.vertex[VERTEX.pending_growth_per_s]
    rate, selectivity = rates[RATES.true_rate_per_task], rates[RATES.selectivity]
    demand, optimal = rates[RATES.demand], rates[RATES.optimal]
    for j in range(low, high):
        k = t.row[j]
        # Topological order: emitted[u] is known before v needs it.
        for v in range(vertices):
            rate[j, v] = selectivity[j, v] = demand[j, v] = optimal[j, v] = np.nan
            emitted[v] = np.nan
            if t.kind[k, v] < 0:
                continue
            arriving, leaving = records_in[j, v], records_out[j, v]
            p = seen.parallelism[j, v]
            # Equation 1: records processed over useful time, here busy ms per s and subtask.
            if busy[j, v] > 0.0 and arriving > 0.0 and p > 0:
                rate[j, v] = arriving / (busy[j, v] / 1000.0 * p)
            # Selectivity is the output over the input, both as observed: their ratio is that of
            # true rates.
            if arriving > 0.0:
                selectivity[j, v] = leaving / arriving
            if t.kind[k, v] == SOURCE:
                # The offered rate: records read plus the growth of the backlog, if there is a log.
                read = arriving
                if offered and t.has_log[k] == 1 and not np.isnan(growth[j, v]):
                    read = max(0.0, arriving + growth[j, v])
                    emitted[v] = 0.0 if read == 0.0 else read * selectivity[j, v]
                else:
                    emitted[v] = leaving
                demand[j, v] = read
            else:
                # The demand of a vertex is the ideal output of the vertices upstream (the sum in
                # equation 7).
                total = 0.0
                for i in range(t.upstream.shape[2]):
                    u = t.upstream[k, v, i]
                    if u >= 0:
                        total += emitted[u]
                demand[j, v] = total
                # No input, no output: an idle branch has no measured selectivity.
                emitted[v] = 0.0 if total == 0.0 else total * selectivity[j, v]
            # Equation 7: demand over the true rate of one subtask, not rounded yet.
            if t.min_parallelism[k, v] == t.max_parallelism[k, v]:
                optimal[j, v] = p
            else:
                optimal[j, v] = demand[j, v] / rate[j, v]


_traverse = direct(traverse)
