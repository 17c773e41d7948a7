"""What live loops serve over HTTP: health, metrics, status, a page, and decisions on request.

Plain `http.server` with bounds: on the time a request may take to arrive, on its size, on how many
are served at once. It reads what the loops last said and never asks Flink, Prometheus or an API
server anything, so that liveness depends on this process alone.
"""

from __future__ import annotations

import contextlib
import errno
import hmac
import json
import socket
import threading
import time
from functools import cached_property
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from urllib.parse import parse_qs, urlsplit

from dsp_gym.control.config import ServeConfig
from dsp_gym.control.serve.boards import Boards
from dsp_gym.control.serve.decide import Decisions
from dsp_gym.control.serve.exporter import Exporter
from dsp_gym.control.serve.openapi import openapi
from dsp_gym.errors import ConfigError, DspGymError
from dsp_gym.loop.wire import Document

__all__ = ["StatusServer", "read_token"]

ALIVE, LATE = b"alive\n", b"a loop has begun no decision in its interval\n"
JSON, TEXT = "application/json", "text/plain; charset=utf-8"
EXPOSITION = "text/plain; version=0.0.4; charset=utf-8"
HTML = "text/html; charset=utf-8"

Request = socket.socket | tuple[bytes, socket.socket]
Address = object

MOST_AT_ONCE = 32
"""Requests served at once; the next ones are closed."""

MOST_DECISIONS_AT_ONCE = 4

GRACE_S = 120.0
"""A loop that has begun no decision for its interval and so long counts as dead: every call it
makes has a shorter time limit."""

POLL_S = 0.1
"""How often the server looks whether it is to end, s."""

SHORTEST_TOKEN = 16

LINGER_S, MOST_LINGERED = 1.0, 2**24
"""How long, and how much, is still read of a request that was refused, s and bytes."""

PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline'; connect-src 'self'; img-src data:",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


def read_token(config: ServeConfig) -> str | None:
    """The token that POST /v1/decide asks for; None: decisions are not offered.

    Returns:
        The token without white space around it; None where no file is configured.

    Raises:
        ConfigError: The file cannot be read, or holds no usable token.
    """
    if config.token_file is None:
        return None
    try:
        token = config.token_file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"cannot be read: {error}",
            file=config.token_file,
            key="serve.token_file",
            remedy="Write the token into that file, in ASCII.",
        ) from None
    if len(token) < SHORTEST_TOKEN:
        raise ConfigError(
            f"holds a token of {len(token)} characters, expected {SHORTEST_TOKEN} or more",
            file=config.token_file,
            remedy="Make one: openssl rand -hex 32",
        )
    return token


class StatusServer:
    """Serves loops from threads of its own until it is closed.

    Args:
        config: where to listen, and the bounds.
        boards: the loops' status.
        exporter: their metrics.
        decisions: answers POST /v1/decide; None: it is not offered.
        token: the bearer token a client must send for a decision; None: no decisions.

    Raises:
        ConfigError: The address cannot be listened on.
    """

    def __init__(
        self,
        config: ServeConfig,
        boards: Boards,
        exporter: Exporter | None,
        decisions: Decisions | None = None,
        token: str | None = None,
    ) -> None:
        self.config, self.boards, self.exporter = config, boards, exporter
        self.decisions, self._token = decisions, token
        self.at_once = threading.BoundedSemaphore(MOST_DECISIONS_AT_ONCE)
        try:
            self._http = _BoundedServer((config.host, config.port), self)
        except OSError as error:
            taken = error.errno == errno.EADDRINUSE
            raise ConfigError(
                f"{config.host}:{config.port} cannot be listened on: {error.strerror or error}",
                key="serve.port" if taken else "serve.host",
                remedy="Choose another port: --port 0 takes any that is free."
                if taken
                else "Give an address of this machine.",
            ) from None
        self._thread = threading.Thread(
            target=self._http.serve_forever,
            kwargs={"poll_interval": POLL_S},
            name="dsp-gym http",
            daemon=True,
        )
        self._thread.start()

    @property
    def url(self) -> str:
        """Where it listens."""
        host, port = self._http.server_address[:2]
        name = host.decode() if isinstance(host, bytes) else str(host)
        return f"http://{f'[{name}]' if ':' in name else name}:{port}"

    @cached_property
    def page(self) -> bytes:
        """The live page."""
        return files("dsp_gym.control.serve").joinpath("page", "index.html").read_bytes()

    @cached_property
    def interface(self) -> Document:
        """The OpenAPI document."""
        names = [] if self.decisions is None else self.decisions.policies
        return openapi(self.config.max_body_kib, self.config.timeout_s, names)

    @property
    def is_alive(self) -> bool:
        """Whether every loop has begun a decision lately."""
        return self.boards.is_alive(GRACE_S)

    def permits(self, authorization: str | None) -> bool:
        """Whether a request shows the token.

        Returns:
            True for `Bearer` and the configured token, compared in constant time.
        """
        if self._token is None or authorization is None:
            return False
        scheme, _, shown = authorization.partition(" ")
        given = shown.strip().encode("utf-8", "replace")
        return scheme.lower() == "bearer" and hmac.compare_digest(given, self._token.encode())

    @property
    def offers_decisions(self) -> bool:
        """Whether clients can ask for decisions."""
        return self.decisions is not None and self._token is not None

    def close(self) -> None:
        """Stop listening; requests under way are cut off."""
        self._http.shutdown()
        self._http.server_close()
        self._http.cut_off()
        self._thread.join()
        if self.decisions is not None:
            self.decisions.close()


class _BoundedServer(ThreadingHTTPServer):
    """A thread per request, up to a bound."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, address: tuple[str, int], owner: StatusServer) -> None:
        self.owner = owner
        self._room = threading.BoundedSemaphore(MOST_AT_ONCE)
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        super().__init__(address, _Handler)

    def cut_off(self) -> None:
        """End every connection that is open."""
        with self._lock:
            for one in self._open:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)

    def process_request(self, request: Request, client_address: Address) -> None:
        if not self._room.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Request, client_address: Address) -> None:
        assert isinstance(request, socket.socket)  # a datagram server would pass a tuple
        with self._lock:
            self._open.add(request)
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._lock:
                self._open.discard(request)
            self._room.release()

    def handle_error(self, request: Request, client_address: Address) -> None:
        """Connections that break, and traffic that is not HTTP, are closed without a word."""


class _Refused(Exception):
    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


class _Handler(BaseHTTPRequestHandler):
    server: _BoundedServer
    protocol_version = "HTTP/1.1"
    server_version = "dsp-gym"
    sys_version = ""

    def setup(self) -> None:
        super().setup()
        self.connection.settimeout(self.server.owner.config.timeout_s)

    def do_GET(self) -> None:
        owner, path = self.server.owner, urlsplit(self.path).path
        if path == "/healthz":
            alive = owner.is_alive
            self._send(
                _ok(alive),
                TEXT,
                b"alive\n" if alive else b"a loop has begun no decision in its interval\n",
            )
        elif path == "/readyz":
            ready, said = owner.boards.readiness()
            self._send(_ok(ready), TEXT, f"{said}\n".encode())
        elif path == "/metrics" and owner.exporter is not None:
            self._send(HTTPStatus.OK, EXPOSITION, owner.exporter.text())
        elif path == "/v1/jobs":
            self._json(HTTPStatus.OK, owner.boards.document())
        elif path == "/v1/status":
            self._status(parse_qs(urlsplit(self.path).query).get("job", [None])[0])
        elif path == "/v1/openapi.json":
            self._json(HTTPStatus.OK, owner.interface)
        elif path == "/":
            self._send(HTTPStatus.OK, HTML, owner.page, PAGE_HEADERS)
        else:
            self._error(HTTPStatus.NOT_FOUND, f"there is nothing at {path}")

    do_HEAD = do_GET

    def do_POST(self) -> None:
        parts = urlsplit(self.path)
        self.close_connection = True  # what of the body was not read is of no use
        if parts.path != "/v1/decide":
            self._error(HTTPStatus.NOT_FOUND, f"there is nothing at {parts.path}")
            self._linger()
            return
        try:
            self._json(HTTPStatus.OK, self._decided(parse_qs(parts.query)))
        except _Refused as refused:
            self._error(refused.status, str(refused))
            self._linger()
        except ConfigError as error:
            self._error(HTTPStatus.NOT_FOUND, str(error))
        except DspGymError as error:
            self._error(HTTPStatus.BAD_REQUEST, str(error))

    def log_message(self, format: str, *args: object) -> None:
        """The journal is the log."""

    def _status(self, job: str | None) -> None:
        try:
            self._json(HTTPStatus.OK, self.server.owner.boards.of(job).document())
        except ConfigError as error:
            code = HTTPStatus.BAD_REQUEST if job is None else HTTPStatus.NOT_FOUND
            self._error(code, str(error))

    def _decided(self, query: dict[str, list[str]]) -> Document:
        owner = self.server.owner
        if owner.decisions is None or not owner.offers_decisions:
            raise _Refused(HTTPStatus.FORBIDDEN, "no token is configured: serve.token_file")
        if not owner.permits(self.headers.get("Authorization")):
            raise _Refused(HTTPStatus.UNAUTHORIZED, "the token is missing or wrong")
        body = self._body(owner.config.max_body_kib * 1024)
        try:
            document = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise _Refused(HTTPStatus.BAD_REQUEST, f"is not valid JSON: {error}") from None
        if not owner.at_once.acquire(blocking=False):
            raise _Refused(HTTPStatus.TOO_MANY_REQUESTS, "too many decisions are asked for at once")
        try:
            return owner.decisions.answer(document, query.get("policy", [None])[0])
        finally:
            owner.at_once.release()

    def _body(self, most: int) -> bytes:
        """The body; it may take as long as the time limit in all, however slowly it comes."""
        length = self.headers.get("Content-Length", "")
        if not length.isascii() or not length.isdigit():
            raise _Refused(HTTPStatus.LENGTH_REQUIRED, "Content-Length is missing")
        left = int(length)
        if left > most:
            said = f"the body has {left} bytes, {most} are the most"
            raise _Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, said)
        end_s = time.monotonic() + self.server.owner.config.timeout_s
        parts = []
        try:
            while left > 0 and time.monotonic() < end_s:
                part = self.rfile.read1(left)
                if not part:
                    break
                parts.append(part)
                left -= len(part)
        except TimeoutError:
            pass
        if left > 0:
            raise _Refused(HTTPStatus.REQUEST_TIMEOUT, "the body did not arrive in time")
        return b"".join(parts)

    def _linger(self) -> None:
        """Reads on for a moment: closing on what was not read would take the answer along."""
        with contextlib.suppress(OSError):
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_WR)
            self.connection.settimeout(LINGER_S)
            end_s, left = time.monotonic() + LINGER_S, MOST_LINGERED
            while left > 0 and time.monotonic() < end_s and (part := self.rfile.read1(65_536)):
                left -= len(part)

    def _error(self, status: HTTPStatus, message: str) -> None:
        self._json(status, {"error": message})

    def _json(self, status: HTTPStatus, value: object) -> None:
        self._send(status, JSON, json.dumps(_plain(value), allow_nan=False).encode())

    def _send(
        self, status: HTTPStatus, kind: str, body: bytes, headers: dict[str, str] | None = None
    ) -> None:
        self.send_response(status)
        if status == HTTPStatus.UNAUTHORIZED:
            self.send_header("WWW-Authenticate", "Bearer")
        for name, value in {"Cache-Control": "no-store", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _ok(holds: bool) -> HTTPStatus:
    return HTTPStatus.OK if holds else HTTPStatus.SERVICE_UNAVAILABLE


def _plain(value: object) -> object:
    """Numbers that are not finite are unknown on the wire."""
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
