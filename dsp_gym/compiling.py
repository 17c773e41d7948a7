"""Compiled functions whose machine code is kept on disk, and is never out of date there.

Numba by itself notices a change of a function's own file only. Here a function is compiled anew as
well when a compiled function it calls has changed, or a constant it reads; and a cache that an
older state of the code wrote in a way that can no longer be read counts as empty.
"""

from __future__ import annotations

import fcntl
import functools
import gc
import inspect
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Literal, TypeVar, cast

import numba
import numpy as np
from numba import types
from numba.core.caching import FunctionCache
from numba.core.compiler_lock import global_compiler_lock
from numba.core.dispatcher import Dispatcher

__all__ = ["njit"]

_LOG = logging.getLogger(__name__)

_F = TypeVar("_F", bound=Callable[..., object])

_PATIENCE_S, _LOOK_S = 120.0, 0.05
"""How long another process is waited for that compiles the same function, and between two looks."""


def njit(
    *,
    cache: bool = False,
    nogil: bool = False,
    inline: Literal["never", "always"] = "never",
    error_model: Literal["python", "numpy"] = "python",
    borrows: bool = False,
    forceinline: bool = False,
) -> Callable[[_F], _F]:
    """Compiles a function on its first call, as `numba.njit` does; the options are numba's.

    Args:
        cache: Keep the machine code on disk.
        nogil: Let other threads run meanwhile.
        inline: Whether callers take the function in before they are compiled.
        error_model: Division by zero: an error, or infinity.
        borrows: The function makes no array and gives none back. Then numba need not count the
            references to its arguments, which takes longer than the work of a small function.
        forceinline: Whether LLVM takes the function into its callers, however large it is.

    Returns:
        A decorator; the compiled function is called as the original.
    """

    def compiled(function: _F) -> _F:
        made = numba.njit(  # type: ignore[call-overload]  # numba's types leave `_nrt` out  # noqa: TID251  # the one place
            nogil=nogil,
            inline=inline,
            error_model=error_model,
            _nrt=not borrows,
            forceinline=forceinline,
            no_cfunc_wrapper=True,  # a second entry, for C, that nobody calls
        )(function)
        if isinstance(made, Dispatcher):  # it is the function where numba is switched off
            kept = None
            if cache:
                kept = _Cache(function)  # type: ignore[no-untyped-call]  # numba's
                made._cache = kept  # type: ignore[attr-defined]  # numba's own, as `enable_caching` sets it
            made.compile = _in_peace(made, kept)  # type: ignore[assignment]  # of this function alone
        return cast(_F, made)

    return compiled


def _in_peace(made: Dispatcher, kept: _Cache | None) -> Callable[[object], object]:
    """Compiles a function for types alone, once, and with nothing beside it.

    Numba would compile anew for each number that is written in a call, and so would each process
    that needs the function meanwhile.

    Returns:
        What compiles the same.
    """
    compile_: Callable[..., object] = made.compile

    @functools.wraps(compile_)
    def compiled(sig: object) -> object:
        if isinstance(sig, tuple):
            sig = tuple(map(types.unliteral, sig))
            if sig in made.overloads:
                return compile_(sig)
        alone = nullcontext() if kept is None else kept.alone()
        with global_compiler_lock, alone, _without_collection():
            return compile_(sig)

    return compiled


@contextmanager
def _without_collection() -> Iterator[None]:
    """Lets Python's garbage collection rest.

    Numba's objects stay until the function is compiled; looking through them again and again takes
    a tenth of the time.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@functools.cache
def _announce() -> None:
    """Says once why nothing seems to happen; on stderr, unless the program handles its log."""
    _LOG.warning(
        "compiling numeric code (simulation, observation, policies) for this processor: once after "
        "an installation or an update, up to a minute"
    )


class _Cache(FunctionCache):
    """Numba's cache of one function, which knows what the function calls."""

    _complete = False
    _is_alone = False

    def load_overload(self, sig: object, target_context: object) -> object:
        """Reads machine code, or finds none.

        Returns:
            What numba compiled for these argument types; None where nothing was kept, or where an
            older state of the code kept it.
        """
        index = self._cache_file
        if not self._complete:  # late, as a function may be written above the ones it calls
            index._source_stamp = (index._source_stamp, *_stamps(self._py_func))
            self._complete = True
        try:
            found: object = super().load_overload(sig, target_context)  # type: ignore[no-untyped-call]  # numba's
        except OSError:
            raise
        except Exception:
            # Numba reads the argument types before it compares stamps. Their classes may be gone,
            # and reading them may then end in any error.
            self.flush()  # type: ignore[no-untyped-call]  # numba's
            found = None
        if found is None:
            _announce()
        return found

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keeps other processes from this function, which find what this one compiled.

        Numba also writes the index of a function before the code that it names. Calls form no
        circle, so no two processes wait for each other; one that was stopped is not waited for.
        """
        if self._is_alone:  # a function that calls itself
            yield
            return
        index = Path(self._cache_file._index_path)
        try:
            index.parent.mkdir(parents=True, exist_ok=True)
            lock = os.open(index.with_suffix(".lock"), os.O_CREAT | os.O_RDWR, 0o666)
        except OSError:  # a folder that cannot be written: numba says so where it matters
            yield
            return
        self._is_alone = True
        try:
            for _ in range(round(_PATIENCE_S / _LOOK_S)):
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    time.sleep(_LOOK_S)
                except OSError:  # a file system without locks
                    break
                else:
                    break
            yield
        finally:
            self._is_alone = False
            os.close(lock)


def _stamps(function: FunctionType) -> list[object]:
    """What machine code depends on beside the function's own file, in an order of its own."""
    seen: dict[FunctionType, None] = {}
    found: set[object] = set()
    queue = [function]
    while queue:
        caller = queue.pop()
        if caller not in seen:
            seen[caller] = None
            called, stamps = _direct_stamps(caller)
            queue += called
            found |= stamps
    return sorted(found, key=repr)


@functools.cache
def _direct_stamps(caller: FunctionType) -> tuple[list[FunctionType], set[object]]:
    """The compiled functions a function calls; its constants, and its file or else its code."""
    known = inspect.getclosurevars(caller)
    values = {**known.globals, **known.nonlocals}
    for module in [value for value in values.values() if isinstance(value, ModuleType)]:
        values |= {name: getattr(module, name, None) for name in known.unbound}
    called = [value.py_func for value in values.values() if isinstance(value, Dispatcher)]
    stamps: set[object] = {(name, repr(v)) for name, v in values.items() if _is_constant(v)}
    code = caller.__code__
    try:
        at = os.stat(code.co_filename)
    except OSError:  # written by code, as the list of features is
        stamps.add((code.co_name, code.co_code, code.co_names))
    else:
        stamps.add((caller.__module__, at.st_mtime, at.st_size))
    return called, stamps


def _is_constant(value: object) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_constant, value))
    return isinstance(value, bool | int | float | str | np.generic)
