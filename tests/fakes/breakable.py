"""A TCP forwarder that can be cut or answer 500, for failures in the middle of a request."""

from __future__ import annotations

import contextlib
import socket
import threading
import urllib.parse

_TROUBLE = b'{"errors": ["Internal server error."]}'
_ANSWER_500 = (
    b"HTTP/1.1 500 Internal Server Error\r\nConnection: close\r\n"
    b"Content-Length: %d\r\n\r\n%b" % (len(_TROUBLE), _TROUBLE)
)


class BreakableLink:
    """Forwards a local port to an address until it is cut; `mend` lets new connections through."""

    def __init__(self, url: str) -> None:
        parts = urllib.parse.urlsplit(url)
        self._target = (parts.hostname or "127.0.0.1", parts.port or 80)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._cut = threading.Event()
        self._fails = threading.Event()
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def cut(self) -> None:
        """Break every connection, and every later one."""
        self._cut.set()
        with self._lock:
            for one in self._open:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)

    def fail(self) -> None:
        """Answer every later request with 500, as a server in trouble does."""
        self._fails.set()

    def mend(self) -> None:
        """Let connections through again."""
        self._cut.clear()
        self._fails.clear()

    def close(self) -> None:
        """End the forwarder."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self.cut()
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            if self._cut.is_set():
                near.close()
                continue
            if self._fails.is_set():
                with near, contextlib.suppress(OSError):
                    near.recv(65536)
                    near.sendall(_ANSWER_500)
                continue
            far = socket.create_connection(self._target)
            with self._lock:
                self._open |= {near, far}
            pipes = [
                threading.Thread(target=self._pipe, args=(near, far)),
                threading.Thread(target=self._pipe, args=(far, near)),
            ]
            self._threads += pipes
            for pipe in pipes:
                pipe.start()

    def _pipe(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)
        with self._lock:
            done = target not in self._open  # the other direction has ended before
            self._open -= {source}
        if done:
            source.close()
            target.close()
