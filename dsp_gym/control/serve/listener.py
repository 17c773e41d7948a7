"""HTTP connections with a deadline for a whole request; one thread serves them all.

A client has so long for header and body together, however slowly they come. Connections that wait
for their client cost no thread, and where there is no room the one that has waited longest makes
it, so that slow clients push out one another and not those whose request is complete.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from typing import NamedTuple, Protocol

from dsp_gym.control.serve.request import (
    END,
    FIRST,
    MOST_HEADER,
    BadRequestError,
    Head,
    read_header,
    too_large,
)

__all__ = ["Answer", "Head", "Listener", "Reply", "Site", "room_for"]

MOST_LINGERED = 2**24
"""Bytes that are still read of a request that was refused: closing would take the answer along."""

TICK_S = 0.05
"""How often deadlines are looked at, s."""

BACKLOG = 512

SPARE_FILES = 128
"""File descriptors that are left to the rest of the process."""


class Answer(NamedTuple):
    """What a client gets."""

    status: HTTPStatus
    kind: str
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()


Reply = Callable[[Answer], None]
"""Sends the answer of one request; may be called from any thread, and late."""


class Site(Protocol):
    """What is served."""

    def refusal(self, head: Head) -> Answer | None:
        """Say why a request is not answered, before its body is read; None: it is.

        Returns:
            The answer that refuses it.
        """

    def answer(self, head: Head, body: bytes, reply: Reply) -> None:
        """Answer a request, now or later; must not block."""

    def error(self, status: HTTPStatus, message: str) -> Answer:
        """Make the answer that names an error.

        Returns:
            Status and sentence.
        """


def room_for(most: int) -> int:
    """Say how many connections there may be, given the file descriptors of this process.

    Returns:
        `most`, or half of the descriptors that are left.
    """
    try:
        import resource
    except ImportError:  # not on this system
        return most
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return most if soft < 0 else max(16, min(most, (soft - SPARE_FILES) // 2))


class Listener:
    """Serves a site from one thread until it is closed.

    Args:
        host: address to listen on.
        port: port; 0: any that is free.
        site: what is served.
        timeout_s: longest wait for a whole request, and for a client that takes an answer, s.
        most: connections at once.
        name: of the thread.
        on_tick: called by the thread now and then; must not block.

    Raises:
        OSError: The address cannot be listened on.
    """

    def __init__(
        self,
        host: str,
        port: int,
        site: Site,
        timeout_s: float,
        most: int,
        name: str,
        on_tick: Callable[[], None] = lambda: None,
    ) -> None:
        self.site, self.timeout_s, self._most = site, timeout_s, most
        self._on_tick = on_tick
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.create_server((host, port), family=family, backlog=BACKLOG)
        self.address: tuple[str, int] = self._socket.getsockname()[:2]
        self._open: set[_Connection] = set()
        self._waiting: OrderedDict[_Connection, float] = OrderedDict()  # until when, in order
        self.loop = asyncio.new_event_loop()
        self._ends = asyncio.Event()
        self._calls: deque[Callable[[], None]] = deque()
        self._is_told = False  # that there are calls
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def is_own_thread(self) -> bool:
        """Whether the caller is the thread that serves."""
        return threading.current_thread() is self._thread

    def call(self, function: Callable[[], None]) -> None:
        """Have a function called by the thread that serves, soon; not once it has ended."""
        self._calls.append(function)
        if not self._is_told:  # to wake the thread takes longer than most that it is to do
            self._is_told = True
            with contextlib.suppress(RuntimeError):
                self.loop.call_soon_threadsafe(self._call)

    def close(self) -> None:
        """Stop listening; requests under way are cut off."""
        self.call(self._ends.set)
        self._thread.join()

    def admit(self, connection: _Connection) -> None:
        """Count a new connection; where there is no room the longest wait ends."""
        if len(self._open) >= self._most and self._waiting:
            longest, _ = self._waiting.popitem(last=False)
            self._open.discard(longest)
            longest.cut_off()
        if len(self._open) >= self._most:
            connection.cut_off()
            return
        self._open.add(connection)
        self.wait_for(connection)

    def wait_for(self, connection: _Connection) -> None:
        """Give the client of a connection its time, from now on."""
        if connection in self._open:
            self._waiting[connection] = self.loop.time() + self.timeout_s
            self._waiting.move_to_end(connection)

    def goes_on(self, connection: _Connection) -> None:
        """Stop waiting for the client of a connection."""
        self._waiting.pop(connection, None)

    def forget(self, connection: _Connection) -> None:
        """Forget a connection that has ended."""
        self._open.discard(connection)
        self._waiting.pop(connection, None)

    def _call(self) -> None:
        self._is_told = False
        while self._calls:
            self.loop.call_soon(self._calls.popleft())  # which sees to errors

    def _run(self) -> None:
        try:
            self.loop.run_until_complete(self._serve())
        finally:
            self.loop.close()
            self._socket.close()

    async def _serve(self) -> None:
        server = await self.loop.create_server(
            lambda: _Connection(self), sock=self._socket, backlog=BACKLOG
        )
        self._tick()
        await self._ends.wait()
        server.close()
        for connection in list(self._open):
            connection.cut_off()
        await asyncio.sleep(0)  # what was cut off is closed in the next rounds
        await asyncio.sleep(0)

    def _expire(self) -> None:
        now_s = self.loop.time()
        while self._waiting:
            connection, until_s = next(iter(self._waiting.items()))
            if until_s > now_s:
                break
            del self._waiting[connection]
            connection.expire()

    def _tick(self) -> None:
        self._expire()
        self._on_tick()
        self.loop.call_later(TICK_S, self._tick)


class _Connection(asyncio.Protocol):
    """One connection: requests one after the other, the next one read when the last is answered."""

    def __init__(self, listener: Listener) -> None:
        self._listener, self._site = listener, listener.site
        self._transport: asyncio.Transport | None = None
        self._came = bytearray()  # of the request that is read, and of those after it
        self._head: Head | None = None  # once it is whole
        self._missing = 0  # bytes of its body
        self._looked = 0  # bytes in which no header ends
        self._refused: Answer | None = None
        self._is_last = self._has_begun = self._is_answering = self._is_full = False
        self._is_paused = False
        self._lingered: int | None = None  # bytes, once it is only read on

    # What asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._listener.admit(self)

    def data_received(self, data: bytes) -> None:
        if self._lingered is not None:
            self._lingered += len(data)
            if self._lingered > MOST_LINGERED:
                self.cut_off()
            return
        self._came += data
        if not self._is_busy:
            self._advance()
        elif self._transport is not None:
            self._is_paused = True
            self._transport.pause_reading()

    def eof_received(self) -> bool:
        """Keep the connection of a client that has said all until it gets its answer."""
        return self._is_answering

    def pause_writing(self) -> None:
        self._is_full = True

    def resume_writing(self) -> None:
        self._is_full = False
        self._go_on()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._listener.forget(self)

    # What the listener calls

    def cut_off(self) -> None:
        """End it at once."""
        if self._transport is not None:
            self._transport.abort()

    def expire(self) -> None:
        """End it when the client's time is over; say so where it has begun to send a body."""
        if self._head is None or self._is_answering or self._lingered is not None:
            self.cut_off()
            return
        said = f"the request was not complete within {self._listener.timeout_s:g} s"
        self._refuse(BadRequestError(HTTPStatus.REQUEST_TIMEOUT, said))

    # Reading

    @property
    def _is_busy(self) -> bool:
        """Whether nothing is read now."""
        is_over = self._transport is None or self._lingered is not None
        return is_over or self._is_answering or self._is_full

    def _advance(self) -> None:
        """Take the next step with what came: the header, then the body."""
        if not self._has_begun:
            self._has_begun = True
            self._listener.wait_for(self)
        if self._head is None:
            self._read_header()
        if self._head is not None and not self._is_busy and len(self._came) >= self._missing:
            body = bytes(self._came[: self._missing])
            del self._came[: self._missing]
            self._finish(body)

    def _read_header(self) -> None:
        end = self._came.find(END, max(0, self._looked - len(END) + 1))
        size = len(self._came) if end < 0 else end
        if size > MOST_HEADER:
            self._refuse(too_large())
        elif end >= 0:
            block = bytes(self._came[: end + len(END)])
            del self._came[: end + len(END)]
            self._looked = 0
            self._begin(block)
        elif self._came and self._came[0] not in FIRST:
            said = "is not valid HTTP: it begins with no method"
            self._refuse(BadRequestError(HTTPStatus.BAD_REQUEST, said))
        else:
            self._looked = size

    def _begin(self, block: bytes) -> None:
        """Look at a header; refuse the request before its body, or wait for that."""
        try:
            self._head, self._is_last, asks_first = read_header(block)
        except BadRequestError as error:
            self._refuse(error)
            return
        self._refused = self._site.refusal(self._head)
        if self._refused is not None and self._head.has_body:
            self._say(self._refused, is_whole=False)
            return
        if self._head.is_unmeasured:
            said = "Content-Length is missing"
            self._refuse(BadRequestError(HTTPStatus.LENGTH_REQUIRED, said))
            return
        self._missing = int(self._head.headers.get("content-length", "0"))
        if asks_first and len(self._came) < self._missing and self._transport is not None:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _finish(self, body: bytes) -> None:
        assert self._head is not None
        self._is_answering = True
        self._listener.goes_on(self)
        if self._refused is not None:
            self._say(self._refused)
            return
        self._site.answer(self._head, body, self._reply)

    # Answering

    def _reply(self, answer: Answer) -> None:
        if self._listener.is_own_thread:
            self._say(answer)
        else:
            self._listener.call(lambda: self._say(answer))

    def _refuse(self, error: BadRequestError) -> None:
        """Answer a request that is not whole."""
        self._say(self._site.error(error.status, str(error)), is_whole=False)

    def _say(self, answer: Answer, *, is_whole: bool = True) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        is_last = self._is_last or not is_whole
        is_bare = self._head is not None and self._head.method == "HEAD"
        self._transport.write(_head_of(answer, is_last=is_last) + (b"" if is_bare else answer.body))
        self._listener.wait_for(self)  # until it has taken the answer, and for its next request
        if is_last:
            self._leave(is_whole=is_whole)
            return
        self._head, self._refused, self._has_begun, self._missing = None, None, False, 0
        self._is_answering = False
        if self._came or self._is_paused:
            self._listener.loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        """Read what came while a request was answered."""
        if self._is_busy or self._transport is None:
            return
        if self._is_paused:
            self._is_paused = False
            self._transport.resume_reading()
        if self._came:
            self._advance()

    def _leave(self, *, is_whole: bool) -> None:
        """End it when the answer is taken.

        Of a request that is not whole the rest is read without a word, as closing would take the
        answer along.
        """
        assert self._transport is not None
        self._lingered = 0
        if is_whole:
            self._transport.close()
            return
        with contextlib.suppress(OSError):
            if self._transport.can_write_eof():
                self._transport.write_eof()


def _head_of(answer: Answer, *, is_last: bool) -> bytes:
    """Write status line and headers of an answer."""
    before, after = _lines_of(answer.status, answer.kind, answer.headers, is_last)
    return b"%s%s%d%s" % (before, _date(int(time.time())), len(answer.body), after)


@lru_cache(maxsize=64)
def _lines_of(
    status: HTTPStatus, kind: str, headers: tuple[tuple[str, str], ...], is_last: bool
) -> tuple[bytes, bytes]:
    """Write what stands before the date, and after the length of the body."""
    lines = [
        f"HTTP/1.1 {status.value} {status.phrase}",
        "Server: dsp-gym",
        "Cache-Control: no-store",
        *(f"{name}: {value}" for name, value in headers),
        f"Content-Type: {kind}",
        *(["Connection: close"] if is_last else []),
        "Date: ",
    ]
    return "\r\n".join(lines).encode("latin-1"), END


@lru_cache(maxsize=2)
def _date(now_s: int) -> bytes:
    return f"{formatdate(now_s, usegmt=True)}\r\nContent-Length: ".encode("latin-1")
