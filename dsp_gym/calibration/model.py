"""What the model says a run shows: the job's own tables, at the steady state."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dsp_gym.calibration.observations import SteadyPart
from dsp_gym.job.capacity import block_reads, mst_per_s, read_shares, slots_in_use, vertex_capacity
from dsp_gym.job.service import ticker_ratio
from dsp_gym.job.spec import JobSpec
from dsp_gym.job.tables import JobTables, compile_jobs

__all__ = ["JobModel", "Prediction", "mixture_median"]

FAST_SPREAD = 0.3
"""Log spread of reads from memory; the histogram's own grain hides more of it."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """The model's answer to one observation; dictionaries by vertex."""

    rate_per_s: float
    busy: Mapping[str, float]
    hit: Mapping[str, float]
    read_us: Mapping[str, float]
    write_us: Mapping[str, float]


class JobModel:
    """A job compiled once, asked about many configurations."""

    def __init__(self, spec: JobSpec, read_spread: Mapping[str, float] | None = None) -> None:
        """Compiles the job.

        Args:
            spec: the job.
            read_spread: log spread of the latency of reads from disk by vertex. The model's read
                latency is a mean; a histogram's median depends on its shape as well.
        """
        self.spec = spec
        self.tables = compile_jobs([spec])
        self._by_base: dict[float, JobTables] = {}
        self.order = spec.topological_order()
        self.read_spread = dict(read_spread or {})

    def _tables_of(self, base_mib: float | None) -> JobTables:
        """The job with its levels above another size of level 0, as a run was measured with."""
        memory = self.spec.memory
        if base_mib is None or math.isclose(base_mib, memory.base_mib, rel_tol=1e-6):
            return self.tables
        if base_mib not in self._by_base:
            other = memory.model_copy(update={"base_mib": base_mib})
            self._by_base[base_mib] = compile_jobs([self.spec.model_copy(update={"memory": other})])
        return self._by_base[base_mib]

    def predict(self, seen: SteadyPart) -> Prediction:
        """Predicts the steady state of a part's configuration under its offered load.

        Returns:
            Rate in records/s, and by vertex busyness, hit rate and read latency.
        """
        tables = self._tables_of(seen.base_mib)
        p = np.array([seen.parallelism.get(v.name, v.parallelism) for v in self.order])
        level = np.array([seen.level.get(v.name, -1) for v in self.order])
        rate = min(float(mst_per_s(tables, 0, p, level)), seen.offered_per_s)
        crowd = 1.0 - tables.contention[0] * (slots_in_use(tables, 0, p) - 1)
        busy, hit, read, write = {}, {}, {}, {}
        for column, vertex in enumerate(self.order):
            needed = rate * tables.ratio[0, column]
            capacity, served = vertex_capacity(tables, 0, column, p[column], level[column], needed)
            capacity *= 1.0 if vertex.kind == "source" else crowd
            mean = needed / capacity / tables.hot[0, column, p[column]]
            busy[vertex.name] = min(1.0, float(mean))
            if vertex.state is None:
                continue
            _, memtable = read_shares(tables, 0, column, p[column], level[column], needed)
            lookups, compacted = block_reads(tables, 0, column, p[column], level[column], needed)
            per_lookup = compacted * tables.writes[0, column]
            per_lookup /= max(lookups * tables.reads[0, column], 1e-9)
            hit[vertex.name] = float(
                ticker_ratio(served, memtable, tables.index_hits[0, column], per_lookup)
            )
            fast = float(tables.read_hit_s[0, column]) * 1e6
            miss = tables.read_miss_s[0, column] * tables.miss_factor[0, column, p[column]] * 1e6
            misses = lookups * (1.0 - float(served))  # per read
            if seen.latency == "mean":
                read[vertex.name] = fast + misses * float(miss)
            else:
                spread = self.read_spread.get(vertex.name, FAST_SPREAD)
                untouched = float(served) ** lookups
                slow = fast + float(miss) * misses / max(1.0 - untouched, 1e-9)
                read[vertex.name] = mixture_median(untouched, fast, slow, spread)
            factor = tables.write_factor[0, column, level[column] + 1]
            write[vertex.name] = float(tables.write_s[0, column] * factor) * 1e6
        return Prediction(rate, busy, hit, read, write)


def mixture_median(fast_share: float, fast: float, slow: float, slow_spread: float) -> float:
    """Takes the median of a latency that is fast or slow, both log-normal, given their means.

    Returns:
        The median, in the unit of the means.

    >>> round(mixture_median(1.0, 4.0, 100.0, 0.5), 1)  # the median is below the mean
    3.8
    """
    low, high = math.log(min(fast, slow)) - 4.0, math.log(max(fast, slow)) + 4.0
    at_fast = math.log(fast) - 0.5 * FAST_SPREAD**2
    at_slow = math.log(slow) - 0.5 * slow_spread**2
    for _ in range(26):  # to 1e-6 of a logarithm
        middle = 0.5 * (low + high)
        below = fast_share * _normal((middle - at_fast) / FAST_SPREAD) + (
            1.0 - fast_share
        ) * _normal((middle - at_slow) / slow_spread)
        if below < 0.5:
            low = middle
        else:
            high = middle
    return math.exp(0.5 * (low + high))


def _normal(z: float) -> float:
    return 0.5 * (1.0 + math.erf(z / math.sqrt(2.0)))
