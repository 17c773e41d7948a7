"""Raw samples of one job in long format: time, vertex and subtask, metric, value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dsp_gym.arrays import Floats, Ints
from dsp_gym.errors import MetricsError
from dsp_gym.metrics.flink import SOURCE_METRICS

SAMPLE_S = 5
"""Seconds between samples, as in the papers and in recordings."""

Row = tuple[float, str, int, str, float]
Series = tuple[str, int, str]  # vertex, subtask, metric
SeriesValues = Mapping[Series, tuple[ArrayLike, ArrayLike]]
"""Times and values by series."""
_Index = dict[tuple[str, str], Ints]


@dataclass(frozen=True, eq=False)
class Samples:
    """N samples of one job, sorted by (t_s, vertex, subtask, metric), each of shape (N,).

    `subtask` is -1 for a value of the whole vertex; `vertex` is "" for a TaskManager, whose number
    is then the subtask. Metric names are those of `dsp_gym.metrics.flink`.
    """

    t_s: Floats
    vertex: NDArray[np.str_]
    subtask: NDArray[np.int32]
    metric: NDArray[np.str_]
    value: Floats

    def __post_init__(self) -> None:
        lengths = {len(c) for c in (self.t_s, self.vertex, self.subtask, self.metric, self.value)}
        if len(lengths) > 1:
            raise MetricsError(f"columns of samples differ in length: {sorted(lengths)}")

    def __len__(self) -> int:
        return len(self.t_s)

    @classmethod
    def of(cls, rows: Iterable[Row]) -> Samples:
        """Make samples of rows in any order; of equal keys the last one stays.

        Returns:
            Samples in order.
        """
        series: dict[Series, tuple[list[float], list[float]]] = {}
        for t_s, vertex, subtask, metric, value in rows:
            key = (vertex, subtask, metric)
            seen = series.get(key)
            if seen is None:
                seen = series[key] = ([], [])
            seen[0].append(t_s)
            seen[1].append(value)
        return cls.of_series(series)

    @classmethod
    def of_series(cls, series: SeriesValues) -> Samples:
        """Make samples of (times, values) by series; of equal times the last stays.

        Returns:
            Samples in order.
        """
        keys = sorted(series)
        times = [np.asarray(series[key][0], dtype=np.float64) for key in keys]
        values = [np.asarray(series[key][1], dtype=np.float64) for key in keys]
        rank = np.repeat(np.arange(len(keys)), [len(t) for t in times])
        t_s, value = _joined(times), _joined(values)
        # Stable: rows of one series at one time keep their order.
        order = np.lexsort((rank, t_s))
        t_s, rank, value = t_s[order], rank[order], value[order]
        if len(order):
            last = np.append((t_s[1:] != t_s[:-1]) | (rank[1:] != rank[:-1]), True)
            t_s, rank, value = t_s[last], rank[last], value[last]
        vertices, subtasks, metrics = zip(*keys, strict=True) if keys else ((), (), ())
        return cls(
            t_s,
            np.array(vertices, dtype=np.str_)[rank],
            np.array(subtasks, dtype=np.int32)[rank],
            np.array(metrics, dtype=np.str_)[rank],
            value,
        )

    @classmethod
    def joined(cls, parts: Iterable[Samples]) -> Samples:
        """Join several, sorted; of equal keys the one of the last part stays.

        Returns:
            Samples in order.
        """
        return cls.of(row for part in parts for row in part.rows())

    def followed_by(self, later: Samples) -> Samples:
        """Append later samples.

        Args:
            later: Samples, none of them before the last of these.

        Returns:
            Samples in order.
        """
        names = ("t_s", "vertex", "subtask", "metric", "value")
        return Samples(**{n: np.concatenate([getattr(self, n), getattr(later, n)]) for n in names})

    def rows(self) -> Iterable[Row]:
        """Return the samples one by one, as Python values.

        Returns:
            Tuples of time (s), vertex, subtask, metric and value, in the order of time.
        """
        return zip(
            self.t_s.tolist(),
            self.vertex.tolist(),
            self.subtask.tolist(),
            self.metric.tolist(),
            self.value.tolist(),
            strict=True,
        )

    def between(self, since_s: float, until_s: float) -> Samples:
        """Return the samples with since_s < t_s <= until_s.

        Returns:
            Fewer samples, in the same order.
        """
        low = int(np.searchsorted(self.t_s, since_s, side="right"))
        high = max(low, int(np.searchsorted(self.t_s, until_s, side="right")))
        # Rows of a pair stand in order of time, so those of a part are a slice of them.
        # Parts share the whole's index: building it sorts every row.
        index, begin, _ = self._part_of or (self._rows_of_pairs, 0, 0)
        part = Samples(
            self.t_s[low:high],
            self.vertex[low:high],
            self.subtask[low:high],
            self.metric[low:high],
            self.value[low:high],
        )
        vars(part)["_part_of"] = (index, begin + low, begin + high)
        return part

    def vertices(self) -> list[str]:
        """List the vertices that reported, TaskManagers left out.

        Returns:
            Names, sorted.
        """
        return sorted({v for v, m in self._rows_of_pairs if len(self._rows(v, m))} - {""})

    def grid(self, vertex: str, metric: str) -> tuple[Floats, NDArray[np.int32], Floats]:
        """Return one metric of one vertex, NaN where missing.

        Returns:
            Times (T,), subtasks (P,) and values (T, P); empty for a metric without samples.
        """
        rows = self._rows(vertex, metric)
        if not len(rows):
            return np.empty(0), np.empty(0, dtype=np.int32), np.empty((0, 0))
        t_s, subtask, value = self.t_s[rows], self.subtask[rows], self.value[rows]
        # Usually all subtasks report at all times, so that the rows are the grid, line by line.
        several = int(t_s.searchsorted(t_s[0], side="right"))
        if len(rows) % several == 0:
            lines, of = t_s.reshape(-1, several), subtask.reshape(-1, several)
            if (lines[:, 0] == lines[:, -1]).all() and (of == of[0]).all():
                return lines[:, 0].copy(), of[0].copy(), value.reshape(-1, several)
        # The general case: subtasks that come and go, or report at different times.
        changes = np.append(True, t_s[1:] != t_s[:-1])  # sorted by time
        lowest = int(subtask.min())
        present = np.bincount(subtask - lowest) > 0
        column = (np.cumsum(present) - 1)[subtask - lowest]
        subtasks = (np.flatnonzero(present) + lowest).astype(np.int32)
        values = np.full((int(changes.sum()), len(subtasks)), np.nan)
        values[np.cumsum(changes) - 1, column] = value
        return t_s[changes], subtasks, values

    def _rows(self, vertex: str, metric: str) -> Ints:
        """Return the rows of one metric of one vertex, rising."""
        index, begin, end = self._part_of or (self._rows_of_pairs, 0, len(self))
        rows = index.get((vertex, metric))
        if rows is None:
            return np.empty(0, dtype=np.int64)
        return rows[rows.searchsorted(begin) : rows.searchsorted(end)] - begin

    @cached_property
    def _part_of(self) -> tuple[_Index, int, int] | None:
        """The rows of the whole, and where this part begins and ends in it; `between` says so."""
        return None

    @cached_property
    def _rows_of_pairs(self) -> _Index:
        """Return the rows of every (vertex, metric), rising; made once, as strings are slow.

        Those of a part are the whole's.
        """
        if self._part_of is not None:
            return self._part_of[0]
        vertices, vertex = _codes(self.vertex)
        metrics, metric = _codes(self.metric)
        pair = vertex * len(metrics) + metric
        # Stable, so that rows of one pair stay in order of time.
        order = np.argsort(pair, kind="stable")
        found, starts = np.unique(pair[order], return_index=True)
        parts = np.split(order, starts[1:]) if len(found) else []
        return {
            (vertices[code // len(metrics)], metrics[code % len(metrics)]): rows
            for code, rows in zip(found.tolist(), parts, strict=True)
        }


def with_source_records(series: SeriesValues) -> SeriesValues:
    """Give a source the records that it read itself, and leave out what they were found in.

    The counters of a task are those of its whole chain: Flink counts no input of a source there,
    and its output is what the last operator of the chain passed on (FLINK-33966). So, as Flink's
    autoscaler does: the task's `numRecordsIn`, if that is 0 the source operators' own, and if that
    is 0, too, as with sources that count no input, their `numRecordsOut`.

    Args:
        series: (times, values) by vertex, subtask and metric, with those of `SOURCE_METRICS`.

    Returns:
        The same without them; `records_in_total` of a source counts the records it read.
    """
    raw = [metric.name for metric in SOURCE_METRICS]
    found = {key: values for key, values in series.items() if key[2] not in raw}
    of_vertex: dict[tuple[str, str], list[Series]] = {}
    for key in series:
        of_vertex.setdefault((key[0], key[2]), []).append(key)
    for vertex in {vertex for vertex, metric in of_vertex if metric in raw}:
        for metric in ("records_in_total", *raw):
            keys = of_vertex.get((vertex, metric), [])
            if any(np.any(np.asarray(series[key][1]) > 0) for key in keys):
                found |= {(vertex, key[1], "records_in_total"): series[key] for key in keys}
                break
    return found


def source_counter(samples: Samples, source: str) -> str:
    """Name the counter of the records that a source reads.

    Returns:
        The counter that outlives restarts, `emitted_records_total`, where the source has one; else
        the task's input; and its output where it has counted no input.
    """
    for counter in ("emitted_records_total", "records_in_total"):
        if np.any(samples.grid(source, counter)[2] > 0):
            return counter
    return "records_out_total"


def _joined(parts: Sequence[Floats]) -> Floats:
    return np.concatenate(parts) if parts else np.empty(0)


def _codes(names: NDArray[np.str_]) -> tuple[list[str], Ints]:
    """Return the distinct names and, for every row, the place of its name."""
    plain: list[str] = names.tolist()
    known = {name: code for code, name in enumerate(dict.fromkeys(plain))}
    return list(known), np.fromiter(map(known.__getitem__, plain), dtype=np.int64, count=len(plain))
