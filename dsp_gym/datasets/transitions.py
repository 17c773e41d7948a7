"""Transitions as arrays, to learn from."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dsp_gym.arrays import Bools, Floats, Floats32, Ints
from dsp_gym.envs.action import HOLD, LOGITS, MOVES
from dsp_gym.envs.reward import TERMS, RewardTerms
from dsp_gym.errors import DatasetError
from dsp_gym.loop.snapshot import INTEGERS, PER_JOB, PER_VERTEX, MetricsSnapshot
from dsp_gym.loop.topology import Topology

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS = (
    "source",
    "job",
    "run",
    "step",
    "policy",
    "propensity",
    "observation",
    "action",
    "action_mask",
    "next_observation",
    "terminated",
    "truncated",
    *TERMS,
)
"""Columns of the table `transitions` that are read."""


class Transitions(NamedTuple):
    """N steps of V vertices or of capacities, run by run, each in order of time."""

    observation: Floats32  # (N, size)
    action: Ints  # (N, 2 V); of capacities (N, 1)
    action_mask: Bools  # (N, 10 V); of capacities (N, 11)
    next_observation: Floats32  # (N, size)
    terms: RewardTerms  # (N,) each, unweighted
    terminated: Bools  # (N,)
    truncated: Bools  # (N,)
    propensity: Floats  # (N,) NaN: not known
    job: NDArray[np.str_]  # (N,)
    policy: NDArray[np.str_]  # (N,)

    def __len__(self) -> int:
        return len(self.terminated)

    @property
    def ends(self) -> Bools:
        """True where the next row is not what came after, (N,)."""
        return self.terminated | self.truncated

    def take(self, rows: Ints | Bools) -> Transitions:
        """Select rows; a run is truncated wherever its next row is not selected next.

        Returns:
            The transitions at these rows, in their order.
        """
        rows = np.arange(len(self))[rows]
        terms = {name: term[rows] for name, term in self.terms.items()}
        rest = {name: getattr(self, name)[rows] for name in self._fields if name != "terms"}
        is_cut = np.append(np.diff(rows) != 1, True)[: len(rows)]
        rest["truncated"] |= is_cut & ~rest["terminated"]
        return Transitions(terms=terms, **rest)

    def of_policies(self, globs: Sequence[str]) -> Bools:
        """True where one of some policies decided, (N,).

        Returns:
            (N,) flags, one per transition; a policy counts where its name matches one of the globs.
        """
        names = np.unique(self.policy)
        kept = [name for name in names if any(fnmatchcase(str(name), glob) for glob in globs)]
        return np.isin(self.policy, kept)

    def valid_action(self) -> Ints:
        """Replace invalid choices by the one that holds, which is the first of each part.

        Returns:
            Actions (N, 2 V) or (N, 1).
        """
        starts = np.arange(self.action.shape[1]) // 2 * LOGITS
        starts[1::2] += MOVES
        allowed = np.take_along_axis(self.action_mask, self.action + starts, axis=1)
        return np.where(allowed, self.action, HOLD)


def transitions_of(table: pa.Table) -> Transitions:
    """Read rows of the table `transitions`, with at least `COLUMNS`.

    Returns:
        N steps as arrays.

    Raises:
        DatasetError: Rows have observations or actions of several lengths.
    """
    table = table.sort_by([(key, "ascending") for key in ("source", "job", "run", "step")])
    n = table.num_rows

    def column(name: str, dtype: Any) -> NDArray[Any]:
        values = table[name].combine_chunks()
        return np.asarray(values.to_numpy(zero_copy_only=False)).astype(dtype)

    def lists(name: str, dtype: Any) -> NDArray[Any]:
        column = table[name].combine_chunks()
        lengths = np.unique(column.value_lengths().fill_null(0))
        if len(lengths) > 1:
            raise DatasetError(
                f"its transitions were encoded with different settings: the column '{name}' has "
                f"rows of {lengths[0]} values and of {lengths[-1]}",
                key=name,
                remedy="Build the dataset again with --rebuild.",
            )
        flat = column.flatten()
        return np.asarray(flat.to_numpy(zero_copy_only=False)).astype(dtype).reshape(n, -1)

    return Transitions(
        observation=lists("observation", np.float32),
        action=lists("action", np.int64),
        action_mask=lists("action_mask", np.bool_),
        next_observation=lists("next_observation", np.float32),
        terms={name: column(name, np.float64) for name in TERMS},
        terminated=column("terminated", np.bool_),
        truncated=column("truncated", np.bool_),
        propensity=column("propensity", np.float64),
        job=column("job", np.str_),
        policy=column("policy", np.str_),
    )


def snapshots_of(table: pa.Table, topology: Topology) -> MetricsSnapshot:
    """Read the column `snapshot` of a table.

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
        values[name] = floats_of(parts[name]).astype(np.int64 if whole else np.float64)
    for name in PER_VERTEX:
        whole = name in INTEGERS
        values[name] = lists_of(parts[name], shape, np.int64 if whole else np.float64, table)
    rows = topology.take(np.zeros(len(table), np.int64))
    return MetricsSnapshot(topology=rows, **values)


def lists_of(column: pa.Array, shape: tuple[int, int], dtype: Any, rows: pa.Table) -> NDArray[Any]:
    """Read a column of lists of equal length.

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
    """Read a column of numbers.

    Returns:
        (N,) values; null is NaN.
    """
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.float64)


def _whole(column: pa.Array) -> Ints:
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.int64)
