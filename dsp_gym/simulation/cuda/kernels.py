"""Kernels: functions of handles, compiled for the card, with machine code kept on disk.

A kernel here takes one job per thread. It is made of the project's own functions: numba compiles
the same source for the CPU and for the card.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

from numba import types
from numba.core.compiler_lock import global_compiler_lock
from numba.core.dispatcher import Dispatcher

from dsp_gym.compiling import _stamps
from dsp_gym.simulation.cuda.card import DISTRIBUTION, is_simulated
from dsp_gym.simulation.cuda.device_arrays import DeviceHandle, HandleArguments

THREADS = 64
"""Threads of a block; 32 to 256 made no difference on an H100."""

REGISTERS = 128
"""Most registers of a thread. On an H100: 96 and 64 spill more, 255 leaves fewer warps at work
(8.7, 10.1, 10.4 and 10.9 million decisions/s with 255, 64, 96 and 128)."""


def function_of(compiled: Callable[..., Any]) -> Any:
    """Return the function that other compiled code can call, of one made by `direct` as well.

    Returns:
        A dispatcher; the function itself where compilation is off.
    """
    if isinstance(compiled, Dispatcher):
        return compiled
    return getattr(compiled, "__wrapped__", compiled)


def stand_in(function: Callable[..., Any], other: Callable[..., Any]) -> None:
    """Let another function stand for one wherever code for the card calls it.

    Args:
        function: A function decorated with `njit`, which stays as it is on the CPU.
        other: A plain function with the same arguments.
    """
    from numba import cuda

    if not is_simulated():
        # Where numba-cuda keeps its own version of a function of the CPU.
        function_of(function)._CUDATypingContext__dispatcher = cuda.jit(device=True)(other)


class Kernel:
    """A function that the card runs for every job.

    Args:
        function: Takes handles; its thread's job is `cuda.grid(1)`.
        handles: Handles of the same types as at every launch.
        constants: Constants the function's closure reads: a part of its name on disk.
    """

    def __init__(
        self,
        function: Callable[..., None],
        handles: Sequence[DeviceHandle],
        constants: Sequence[object] = (),
    ) -> None:
        self.function = function
        self.signature = types.void(*(one.kind for one in handles))
        self.constants = tuple(constants)

    def launch(self, jobs: int, *handles: DeviceHandle) -> None:
        """Run the function for so many jobs; the card may still be at work when this returns."""
        # The simulator swaps the module `cuda` for a thread's own: one thread at a time.
        threads = 1 if is_simulated() else THREADS
        self._compiled[(jobs + threads - 1) // threads, threads](*handles)

    @property
    def local_bytes(self) -> int:
        """Bytes of local memory of a thread, which the driver sets aside for all that can run."""
        if is_simulated():
            return 0
        return int(next(iter(self._compiled.overloads.values())).local_mem_per_thread)

    def ptx(self, capability: tuple[int, int]) -> str:
        """Compile for a card that need not be there.

        Args:
            capability: Its compute capability.

        Returns:
            Assembly text of the card's virtual instruction set.
        """
        from numba import cuda

        with global_compiler_lock, rounding_as_on_the_cpu(), _pretending(capability):
            text, _ = cuda.compile(
                self.function, self.signature, device=False, cc=capability, abi="numba"
            )
        return str(text)

    @cached_property
    def _compiled(self) -> Any:
        """The function as numba launches it; compiled, or read from disk, when first launched."""
        if is_simulated():
            from numba import cuda

            made = cuda.jit(self.function)
            made.extensions.append(HandleArguments())
            return made
        from dsp_gym.simulation.cuda.kept import kept_on_disk

        made = self._dispatcher()
        kept_on_disk(made, self._stamp())
        with global_compiler_lock, rounding_as_on_the_cpu():
            made.compile(self.signature.args)
        made._specialized = True  # as where numba is given the signature at once
        made.disable_compile()
        return made

    def _dispatcher(self) -> Any:
        """Give the function to numba, without optimisation at link time.

        The linker would fuse multiplication and addition, against `rounding_as_on_the_cpu`. The
        function is an argument because numba-cuda 0.30 drops `lto` of
        `cuda.jit(lto=False)(function)`.
        """
        from numba import cuda

        handles = [HandleArguments()]
        return cuda.jit(self.function, extensions=handles, max_registers=REGISTERS, lto=False)

    def _stamp(self) -> str:
        """Return a digest of everything the machine code follows from, the card excepted."""
        versions = [importlib.metadata.version(one) for one in (DISTRIBUTION, "numba", "llvmlite")]
        how = self.signature, self.constants, REGISTERS, "without optimisation at link time"
        known = [*self.dependencies(), *how, *versions]
        return hashlib.sha256(repr(known).encode()).hexdigest()

    def dependencies(self) -> list[object]:
        """List what the machine code follows from: files, constants, and code that has no file.

        Returns:
            Stamps in a fixed order, of all functions that are called.
        """
        found: set[object] = set()
        seen: set[object] = set()
        queue = [self.function]
        while queue:
            caller: Any = queue.pop()
            if caller in seen:
                continue
            seen.add(caller)
            found.update(_stamps(caller))
            known = inspect.getclosurevars(caller)
            for value in (*known.globals.values(), *known.nonlocals.values()):
                # Functions of the card are no dispatchers of the CPU, which `_stamps` follows.
                if not isinstance(value, Dispatcher) and hasattr(value, "py_func"):
                    queue.append(value.py_func)
        return sorted(found, key=repr)


@contextmanager
def rounding_as_on_the_cpu() -> Iterator[None]:
    """Compile without fused multiply-add, which rounds once where the CPU rounds twice.

    With it a trajectory leaves the CPU's by 1e-13 after two hours, and is no faster: then the
    difference of two devices could not be told from a mistake.
    """
    from numba.cuda.cudadrv import nvvm

    plain = nvvm.compile_ir

    def unfused(code: Any, **options: Any) -> Any:
        return plain(code, **{**options, "fma": False})

    nvvm.compile_ir = unfused
    try:
        yield
    finally:
        nvvm.compile_ir = plain


@contextmanager
def _pretending(capability: tuple[int, int]) -> Iterator[None]:
    """Let numba compile for a card that is not there: it asks the driver for its capability."""
    from numba.cuda import dispatcher

    class Device:
        compute_capability = capability

    plain = dispatcher.get_current_device
    dispatcher.get_current_device = Device
    try:
        yield
    finally:
        dispatcher.get_current_device = plain


def synchronize() -> None:
    """Wait until the card has done its work."""
    if not is_simulated():
        from numba import cuda

        cuda.synchronize()
