"""Arrays on the card, and handles of tables of them.

The index of the job is the fastest one in memory: neighbouring threads compute neighbouring jobs,
so a warp reads one line of memory where it would otherwise read 32. The functions of the project
do not know: an array has strides.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np
from numba import types
from numba.core.typing.typeof import typeof
from numpy.typing import NDArray

from dsp_gym.numba_handles import HandleType, ViewType, _table_of, handle  # type: ignore[attr-defined]  # named for mypy only where compiled code is off
from dsp_gym.simulation.cuda.card import is_simulated

Host = NDArray[Any]

OnCard: TypeAlias = Any
"""A handle, a table or an array on the card: to mypy the host's, to numba what it finds there."""


DEFAULT_STREAM = 1
"""Number by which `__cuda_array_interface__` names the legacy default stream: kernels run on it."""


class DeviceArray:
    """An array in the memory of the card; it is allocated, with zeros, when it is first used.

    Others read it in place: `__cuda_array_interface__` is what torch, CuPy and Numba take.

    Args:
        shape: Its shape.
        dtype: Type of its items.
        fastest: The axis whose items are next to each other; None: the last one.
    """

    def __init__(self, shape: Sequence[int], dtype: Any, fastest: int | None = None) -> None:
        self.shape = tuple(map(int, shape))
        self.dtype = np.dtype(dtype)
        axes = list(range(len(self.shape)))
        # The CPU's own layout under the simulator, which calls the CPU's machine code.
        if fastest is not None and not is_simulated():
            axes.append(axes.pop(fastest))
        self._order = axes
        self._first: Host | None = None

    @classmethod
    def of(cls, array: Host, fastest: int | None = None) -> Any:
        """Describe an array with the values of one of the host; these are not copied before use.

        Returns:
            The array.
        """
        made = cls(array.shape, array.dtype, fastest)
        made._first = array
        return made

    @property
    def layout(self) -> Literal["C", "A"]:
        """Numba's name of the layout: as C stores arrays, or with any strides."""
        return "C" if self._order == sorted(self._order) else "A"

    @property
    def strides(self) -> tuple[int, ...]:
        """Bytes between neighbours along each axis."""
        kept = [self.shape[axis] for axis in self._order]
        strides, step = [0] * len(kept), self.dtype.itemsize
        for axis in reversed(self._order):
            strides[axis] = step
            step *= self.shape[axis]
        return tuple(strides)

    @property
    def size(self) -> int:
        """Number of items."""
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def nbytes(self) -> int:
        """Bytes it takes on the card, allocated or not."""
        return self.size * self.dtype.itemsize

    @cached_property
    def host(self) -> Host:
        """The simulator's array."""
        made = np.zeros(self.shape, self.dtype)
        if self._first is not None:
            made[...], self._first = self._first, None
        return made

    @cached_property
    def _memory(self) -> Any:
        """The items as one row of the card's memory."""
        from numba import cuda
        from numba.cuda.cudadrv.driver import device_memset

        made = cuda.device_array(max(1, self.size), self.dtype)
        if self._first is None:
            device_memset(made, 0, made.nbytes)
        elif self.size:
            made.copy_to_device(self._flat(self._first))
        self._first = None
        return made

    @property
    def address(self) -> int:
        """Address of the first item."""
        return int(self._memory.__cuda_array_interface__["data"][0])

    @property
    def __cuda_array_interface__(self) -> dict[str, object]:
        if is_simulated():
            raise AttributeError("the simulator's arrays are NumPy's: see `host`")
        return {
            "shape": self.shape,
            "strides": self.strides,
            "typestr": self.dtype.str,
            "data": (self.address, False),
            "version": 3,
            "stream": DEFAULT_STREAM,
        }

    def fill_from(self, array: Host) -> None:
        """Copy the values of an array of the host; its shape is this one's."""
        if is_simulated():
            self.host[...] = array
        elif self.size:
            self._memory.copy_to_device(self._flat(array))

    def to_host(self) -> Host:
        """Copy the values to the host.

        Returns:
            A C-contiguous array.
        """
        if is_simulated():
            return self.host.copy()
        flat = self._memory.copy_to_host()[: self.size]
        kept = flat.reshape([self.shape[axis] for axis in self._order])
        return np.ascontiguousarray(np.transpose(kept, np.argsort(self._order)))

    def _flat(self, array: Host) -> Host:
        moved = np.transpose(array, self._order)
        return np.ascontiguousarray(moved, self.dtype).reshape(-1)


class DeviceView(DeviceArray):
    """Another name for the memory of an array on the card.

    Args:
        base: The array; it is allocated when this one is first used.
        shape: The view's shape, with items in the order of C.
        dtype: Type of the view's items.
    """

    def __init__(self, base: DeviceArray, shape: Sequence[int], dtype: Any) -> None:
        super().__init__(shape, dtype)
        self._base, self._offset = base, 0
        self._steps: tuple[int, ...] | None = None
        self._place: tuple[int, int] | None = None

    @classmethod
    def of_part(cls, base: DeviceArray, axis: int, place: int) -> Any:
        """Name the part at one place of an axis.

        Returns:
            A view without the axis.
        """
        shape = [size for at, size in enumerate(base.shape) if at != axis]
        made = cls(base, shape, base.dtype)
        steps = base.strides
        made._offset = place * steps[axis]
        made._steps = tuple(step for at, step in enumerate(steps) if at != axis)
        made._place = axis, place
        return made

    @classmethod
    def of_interface(cls, other: Any, shape: Sequence[int]) -> Any:
        """Name the memory of another library's array on the card, once it has been written.

        The host waits for the stream that the array names, unless that is the kernels' own.

        Args:
            other: The array.
            shape: Its shape, or with a last axis of length 1 more.

        Returns:
            A view, which keeps the array alive.

        Raises:
            TypeError: Its items are not whole numbers of 64 bits.
        """
        known = other.__cuda_array_interface__
        if np.dtype(known["typestr"]) != np.int64:
            raise TypeError(f"expected int64 on the card, found {known['typestr']}")
        stream = known.get("stream")
        if stream not in (None, DEFAULT_STREAM):
            from numba import cuda

            cuda.external_stream(stream).synchronize()
        made = cls(_Borrowed(other, int(known["data"][0])), shape, np.int64)
        strides = known.get("strides")
        made._steps = (
            made.strides if strides is None else (*strides, made.dtype.itemsize)[: len(shape)]
        )
        return made

    @property
    def strides(self) -> tuple[int, ...]:
        return super().strides if self._steps is None else self._steps

    @property
    def layout(self) -> Literal["C", "A"]:
        return "C" if self._steps is None else "A"

    @property
    def nbytes(self) -> int:
        return 0

    @property
    def address(self) -> int:
        return self._base.address + self._offset

    @property
    def host(self) -> Host:
        if self._place is not None:
            return self._base.host.take(self._place[1], self._place[0])
        return self._base.host.view(self.dtype).reshape(self.shape)

    def to_host(self) -> Host:
        if self._place is not None:
            axis, place = self._place
            return np.ascontiguousarray(self._base.to_host().take(place, axis))
        return self._base.to_host().view(self.dtype).reshape(self.shape)


class _Borrowed(DeviceArray):
    """The memory of another library's array."""

    def __init__(self, other: Any, address: int) -> None:
        super().__init__((0,), np.int64)
        self._other, self._address = other, address

    @property
    def address(self) -> int:
        return self._address


def on_card(shape: Sequence[int], dtype: Any, fastest: int | None = None) -> Any:
    """Describe an array of zeros on the card; tables of the host's arrays take it as one of theirs.

    Returns:
        A `DeviceArray`.
    """
    return DeviceArray(shape, dtype, fastest)


def one_per_job(table: Any, jobs: int) -> Any:
    """Describe arrays that every job has for itself.

    Args:
        table: Arrays of one job, whose values count for nothing, and tables of such arrays.
        jobs: J.

    Returns:
        The same table with arrays (J, ...) on the card, the job fastest.
    """
    return type(table)(
        *(
            one_per_job(one, jobs)
            if isinstance(one, tuple)
            else DeviceArray((jobs, *one.shape), one.dtype, 0)
            for one in table
        )
    )


def with_job_axis(array: Host, order: Host) -> Any:
    """Copy an array of J jobs, so that an item of it is an array of one job.

    Args:
        array: (J, ...) values.
        order: (J,) the row of each job on the card.

    Returns:
        An array (J, 1, ...) on the card, the job fastest.
    """
    return DeviceArray.of(np.asarray(array)[order][:, None], 0)


def shared(table: Any) -> Any:
    """Copy a table that all threads read, in the layout it has; numbers stay numbers.

    Returns:
        The same table with arrays on the card.
    """
    kept = [
        shared(one)
        if isinstance(one, tuple)
        else DeviceArray.of(np.ascontiguousarray(one))
        if isinstance(one, np.ndarray)
        else one
        for one in table
    ]
    return type(table)(*kept)


def kind_of(table: tuple[Any, ...]) -> types.Type:
    """Return numba's type of a table of arrays on the card, or of the host.

    Returns:
        A named tuple's type; arrays of several dimensions may have any strides unless they are
        stored as C does.
    """
    kinds = [_kind_of_field(one) for one in table]
    return types.BaseTuple.from_types(kinds, type(table))


def _kind_of_field(one: Any) -> types.Type:
    if isinstance(one, tuple):
        return ViewType(kind_of(one))
    if isinstance(one, DeviceArray):
        return types.Array(typeof(np.empty(0, one.dtype)).dtype, len(one.shape), one.layout)
    return typeof(one)


class DeviceHandle:
    """A table of arrays on the card as one argument of a kernel.

    Args:
        table: A `NamedTuple` of arrays on the card, numbers and tables of these.
    """

    def __init__(self, table: tuple[Any, ...]) -> None:
        self.arrays = table
        self.kind = HandleType(kind_of(table))

    @cached_property
    def simulated(self) -> Any:
        """The handle that the simulator passes to compiled code."""
        return handle(_on_host(self.arrays))

    @cached_property
    def address(self) -> int:
        """Address of the table's words, on the card as the arrays are; allocates them."""
        words = _words(self.arrays, self.kind.table)
        self._kept = DeviceArray.of(np.array(words, np.int64))
        return self._kept.address


class HandleArguments:
    """Numba's hook through which kernels take handles: an address in place of a table."""

    def prepare_args(self, kind: Any, value: Any, **_: object) -> tuple[Any, Any]:
        """Turn a handle into the number that the kernel gets.

        Returns:
            Type and value.
        """
        if isinstance(value, DeviceHandle):
            if is_simulated():
                return kind, value.simulated
            return types.uint64, value.address
        return kind, value


def _on_host(table: Any) -> Any:
    """Return the table with the simulator's arrays."""
    fields = [
        _on_host(one)
        if isinstance(one, tuple)
        else one.host
        if isinstance(one, DeviceArray)
        else one
        for one in table
    ]
    return type(table)(*fields)


def _words(value: Any, kind: Any) -> list[int]:
    """Write a field as words, as `dsp_gym.numba_handles` does for arrays of the host."""
    if isinstance(kind, types.BaseNamedTuple | ViewType):
        fields = zip(value, _table_of(kind).types, strict=True)
        return [word for field in fields for word in _words(*field)]
    if isinstance(kind, types.Array):
        size = int(np.prod(value.shape, dtype=np.int64))
        item = value.dtype.itemsize
        return [0, 0, size, item, value.address, *value.shape, *value.strides]
    if isinstance(kind, types.Float):
        return [int(np.float64(value).view(np.int64))]
    return [int(value)]


def bytes_of(*tables: tuple[Any, ...]) -> int:
    """Add up the bytes of the arrays of tables on the card.

    Returns:
        Their sum.
    """
    return sum(
        bytes_of(one)
        if isinstance(one, tuple)
        else one.nbytes
        if isinstance(one, DeviceArray)
        else 0
        for table in tables
        for one in table
    )
