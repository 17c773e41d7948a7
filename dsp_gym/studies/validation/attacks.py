"""What unfriendly clients do to the port of `dsp-gym shadow`, each as raw bytes over sockets.

Those that send a body know a token, which is the worse case: without one the server refuses them
by their header alone.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from dsp_gym.studies.bench.clients import T_S

BODY_BYTES = 249 * 1024
"""Of a body that the server still reads: the default of `serve.max_body_kib` is 256."""

_DRIP_S = 0.1
_WAIT_S = 5.0
_MIB = 1 << 20

JOB = b"attacked"

_UNITS = ("://", "a@", "://a:", "password=", "Bearer ", "eyJ.", "a.", "= ", "\\u0000", "'", "\\\\")
"""Texts whose repetition keeps expressions that look for URLs, passwords and tokens busy."""


@dataclass(frozen=True, slots=True)
class AttackedPort:
    """The attacked port, and what is known of it."""

    host: str
    port: int
    token: str
    snapshot: bytes  # a document that gets a decision, of the job `JOB` at `T_S`

    def linked(self) -> socket.socket:
        """Connect.

        Returns:
            The connection, with a time limit on each call.
        """
        return socket.create_connection((self.host, self.port), timeout=_WAIT_S)

    def head(self, method: str, path: str, *headers: str, closes: bool = True) -> bytes:
        """Write the header of a request, with the token.

        Returns:
            The header; the connection closes after the answer, unless told otherwise.
        """
        last = ["Connection: close"] if closes else []
        own = [f"Host: {self.host}", f"Authorization: Bearer {self.token}"]
        return "\r\n".join([f"{method} {path} HTTP/1.1", *own, *headers, *last, "", ""]).encode()

    def post(self, body: bytes) -> bytes:
        """Write a request for a decision.

        Returns:
            Header and body.
        """
        kind, length = "Content-Type: application/json", f"Content-Length: {len(body)}"
        return self.head("POST", "/v1/decide", kind, length) + body


_Requests = Sequence[bytes] | Callable[[int, int], bytes]
"""Whole requests, taken in turns, or what makes one by number of the connection and of its turn."""


def _until(end_s: float) -> Iterator[int]:
    """Count until a moment, once at least."""
    yield 0
    for number in itertools.count(1):
        if time.monotonic() >= end_s:
            return
        yield number


def _flood(target: AttackedPort, end_s: float, requests: _Requests, links: int = 8) -> int:
    """Send whole requests, each over a connection of its own, and read what comes back."""

    def one(first: int) -> int:
        sent = 0
        for number in _until(end_s):
            request = (
                requests(first, number)
                if callable(requests)
                else requests[(first + number) % len(requests)]
            )
            with contextlib.suppress(OSError), target.linked() as link:
                sent += 1
                link.sendall(request)
                while time.monotonic() < end_s and link.recv(1 << 16):
                    pass
        return sent

    with ThreadPoolExecutor(links) as threads:
        return sum(threads.map(one, range(links)))


def _hold(
    target: AttackedPort,
    end_s: float,
    begin: bytes,
    links: int,
    then: bytes = b"",
    reads: bool = True,
) -> int:
    """Keep connections open that say little; those that the server closes are opened again."""
    opened, held = 0, list[socket.socket]()
    for _ in _until(end_s):
        while len(held) < links and (not held or time.monotonic() < end_s):
            try:
                link = target.linked()
                held.append(link)
                link.sendall(begin)
                link.setblocking(False)
            except OSError:
                break  # there is no room; the next round tries again
            opened += 1
        gone = {link for link in held if not _goes_on(link, then, reads=reads)}
        held = [link for link in held if link not in gone]
        _close(gone)
        time.sleep(min(_DRIP_S, max(0.0, end_s - time.monotonic())))
    _close(held)
    return opened


def _goes_on(link: socket.socket, then: bytes, *, reads: bool) -> bool:
    """Send a little more; False once the server has closed the connection."""
    try:
        if then:
            link.send(then)
        if not reads:
            return link.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
        return link.recv(1 << 16) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


def _close(links: Iterable[socket.socket]) -> None:
    for link in links:
        link.close()


def _connect(target: AttackedPort, end_s: float, links: int = 8) -> int:
    """Connect and leave, as fast as can be."""

    def one(_: int) -> int:
        opened = 0
        for _ in _until(end_s):
            with contextlib.suppress(OSError):
                target.linked().close()
                opened += 1
        return opened

    with ThreadPoolExecutor(links) as threads:
        return sum(threads.map(one, range(links)))


def _wait(target: AttackedPort, end_s: float) -> int:
    """Do nothing: what the probe takes without an attack."""
    time.sleep(max(0.0, end_s - time.monotonic()))
    return 0


def _posted(
    bodies: Callable[[AttackedPort], Iterable[bytes]], target: AttackedPort, end_s: float
) -> int:
    return _flood(target, end_s, [target.post(body) for body in bodies(target)])


def _decisions(target: AttackedPort, end_s: float) -> int:
    """Ask about a job for each connection, each time a minute later, as clients do."""

    def request(first: int, number: int) -> bytes:
        body = target.snapshot.replace(JOB, b"%s-%d" % (JOB, first))
        return target.post(body.replace(T_S, b"%d" % (int(T_S) + 60 * number)))

    return _flood(target, end_s, request)


def _repeated(target: AttackedPort) -> Iterable[bytes]:
    head, tail = b'{"schema": "dsp-gym/snapshot/1", "job": "', b'"}'
    for unit in _UNITS:
        text = unit.encode()
        yield head + text * ((BODY_BYTES - len(head) - len(tail)) // len(text)) + tail


def _deep(target: AttackedPort) -> Iterable[bytes]:
    yield b"[" * BODY_BYTES
    yield b'{"a":' * (BODY_BYTES // 5)
    yield b"[" * (BODY_BYTES // 2) + b"]" * (BODY_BYTES // 2)


def _large(target: AttackedPort) -> Iterable[bytes]:
    yield b'{"job": "' + b"a" * (BODY_BYTES - 11) + b'"}'
    yield b"[" + b"1," * (BODY_BYTES // 2 - 2) + b"1]"


def _too_large(target: AttackedPort, end_s: float) -> int:
    head = target.head("POST", "/v1/decide", f"Content-Length: {1 << 30}")
    return _flood(target, end_s, [head + b"a" * _MIB])


def _chunks(target: AttackedPort, end_s: float) -> int:
    head = target.head("POST", "/v1/decide", "Transfer-Encoding: chunked")
    return _flood(target, end_s, [head + b"1\r\na\r\n" * 100_000])


def _headers(target: AttackedPort, end_s: float) -> int:
    long = target.head("GET", "/v1/status", "X-Long: " + "a" * _MIB)
    many = target.head("GET", "/v1/status", *(f"X-{n}: a" for n in range(20_000)))
    path = target.head("GET", "/v1/status?job=" + "a" * _MIB)
    return _flood(target, end_s, [long, many, path])


def _pipelined(target: AttackedPort, end_s: float) -> int:
    request = target.head("GET", "/v1/status", closes=False)
    return _flood(target, end_s, [request * 200 + target.head("GET", "/metrics")])


def _readers(target: AttackedPort, end_s: float) -> int:
    paths = ("/metrics", "/v1/history", "/v1/status", "/v1/openapi.json", "/")
    return _flood(target, end_s, [target.head("GET", path) for path in paths], links=16)


def _unread(target: AttackedPort, end_s: float) -> int:
    request = target.head("GET", "/v1/openapi.json", closes=False) * 200
    return _hold(target, end_s, request, 40, reads=False)


def _slow_headers(target: AttackedPort, end_s: float) -> int:
    return _hold(target, end_s, target.head("GET", "/v1/status")[:-4] + b"\r\nX: ", 200, b"a")


def _slow_bodies(target: AttackedPort, end_s: float) -> int:
    head = target.head("POST", "/v1/decide", f"Content-Length: {BODY_BYTES}")
    return _hold(target, end_s, head + b'{"job": "', 200, b"a")


def _silent(target: AttackedPort, end_s: float) -> int:
    return _hold(target, end_s, b"", 1_000)


ATTACKS: dict[str, Callable[[AttackedPort, float], int]] = {
    "none": _wait,
    "decisions asked for": _decisions,
    "pages, status and metrics read": _readers,
    "silent connections": _silent,
    "connections opened and closed": _connect,
    "slow headers": _slow_headers,
    "slow bodies": _slow_bodies,
    "answers not read": _unread,
    "pipelined requests": _pipelined,
    "huge headers": _headers,
    "large bodies": partial(_posted, _large),
    "bodies beyond the limit": _too_large,
    "chunks without end": _chunks,
    "deep JSON": partial(_posted, _deep),
    "strings against regular expressions": partial(_posted, _repeated),
}
"""By name: attacks the target until a moment of `time.monotonic`, and counts what it began."""


def play(name: str, target: AttackedPort, seconds: float) -> int:
    """Attack for a while; to be called in a process of its own.

    Args:
        name: one of `ATTACKS`.
        target: the port.
        seconds: how long.

    Returns:
        Requests or connections that were begun.
    """
    return ATTACKS[name](target, time.monotonic() + seconds)
