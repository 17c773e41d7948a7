"""The job of one of StreamBed's queries with its fitted numbers set in place, for searches."""

from __future__ import annotations

import statistics
from collections.abc import Mapping

import numpy as np

from dsp_gym.calibration.mst_job import job_spec
from dsp_gym.calibration.mst_tables import MstRun
from dsp_gym.job.capacity import mst_per_s
from dsp_gym.job.placement import with_slot_memory
from dsp_gym.job.scaling import hottest_share, useful_tasks
from dsp_gym.job.spec import Efficiency
from dsp_gym.job.tables import JobTables, compile_jobs
from dsp_gym.studies.fitting.streambed_data import Query, StreambedCell

MST_NOISE = 0.05
"""Relative noise of a measured MST (StreamBed: repeats vary by about 5.7 %)."""
FEW_KEYS = ("max_agg", "join")
"""Vertices of q5 that group by window end: few of their keys are active, so tasks wait.

The true rate of one stays what it is alone: about 220 K/s for the join with one to three.
"""

MOST_TASKS = 2048
"""Of one vertex, where the budget is beyond what the job files allow."""


class QueryModel:
    """The compiled job with fitted numbers set in place, for searches."""

    def __init__(self, query: Query, text: str) -> None:
        self.query = query
        self.spec = job_spec(text, query.job)
        self.tables: dict[float, JobTables] = {}
        self.column = {v.name: c for c, v in enumerate(self.spec.topological_order())}
        self.values: dict[str, float] = {}

    def set(self, values: Mapping[str, float]) -> None:
        """Set fitted numbers."""
        self.values |= values
        for tables in self.tables.values():
            self._write(tables)

    def predict(self, cell: StreambedCell) -> float:
        """MST of a cell: the median over its repeats, whose parallelism may differ."""
        return statistics.median(self._mst(run) for run in cell.runs)

    def loss(self, cell: StreambedCell, noise: float = MST_NOISE) -> float:
        """Squared log error of the cell, in units of the noise."""
        return float(np.log(self.predict(cell) / cell.mst_per_s) / noise) ** 2

    def _mst(self, run: MstRun) -> float:
        p = np.zeros(len(self.column), np.int64)
        p[[self.column[name] for name in self.query.operators]] = run.parallelism
        return float(mst_per_s(self.tables_of(run.memory_mib), 0, p, np.zeros_like(p)))

    def tables_of(self, memory_mib: float) -> JobTables:
        """The compiled job with a memory per slot.

        Returns:
            Tables of one job, the fitted numbers set.
        """
        if memory_mib not in self.tables:
            large = self.spec.model_copy(update={"max_parallelism_per_vertex": MOST_TASKS})
            self.tables[memory_mib] = compile_jobs([with_slot_memory(large, memory_mib)])
            self._set_key_groups(self.tables[memory_mib])
            self._write(self.tables[memory_mib])
        return self.tables[memory_mib]

    def _set_key_groups(self, tables: JobTables) -> None:
        """The testbed's rounding to key groups, in place of the job file's."""
        groups = self.query.key_groups
        p = np.arange(1, int((groups or 0) / 1.5) + 1)  # more tasks get more groups
        for vertex in self.spec.vertices:
            # With few keys active at a time it is they, not the groups, that are uneven.
            hashed = any(edge.ship == "HASH" for edge in vertex.inputs)
            if groups is not None and hashed and vertex.name not in FEW_KEYS:
                hot = hottest_share(vertex.model_copy(update={"max_parallelism": groups}), p)
                tables.hot[0, self.column[vertex.name], 1 : len(p) + 1] = hot

    def _write(self, tables: JobTables) -> None:
        p = np.arange(1, tables.useful.shape[2])
        for name, value in self.values.items():
            vertex, _, kind = name.rpartition("_")
            if name == "contention":
                tables.contention[0] = value
            elif kind == "power":
                form = Efficiency(form="power", a=value)
                tables.useful[0, self.column[vertex], 1:] = useful_tasks(form, p)
            elif kind == "loss":
                floor = self.values.get(f"{vertex}_floor", 0.0)
                useful = useful_tasks(Efficiency(form="contention", a=value, b=floor), p)
                if vertex in FEW_KEYS:  # all of them alike; what is lost is not busy
                    for alike in FEW_KEYS:
                        tables.hot[0, self.column[alike], 1:] = p / useful
                else:
                    tables.useful[0, self.column[vertex], 1:] = useful
            elif name == "join_miss_us":
                tables.read_miss_s[0, self.column["join"]] = value * 1e-6
            elif kind == "us":
                tables.cpu_s[0, self.column[vertex]] = value * 1e-6

    def state_s(self, memory_mib: float, vertex: str) -> float:
        """Seconds that a vertex takes for its state per record, from a warm cache.

        Returns:
            Reads and writes together.
        """
        tables, v = self.tables_of(memory_mib), self.column[vertex]
        return float(
            tables.reads[0, v] * tables.read_hit_s[0, v]
            + tables.writes[0, v] * tables.write_s[0, v]
        )
