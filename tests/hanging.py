"""Servers on real sockets that answer as no server should."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Literal

Fault = Literal["headers", "body", "accept", "half", "length", "chunks", "fine"]

FAULTS: tuple[Fault, ...] = ("headers", "body", "accept", "half", "length", "chunks")
"""It drips the header, or the body; it takes the connection and says nothing; it closes in the
middle of the body; it promises more bytes than it sends; it sends chunks without end."""

DRIP_S = 0.03


@contextmanager
def hanging(fault: Fault, body: bytes = b'{"jobs": []}') -> Iterator[str]:
    """Serve from a thread for each connection.

    Yields:
        The address.
    """
    ended = threading.Event()
    server = socket.create_server(("127.0.0.1", 0), backlog=64)
    server.settimeout(0.05)

    def drip(link: socket.socket, data: bytes) -> None:
        for byte in data:
            if ended.wait(DRIP_S):
                return
            link.sendall(bytes([byte]))

    def answer(link: socket.socket) -> None:
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
        sized = b"Content-Length: %d\r\n\r\n" % len(body)
        if fault == "headers":
            drip(link, head + b"X-Filler: " + b"a" * 10_000)
        elif fault == "body":
            link.sendall(head + b"Content-Length: 100000\r\n\r\n")
            drip(link, b" " * 100_000)
        elif fault == "half":
            link.sendall(head + sized + body[: len(body) // 2])
        elif fault == "length":
            link.sendall(head + b"Content-Length: 100000\r\n\r\n" + body)
            ended.wait(30)
        elif fault == "chunks":
            link.sendall(head + b"Transfer-Encoding: chunked\r\n\r\n")
            while not ended.wait(DRIP_S):
                link.sendall(b"1\r\n \r\n")
        elif fault == "accept":
            ended.wait(30)
        else:
            link.sendall(head + sized + body)

    def serve(link: socket.socket) -> None:
        with suppress(OSError), link:
            while not ended.is_set() and link.recv(65_536):
                answer(link)
                if fault == "half":
                    return

    def accept() -> None:
        while not ended.is_set():
            with suppress(TimeoutError):
                link, _ = server.accept()
                link.settimeout(None)
                threading.Thread(target=serve, args=[link], daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
    finally:
        ended.set()
        thread.join(5)
        server.close()
