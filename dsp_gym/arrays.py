"""Names of the array types used throughout, and tables whose columns are arrays.

A table is a class whose fields are arrays, each annotated `Annotated[Floats, Column(...)]`: this
one line states the column's name, type, axes, unit and meaning. Everything else is derived from it.
"""

from __future__ import annotations

import functools
import math
from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from typing import (
    Annotated,
    NamedTuple,
    Protocol,
    SupportsFloat,
    TypeVar,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np
from numpy.typing import NDArray


def finite(value: SupportsFloat) -> float | None:
    """Return a number; None for NaN and infinity, which JSON does not know.

    >>> finite(float("nan")), finite(np.float64(2))
    (None, 2.0)
    """
    number = float(value)
    return number if math.isfinite(number) else None


Ints = NDArray[np.int64]
"""Counts, indices, parallelism and memory levels."""

Floats = NDArray[np.float64]
"""Rates, times and shares; NaN is unknown."""

Floats32 = NDArray[np.float32]
"""Observations, weights and activations."""

Bools = NDArray[np.bool_]
"""Masks and flags."""


_INT64 = np.dtype(np.int64)

_Table = TypeVar("_Table")
_Numbered = TypeVar("_Numbered", bound=tuple[int, ...])


class Column(NamedTuple):
    """Description of an array of a table."""

    axes: str  # names of the axes, separated by spaces, e.g. "J V"
    unit: str
    sentence: str
    first: float = 0.0  # value before anything is written
    least: float = -math.inf  # values below it are no measurements
    most: float = math.inf  # values above it are no measurements


class ColumnIndex(Protocol):
    """Index of each column of a block by its name, a constant in compiled code."""

    def __getattr__(self, name: str) -> int: ...

    def __len__(self) -> int: ...


class Row(NamedTuple):
    """Description of one column of a block of numbers."""

    unit: str
    sentence: str


class Field(NamedTuple):
    """A column of a table with its name and type."""

    name: str
    dtype: np.dtype[np.generic]
    column: Column


@functools.cache
def columns_of(table: type) -> tuple[Field, ...]:
    """List the columns of a table in the order of its fields.

    Args:
        table: A class with fields annotated `Annotated[<array type>, Column(...)]`.

    Returns:
        One `Field` per such annotation; other fields are left out.
    """
    found = []
    for name, hint in get_type_hints(table, include_extras=True).items():
        if get_origin(hint) is not Annotated:
            continue
        array_type, *notes = get_args(hint)
        dtype = np.dtype(_scalar_of(array_type))
        found += [Field(name, dtype, note) for note in notes if type(note) is Column]
    return tuple(found)


def _scalar_of(array_type: object) -> type[np.generic]:
    """Return the type of the numbers of an `NDArray[scalar]`."""
    # An alias of one argument since numpy 2.5; before, ndarray[shape, dtype[scalar]] at once.
    last = get_args(array_type)[-1]
    return cast("type[np.generic]", (get_args(last) or (last,))[0])


def filled(table: type[_Table], sizes: Mapping[str, int]) -> _Table:
    """Build a table before anything is written to it.

    Args:
        table: A class as `columns_of` reads it.
        sizes: Length of each axis that the columns name.

    Returns:
        The table; each column is an array of its type and shape, filled with its first value.
    """
    hashable: type = table
    arrays = {
        name: np.full([sizes[axis] for axis in column.axes.split()], column.first, dtype)
        for name, dtype, column in columns_of(hashable)
    }
    return cast(Callable[..., _Table], table)(**arrays)


def numbered(table: type[_Numbered]) -> _Numbered:
    """Number the columns of a block that a table describes.

    Args:
        table: A `NamedTuple` with a field `Annotated[int, Row(...)]` for each column.

    Returns:
        The table with 0, 1, 2... as values; compiled code reads them as constants.
    """
    return table(*range(len(get_type_hints(table))))


def indices(name: str, columns: Sequence[str]) -> ColumnIndex:
    """Number the columns of a block, in the given order.

    Args:
        name: Name of the constant that holds the result.
        columns: Names of the columns.

    Returns:
        A tuple of 0, 1, 2... with an attribute for each column; compiled code reads constants.

    >>> indices("SHARES", ["busy", "idle"]).idle
    1
    """
    # A namedtuple of ints, not an enum or a dict: numba takes it as a tuple of constants.
    return cast(ColumnIndex, namedtuple(name, columns)(*range(len(columns))))


def plain(array: Ints) -> Ints:
    """Convert an array to the layout that compiled code takes, without a copy if it has it.

    Args:
        array: Whole numbers of any type and layout.

    Returns:
        The same values as C-contiguous int64.
    """
    # `is` on the dtype is the cheap test; a missed match costs a copy, not correctness.
    if array.dtype is _INT64 and array.flags.c_contiguous:
        return array
    return np.ascontiguousarray(array, dtype=np.int64)
