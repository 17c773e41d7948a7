"""HTTP connections with a deadline for a whole request; h11 reads them, one thread serves them all.

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
from collections import OrderedDict
from collections.abc import Callable, Mapping
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from typing import NamedTuple, Protocol

from dsp_gym.errors import MissingExtraError

try:
    import h11
except ModuleNotFoundError:
    raise MissingExtraError("shadow", "serving over HTTP") from None

__all__ = ["Answer", "Head", "Listener", "Reply", "Site", "room_for"]

MOST_HEADER = 16_384
"""Bytes of a request's header; each line counts 32 more, for what it takes in memory."""

MOST_LINGERED = 2**24
"""Bytes that are still read of a request that was refused: closing would take the answer along."""

TICK_S = 0.05
"""How often deadlines are looked at, s."""

BACKLOG = 512

SPARE_FILES = 128
"""File descriptors that are left to the rest of the process."""


class Head(NamedTuple):
    """A request without its body."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]  # by name in lower case

    @property
    def has_body(self) -> bool:
        """Whether a body follows."""
        return self.headers.get("content-length", "0") != "0" or self.is_unmeasured

    @property
    def is_unmeasured(self) -> bool:
        """Whether the length of the body is not given beforehand."""
        return "transfer-encoding" in self.headers


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
        """Why a request is not answered, before its body is read; None: it is.

        Returns:
            The answer that refuses it.
        """

    def answer(self, head: Head, body: bytes, reply: Reply) -> None:
        """Answer a request, now or later; must not block."""

    def error(self, status: HTTPStatus, message: str) -> Answer:
        """The answer that names an error.

        Returns:
            Status and sentence.
        """


def room_for(most: int) -> int:
    """How many connections there may be, given the file descriptors of this process.

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
    """Serves a site from a thread of its own until it is closed.

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
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def is_own_thread(self) -> bool:
        """Whether the caller is the thread that serves."""
        return threading.current_thread() is self._thread

    def call(self, function: Callable[[], None]) -> None:
        """Have a function called by the thread that serves, soon; not once it has ended."""
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(function)

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
        """A connection waits for its client no longer."""
        self._waiting.pop(connection, None)

    def forget(self, connection: _Connection) -> None:
        """A connection has ended."""
        self._open.discard(connection)
        self._waiting.pop(connection, None)

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
        self._http = _parser()  # of one request
        self._head: Head | None = None
        self._body = bytearray()
        self._refused: Answer | None = None
        self._is_last = self._has_begun = self._is_answering = self._is_full = False
        self._held = bytearray()  # came while a request was answered
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
        elif self._is_answering or self._is_full:
            self._held += data
            if self._transport is not None:
                self._transport.pause_reading()
        else:
            self._take(data)

    def eof_received(self) -> bool:
        """A client that has said all still gets its answer."""
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
        """The client's time is over: say so where it has begun to send a body."""
        if self._head is None or self._is_answering or self._lingered is not None:
            self.cut_off()
            return
        said = f"the request was not complete within {self._listener.timeout_s:g} s"
        self._refuse(HTTPStatus.REQUEST_TIMEOUT, said)

    # Reading

    def _take(self, data: bytes | bytearray) -> None:
        if not self._has_begun:
            self._has_begun = True
            self._listener.wait_for(self)
        try:
            self._http.receive_data(bytes(data))
            self._advance()
        except h11.RemoteProtocolError as error:
            self._refuse(HTTPStatus(error.error_status_hint), f"is not valid HTTP: {error}")

    def _advance(self) -> None:
        while not self._is_busy:
            event = self._http.next_event()
            if isinstance(event, h11.Request):
                self._begin(event)
            elif isinstance(event, h11.Data):
                self._body += event.data
            elif isinstance(event, h11.EndOfMessage):
                self._finish()
            else:  # there is more to come
                return

    @property
    def _is_busy(self) -> bool:
        """Whether nothing is read now."""
        is_over = self._transport is None or self._lingered is not None
        return is_over or self._is_answering or self._is_full

    def _begin(self, event: h11.Request) -> None:
        path, _, query = event.target.decode("latin-1").partition("?")
        headers = {k.decode("latin-1"): v.decode("latin-1") for k, v in event.headers}
        self._head = Head(event.method.decode("latin-1"), path, query, headers)
        closes = "close" in headers.get("connection", "").lower()
        self._is_last = closes or event.http_version < b"1.1"
        if event.http_version not in (b"1.0", b"1.1"):
            said = f"HTTP/{event.http_version.decode()} is not spoken here"
            self._refuse(HTTPStatus.BAD_REQUEST, said)
            return
        if len(event.target) + sum(len(k) + len(v) + 32 for k, v in event.headers) > MOST_HEADER:
            said = f"the header is larger than {MOST_HEADER} bytes"
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, said)
            return
        self._refused = self._site.refusal(self._head)
        if self._refused is not None and self._head.has_body:
            self._say(self._refused, is_whole=False)
        elif self._http.they_are_waiting_for_100_continue and self._transport is not None:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _finish(self) -> None:
        assert self._head is not None
        self._is_answering = True
        self._listener.goes_on(self)
        if self._refused is not None:
            self._say(self._refused)
            return
        self._site.answer(self._head, bytes(self._body), self._reply)

    # Answering

    def _reply(self, answer: Answer) -> None:
        if self._listener.is_own_thread:
            self._say(answer)
        else:
            self._listener.call(lambda: self._say(answer))

    def _refuse(self, status: HTTPStatus, message: str) -> None:
        """Answer a request that is not whole."""
        self._say(self._site.error(status, message), is_whole=False)

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
        trailing, _ = self._http.trailing_data
        self._http, self._held = _parser(), bytearray(trailing) + self._held
        self._head, self._refused, self._has_begun = None, None, False
        self._body.clear()
        self._is_answering = False
        if self._held:
            self._listener.loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        """Read what came while a request was answered."""
        if self._is_busy or self._transport is None:
            return
        self._transport.resume_reading()
        if self._held:
            held, self._held = self._held, bytearray()
            self._take(held)

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


def _parser() -> h11.Connection:
    return h11.Connection(h11.SERVER, max_incomplete_event_size=MOST_HEADER)


def _head_of(answer: Answer, *, is_last: bool) -> bytes:
    """Status line and headers of an answer."""
    lines = [
        f"HTTP/1.1 {answer.status.value} {answer.status.phrase}",
        f"Date: {_date(int(time.time()))}",
        "Server: dsp-gym",
        "Cache-Control: no-store",
        *(f"{name}: {value}" for name, value in answer.headers),
        f"Content-Type: {answer.kind}",
        f"Content-Length: {len(answer.body)}",
        *(["Connection: close"] if is_last else []),
    ]
    return "\r\n".join([*lines, "\r\n"]).encode("latin-1")


@lru_cache(maxsize=2)
def _date(now_s: int) -> str:
    return formatdate(now_s, usegmt=True)
