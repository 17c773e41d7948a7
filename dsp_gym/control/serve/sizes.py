"""How many bytes of memory something holds on to."""

from __future__ import annotations

import gc
import sys
from types import BuiltinFunctionType, FrameType, FunctionType, MethodType, ModuleType

_SHARED = (type, ModuleType, FunctionType, BuiltinFunctionType, FrameType)
"""What every part of a process shares: not held by one object."""

_FOREIGN = ("numba", "llvmlite", "pydantic", "pydantic_core", "threading", "_thread", "weakref")
"""Packages whose objects lead to all of the package."""


def size_of(root: object, shared: tuple[object, ...] = ()) -> int:
    """Count the bytes of an object and of what it refers to.

    Args:
        root: where to begin.
        shared: objects that others hold, too; neither they nor what is below counts.

    Returns:
        Bytes, as the interpreter counts them; arrays with their numbers.
    """
    seen, left, total = {id(one) for one in shared}, [root], 0
    while left:
        one = left.pop()
        if id(one) in seen or isinstance(one, _SHARED):
            continue
        seen.add(id(one))
        total += sys.getsizeof(one)
        if isinstance(one, MethodType):
            left.append(one.__self__)
        elif type(one).__module__.partition(".")[0] not in _FOREIGN:
            left.extend(gc.get_referents(one))
    return total
