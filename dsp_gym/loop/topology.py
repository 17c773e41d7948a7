"""The fixed facts of the jobs of a batch: graph, bounds, memory levels, TaskManagers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from dsp_gym.arrays import Bools, Floats, Ints
from dsp_gym.job.spec import JobSpec
from dsp_gym.job.tables import JobTables, compile_jobs
from dsp_gym.numba_handles import Handle, by_address, handle


class JobFacts(NamedTuple):
    """The fixed facts a policy or guardrail reads, for compiled code.

    J rows, K distinct jobs, V vertices, L memory levels. A small part of `JobTables`.
    """

    row: Ints  # (J,) job of each row, one of K
    n: Ints  # (K,) vertices
    kind: Ints  # (K, V) SOURCE, OPERATOR, SINK; -1 beyond n
    upstream: Ints  # (K, V, MAX_INPUTS) column of an input, -1 = none
    min_parallelism: Ints  # (K, V)
    max_parallelism: Ints  # (K, V)
    partitions: Ints  # (K, V) of a source, 0 = unknown
    stateful: Ints  # (K, V) 0 or 1
    levels: Ints  # (K,)
    hot: Floats  # (K, V, P + 1) key groups on the fullest subtask over the mean, by parallelism
    subtask_mib: Floats  # (K, L + 1) heap + network + managed by level + 1
    has_log: Ints  # (K,)
    outage_s: Floats  # (K, 3) p10, p50, p90 of a rescale
    slo_s: Floats  # (K,)
    core_hour: Floats  # (K,) money
    gib_hour: Floats  # (K,) money


by_address(JobFacts)


@dataclass(frozen=True, eq=False)
class Topology:
    """Fixed facts of J jobs of at most V vertices, columns in topological order.

    `tables` hold K distinct jobs; `row` maps each of the J jobs to one of them.
    """

    specs: tuple[JobSpec, ...]
    tables: JobTables
    row: Ints  # (J,)

    @cached_property
    def facts(self) -> JobFacts:
        """The facts for compiled code."""
        # The tables are shared, not copied: facts are views of some of their columns.
        columns = {name: getattr(self.tables, name) for name in JobFacts._fields[1:]}
        return JobFacts(row=np.ascontiguousarray(self.row), **columns)

    @cached_property
    def handle(self) -> Handle[JobFacts]:
        """The facts by one address, which takes less time to pass than their arrays."""
        return handle(self.facts)

    @cached_property
    def max_vertices(self) -> int:
        """V, the padded number of vertices."""
        return int(self.tables.kind.shape[1])

    @cached_property
    def _names(self) -> tuple[tuple[str, ...], ...]:
        return tuple(tuple(v.name for v in spec.topological_order()) for spec in self.specs)

    def __reduce__(self) -> tuple[type[Topology], tuple[tuple[JobSpec, ...], JobTables, Ints]]:
        return Topology, (self.specs, self.tables, self.row)

    @classmethod
    def of(cls, specs: Sequence[JobSpec], row: Sequence[int] | None = None) -> Topology:
        """Compile the topology of a batch; without `row` each job stands once.

        Returns:
            J rows, one per entry of `row`, over the distinct jobs.
        """
        rows = np.arange(len(specs)) if row is None else np.asarray(row)
        return cls(tuple(specs), compile_jobs(specs), rows.astype(np.int64))

    def __len__(self) -> int:
        return len(self.row)

    @property
    def mask(self) -> Bools:
        """True where a column is a vertex, (J, V)."""
        return np.asarray(self.tables.kind[self.row] >= 0)

    def spec(self, job: int) -> JobSpec:
        """Return the job file of one row.

        Returns:
            The job file, shared by all rows of that job.
        """
        return self.specs[int(self.row[job])]

    def names(self, job: int) -> tuple[str, ...]:
        """Return the vertex names of one row in column order.

        Returns:
            One name per vertex of that job; arrays (J, V) may have further columns of padding.
        """
        return self._names[int(self.row[job])]

    def take(self, jobs: Sequence[int] | Ints) -> Topology:
        """Return the same facts for some of the rows.

        Returns:
            A topology of that many rows; the tables are shared.
        """
        return Topology(self.specs, self.tables, self.row[np.asarray(jobs)])
