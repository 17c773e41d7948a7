"""Snapshots as datasets hold them: one row per look at a job, metrics as a struct."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dsp_gym.arrays import Floats, Ints
from dsp_gym.errors import DatasetError
from dsp_gym.loop.snapshot import INTEGERS, PER_JOB, PER_VERTEX, MetricsSnapshot
from dsp_gym.loop.topology import Topology

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["floats_of", "lists_of", "snapshots_of"]


def snapshots_of(table: pa.Table, topology: Topology) -> MetricsSnapshot:
    """Reads the column `snapshot` of a table.

    Args:
        table: Rows of one job, with where each is from.
        topology: Of that job.

    Returns:
        All snapshots as one batch, (N,) rows of the job.

    Raises:
        DatasetError: A row has another number of vertices than the job.
    """
    column = table["snapshot"].combine_chunks()
    column = column.chunk(0) if hasattr(column, "chunk") else column
    names = [field.name for field in column.type]
    parts = dict(zip(names, column.flatten(), strict=True))
    shape = (len(table), topology.max_vertices)
    values: dict[str, NDArray[Any]] = {}
    for name in PER_JOB:
        whole = name in INTEGERS
        if name not in parts:  # a dataset of an earlier release
            values[name] = np.full(len(table), np.nan)
            continue
        values[name] = floats_of(parts[name]).astype(np.int64 if whole else np.float64)
    for name in PER_VERTEX:
        whole = name in INTEGERS
        values[name] = lists_of(parts[name], shape, np.int64 if whole else np.float64, table)
    rows = topology.take(np.zeros(len(table), np.int64))
    return MetricsSnapshot(topology=rows, **values)


def lists_of(column: pa.Array, shape: tuple[int, int], dtype: Any, rows: pa.Table) -> NDArray[Any]:
    """Reads a column of lists of equal length.

    Args:
        column: The column.
        shape: Rows, and values in each.
        dtype: Of the values; null is NaN.
        rows: The table, to name a row that is wrong.

    Returns:
        An array of that shape.

    Raises:
        DatasetError: A list has another length.
    """
    lists = column.combine_chunks() if hasattr(column, "combine_chunks") else column
    flat = floats_of(lists.flatten()) if dtype is np.float64 else _whole(lists.flatten())
    lengths = lists.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    wrong = np.flatnonzero(lengths != shape[1])
    if len(wrong):
        row = rows.slice(int(wrong[0]), 1).select(["source", "job", "run", "step"]).to_pylist()[0]
        raise DatasetError(
            f"a decision has {lengths[wrong[0]]} values where its job has {shape[1]}: "
            f"job '{row['job']}', run '{row['run']}', step {row['step']}",
            file=row["source"],
            remedy="Is its job file the one it was made with?",
        )
    return flat.reshape(shape).astype(dtype)


def floats_of(column: pa.Array) -> Floats:
    """Reads a column of numbers.

    Returns:
        (N,) values; null is NaN.
    """
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.float64)


def _whole(column: pa.Array) -> Ints:
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.int64)
