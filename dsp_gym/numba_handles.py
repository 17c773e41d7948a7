"""Calls of compiled functions at a cost below that of their work.

At each call, numba inspects the type of every argument, and of every array of a `NamedTuple`: about
0.3 us per array. A step of one job is a dozen calls of some microseconds with up to eighty arrays,
most of which would be spent on inspection. Two tools avoid that:

- `direct`: a function whose arguments have the same types at every call inspects them once.
- `Handle`: one argument in place of the many arrays of an unchanging table.

A handle saves compilation as well: a table of eighty arrays is five hundred numbers to numba,
passed from function to function. With a handle, compiled code gets an address, and reads the fields
it names.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import cache, wraps
from hashlib import sha256
from typing import TYPE_CHECKING, Generic, TypeVar, cast

import numpy as np

from dsp_gym.compiling import COMPILES

T = TypeVar("T")
Function = TypeVar("Function", bound=Callable[..., object])


if TYPE_CHECKING:

    def direct(function: Function) -> Function:
        """Compile a function for the types of its first call, and skip their inspection afterwards.

        For functions called from Python whose arguments are numbers, C-contiguous arrays of one
        type and dimension, tables of them, and handles. Compiled code cannot call the result.

        Args:
            function: A function decorated with `njit`.

        Returns:
            The function. Arguments of other types than at the first call are read as if they were
            of those types.
        """

    class Handle(Generic[T]):
        """A table of arrays as one argument; the caller keeps it for the duration of a call."""

        @property
        def arrays(self) -> T:
            """The table; in compiled code a view with its fields, which cannot be unpacked."""
            ...

    def handle(table: T) -> Handle[T]:
        """Return the handle of a table.

        Args:
            table: A `NamedTuple` of arrays, numbers and tables; the numbers are constant from then
                on.

        Returns:
            A handle that shares the arrays.
        """

    def by_address(table: type[object]) -> None:
        """Pass every table of a class to compiled functions as its handle would be passed.

        For a large table that Python seldom passes, but to many functions: its arrays are inspected
        in each call.

        Args:
            table: A class of `NamedTuple`s, registered before compiled code gets one.
        """

elif not COMPILES:  # plain Python, for debuggers and small processes

    class Handle:
        """A plain holder of the table."""

        __slots__ = ("arrays",)

        def __init__(self, arrays):
            self.arrays = arrays

    handle = Handle

    def by_address(table):
        """Leave the tables unchanged."""

    def direct(function):
        """Return the function unchanged."""
        return function

else:
    from numba import typeof, types
    from numba.core import cgutils
    from numba.core.imputils import lower_getattr, lower_getattr_generic
    from numba.core.typing.templates import AttributeTemplate, infer_getattr
    from numba.extending import NativeValue, models, register_model, typeof_impl, unbox

    _KEPT = 16
    """Number of handles kept for tables that Python passes directly; the oldest one goes first."""

    def direct(function):
        """Keep the machine code for the types of the first call."""
        entry = None

        @wraps(function)
        def call(*arguments):
            nonlocal entry
            if entry is None:
                # `compile` returns the entry point of one signature: calling it skips numba's
                # dispatch by types.
                entry = function.compile(tuple(map(typeof, arguments)))
            return entry(*arguments)

        return call

    class Handle:
        """The addresses of a table's arrays, as words for compiled code, and the table itself."""

        __slots__ = ("_numba_type_", "_words", "address", "arrays")

        def __init__(self, arrays):
            self.arrays = arrays  # keeps the arrays alive as long as the handle
            # Numba looks for `_numba_type_` on an instance before it inspects it: no inspection at
            # all.
            self._numba_type_ = HandleType(_table_of(typeof(arrays)))
            _width(self._numba_type_)
            self._words = np.array(_words(arrays, self._numba_type_.table), np.int64)
            self.address = self._words.ctypes.data

        def __reduce__(self):
            # Addresses are meaningless in another process: a copy computes them from its arrays.
            return Handle, (self.arrays,)

    handle = Handle

    class HandleType(types.Type):
        """Type of a handle, by the type of its table."""

        def __init__(self, table):
            self.table = table
            super().__init__(f"Handle({_title(table)})")

    class ViewType(types.Type):
        """Type of a table behind a handle: an address, and the names of the fields there."""

        def __init__(self, table):
            self.table = table
            super().__init__(f"View({_title(table)})")

        def place(self, name):
            """Return the type and the first word of a field; None where there is no such field."""
            at = 0
            for field, kind in zip(self.table.fields, self.table.types, strict=True):
                if field == name:
                    return kind, at
                at += _width(kind)
            return None

    register_model(HandleType)(models.OpaqueModel)
    register_model(ViewType)(models.OpaqueModel)

    def _table_of(kind):
        """Return the `NamedTuple` type behind a view or a handle, or the type itself."""
        return kind.table if isinstance(kind, ViewType | HandleType) else kind

    @cache
    def _title(table):
        """Return a short name, which is part of every symbol and differs where a field differs."""
        fields = zip(table.fields, table.types, strict=True)
        text = ",".join(f"{name}:{_title_of(kind)}" for name, kind in fields)
        number = sha256(text.encode()).hexdigest()[:16]
        return f"{table.instance_class.__module__}.{table.instance_class.__qualname__} {number}"

    def _title_of(kind):
        seen = _table_of(kind)
        return _title(seen) if isinstance(seen, types.BaseNamedTuple) else str(kind)

    def _width(kind):
        """Return the number of words that a field takes."""
        if isinstance(kind, types.BaseNamedTuple | ViewType | HandleType):
            return sum(map(_width, _table_of(kind).types))
        if isinstance(kind, types.Array):
            # Numba's array record: meminfo, parent, number of items, item size, data, shape and
            # strides.
            return 5 + 2 * kind.ndim
        if isinstance(kind, types.Float | types.Integer | types.Boolean):
            return 1
        raise TypeError(f"a handle holds arrays, numbers and tables of them, not {kind}")

    def _words(value, kind):
        """Write a field as words: an array as numba's record of it, without reference counts."""
        if isinstance(kind, types.BaseNamedTuple | ViewType):
            fields = zip(value, _table_of(kind).types, strict=True)
            return [word for field in fields for word in _words(*field)]
        if isinstance(kind, types.Array):
            at = value.ctypes.data
            # The first two words, meminfo and parent, are null: compiled code then counts no
            # references.
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
        """Return a handle of a table, the same one while the table is among the last."""
        held = _kept.get(id(table))
        if held is None:
            held = _kept[id(table)] = Handle(table)  # holds the table: its id stays unique
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
        """Find the handle of a table that Python passes; keep it until the end of the call."""
        of = c.pyapi.unserialize(c.pyapi.serialize_object(_of))
        held = c.pyapi.call_function_objargs(of, [table])
        c.pyapi.decref(of)
        # Initialised with null: if making the handle failed, the error is reported below.
        address = cgutils.alloca_once_value(c.builder, cgutils.get_null_value(cgutils.voidptr_t))
        with c.builder.if_then(cgutils.is_not_null(c.builder, held)):
            c.builder.store(_unbox(None, held, c).value, address)
        failed = cgutils.is_not_null(c.builder, c.pyapi.err_occurred())
        return NativeValue(c.builder.load(address), failed, lambda: c.pyapi.decref(held))

    @infer_getattr
    class HandleAttributes(AttributeTemplate):
        """Attributes of a handle in compiled code."""

        key = HandleType

        def resolve_arrays(self, held):
            """Return the view of the table."""
            return ViewType(held.table)

    @lower_getattr(HandleType, "arrays")
    def _look(context, builder, kind, address):
        return address

    @infer_getattr
    class ViewAttributes(AttributeTemplate):
        """Fields of a view."""

        key = ViewType

        def generic_resolve(self, view, name):
            """Return the type of a field; a table within a table is a view, too."""
            found = view.place(name)
            if found is None:
                return None
            kind = found[0]
            return ViewType(kind) if isinstance(kind, types.BaseNamedTuple) else kind

    @lower_getattr_generic(ViewType)
    def _read(context, builder, view, address, name):
        """Read one field in place; the others are not touched."""
        kind, at = view.place(name)
        words = builder.bitcast(address, cgutils.intp_t.as_pointer())
        there = cgutils.gep_inbounds(builder, words, at)
        if isinstance(kind, types.BaseNamedTuple | ViewType):
            return builder.bitcast(there, cgutils.voidptr_t)
        layout = context.get_value_type(kind)
        if isinstance(kind, types.Array):
            record = builder.load(builder.bitcast(there, layout.as_pointer()))
            # A constant null record: LLVM drops the counting of references.
            nobody = cgutils.get_null_value(layout.elements[0])
            return builder.insert_value(record, nobody, 0)
        if isinstance(kind, types.Float):
            return builder.load(builder.bitcast(there, layout.as_pointer()))
        # Booleans are words here, but narrower in LLVM.
        word = builder.load(there)
        return word if layout == word.type else builder.trunc(word, layout)


class Handles(dict[object, object]):
    """Handles of an object; a copy of the object starts without any."""

    def of(self, key: object, table: Callable[[], T]) -> Handle[T]:
        """Return the handle of a table, which is made once.

        Args:
            key: Names the table.
            table: Makes it; its arrays stay the same as long as the handle is kept.

        Returns:
            The handle under the key.
        """
        if key not in self:
            self[key] = handle(table())
        return cast("Handle[T]", self[key])

    def __reduce__(self) -> tuple[type[Handles], tuple[()]]:
        return Handles, ()
