"""Of several loops in a process one computes at a time, while the others wait for their servers.

Threads that compute at once in one interpreter only slow each other down, and a decision then takes
as long as whatever runs beside it. A loop that is alone notices none of this.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

_TURN = threading.Lock()


class _Mine(threading.local):
    has_turn = False


_MINE = _Mine()


@contextmanager
def computing() -> Iterator[None]:
    """Take the turn; another loop gets it when the block ends, or while it is `waiting`.

    Yields:
        None, once it is this thread's turn.
    """
    with _TURN:
        _MINE.has_turn = True
        try:
            yield
        finally:
            _MINE.has_turn = False


@contextmanager
def waiting() -> Iterator[None]:
    """Let others compute while this thread waits for a server; without effect outside `computing`.

    Yields:
        None; the turn is taken back when the block ends.
    """
    if not _MINE.has_turn:
        yield
        return
    _MINE.has_turn = False
    _TURN.release()
    try:
        yield
    finally:
        _TURN.acquire()
        _MINE.has_turn = True
