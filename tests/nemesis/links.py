"""TCP links on loopback that can be cut, held or slowed, or lose, lame or forge every answer."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
import urllib.parse
from collections.abc import Callable, Coroutine
from typing import Any

__all__ = ["PAGE", "Link", "Links"]

_CHUNK = 65536
_PATIENCE_S = 10.0
_DRIP_S = 1.0

_BODY = b"<!DOCTYPE html><html><head><title>Sign in</title></head><body><form></form></body></html>"
PAGE = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n"
    b"Content-Length: %d\r\n\r\n%s" % (len(_BODY), _BODY)
)
"""What a proxy answers to those who have not signed in."""


class _Talk:
    """One connection through a link."""

    def __init__(self, near: asyncio.StreamWriter, far: asyncio.StreamWriter) -> None:
        self.near, self.far = near, far
        self.is_asked = False
        """Whether a question has been forwarded of whose answer nothing has come."""

    def reset(self) -> None:
        """Break it."""
        _reset(self.near)
        _reset(self.far)


class Link:
    """Forwards a local port to an address; its mode and delay may change at any time.

    Only the beginning of an answer is replaced by a page; what has begun comes to its end.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, target: str) -> None:
        parts = urllib.parse.urlsplit(target)
        self._target = (parts.hostname or "127.0.0.1", parts.port or 80)
        self._loop, self._open = loop, set[asyncio.StreamWriter]()
        self._mode, self._delay_s = "open", 0.0
        self._moved = asyncio.Event()
        self._server: asyncio.Server | None = None
        self.url = ""

    async def listen(self) -> None:
        """Begin."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def close(self) -> None:
        """Take no more connections."""
        if self._server is not None:
            self._server.close()

    def become(self, mode: str, delay_s: float = 0.0) -> None:
        """Change to open, cut, hold, delay, deaf, drip, lie or close."""

        def change() -> None:
            self._mode, self._delay_s = mode, delay_s
            moved, self._moved = self._moved, asyncio.Event()
            moved.set()
            if mode == "cut":
                for writer in self._open:
                    _reset(writer)

        self._loop.call_soon_threadsafe(change)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._mode == "cut":
            _reset(writer)
            return
        try:
            far_reader, far_writer = await asyncio.open_connection(*self._target)
        except OSError:
            _reset(writer)
            return
        talk, both = _Talk(writer, far_writer), {writer, far_writer}
        self._open |= both
        try:
            await asyncio.gather(self._ask(reader, talk), self._answer(far_reader, talk))
        finally:
            self._open -= both
            for one in both:
                one.close()

    async def _ask(self, source: asyncio.StreamReader, talk: _Talk) -> None:
        try:
            while data := await source.read(_CHUNK):
                await self._wait()
                talk.is_asked = True
                talk.far.write(data)
                await talk.far.drain()
            talk.far.write_eof()
        except OSError:
            talk.reset()

    async def _answer(self, source: asyncio.StreamReader, talk: _Talk) -> None:
        try:
            while data := await source.read(_CHUNK):
                await self._wait()
                if self._mode == "deaf":
                    talk.reset()
                    return
                begins, talk.is_asked = talk.is_asked, False
                if self._mode == "close" or (self._mode == "lie" and begins):
                    talk.near.write(PAGE if self._mode == "lie" else data[: len(data) // 2])
                    talk.near.close()
                    talk.far.close()
                    return
                await self._write(talk.near, data)
            talk.near.write_eof()
        except OSError:
            talk.reset()

    async def _wait(self) -> None:
        """Keep what is to be forwarded as long as the mode says."""
        if self._delay_s:
            await asyncio.sleep(self._delay_s)
        while self._mode == "hold":
            await self._moved.wait()

    async def _write(self, sink: asyncio.StreamWriter, data: bytes) -> None:
        """Forward, a byte at a time as long as answers drip."""
        while data and self._mode == "drip":
            sink.write(data[:1])
            await sink.drain()
            data = data[1:]
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._moved.wait(), _DRIP_S)
        sink.write(data)
        await sink.drain()


def _reset(writer: asyncio.StreamWriter) -> None:
    """Break a connection, so that the other end hears of it as of a host that is gone."""
    if not writer.is_closing():
        linger = struct.pack("ii", 1, 0)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    writer.transport.abort()


class Links:
    """An event loop in a thread, with its links; use it as a context manager."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="links")
        self._made: list[Link] = []

    def __enter__(self) -> Links:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._run(self._end)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def to(self, target: str) -> Link:
        """A new link to an address."""
        link = Link(self._loop, target)
        self._made.append(link)
        self._run(link.listen)
        return link

    async def _end(self) -> None:
        for link in self._made:
            link.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await asyncio.sleep(0)  # transports close in the next turn of the loop

    def _run(self, begin: Callable[[], Coroutine[Any, Any, None]]) -> None:
        asyncio.run_coroutine_threadsafe(begin(), self._loop).result(_PATIENCE_S)
