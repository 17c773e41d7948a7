"""Calls of compiled functions that cost less than what the functions do.

Numba looks at the type of every argument, and of every array of a `NamedTuple`, at each call: about
0.3 us per array. A step of one job is a dozen calls of some microseconds with up to eighty arrays,
so the looking would take most of it. Two things avoid that:

- `direct`: a function whose arguments have the same types at every call looks at them once.
- `Handle`: one argument in place of the many arrays of a table that stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Generic, TypeVar

from numba import config, typeof, types
from numba.experimental import structref

from dsp_gym.compiling import njit

__all__ = ["Handle", "Handles", "direct", "handle"]

T = TypeVar("T")
Function = TypeVar("Function", bound=Callable[..., object])


if TYPE_CHECKING:

    def direct(function: Function) -> Function:
        """Compile a function for the types of its first call, and no longer look at types.

        For functions that Python calls, whose arguments are numbers, C-contiguous arrays of one
        type and dimension, tables of them, and handles. Compiled code cannot call the result.

        Args:
            function: Decorated with `njit`.

        Returns:
            The function. Arguments of other types than at the first call are read as if they were
            of those types.
        """

    class Handle(Generic[T]):
        """A table of arrays as one argument; compiled code reads its `arrays`."""

        @property
        def arrays(self) -> T: ...

    def handle(table: T) -> Handle[T]:
        """The handle of a table.

        Args:
            table: A `NamedTuple` of C-contiguous arrays and numbers.

        Returns:
            A handle that shares the arrays.
        """

elif config.DISABLE_JIT:  # plain Python, for debuggers

    class Handle:
        """Holds the table as it is."""

        __slots__ = ("arrays",)

        def __init__(self, arrays):
            self.arrays = arrays

    handle = Handle

    def direct(function):
        """Leave the function as it is."""
        return function

else:

    def direct(function):
        """Keep the machine code for the types of the first call."""
        entry = None

        @wraps(function)
        def call(*arguments):
            nonlocal entry
            if entry is None:
                entry = function.compile(tuple(map(typeof, arguments)))
            return entry(*arguments)

        return call

    @structref.register
    class HandleType(types.StructRef):
        """Type of a handle, by the type of its arrays."""

        def preprocess_fields(self, fields):
            """Let a number of a table be any number of its type."""
            return tuple((name, types.unliteral(field)) for name, field in fields)

    class Handle(structref.StructRefProxy):
        """One reference-counted object that holds the arrays."""

        __slots__ = ()

        @property
        def arrays(self):
            """The table, made anew around the same arrays."""
            return _arrays(self)

    structref.define_constructor(Handle, HandleType, ["arrays"])
    structref.define_boxing(HandleType, Handle)

    @njit(cache=True)
    def handle(table):
        """Hold the arrays of a table."""
        return Handle(table)

    @njit(cache=True)
    def _arrays(held):
        return held.arrays


class Handles(dict[object, object]):
    """Handles of an object, which a copy of the object does not take over."""

    def __reduce__(self) -> tuple[type[Handles], tuple[()]]:
        return Handles, ()
