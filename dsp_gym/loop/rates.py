"""DS2's model of a job: true rates, selectivities, demand and optimal parallelism.

Kalavri et al., "Three steps is all you need", OSDI 2018, equations 1-8, for a whole batch in one
compiled pass. The ds2 policy, the environment's "what DS2 says" and the capacity floor share it.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numba import njit

from dsp_gym.arrays import Floats, Ints
from dsp_gym.loop.snapshot import MetricsSnapshot

__all__ = ["Ds2Rates", "SourceRate", "ds2_rates"]


SourceRate = Literal["offered", "observed"]
"""Which rate the sources are taken to have.

offered: what arrives (observed output plus growth of the backlog), where pending records are seen.
observed: what the sources emit, the only rate there is when a generator without a log is held back
by backpressure, as in Justin's runs.
"""

_SOURCE = 0  # of job.tables.kind, a constant inside compiled code


class Ds2Rates(NamedTuple):
    """The model's quantities per vertex, (J, V); NaN where the metrics do not tell."""

    true_rate_per_task: Floats  # records/s one subtask processes when never idle or blocked
    selectivity: Floats  # records out per record in
    demand: Floats  # records/s the vertex would receive if nothing upstream held it back
    optimal: Floats  # fractional parallelism; the running one where it cannot be changed


def ds2_rates(snapshot: MetricsSnapshot, source_rate: SourceRate = "offered") -> Ds2Rates:
    """All quantities of DS2's model from one snapshot.

    A vertex that was never busy has shown nothing about its speed: its rate is NaN, not 0, and so
    is its parallelism. One whose bounds leave no choice (source, sink of one task) keeps its own.
    """
    topology = snapshot.topology
    tables = topology.tables
    shape = snapshot.parallelism.shape
    rates = Ds2Rates(np.empty(shape), np.empty(shape), np.empty(shape), np.empty(shape))
    _traverse(
        topology.row,
        tables.kind,
        tables.upstream,
        tables.min_parallelism,
        tables.max_parallelism,
        tables.has_log,
        source_rate == "offered",
        np.ascontiguousarray(snapshot.parallelism),
        np.ascontiguousarray(snapshot.records_in_per_s),
        np.ascontiguousarray(snapshot.records_out_per_s),
        np.ascontiguousarray(snapshot.busy_ms_per_s),
        np.ascontiguousarray(snapshot.pending_growth_per_s),
        rates.true_rate_per_task,
        rates.selectivity,
        rates.demand,
        rates.optimal,
    )
    return rates


@njit(cache=True, nogil=True)
def _traverse(
    row: Ints,
    kind: Ints,
    upstream: Ints,
    min_parallelism: Ints,
    max_parallelism: Ints,
    has_log: Ints,
    offered: bool,
    parallelism: Ints,
    records_in: Floats,
    records_out: Floats,
    busy: Floats,
    growth: Floats,
    rate: Floats,
    selectivity: Floats,
    demand: Floats,
    optimal: Floats,
) -> None:
    jobs, vertices = parallelism.shape
    emitted = np.empty(vertices)  # o_j[lambda_o]*, equation 8
    for j in range(jobs):
        k = row[j]
        for v in range(vertices):
            rate[j, v] = selectivity[j, v] = demand[j, v] = optimal[j, v] = np.nan
            emitted[v] = np.nan
            if kind[k, v] < 0:
                continue
            arriving, leaving = records_in[j, v], records_out[j, v]
            p = parallelism[j, v]
            if busy[j, v] > 0.0 and arriving > 0.0 and p > 0:
                rate[j, v] = arriving / (busy[j, v] / 1000.0 * p)
            if arriving > 0.0:
                selectivity[j, v] = leaving / arriving
            if kind[k, v] == _SOURCE:
                read = arriving
                if offered and has_log[k] == 1 and not np.isnan(growth[j, v]):
                    read = max(0.0, arriving + growth[j, v])
                    emitted[v] = 0.0 if read == 0.0 else read * selectivity[j, v]
                else:
                    emitted[v] = leaving
                demand[j, v] = read
            else:
                total = 0.0
                for i in range(upstream.shape[2]):
                    u = upstream[k, v, i]
                    if u >= 0:
                        total += emitted[u]
                demand[j, v] = total
                # Nothing in, nothing out: an idle branch has no measured selectivity.
                emitted[v] = 0.0 if total == 0.0 else total * selectivity[j, v]
            if min_parallelism[k, v] == max_parallelism[k, v]:
                optimal[j, v] = p
            else:
                optimal[j, v] = demand[j, v] / rate[j, v]
