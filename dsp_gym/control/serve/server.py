"""What live loops serve over HTTP: metrics, status, a page, decisions on request; and probes.

Probes have a port and a thread of their own, so that no client of the other one, however slow or
many, keeps kubelet waiting. Nothing here asks Flink, Prometheus or an API server anything: it reads
what the loops last said, so that liveness depends on this process alone.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from functools import cached_property, lru_cache, partial
from http import HTTPStatus
from typing import TypeVar
from urllib.parse import parse_qs

import msgspec

from dsp_gym.backends.upstream.thread_pool import DaemonPool
from dsp_gym.control.config import ServeConfig
from dsp_gym.control.serve.assets import assets
from dsp_gym.control.serve.boards import Boards
from dsp_gym.control.serve.decide import BusyError, Decisions, FullError, Question
from dsp_gym.control.serve.exporter import Exporter
from dsp_gym.control.serve.listener import Answer, Listener, Reply, room_for
from dsp_gym.control.serve.liveness import Liveness
from dsp_gym.control.serve.openapi import openapi
from dsp_gym.control.serve.request import Head
from dsp_gym.control.serve.status import StatusBoard
from dsp_gym.control.serve.tokens import Tokens, is_addressed
from dsp_gym.errors import ConfigError, DspGymError
from dsp_gym.loop.wire import Document
from dsp_gym.redaction import is_plain, redacted

_LOG = logging.getLogger(__name__)

_Made = TypeVar("_Made")

JSON, TEXT = "application/json", "text/plain; charset=utf-8"
EXPOSITION = "text/plain; version=0.0.4; charset=utf-8"

MOST_OPEN, MOST_PROBES = 2048, 64
"""Connections at once, file descriptors permitting."""

MOST_ASKED = 128
"""Decisions that are asked for at once; the next ones are turned away."""

DECIDERS = 4
"""Decisions under way at once; as long as none waits for its policy there is only one."""

READERS = 2

IDLE_S = 5.0
"""A thread ends after so long without work."""

PATIENCE_S = 0.05
"""Work that waits while nothing was begun for so long gets another thread."""

DECIDE = "/v1/decide"


class StatusServer:
    """Serves loops from its own threads until it is closed.

    Args:
        config: where to listen, and the bounds.
        boards: the loops' status.
        liveness: how long a loop may show no sign of life.
        exporter: their metrics.
        decisions: answers POST /v1/decide; None: it is not offered.
        tokens: of the clients; None: no decisions, and whether anybody may read is the
            configuration's `public`.

    Raises:
        ConfigError: An address cannot be listened on.
    """

    def __init__(
        self,
        config: ServeConfig,
        boards: Boards,
        liveness: Liveness,
        exporter: Exporter | None,
        decisions: Decisions | None = None,
        tokens: Tokens | None = None,
    ) -> None:
        self.config, self.boards, self.exporter = config, boards, exporter
        self.liveness = liveness
        self.decisions, self._tokens = decisions, tokens
        # Decisions under way or waiting, and those that wait; of the listener's thread alone.
        self._asked, self._waiting = 0, list[tuple[Question, Reply]]()
        self._deciders = DaemonPool(DECIDERS, "dsp-gym decide", IDLE_S, PATIENCE_S)
        self._readers = DaemonPool(READERS, "dsp-gym read", IDLE_S, PATIENCE_S)
        self._listeners: list[Listener] = []
        try:
            self._http = self._listening(config.port, "port", _Pages(self), MOST_OPEN, "http")
            beside = self._http.address[1] + 1 if config.port else 0
            probe_port = beside if config.probe_port is None else config.probe_port
            probes = _Probes(self)
            probe_listener = self._listening(
                probe_port, "probe_port", probes, MOST_PROBES, "probes"
            )
        except ConfigError:
            self.close()
            raise
        self.url, self.probe_url = _url(self._http), _url(probe_listener)

    @cached_property
    def interface(self) -> Document:
        """The OpenAPI document."""
        names = [] if self.decisions is None else self.decisions.policies
        return openapi(
            self.config.max_body_kib, self.config.timeout_s, names, public=self.config.public
        )

    def client(self, head: Head) -> str | None:
        """Find out who asks.

        Returns:
            Name of the client whose token the request shows; None where it shows none.
        """
        if self._tokens is None:
            return None
        return self._tokens.client(head.headers.get("authorization"))

    @property
    def has_tokens(self) -> bool:
        """Whether clients can be known by their tokens."""
        return self._tokens is not None

    def close(self) -> None:
        """Stop listening; requests under way are cut off."""
        for listener in self._listeners:
            listener.close()
        self._listeners.clear()
        for threads in (self._deciders, self._readers):
            threads.close()
        if self.decisions is not None:
            self.decisions.close()

    def decide(self, head: Head, body: bytes, reply: Reply) -> None:
        """Answer a request for a decision when there is one; called by the listener's thread.

        Requests that arrive together are answered together, in that thread, where this takes a
        moment. What takes longer, or is to be refused, is left to other threads.
        """
        if self._asked >= MOST_ASKED:
            said = f"{self._asked} decisions are asked for at once, which is the most"
            reply(_refused(HTTPStatus.TOO_MANY_REQUESTS, said))
            return
        policy, enacts = (_parameter(head.query, name) for name in ("policy", "enacts"))
        if enacts not in (None, "true", "false"):
            said = f"enacts is {enacts!r}, expected true or false"
            reply(_refused(HTTPStatus.BAD_REQUEST, said))
            return
        self._asked += 1
        self._wait(Question(body, policy, self.client(head) or "", enacts != "false"), reply)

    def read(self, made: Callable[[], Answer], reply: Reply) -> None:
        """Answer a request by what takes a moment, in a thread that keeps no other waiting."""
        self._readers.do(lambda: reply(_tried(made)))

    def _look(self) -> None:
        self._deciders.look()
        self._readers.look()

    def _wait(self, question: Question, reply: Reply) -> None:
        """Have a request answered together with all others of this round."""
        if not self._waiting:
            self._http.loop.call_soon(self._decide)
        self._waiting.append((question, reply))

    def _decide(self) -> None:
        """Answer the requests that wait."""
        assert self.decisions is not None  # `_Pages` has seen to it
        waiting, self._waiting = self._waiting, []
        try:
            answers = self.decisions.answer_batch([question for question, _ in waiting])
        except Exception:  # a fault of ours: each gets an error, and none waits for ever
            _LOG.exception("requests for decisions could not be answered together")
            answers = [None] * len(waiting)
        for (question, reply), answer in zip(waiting, answers, strict=True):
            if answer is None:
                self._hand_over(partial(self._decide_alone, question, reply), reply)
            else:
                self._send(reply, answer)

    def _send(self, reply: Reply, answer: Document) -> None:
        """Send a decision; text in which credentials may stand is searched by another thread."""
        text = msgspec.json.encode(answer).decode()
        if is_plain(text):
            self._answered(reply, Answer(HTTPStatus.OK, JSON, text.encode()))
            return

        def search() -> None:
            found = Answer(HTTPStatus.OK, JSON, redacted(text).encode())
            self._http.call(lambda: self._answered(reply, found))

        self._hand_over(search, reply)

    def _hand_over(self, work: Callable[[], None], reply: Reply) -> None:
        """Have a request answered by another thread; where there is none, say so."""
        try:
            self._deciders.do(work)
        except RuntimeError as error:
            said = f"the system gives no thread to decide in ({error}); ask again later"
            self._answered(reply, _refused(HTTPStatus.SERVICE_UNAVAILABLE, said))

    def _decide_alone(self, question: Question, reply: Reply) -> None:
        """Answer one request, in a thread."""
        assert self.decisions is not None
        decisions = self.decisions

        def made() -> Answer | None:
            return None if decisions.planned(question) else _json(decisions.answer(question))

        answer = _tried(made)
        if answer is None:
            self._http.call(lambda: self._wait(question, reply))
        else:
            self._http.call(lambda: self._answered(reply, answer))

    def _answered(self, reply: Reply, answer: Answer) -> None:
        self._asked -= 1
        reply(answer)

    def _listening(
        self, port: int, key: str, site: _Pages | _Probes, most: int, name: str
    ) -> Listener:
        host = self.config.host
        try:
            made = Listener(
                host,
                port,
                site,
                self.config.timeout_s,
                room_for(most),
                f"dsp-gym {name}",
                self._look,
            )
        except (OSError, OverflowError) as error:
            taken = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
            said = error.strerror if isinstance(error, OSError) else None
            raise ConfigError(
                f"{host}:{port} cannot be listened on: {said or error}",
                key=f"serve.{key}" if taken else "serve.host",
                remedy="Choose another port: --port 0 takes any that is free."
                if taken
                else "Give an address of this machine.",
            ) from None
        self._listeners.append(made)
        return made


class _Site:
    """A site of a server: its errors are JSON."""

    def __init__(self, owner: StatusServer) -> None:
        self._owner = owner

    def error(self, status: HTTPStatus, message: str) -> Answer:
        return _refused(status, message)


class _Probes(_Site):
    """What kubelet asks: is the process alive, and is it ready."""

    def refusal(self, head: Head) -> Answer | None:
        """Say why a request is not answered."""
        allowed = ("GET", "HEAD") if head.path in ("/healthz", "/readyz") else ()
        return _refusal(head, allowed, self._owner.config.hosts)

    def answer(self, head: Head, body: bytes, reply: Reply) -> None:
        """Say at once whether it is so."""
        if head.path == "/healthz":
            hangs = self._owner.boards.hanging(self._owner.liveness)
            holds, said = hangs is None, hangs or "alive"
        else:
            holds, said = self._owner.boards.readiness()
        status = HTTPStatus.OK if holds else HTTPStatus.SERVICE_UNAVAILABLE
        # The board's sentences hold no credentials: nothing is searched for them in this thread.
        reply(Answer(status, TEXT, f"{said}\n".encode()))


class _Pages(_Site):
    """Everything else: each path with the methods it takes, and who may ask."""

    def __init__(self, owner: StatusServer) -> None:
        super().__init__(owner)
        self._made: dict[str, Callable[[Head], Answer]] = {
            "/v1/jobs": lambda head: _json(owner.boards.document()),
            "/v1/status": lambda head: self._of_job(head, StatusBoard.document),
            "/v1/history": lambda head: self._of_job(
                head, lambda board: board.curves(_parameter(head.query, "policy"))
            ),
            "/v1/twins": lambda head: self._of_job(head, StatusBoard.twins),
            "/v1/openapi.json": lambda head: _json(owner.interface),
        }
        self._made |= {path: _file(answer) for path, answer in assets().items()}
        exporter = owner.exporter
        if exporter is not None:
            self._made["/metrics"] = lambda head: Answer(
                HTTPStatus.OK, EXPOSITION, redacted(exporter.text().decode()).encode()
            )

    def refusal(self, head: Head) -> Answer | None:
        """Say why a request is not answered."""
        owner = self._owner
        allowed = ("GET", "HEAD") if head.path in self._made else ()
        found = _refusal(head, ("POST",) if head.path == DECIDE else allowed, owner.config.hosts)
        if found is not None or head.path in assets():  # which hold no data
            return found
        if head.path != DECIDE and owner.config.public:
            return None
        if not owner.has_tokens:
            said = "no token is configured: serve.token_file"
            if head.path != DECIDE:
                said = (
                    "no token is configured: give serve.token_file, or let anybody read with "
                    "--public"
                )
            return _refused(HTTPStatus.FORBIDDEN, said)
        if owner.client(head) is None:
            return _refused(HTTPStatus.UNAUTHORIZED, "the token is missing or wrong")
        return self._of_body(head) if head.path == DECIDE else None

    def answer(self, head: Head, body: bytes, reply: Reply) -> None:
        """Have it answered by another thread."""
        if head.path == DECIDE:
            self._owner.decide(head, body, reply)
        else:
            self._owner.read(lambda: self._made[head.path](head), reply)

    def _of_body(self, head: Head) -> Answer | None:
        length = head.headers.get("content-length")
        if length is None or head.is_unmeasured:
            return _refused(HTTPStatus.LENGTH_REQUIRED, "Content-Length is missing")
        most = self._owner.config.max_body_kib * 1024
        if int(length) > most:
            said = f"the body has {length} bytes, {most} are the most"
            return _refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, said)
        return None

    def _of_job(self, head: Head, made: Callable[[StatusBoard], Document]) -> Answer:
        job = _parameter(head.query, "job")
        try:
            board = self._owner.boards.of(job)
        except ConfigError as error:
            code = HTTPStatus.BAD_REQUEST if job is None else HTTPStatus.NOT_FOUND
            return _error(code, str(error))
        return _json(made(board))


def _file(answer: Answer) -> Callable[[Head], Answer]:
    return lambda head: answer


def _refusal(head: Head, allowed: tuple[str, ...], hosts: tuple[str, ...]) -> Answer | None:
    """Refuse a request that no client may make: its host, path or method is wrong."""
    host = head.headers.get("host")
    if not is_addressed(host, hosts):
        said = f"this server is not called {host!r}; names of it belong into serve.hosts"
        return _refused(HTTPStatus.MISDIRECTED_REQUEST, said)
    if not allowed:
        return _refused(HTTPStatus.NOT_FOUND, f"there is nothing at {head.path}")
    if head.method not in allowed:
        said = f"{head.path} takes {' and '.join(allowed)}"
        found = _refused(HTTPStatus.METHOD_NOT_ALLOWED, said)
        return found._replace(headers=(("Allow", ", ".join(allowed)),))
    if head.method != "POST" and head.has_body:
        return _refused(HTTPStatus.BAD_REQUEST, f"a {head.method} has no body here")
    return None


@lru_cache(maxsize=256)
def _parameter(query: str, name: str) -> str | None:
    found = parse_qs(query).get(name)
    return None if found is None else found[0]


def _tried(made: Callable[[], _Made]) -> _Made | Answer:
    """Make the answer, or the one that names what went wrong; never raises."""
    try:
        return made()
    except BusyError as error:
        return _error(HTTPStatus.TOO_MANY_REQUESTS, str(error))
    except FullError as error:
        return _error(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
    except ConfigError as error:
        return _error(HTTPStatus.NOT_FOUND, str(error))
    except DspGymError as error:
        return _error(HTTPStatus.BAD_REQUEST, str(error))
    except Exception as error:
        said = f"a fault of dsp-gym: {type(error).__name__}: {error}"
        return _error(HTTPStatus.INTERNAL_SERVER_ERROR, said)


def _refused(status: HTTPStatus, message: str) -> Answer:
    """Write an error in the words of the client and of this module, which are not searched."""
    found = Answer(status, JSON, msgspec.json.encode({"error": message}))
    if status == HTTPStatus.UNAUTHORIZED:
        return found._replace(headers=(("WWW-Authenticate", "Bearer"),))
    return found


def _error(status: HTTPStatus, message: str) -> Answer:
    return _json({"error": message}, status)


def _json(value: object, status: HTTPStatus = HTTPStatus.OK) -> Answer:
    """Write a document; numbers that are not finite are unknown on the wire."""
    return Answer(status, JSON, redacted(msgspec.json.encode(value).decode()).encode())


def _url(listener: Listener) -> str:
    host, port = listener.address
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"
