"""The memory of a policy or guardrail: named arrays with one row per job, also as JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, Self, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from dsp_gym.calling import Handle, Handles, handle
from dsp_gym.errors import SchemaError
from dsp_gym.loop.protocols import Mask, State
from dsp_gym.loop.topology import Topology

__all__ = ["Per", "RowMemory"]

Per = Literal["job", "vertex"]
T = TypeVar("T")
_DTYPES = {bool: np.bool_, int: np.int64, float: np.float64}


class RowMemory:
    """Named arrays of shape (J,), (J, V) or (J, n), with the value each starts with.

    Args:
        fields: name -> (per "job" or "vertex", first value). The type of the first value is the
            type of the array; a float NaN is `null` in JSON.
        depth: number of values kept per row; 1 keeps no extra axis.
    """

    def __init__(
        self, fields: Mapping[str, tuple[Per, bool | int | float]], *, depth: int = 1
    ) -> None:
        self._fields = dict(fields)
        self._depth = depth
        self._arrays: dict[str, NDArray[Any]] = {}
        self._tables: dict[object, object] = {}
        self._handles = Handles()

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self._arrays[name]

    def arrays(self, table: Callable[..., T]) -> T:
        """The arrays as one value, for compiled code to read and write.

        Args:
            table: A `NamedTuple` with a field for each of the arrays, in any order.

        Returns:
            The table; its arrays are those of this memory, until `reset` or `restore`.
        """
        if table not in self._tables:
            self._tables[table] = table(**self._arrays)
        return cast(T, self._tables[table])

    def handle(self, table: Callable[..., T]) -> Handle[T]:
        """The arrays as one argument of compiled code.

        Args:
            table: As `arrays` takes it.

        Returns:
            The handle of `arrays(table)`, as long as that stays the same.
        """
        if table not in self._handles:
            self._handles[table] = handle(self.arrays(table))
        return cast("Handle[T]", self._handles[table])

    @classmethod
    def of_none(cls, fields: Mapping[str, tuple[Per, bool | int | float]], depth: int = 1) -> Self:
        """The memory of no jobs, where compiled code wants one that it does not read.

        Args:
            fields: As above.
            depth: As above.

        Returns:
            A memory whose arrays are empty.
        """
        memory = cls(fields, depth=depth)
        memory._start({"job": (0,), "vertex": (0, 0)}, None)
        return memory

    def reset(self, jobs: Topology, mask: Mask | None = None) -> None:
        """Starts anew; with a mask only the rows where it is True."""
        self._start({"job": (len(jobs),), "vertex": (len(jobs), jobs.max_vertices)}, mask)

    def _start(self, shapes: Mapping[Per, tuple[int, ...]], mask: Mask | None) -> None:
        for name, (per, first) in self._fields.items():
            shape = shapes[per] if self._depth == 1 else (*shapes[per], self._depth)
            old = self._arrays.get(name)
            if old is None or old.shape != shape:
                self._arrays[name] = np.full(shape, first, _DTYPES[type(first)])
                self._forget()
            elif mask is None:
                old[:] = first
            else:
                old[mask] = first

    def state(self) -> State:
        """The arrays as lists; NaN is None.

        Returns:
            By name a list of J values, or of J lists.
        """
        return {name: _listed(array) for name, array in self._arrays.items()}

    def restore(self, state: State) -> None:
        """Continue from the values of `state()`.

        Raises:
            SchemaError: The values hold a name that this memory does not have.
        """
        if set(state) - set(self._fields):
            unknown = ", ".join(sorted(set(state) - set(self._fields)))
            raise SchemaError(
                f"the saved state holds {unknown}, which this release does not keep",
                remedy="Restore it with the release that wrote it, or start anew.",
            )
        self._forget()
        for name, values in state.items():
            dtype = _DTYPES[type(self._fields[name][1])]
            filled = np.array(values, dtype=object)
            if dtype is np.float64:
                filled[filled == None] = np.nan  # noqa: E711  # element by element
            self._arrays[name] = filled.astype(dtype)

    def _forget(self) -> None:
        self._tables, self._handles = {}, Handles()


def _listed(array: NDArray[np.generic]) -> object:
    if array.dtype != np.float64 or not np.isnan(array).any():
        return array.tolist()
    boxed = array.astype(object)
    boxed[np.isnan(array)] = None
    return boxed.tolist()
