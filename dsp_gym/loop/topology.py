"""What is fixed about the jobs of a batch: graph, bounds, memory levels, TaskManagers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from dsp_gym.arrays import Bools, Ints
from dsp_gym.job.spec import JobSpec
from dsp_gym.job.tables import JobTables, compile_jobs


@dataclass(frozen=True, slots=True, eq=False)
class Topology:
    """Fixed facts of J jobs of at most V vertices, columns in topological order.

    `tables` hold K distinct jobs, `row` says which one each of the J jobs is.
    """

    specs: tuple[JobSpec, ...]
    tables: JobTables
    row: Ints  # (J,)
    _names: tuple[tuple[str, ...], ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        names = tuple(tuple(v.name for v in spec.topological_order()) for spec in self.specs)
        object.__setattr__(self, "_names", names)

    @classmethod
    def of(cls, specs: Sequence[JobSpec], row: Sequence[int] | None = None) -> Topology:
        """Topology of a batch; without `row` each job stands once."""
        rows = np.arange(len(specs)) if row is None else np.asarray(row)
        return cls(tuple(specs), compile_jobs(specs), rows.astype(np.int64))

    def __len__(self) -> int:
        return len(self.row)

    @property
    def max_vertices(self) -> int:
        """V, the padded number of vertices."""
        return int(self.tables.kind.shape[1])

    @property
    def mask(self) -> Bools:
        """True where a column is a vertex, (J, V)."""
        return np.asarray(self.tables.kind[self.row] >= 0)

    def spec(self, job: int) -> JobSpec:
        """The job file of one row."""
        return self.specs[int(self.row[job])]

    def names(self, job: int) -> tuple[str, ...]:
        """Vertex names of one row in column order."""
        return self._names[int(self.row[job])]

    def take(self, jobs: Sequence[int] | Ints) -> Topology:
        """The same facts for some of the rows."""
        return Topology(self.specs, self.tables, self.row[np.asarray(jobs)])
