"""The memory of a policy or guardrail: named arrays with one row per job, also as JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol, Self, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from dsp_gym.arrays import Bools, Ints
from dsp_gym.errors import SchemaError
from dsp_gym.loop.protocols import Mask, State
from dsp_gym.loop.topology import Topology
from dsp_gym.numba_handles import Handle, Handles

Per = Literal["job", "vertex"]
T = TypeVar("T")
_DTYPES = {bool: np.bool_, int: np.int64, float: np.float64}


class Restorable(Protocol):
    """A memory, or an object that has one."""

    def state(self) -> State:
        """Return everything that later answers depend on, as JSON values."""

    def restore(self, state: State) -> None:
        """Continue from the values of `state()`."""


class Parts:
    """Several parts as one, whose state holds theirs by name."""

    def __init__(self, **parts: Restorable) -> None:
        self._parts = parts

    def state(self) -> State:
        return {name: part.state() for name, part in self._parts.items()}

    def restore(self, state: State) -> None:
        for name, part in self._parts.items():
            part.restore(state[name])


class Kept:
    """The base of policies, guardrails and models whose whole state is that of `_kept`."""

    _kept: Restorable

    def state(self) -> State:
        """Return everything that later answers depend on.

        Returns:
            JSON values; `restore` of them continues exactly.
        """
        return self._kept.state()

    def restore(self, state: State) -> None:
        """Continue from the values of `state()`."""
        self._kept.restore(state)


class RowMemory:
    """Named arrays of shape (J,), (J, V) or (J, n), with the value each starts with.

    Args:
        fields: name -> (per "job" or "vertex", first value). The type of the first value is the
            type of the array; a float NaN is `null` in JSON.
        depth: number of values kept per row; 1 keeps no extra axis. By name: of these arrays, which
            keep the axis for one value, too.
    """

    def __init__(
        self,
        fields: Mapping[str, tuple[Per, bool | int | float]],
        *,
        depth: int | Mapping[str, int] = 1,
    ) -> None:
        self._fields = dict(fields)
        if isinstance(depth, int):
            depth = {} if depth == 1 else dict.fromkeys(fields, depth)
        self._depths = dict(depth)
        self._arrays: dict[str, NDArray[Any]] = {}
        self._tables: dict[object, object] = {}
        self._handles = Handles()

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self._arrays[name]

    def arrays(self, table: Callable[..., T]) -> T:
        """Return the arrays as one value, for compiled code to read and write.

        Args:
            table: A `NamedTuple` with a field for each of the arrays, in any order.

        Returns:
            The table; its arrays are those of this memory, until `reset` or `restore`.
        """
        if table not in self._tables:
            self._tables[table] = table(**self._arrays)
        return cast(T, self._tables[table])

    def handle(self, table: Callable[..., T]) -> Handle[T]:
        """Return the arrays as one argument of compiled code.

        Args:
            table: As `arrays` takes it.

        Returns:
            The handle of `arrays(table)`, as long as that stays the same.
        """
        held = self._handles.get(table)  # a call less than `of`, once per decision and more
        if held is None:
            held = self._handles.of(table, lambda: self.arrays(table))
        return cast("Handle[T]", held)

    @classmethod
    def of_none(
        cls,
        fields: Mapping[str, tuple[Per, bool | int | float]],
        depth: int | Mapping[str, int] = 1,
    ) -> Self:
        """Make the memory of no jobs, for compiled code that takes one without reading it.

        Args:
            fields: As in the constructor.
            depth: As in the constructor.

        Returns:
            A memory whose arrays are empty.
        """
        memory = cls(fields, depth=depth)
        memory._start({"job": (0,), "vertex": (0, 0)}, None)
        return memory

    def reset(self, jobs: Topology, mask: Mask | None = None) -> None:
        """Set first values; with a mask only in the rows where it is True."""
        self._start({"job": (len(jobs),), "vertex": (len(jobs), jobs.max_vertices)}, mask)

    def _start(self, shapes: Mapping[Per, tuple[int, ...]], mask: Mask | None) -> None:
        for name, (per, first) in self._fields.items():
            shape = shapes[per]
            if name in self._depths:
                shape = (*shape, self._depths[name])
            old = self._arrays.get(name)
            # In place where the shape stays: tables and handles of compiled code remain valid.
            if old is None or old.shape != shape:
                self._arrays[name] = np.full(shape, first, _DTYPES[type(first)])
                self._forget()
            elif mask is None:
                old[:] = first
            else:
                old[mask] = first

    def widths(self) -> tuple[list[int], list[int]]:
        """Return the size of a row.

        Returns:
            Widths of the arrays of numbers, and of the arrays of flags, in their order.
        """
        # An empty row still has a width: array[:1] of (J, V) has V numbers.
        found: tuple[list[int], list[int]] = [], []
        for array in self._arrays.values():
            found[array.dtype == np.bool_].append(array[:1].size)
        return found

    def settle(self, words: Ints, flags: Bools) -> None:
        """Move the arrays, with their values, into room that the caller owns.

        Args:
            words: (n,) room for all numbers, one array after the other; floats lie there as bits.
            flags: (m,) the same for flags.
        """
        at = {True: 0, False: 0}
        for name, array in self._arrays.items():
            # Two kinds of room, since flags take a byte and numbers eight.
            room: NDArray[Any]
            is_flag = array.dtype == np.bool_
            room = flags if is_flag else words
            part = room[at[is_flag] : at[is_flag] + array.size]
            at[is_flag] += array.size
            moved = part.view(array.dtype).reshape(array.shape)
            moved[...] = array
            self._arrays[name] = moved
        self._forget()

    def state(self) -> State:
        """Return the arrays as lists; NaN is None.

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
                remedy="Restore it with the release that wrote it, or start without it.",
            )
        self._forget()
        for name, values in state.items():
            dtype = _DTYPES[type(self._fields[name][1])]
            # As objects first: a list with None has no numeric type.
            filled = np.array(values, dtype=object)
            if dtype is np.float64:
                filled[filled == None] = np.nan  # noqa: E711  # element by element
            self._arrays[name] = filled.astype(dtype)

    def _forget(self) -> None:
        self._tables, self._handles = {}, Handles()


def all_of(*parts: tuple[RowMemory, ...] | None) -> tuple[RowMemory, ...] | None:
    """Combine the memories of several parts.

    Returns:
        All of them; None where one part is None.
    """
    found: list[RowMemory] = []
    for part in parts:
        if part is None:
            return None
        found.extend(part)
    return tuple(found)


class RowBlock:
    """Memories of J jobs in two arrays, so that rows are moved in a few steps.

    `reset` of the same jobs leaves the memories there; `restore` would not.

    Args:
        memories: memories of J jobs, after `reset`.
        jobs: J.
    """

    def __init__(self, memories: Sequence[RowMemory], jobs: int) -> None:
        # Guardrails may share a memory: each is moved once.
        once = list({id(memory): memory for memory in memories}.values())
        widths = [memory.widths() for memory in once]
        sizes = [[jobs * sum(of[kind]) for of in widths] for kind in (0, 1)]
        self.words, self.flags = np.zeros(sum(sizes[0]), np.int64), np.zeros(sum(sizes[1]), bool)
        words_at = flags_at = 0
        for memory, of_words, of_flags in zip(once, *sizes, strict=True):
            memory.settle(
                self.words[words_at : words_at + of_words],
                self.flags[flags_at : flags_at + of_flags],
            )
            words_at, flags_at = words_at + of_words, flags_at + of_flags
        # One `np.take` with precomputed places moves all arrays, in place of one copy per array.
        self._places = [
            _places([width for of in widths for width in of[kind]], jobs) for kind in (0, 1)
        ]
        self._back = [np.argsort(places) for places in self._places]
        self._jobs = jobs

    def load(self, rows: Sequence[RowBlock]) -> None:
        """Take over memories of one job each.

        Args:
            rows: (J,) blocks of memories that were made like these.
        """
        words = np.concatenate([row.words for row in rows])
        flags = np.concatenate([row.flags for row in rows])
        np.take(words, self._places[0], out=self.words, mode="clip")
        np.take(flags, self._places[1], out=self.flags, mode="clip")

    def store(self, rows: Sequence[RowBlock]) -> None:
        """Give back the rows of `load`, with their changes since."""
        words = self.words[self._back[0]].reshape(self._jobs, -1)
        flags = self.flags[self._back[1]].reshape(self._jobs, -1)
        for row, of_words, of_flags in zip(rows, words, flags, strict=True):
            row.words[:], row.flags[:] = of_words, of_flags


def _places(widths: Sequence[int], jobs: int) -> Ints:
    """Return where each number of J rows lies in single rows, one after the other."""
    size = sum(widths)
    found, at = [np.zeros(0, np.int64)], 0
    for width in widths:
        found.append((np.arange(jobs)[:, None] * size + at + np.arange(width)).ravel())
        at += width
    return np.concatenate(found)


def _listed(array: NDArray[np.generic]) -> object:
    if array.dtype != np.float64 or not np.isnan(array).any():
        # Only NaN needs boxed values; `tolist` of plain floats is ten times as fast.
        return array.tolist()
    boxed = array.astype(object)
    boxed[np.isnan(array)] = None
    return boxed.tolist()
