"""One deadline for a whole question to a server: name, connection, request, header and body.

Time limits of sockets count from byte to byte, and a look-up of a name has none at all. So each
question is asked in a thread, and its caller leaves at the deadline. The connection is shut down
then, so that the thread ends. What cannot be shut down, such as a look-up, keeps its thread;
`UPSTREAMS` counts them, and at most `MOST_OF_ONE` are kept by one server.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable
from typing import TypeVar
from urllib.parse import urlsplit

from dsp_gym.backends.upstream.interpreter_turn import waiting
from dsp_gym.backends.upstream.timed_calls import Workers, ends_when_late

T = TypeVar("T")

MOST_LATE = 64
"""Threads of this process that late questions may keep."""

UPSTREAMS = Workers(MOST_LATE)
"""Threads in which all servers are asked; each server bears the name that `origin` gives it."""


def origin(url: str) -> str:
    """Name the server of an address.

    Returns:
        Scheme, host and port, without an account.

    >>> origin("https://me:secret@Prometheus:9090/api/v1/query?query=up")
    'https://prometheus:9090'
    """
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2].lower()}"


def is_loopback(url: str) -> bool:
    """Whether an address is on this machine.

    Returns:
        True for `localhost`, `::1` and 127.0.0.0/8.

    >>> is_loopback("http://127.0.0.1:8081"), is_loopback("http://flink.example.org")
    (True, False)
    """
    host = urlsplit(url).hostname or ""
    return host in {"localhost", "::1"} or host.startswith("127.")


def within(url: str, timeout_s: float, ask: Callable[[], T]) -> T:
    """Ask a server, and wait no longer than so long for all of the answer.

    Args:
        url: of the server.
        timeout_s: from now on, s; a `deadline` around it may be sooner.
        ask: asks, and reads the answer to its end.

    Returns:
        What `ask` returns.

    Raises:
        LateError: There was no whole answer in time, or earlier questions to the server hang.
        BaseException: What `ask` raised.
    """
    with waiting():
        return UPSTREAMS.call(origin(url), ask, timeout_s)


def shut_when_late(connection: socket.socket) -> None:
    """Shut a connection down when the caller of the question under way gives up."""
    try:
        # A duplicate is the same connection, whatever becomes of the object, such as TLS.
        same = socket.socket(fileno=os.dup(connection.fileno()))
    except OSError:  # it has been closed, or the system has no such duplicates
        return

    def shut() -> None:
        with contextlib.suppress(OSError):
            same.shutdown(socket.SHUT_RDWR)

    ends_when_late(shut, same.close)
