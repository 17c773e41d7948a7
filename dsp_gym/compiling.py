"""Compiled functions whose machine code is kept on disk, and never outdated there.

Numba alone notices changes of a function's file only. Here a function is also compiled again when a
compiled function it calls has changed, or a constant it reads; and a cache that an older state of
the code has left unreadable counts as empty.
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
from typing import TYPE_CHECKING, Literal, TypeVar, cast

import numpy as np

from dsp_gym.compile_bar import CompileBar

COMPILES = os.environ.get("NUMBA_DISABLE_JIT", "0") in ("", "0")
"""Whether functions are compiled; where numba is switched off it is not even imported."""

if TYPE_CHECKING or COMPILES:
    import numba
    from numba import types
    from numba.core.caching import FunctionCache
    from numba.core.compiler_lock import global_compiler_lock
    from numba.core.dispatcher import Dispatcher

    COMPILES = not vars(numba.config)["DISABLE_JIT"]  # a file of settings may say it, too
else:
    FunctionCache = object

_LOG = logging.getLogger(__name__)

_FOR = {
    "agents": "policies",
    "baselines": "policies",
    "envs": "observations",
    "job": "jobs",
    "loop": "the control loop",
    "sizing": "planning",
    "spark_pipelines": "datasets",
}
"""What code is for, where the package's name does not say it."""

_bar = CompileBar()
_under_way: list[FunctionType] = []
"""Functions that are compiled at present, each for the one before."""
_inlined: set[FunctionType] = set()
"""Functions that are not compiled by themselves, as their callers inline them before."""

_F = TypeVar("_F", bound=Callable[..., object])

_PATIENCE_S, _LOOK_S = 120.0, 0.05
"""Seconds to wait for another process that compiles the same function, and between two checks."""


def njit(
    *,
    cache: bool = False,
    nogil: bool = False,
    inline: Literal["never", "always"] = "never",
    error_model: Literal["python", "numpy"] = "python",
    borrows: bool = False,
    forceinline: bool = False,
) -> Callable[[_F], _F]:
    """Compile a function on its first call, as `numba.njit` does; the options are numba's.

    Args:
        cache: Whether to keep the machine code on disk.
        nogil: Whether other threads may run meanwhile.
        inline: Whether callers inline the function before they are compiled.
        error_model: Result of a division by zero: an error, or infinity.
        borrows: Whether the function neither creates nor returns arrays. Then numba need not count
            the references to its arguments, which takes longer than the work of a small function.
        forceinline: Whether LLVM inlines the function into its callers, however large it is.

    Returns:
        A decorator; the compiled function is called as the original.
    """

    def compiled(function: _F) -> _F:
        if not COMPILES:
            return function
        if inline == "always":
            _inlined.add(cast(FunctionType, function))
        made = numba.njit(  # type: ignore[call-overload]  # numba's types leave `_nrt` out  # noqa: TID251  # the one place
            nogil=nogil,
            inline=inline,
            error_model=error_model,
            _nrt=not borrows,
            forceinline=forceinline,
            no_cfunc_wrapper=True,  # a second entry point, for C, that nothing calls
        )(function)
        if isinstance(made, Dispatcher):
            kept = None
            if cache:
                kept = _Cache(function)  # type: ignore[no-untyped-call]  # numba's
                made._cache = kept  # type: ignore[attr-defined]  # numba's own, as `enable_caching` sets it
            made.compile = _in_peace(made, kept)  # type: ignore[assignment]  # of this function alone
        return cast(_F, made)

    return compiled


def _in_peace(made: Dispatcher, kept: _Cache | None) -> Callable[[object], object]:
    """Wrap a function's compilation: for types alone, once, and without interference.

    Numba would compile again for each literal number in a call, and so would each process that
    needs the function meanwhile.

    Args:
        made: The function's dispatcher.
        kept: Its cache; None: it has none.

    Returns:
        A replacement of the dispatcher's `compile`.
    """
    compile_: Callable[..., object] = made.compile
    function = cast(FunctionType, made.py_func)

    @functools.wraps(compile_)
    def compiled(sig: object) -> object:
        # unliteral turns Literal[int](3) into int64: one overload serves all numbers.
        if isinstance(sig, tuple):
            sig = tuple(map(types.unliteral, sig))
            if sig in made.overloads:
                return compile_(sig)
        alone = nullcontext() if kept is None else kept.alone()
        # numba's lock against other threads first, the file lock against other processes second:
        # always in this order, so that they cannot block each other.
        with global_compiler_lock, alone, _without_collection(), _counted(function):
            return compile_(sig)

    return compiled


@contextmanager
def _without_collection() -> Iterator[None]:
    """Pause Python's garbage collection.

    Numba's objects live until the function is compiled; scanning them repeatedly takes a tenth of
    the time.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@contextmanager
def _counted(function: FunctionType) -> Iterator[None]:
    """Count a function that is made; the bar ends with the one that Python called.

    The caller holds numba's lock, so one thread at a time is here.
    """
    _under_way.append(function)
    try:
        yield
    finally:
        _under_way.pop()
        _bar.made(function)
        if not _under_way:
            _bar.end()


def _announce() -> None:
    """Say why nothing seems to happen: by a bar, or else by a line in the log."""
    called = _under_way[0]  # by Python: the others are compiled for it
    package, _, rest = called.__module__.partition(".")
    part = rest.partition(".")[0] if package == "dsp_gym" else package
    if not _bar.begin(_FOR.get(part, part), _reached(called).keys() - _inlined):
        _log_once()


@functools.cache
def _log_once() -> None:
    """Log it once; on stderr, unless the program handles its log."""
    _LOG.warning(
        "compiling numeric code that no command has used since the installation or the last "
        "update: up to a minute, then kept"
    )


class _Cache(FunctionCache):
    """Numba's cache of one function, extended by the functions and constants it depends on."""

    _complete = False
    _is_alone = False

    def load_overload(self, sig: object, target_context: object) -> object:
        """Read machine code, if there is any.

        Returns:
            The code for these argument types; None where none was kept, or where an older state of
            the code kept it.
        """
        index = self._cache_file
        if (
            not self._complete
        ):  # not in __init__, as a function may be defined above the ones it calls
            index._source_stamp = (index._source_stamp, *_stamps(self._py_func))
            self._complete = True
        try:
            found: object = super().load_overload(sig, target_context)  # type: ignore[no-untyped-call]  # numba's
        except OSError:
            raise
        except Exception:
            # Numba reads the argument types before it compares stamps. Their classes may have been
            # removed, and reading them may then fail with any error.
            self.flush()  # type: ignore[no-untyped-call]  # numba's
            found = None
        if found is None:
            _announce()
        return found

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Lock the function for this process; others will find the code compiled here.

        Numba also writes the index of a function before the code that it names. Calls form no
        circle, so no two processes wait for each other; a process that was stopped is not waited
        for.
        """
        if self._is_alone:  # a recursive function
            yield
            return
        index = Path(self._cache_file._index_path)
        try:
            index.parent.mkdir(parents=True, exist_ok=True)
            lock = os.open(index.with_suffix(".lock"), os.O_CREAT | os.O_RDWR, 0o666)
        except OSError:  # a read-only folder: numba reports it
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
    """List the dependencies of machine code beyond the function's file, in a fixed order."""
    found: set[object] = set()
    for stamps in _reached(function).values():
        found |= stamps
    return sorted(found, key=repr)


def _reached(function: FunctionType) -> dict[FunctionType, set[object]]:
    """Return the compiled functions that a call goes through, itself included, and their stamps."""
    found: dict[FunctionType, set[object]] = {}
    queue = [function]
    while queue:
        caller = queue.pop()
        if caller not in found:
            called, found[caller] = _direct_stamps(caller)
            queue += called
    return found


@functools.cache
def _direct_stamps(caller: FunctionType) -> tuple[list[FunctionType], set[object]]:
    """Return the compiled functions a function calls; and its constants, and file or code."""
    # Constants become part of the machine code: a changed value must invalidate it, as a changed
    # file does.
    known = inspect.getclosurevars(caller)
    values = {**known.globals, **known.nonlocals}
    # Names such as `np.pi` are attributes of modules: `unbound` lists them, and modules resolve
    # them.
    for module in [value for value in values.values() if isinstance(value, ModuleType)]:
        values |= {name: getattr(module, name, None) for name in known.unbound}
    called = [value.py_func for value in values.values() if isinstance(value, Dispatcher)]
    stamps: set[object] = {(name, repr(v)) for name, v in values.items() if _is_constant(v)}
    code = caller.__code__
    try:
        at = os.stat(code.co_filename)
    except OSError:  # defined by code, as the list of features is
        stamps.add((code.co_name, code.co_code, code.co_names))
    else:
        stamps.add((caller.__module__, at.st_mtime, at.st_size))
    return called, stamps


def _is_constant(value: object) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_constant, value))
    return isinstance(value, bool | int | float | str | np.generic)
