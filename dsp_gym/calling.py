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
from operator import attrgetter
from typing import TYPE_CHECKING, Generic, TypeVar

from numba import config, typeof, types
from numba.core import cgutils
from numba.core.imputils import impl_ret_borrowed, lower_getattr_generic
from numba.core.runtime.nrtdynmod import _meminfo_struct_type
from numba.core.typing.templates import AttributeTemplate, infer_getattr
from numba.experimental import structref
from numba.extending import intrinsic, models, register_model

from dsp_gym.compiling import njit

_DATA = 3
"""Which member of numba's record of an allocation points to the data."""

__all__ = ["Handle", "Handles", "borrowed", "direct", "handle"]

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

    def borrowed(held: Handle[T]) -> T:
        """The table of a handle as one address, for compiled functions that `borrow`.

        The handle must live longer than the call. A table of eighty arrays is five hundred numbers:
        handed on as such, numba and LLVM take two seconds for each function that takes it.

        Args:
            held: The handle of a table.

        Returns:
            Something with the fields of the table, which cannot be unpacked; tables in it likewise.
        """

elif config.DISABLE_JIT:  # plain Python, for debuggers

    class Handle:
        """Holds the table as it is."""

        __slots__ = ("arrays",)

        def __init__(self, arrays):
            self.arrays = arrays

    handle = Handle
    borrowed = attrgetter("arrays")

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

    class ViewType(types.Type):
        """Type of a table behind a handle: an address, and the names of what lies there."""

        def __init__(self, table):
            self.table = table
            super().__init__(f"View({table})")

        def index(self, name):
            """Place of a field, None where there is no such field."""
            fields = self.table.fields
            return fields.index(name) if name in fields else None

    register_model(ViewType)(models.OpaqueModel)

    def _seen(field):
        """How a field of a table is typed: a table in a table is a view, too."""
        return ViewType(field) if isinstance(field, types.BaseNamedTuple) else field

    @infer_getattr
    class ViewAttributes(AttributeTemplate):
        """Fields of a view."""

        key = ViewType

        def generic_resolve(self, view, name):
            """Type of a field."""
            at = view.index(name)
            return None if at is None else _seen(view.table.types[at])

    @lower_getattr_generic(ViewType)
    def _read(context, builder, view, address, name):
        """Read one field where it lies; the others are not touched."""
        layout = context.get_value_type(view.table).as_pointer()
        at = view.index(name)
        field = cgutils.gep_inbounds(builder, builder.bitcast(address, layout), 0, at)
        kind = view.table.types[at]
        if isinstance(kind, types.BaseNamedTuple):
            return builder.bitcast(field, cgutils.voidptr_t)
        return impl_ret_borrowed(context, builder, kind, builder.load(field))

    @intrinsic
    def borrowed(_, held):
        """Find the table where numba's runtime keeps the data of the handle."""

        def find(context, builder, signature, arguments):
            (kind,) = signature.args
            proxy = cgutils.create_struct_proxy(kind)(context, builder, value=arguments[0])
            info = builder.bitcast(proxy.meminfo, _meminfo_struct_type.as_pointer())
            return builder.load(cgutils.gep_inbounds(builder, info, 0, _DATA))

        return ViewType(held.field_dict["arrays"])(held), find

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
