"""Calls of compiled functions that cost less than what the functions do.

Numba looks at the type of every argument, and of every array of a `NamedTuple`, at each call: about
0.3 us per array. A step of one job is a dozen calls of some microseconds with up to eighty arrays,
so the looking would take most of it. Two things avoid that:

- `direct`: a function whose arguments have the same types at every call looks at them once.
- `Handle`: one argument in place of the many arrays of a table that stays as it is.

A handle saves compilation as well: a table of eighty arrays is five hundred numbers to numba,
handed on from function to function. Compiled code sees an address, and reads the fields it names.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import cache, wraps
from hashlib import sha256
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np
from numba import config, typeof, types
from numba.core import cgutils
from numba.core.imputils import lower_getattr, lower_getattr_generic
from numba.core.typing.templates import AttributeTemplate, infer_getattr
from numba.extending import NativeValue, models, register_model, typeof_impl, unbox

__all__ = ["Handle", "Handles", "by_address", "direct", "handle"]

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
        """A table of arrays as one argument; the caller keeps it for as long as the call lasts."""

        @property
        def arrays(self) -> T:
            """The table; in compiled code what has its fields, which cannot be unpacked."""
            ...

    def handle(table: T) -> Handle[T]:
        """The handle of a table.

        Args:
            table: A `NamedTuple` of arrays, numbers and tables; the numbers stay as they are.

        Returns:
            A handle that shares the arrays.
        """

    def by_address(table: type[object]) -> None:
        """Hand every table of a class to compiled functions as its handle would be.

        For a large table that Python hands to many functions, seldom: its arrays are looked at in
        each call.

        Args:
            table: A class of `NamedTuple`s, registered before compiled code sees one.
        """

elif config.DISABLE_JIT:  # plain Python, for debuggers

    class Handle:
        """Holds the table as it is."""

        __slots__ = ("arrays",)

        def __init__(self, arrays):
            self.arrays = arrays

    handle = Handle

    def by_address(table):
        """Leave the tables as they are."""

    def direct(function):
        """Leave the function as it is."""
        return function

else:
    _KEPT = 16
    """Handles of tables that Python hands over as they are, the last ones."""

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

    class Handle:
        """Where the arrays of a table lie: words that compiled code reads, and the table itself."""

        __slots__ = ("_numba_type_", "_words", "address", "arrays")

        def __init__(self, arrays):
            self.arrays = arrays  # which must not go before the handle
            self._numba_type_ = HandleType(_table_of(typeof(arrays)))
            _width(self._numba_type_)
            self._words = np.array(_words(arrays, self._numba_type_.table), np.int64)
            self.address = self._words.ctypes.data

        def __reduce__(self):
            return Handle, (self.arrays,)

    handle = Handle

    class HandleType(types.Type):
        """Type of a handle, by the type of its table."""

        def __init__(self, table):
            self.table = table
            super().__init__(f"Handle({_title(table)})")

    class ViewType(types.Type):
        """Type of a table behind a handle: an address, and the names of what lies there."""

        def __init__(self, table):
            self.table = table
            super().__init__(f"View({_title(table)})")

        def place(self, name):
            """Type of a field, and its first word; None where there is no such field."""
            at = 0
            for field, kind in zip(self.table.fields, self.table.types, strict=True):
                if field == name:
                    return kind, at
                at += _width(kind)
            return None

    register_model(HandleType)(models.OpaqueModel)
    register_model(ViewType)(models.OpaqueModel)

    def _table_of(kind):
        """The `NamedTuple` that is seen."""
        return kind.table if isinstance(kind, ViewType | HandleType) else kind

    @cache
    def _title(table):
        """A short name, as it stands in every symbol; another one where a field is another."""
        fields = zip(table.fields, table.types, strict=True)
        text = ",".join(f"{name}:{_title_of(kind)}" for name, kind in fields)
        number = sha256(text.encode()).hexdigest()[:16]
        return f"{table.instance_class.__module__}.{table.instance_class.__qualname__} {number}"

    def _title_of(kind):
        seen = _table_of(kind)
        return _title(seen) if isinstance(seen, types.BaseNamedTuple) else str(kind)

    def _width(kind):
        """Words that a field takes."""
        if isinstance(kind, types.BaseNamedTuple | ViewType | HandleType):
            return sum(map(_width, _table_of(kind).types))
        if isinstance(kind, types.Array):
            return 5 + 2 * kind.ndim
        if isinstance(kind, types.Float | types.Integer | types.Boolean):
            return 1
        raise TypeError(f"a handle holds arrays, numbers and tables of them, not {kind}")

    def _words(value, kind):
        """A field as words: an array as numba's record of it, without what counts references."""
        if isinstance(kind, types.BaseNamedTuple | ViewType):
            fields = zip(value, _table_of(kind).types, strict=True)
            return [word for field in fields for word in _words(*field)]
        if isinstance(kind, types.Array):
            at = value.ctypes.data
            return [0, 0, value.size, value.itemsize, at, *value.shape, *value.strides]
        if isinstance(kind, types.Float):
            return [int(np.float64(value).view(np.int64))]
        return [int(value)]

    @typeof_impl.register(Handle)
    def _type_of(held, _):
        return held._numba_type_

    @unbox(HandleType)
    def _unbox(_, held, c):
        """Take the address out of the handle."""
        number = c.pyapi.object_getattr_string(held, "address")
        address = c.pyapi.long_as_voidptr(number)
        c.pyapi.decref(number)
        return NativeValue(address, is_error=cgutils.is_not_null(c.builder, c.pyapi.err_occurred()))

    _kept = OrderedDict()

    def _of(table):
        """A handle of a table, the same while the table is one of the last."""
        held = _kept.get(id(table))
        if held is None:
            held = _kept[id(table)] = Handle(table)  # it holds the table, so no other has its id
            if len(_kept) > _KEPT:
                _kept.popitem(last=False)
        return held

    def by_address(table):
        """Give the tables of a class the type of a view."""

        @typeof_impl.register(table)
        def _type_of_table(value, context):
            kinds = [typeof_impl(field, context) for field in value]
            view = ViewType(types.BaseTuple.from_types(kinds, table))
            _width(view)
            return view

    @unbox(ViewType)
    def _unbox_table(_, table, c):
        """Find the handle of a table that Python hands over; it is kept until the call is over."""
        of = c.pyapi.unserialize(c.pyapi.serialize_object(_of))
        held = c.pyapi.call_function_objargs(of, [table])
        c.pyapi.decref(of)
        address = cgutils.alloca_once_value(c.builder, cgutils.get_null_value(cgutils.voidptr_t))
        with c.builder.if_then(cgutils.is_not_null(c.builder, held)):
            c.builder.store(_unbox(None, held, c).value, address)
        failed = cgutils.is_not_null(c.builder, c.pyapi.err_occurred())
        return NativeValue(c.builder.load(address), failed, lambda: c.pyapi.decref(held))

    @infer_getattr
    class HandleAttributes(AttributeTemplate):
        """What compiled code sees of a handle."""

        key = HandleType

        def resolve_arrays(self, held):
            """The table, seen from its address."""
            return ViewType(held.table)

    @lower_getattr(HandleType, "arrays")
    def _look(context, builder, kind, address):
        return address

    @infer_getattr
    class ViewAttributes(AttributeTemplate):
        """Fields of a view."""

        key = ViewType

        def generic_resolve(self, view, name):
            """Type of a field; a table in a table is a view, too."""
            found = view.place(name)
            if found is None:
                return None
            kind = found[0]
            return ViewType(kind) if isinstance(kind, types.BaseNamedTuple) else kind

    @lower_getattr_generic(ViewType)
    def _read(context, builder, view, address, name):
        """Read one field where it lies; the others are not touched."""
        kind, at = view.place(name)
        words = builder.bitcast(address, cgutils.intp_t.as_pointer())
        there = cgutils.gep_inbounds(builder, words, at)
        if isinstance(kind, types.BaseNamedTuple | ViewType):
            return builder.bitcast(there, cgutils.voidptr_t)
        layout = context.get_value_type(kind)
        if isinstance(kind, types.Array):
            record = builder.load(builder.bitcast(there, layout.as_pointer()))
            nobody = cgutils.get_null_value(layout.elements[0])  # LLVM sees that none are counted
            return builder.insert_value(record, nobody, 0)
        if isinstance(kind, types.Float):
            return builder.load(builder.bitcast(there, layout.as_pointer()))
        word = builder.load(there)
        return word if layout == word.type else builder.trunc(word, layout)


class Handles(dict[object, object]):
    """Handles of an object, which a copy of the object does not take over."""

    def __reduce__(self) -> tuple[type[Handles], tuple[()]]:
        return Handles, ()
