"""The model's prediction of a run at the steady state, and its residuals on measured parts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dsp_gym.arrays import Bools, Floats, Ints
from dsp_gym.calibration.observations import SteadyPart
from dsp_gym.job.capacity import block_reads, mst_per_s, read_shares, slots_in_use, vertex_capacity
from dsp_gym.job.service import compiled, ticker_ratio
from dsp_gym.job.spec import JobSpec, Vertex
from dsp_gym.job.tables import SOURCE, JobTables, compile_jobs

FAST_SPREAD = 0.3
"""Log spread of reads from memory; the histogram's own grain hides more of it."""


class AskedConfigurations(NamedTuple):
    """O configurations of one job of V vertices, and their loads."""

    parallelism: Ints  # (O, V) subtasks
    level: Ints  # (O, V) memory levels, -1 for none
    offered_per_s: Floats  # (O,) records/s; inf: more than the job can take
    is_mean: Bools  # (O,) whether a read latency is a mean; otherwise a histogram's median


class Steady(NamedTuple):
    """What they show. A vertex without state has no hit rate and no latencies: NaN."""

    rate_per_s: Floats  # (O,) records/s over all sources
    busy: Floats  # (O, V) 0..1, mean over subtasks
    hit: Floats  # (O, V) 0..1, of the block cache's tickers
    read_us: Floats  # (O, V)
    write_us: Floats  # (O, V)


def steady(tables: JobTables, asked: AskedConfigurations, read_spread: Floats) -> Steady:
    """Find the steady states.

    Args:
        tables: The compiled job, its only row.
        asked: O configurations.
        read_spread: (V,) log spread of the latency of reads from disk.

    Returns:
        One state for each.
    """
    shape = asked.parallelism.shape
    found = Steady(np.empty(shape[0]), *(np.full(shape, np.nan) for _ in range(4)))
    _steady(tables, *asked, read_spread, *found)
    return found


@compiled
def _steady(
    tables: JobTables,
    parallelism: Ints,
    levels: Ints,
    offered_per_s: Floats,
    is_mean: Bools,
    read_spread: Floats,
    rate_per_s: Floats,
    busy: Floats,
    hit: Floats,
    read_us: Floats,
    write_us: Floats,
) -> None:
    for o in range(len(parallelism)):
        p, level = parallelism[o], levels[o]
        rate = min(mst_per_s(tables, 0, p, level), offered_per_s[o])
        crowd = 1.0 - tables.contention[0] * (slots_in_use(tables, 0, p) - 1)
        rate_per_s[o] = rate
        for v in range(tables.n[0]):
            needed = rate * tables.ratio[0, v]
            capacity, served = vertex_capacity(tables, 0, v, p[v], level[v], needed)
            if tables.kind[0, v] != SOURCE:
                capacity *= crowd
            busy[o, v] = min(1.0, needed / capacity / tables.hot[0, v, p[v]])
            if tables.stateful[0, v] == 0:
                continue
            _, memtable = read_shares(tables, 0, v, p[v], level[v], needed)
            lookups, compacted = block_reads(tables, 0, v, p[v], level[v], needed)
            per_lookup = compacted * tables.writes[0, v]
            per_lookup /= max(lookups * tables.reads[0, v], 1e-9)
            hit[o, v] = ticker_ratio(served, memtable, tables.index_hits[0, v], per_lookup)
            fast = tables.read_hit_s[0, v] * 1e6
            miss = tables.read_miss_s[0, v] * tables.miss_factor[0, v, p[v]] * 1e6
            misses = lookups * (1.0 - served)  # per read
            if is_mean[o]:
                read_us[o, v] = fast + misses * miss
            else:
                untouched = served**lookups
                slow = fast + miss * misses / max(1.0 - untouched, 1e-9)
                read_us[o, v] = mixture_median(untouched, fast, slow, read_spread[v])
            write_us[o, v] = tables.write_s[0, v] * tables.write_factor[0, v, level[v] + 1] * 1e6


@compiled
def mixture_median(fast_share: float, fast: float, slow: float, slow_spread: float) -> float:
    """Take the median of a latency that is fast or slow, both log-normal, given their means.

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


@compiled
def _normal(z: float) -> float:
    return 0.5 * (1.0 + math.erf(z / math.sqrt(2.0)))


@dataclass(frozen=True, slots=True)
class Prediction:
    """The model's answer to one observation; dictionaries by vertex."""

    rate_per_s: float
    busy: Mapping[str, float]
    hit: Mapping[str, float]
    read_us: Mapping[str, float]
    write_us: Mapping[str, float]


class AskedParts:
    """The configurations and loads of steady parts, for any model of their job.

    Args:
        spec: the job; its fitted numbers do not matter.
        parts: O of them.
    """

    def __init__(self, spec: JobSpec, parts: Sequence[SteadyPart]) -> None:
        order = spec.topological_order()
        self.all = AskedConfigurations(
            np.array([[o.parallelism.get(v.name, v.parallelism) for v in order] for o in parts]),
            np.array([[o.level.get(v.name, -1) for v in order] for o in parts]),
            np.array([o.offered_per_s for o in parts], dtype=np.float64),
            np.array([o.latency == "mean" for o in parts]),
        )
        of_base: dict[float | None, list[int]] = {}
        for at, part in enumerate(parts):
            of_base.setdefault(_other(part.base_mib, spec.memory.base_mib), []).append(at)
        self.by_base = [
            (base, np.array(at), AskedConfigurations._make(values[at] for values in self.all))
            for base, at in of_base.items()
        ]
        """MiB of level 0 that some were measured with, None: the job's; which ones; those alone."""


def _other(base_mib: float | None, own_mib: float) -> float | None:
    if base_mib is None or math.isclose(base_mib, own_mib, rel_tol=1e-6):
        return None
    return base_mib


class JobModel:
    """A job compiled once, asked about many configurations."""

    def __init__(self, spec: JobSpec, read_spread: Mapping[str, float] | None = None) -> None:
        """Compile the job.

        Args:
            spec: the job.
            read_spread: log spread of the latency of reads from disk by vertex. The model's read
                latency is a mean; a histogram's median depends on its shape as well.
        """
        self.spec = spec
        self.order = spec.topological_order()
        given = read_spread or {}
        self._read_spread = np.array([given.get(v.name, FAST_SPREAD) for v in self.order])
        self._by_base: dict[float | None, JobTables] = {None: compile_jobs([spec])}

    def _tables_of(self, base_mib: float | None) -> JobTables:
        """The job with its levels above another size of level 0, as a run was measured with."""
        if base_mib not in self._by_base:
            other = self.spec.memory.model_copy(update={"base_mib": base_mib})
            self._by_base[base_mib] = compile_jobs([self.spec.model_copy(update={"memory": other})])
        return self._by_base[base_mib]

    def predict_all(self, asked: AskedParts) -> Steady:
        """Predict the steady states of parts.

        Returns:
            Arrays over the parts in their order, and over vertices in topological order.
        """
        found = [
            (at, steady(self._tables_of(base_mib), parts, self._read_spread))
            for base_mib, at, parts in asked.by_base
        ]
        if len(found) == 1:
            return found[0][1]
        back = np.argsort(np.concatenate([at for at, _ in found]))
        columns = zip(*(states for _, states in found), strict=True)
        return Steady(*(np.concatenate(of_base)[back] for of_base in columns))

    def predict(self, seen: SteadyPart) -> Prediction:
        """Predict the steady state of a part's configuration under its offered load.

        Returns:
            Rate in records/s, and by vertex busyness, hit rate and latencies.
        """
        said = self.predict_all(AskedParts(self.spec, [seen]))
        stateful = [vertex.state is not None for vertex in self.order]
        hit, read_us, write_us = (
            self._by_vertex(values, stateful) for values in (said.hit, said.read_us, said.write_us)
        )
        busy = self._by_vertex(said.busy, [True] * len(stateful))
        return Prediction(float(said.rate_per_s[0]), busy, hit, read_us, write_us)

    def _by_vertex(self, values: Floats, has: Sequence[bool]) -> dict[str, float]:
        named = zip(self.order, values[0].tolist(), has, strict=True)
        return {vertex.name: value for vertex, value, is_there in named if is_there}


RATE_SD, LATENCY_SD, BUSY_SD, HIT_SD = 0.04, 0.35, 0.05, 0.04
"""Expected residuals: relative for rates, logarithmic for latencies, absolute for shares."""
DISTRUST = 1.0
"""What a part's uncertainty is multiplied by where it never became steady."""


class Measured:
    """What steady parts of a job showed, as arrays: made once, compared with many models of it.

    Args:
        spec: the job; its fitted numbers do not matter.
        parts: O of them.
    """

    def __init__(self, spec: JobSpec, parts: Sequence[SteadyPart]) -> None:
        order = spec.topological_order()
        self._asked = AskedParts(spec, parts)
        self._log_rate = np.log([o.rate_per_s for o in parts])[:, None]
        self._busy = _rows([o.busy for o in parts], order)
        stateful = [vertex.state is not None for vertex in order]
        hit, read_us, write_us = (
            np.where(stateful, _rows(rows, order), np.nan)
            for rows in (
                [o.hit for o in parts],
                [o.read_us for o in parts],
                [o.write_us for o in parts],
            )
        )
        self._hit, self._log_read, self._log_write = hit, np.log(read_us), np.log(write_us)
        wide = np.array([doubt(o) for o in parts])[:, None]
        # A drifting rate drags all along with it only where the run never became steady.
        rest = np.where([[o.is_unsteady] for o in parts], wide, 1.0)
        others = np.repeat(rest, 4 * len(order), axis=1)
        self._weight = 1.0 / np.concatenate([wide, others], axis=1)
        seen = (self._log_rate, self._busy, self._hit, self._log_read, self._log_write)
        self._is_seen = ~np.isnan(np.concatenate(seen, axis=1))
        self.of_part = self._is_seen.sum(axis=1)
        """(O,) residuals of each part."""

    def residuals(self, model: JobModel) -> Floats:
        """Seen less predicted, in units of the expected size.

        Args:
            model: of the same job.

        Returns:
            Part by part the rate's, then those of busyness, hit rates and latencies that were
            measured, by vertex in topological order.
        """
        said = model.predict_all(self._asked)
        off = np.concatenate(
            [
                (self._log_rate - np.log(said.rate_per_s)[:, None]) / RATE_SD,
                (self._busy - said.busy) / BUSY_SD,
                (self._hit - said.hit) / HIT_SD,
                (self._log_read - np.log(said.read_us)) / LATENCY_SD,
                (self._log_write - np.log(said.write_us)) / LATENCY_SD,
            ],
            axis=1,
        )
        return np.asarray((off * self._weight)[self._is_seen])


def doubt(o: SteadyPart) -> float:
    """How much wider than usual the errors of a part are expected, from its drift and spread.

    Returns:
        1 for a steady part; its weight in the fit is the inverse square.
    """
    off = o.uncertainty * (DISTRUST if o.is_unsteady else 1.0)
    return math.hypot(RATE_SD, off) / RATE_SD


def _rows(values: Sequence[Mapping[str, float]], order: Sequence[Vertex]) -> Floats:
    """(O, V); NaN where nothing was measured."""
    return np.array([[of.get(vertex.name, np.nan) for vertex in order] for of in values])
