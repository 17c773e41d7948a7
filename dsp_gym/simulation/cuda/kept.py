"""Machine code of the card on disk, under stamps of everything it follows from."""

from __future__ import annotations

import logging
from typing import Any

from numba.cuda.dispatcher import CUDACache

_LOG = logging.getLogger(__name__)


class _KernelCache(CUDACache):
    """Numba's cache of a kernel, with a key of our own.

    Numba's key pickles what a function's closure holds, which differs from process to process where
    it holds compiled functions; and it looks at the kernel's file alone.
    """

    def __init__(self, function: Any, stamp: str) -> None:
        super().__init__(function)
        self._stamp, self._called = stamp, function.__name__

    def _index_key(self, sig: Any, codegen: Any) -> tuple[object, ...]:
        # `magic_tuple` is the version of the CUDA runtime and the card's compute capability.
        return (str(sig), codegen.magic_tuple(), self._stamp)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            found = super().load_overload(sig, target_context)
        except OSError:
            raise
        except Exception:  # an older state of the code may have left anything
            self.flush()
            found = None
        if found is None:
            _LOG.warning(
                "compiling '%s' for the GPU: once after an installation or an update, up to a "
                "minute",
                self._called,
            )
        return found


def kept_on_disk(dispatcher: Any, stamp: str) -> None:
    """Let a kernel keep its machine code on disk.

    Args:
        dispatcher: The kernel, not compiled yet.
        stamp: Digest of everything its code follows from beside the card.
    """
    dispatcher._cache = _KernelCache(dispatcher.py_func, stamp)
