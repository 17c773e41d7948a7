"""Connections: one deadline per request, room for quick clients, order kept."""

from __future__ import annotations

import importlib
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http import HTTPStatus

import pytest

from dsp_gym.control.serve.listener import Answer, Listener, Reply
from dsp_gym.control.serve.request import Head
from dsp_gym.errors import MissingExtraError

GET = b"GET /now HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
SHORT_S = 0.4


class Echo:
    """Answers with the path, or with the body; /later from another thread, /never not at all."""

    def refusal(self, head: Head) -> Answer | None:
        if head.path == "/no":
            return self.error(HTTPStatus.UNAUTHORIZED, "no")
        return None

    def answer(self, head: Head, body: bytes, reply: Reply) -> None:
        said = Answer(HTTPStatus.OK, "text/plain", body or head.path.encode())
        if head.path == "/later":
            threading.Timer(0.05, lambda: reply(said)).start()
        elif head.path == "/much":
            reply(said._replace(body=bytes(2**24)))
        elif head.path != "/never":
            reply(said)

    def error(self, status: HTTPStatus, message: str) -> Answer:
        return Answer(status, "text/plain", message.encode())


@pytest.fixture
def listening() -> Iterator[Callable[..., Listener]]:
    with ExitStack() as stack:

        def start(timeout_s: float = 5.0, most: int = 256) -> Listener:
            made = Listener("127.0.0.1", 0, Echo(), timeout_s, most, "dsp-gym test")
            stack.callback(made.close)
            return made

        yield start


def connected(listener: Listener) -> socket.socket:
    return socket.create_connection(listener.address, timeout=10)


def all_of(link: socket.socket) -> bytes:
    """What comes until the server has said all."""
    found = b""
    try:
        while part := link.recv(65_536):
            found += part
    except ConnectionResetError:
        pass
    return found


def asked(listener: Listener, request: bytes = GET) -> bytes:
    with connected(listener) as link:
        link.sendall(request.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1))
        return all_of(link)


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


def dripping(link: socket.socket, data: bytes, every_s: float) -> None:
    """Sends a byte now and then until nobody takes it."""
    try:
        for byte in data:
            link.sendall(bytes([byte]))
            time.sleep(every_s)
    except OSError:
        pass


def test_requests_on_one_connection_are_answered_in_their_order(listening):
    listener = listening()
    paths = [b"/later", b"/a", b"/later", b"/b", b"/c"]
    with connected(listener) as link:
        for path in paths:  # all at once, before any answer
            link.sendall(b"GET " + path + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        link.sendall(b"GET /last HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        bodies = [part[-6:] for part in all_of(link).split(b"HTTP/1.1 200 OK")[1:]]
    assert [body.split(b"\n")[-1] for body in bodies] == [*paths, b"/last"]


def test_a_header_that_trickles_has_one_deadline(listening):
    listener = listening(timeout_s=SHORT_S)
    with connected(listener) as link:
        begun = time.monotonic()
        slow = threading.Thread(target=dripping, args=(link, GET * 10, 0.05))
        slow.start()
        assert all_of(link) == b""
        assert time.monotonic() - begun < SHORT_S + 1
        slow.join()


def test_a_body_that_trickles_has_the_same_deadline(listening):
    listener = listening(timeout_s=SHORT_S)
    head = b"POST /x HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 500\r\n\r\n"
    with connected(listener) as link:
        begun = time.monotonic()
        link.sendall(head[:-10])
        time.sleep(SHORT_S / 2)  # of the header, and it counts
        link.sendall(head[-10:])
        slow = threading.Thread(target=dripping, args=(link, bytes(500), 0.02))
        slow.start()
        assert all_of(link).startswith(b"HTTP/1.1 408 ")
        assert time.monotonic() - begun < SHORT_S + 1
        link.close()
        slow.join()


def test_an_answer_that_nobody_takes_is_given_up(listening):
    listener = listening(timeout_s=SHORT_S)
    with connected(listener) as link:
        link.sendall(GET.replace(b"/now", b"/much"))
        until(lambda: bool(listener._open))
        until(lambda: not listener._waiting and not listener._open)


def test_slow_clients_push_out_one_another_and_nobody_else(listening):
    listener = listening(most=8)
    with ExitStack() as stack:
        answering = stack.enter_context(connected(listener))
        answering.sendall(GET.replace(b"/now", b"/never"))
        until(lambda: len(listener._open) == 1 and not listener._waiting)
        slow = []
        for _ in range(40):
            slow.append(stack.enter_context(connected(listener)))
            slow[-1].sendall(GET[:20])
            if len(slow) % 10 == 0:
                assert asked(listener).startswith(b"HTTP/1.1 200 ")
        assert all_of(slow[0]) == b""
        assert len(listener._open) <= 8
        answering.settimeout(0.05)
        with pytest.raises(TimeoutError):  # its request was complete
            answering.recv(1)


def test_forty_slow_headers_keep_nobody_waiting(listening):
    listener = listening()
    with ExitStack() as stack:
        for _ in range(40):
            stack.enter_context(connected(listener)).sendall(GET[:15])
        begun = time.monotonic()
        assert asked(listener).startswith(b"HTTP/1.1 200 ")
        assert time.monotonic() - begun < 1


def test_what_is_refused_before_its_body_hears_why(listening):
    listener = listening()
    head = b"POST /no HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 3000000\r\n\r\n"
    answer = asked(listener, head + bytes(3_000_000))
    assert answer.startswith(b"HTTP/1.1 401 ")


def test_a_client_that_asks_first_whether_to_send_is_told_to(listening):
    listener = listening()
    head = (
        b"POST /x HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n"
    )
    with connected(listener) as link:
        link.sendall(head)
        assert link.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        link.sendall(b"ok")
        assert link.recv(1000).endswith(b"ok")


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_client_that_offers_another_protocol_is_answered_in_this_one(listening, method):
    listener = listening()
    head = (
        f"{method} /x HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: h2c\r\nContent-Length: 0\r\n"
        "HTTP2-Settings: AAMAAABk\r\nConnection: Upgrade, HTTP2-Settings\r\n\r\n"
    )
    with connected(listener) as link:  # as Java's client asks first
        for _ in range(2):
            link.sendall(head.encode())
            assert link.recv(1000).endswith(b"\r\n\r\n/x")


def test_a_request_may_arrive_in_any_pieces(listening):
    listener = listening()
    request = b"POST /x HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 4\r\n\r\nbody"
    with connected(listener) as link:
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for cut in range(1, len(request), 7):
            link.sendall(request[:cut])
            time.sleep(0.002)
            link.sendall(request[cut:])
            assert link.recv(1000).endswith(b"\r\n\r\nbody")


def test_what_begins_with_no_method_is_told_at_once(listening):
    with connected(listening()) as link:
        link.sendall(b"\x16\x03\x01\x02\x00")  # TLS, and its end is yet to come
        assert link.recv(1000).startswith(b"HTTP/1.1 400 ")


def test_closing_it_cuts_off_what_is_open_and_ends_its_thread(listening):
    listener = listening()
    with connected(listener) as link:
        link.sendall(GET.replace(b"/now", b"/never"))
        time.sleep(0.05)
        listener.close()
        assert all_of(link) == b""
    assert "dsp-gym test" not in [thread.name for thread in threading.enumerate()]


def test_without_httptools_the_extra_is_named(monkeypatch):
    name = "dsp_gym.control.serve.request"
    monkeypatch.setitem(sys.modules, "httptools", None)
    monkeypatch.delitem(sys.modules, name)
    with pytest.raises(MissingExtraError, match=r"serving over HTTP needs the extra 'shadow'"):
        importlib.import_module(name)


def test_a_loop_that_is_not_served_does_not_import_httptools():
    code = "import sys; import dsp_gym.control.serve.fleet; print({'httptools'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
