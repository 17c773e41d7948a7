"""Clients of `POST /v1/decide`, all in one thread: each asks again as soon as it has its answer.

They share the machine with the server, so an answer costs them as little as may be: requests are
bytes in which only the time is replaced, and of an answer only status and length are looked at.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from io import BufferedReader
from typing import NamedTuple

T_S = b"1000000000"
"""Stands in a body for the seconds of its time; those of every other have as many digits."""

_LENGTH = b"Content-Length: "


class Asked(NamedTuple):
    """What came of it."""

    took_s: list[float]  # each answer
    statuses: dict[int, int]  # how many of each
    wall_s: float
    cpu_s: float  # processor time of the clients


@dataclass(slots=True)
class Client:
    """One connection and what it sends."""

    request: bytes  # with `T_S` for the time, everything else as it is sent
    t_s: int = int(T_S)  # of the last snapshot
    begun_s: float = 0.0
    link: socket.socket = field(init=False)
    answers: BufferedReader = field(init=False)

    def send(self) -> None:
        """Send the next snapshot, a minute after the last."""
        self.t_s += 60
        self.begun_s = time.perf_counter()
        self.link.sendall(self.request.replace(T_S, b"%d" % self.t_s))

    def answer(self) -> int:
        """Read a whole answer.

        Returns:
            Its status.
        """
        status, length = self.answers.readline(), 0
        if not status:
            raise ConnectionError("the server has closed the connection")
        while (line := self.answers.readline()) != b"\r\n":
            if line.startswith(_LENGTH):
                length = int(line.removeprefix(_LENGTH))
        self.answers.read(length)
        return int(status[9:12])


def ask(
    address: tuple[str, int], clients: Sequence[Client], most: int, most_s: float = 60.0
) -> Asked:
    """Have clients ask side by side.

    Args:
        address: host and port of the server.
        clients: each on its own connection; their times go on where they ended.
        most: answers in all.
        most_s: longest time, s.

    Returns:
        Times and statuses of the answers.

    Raises:
        OSError: A connection was refused, or closed.
    """
    took, statuses = [], Counter[int]()
    with selectors.DefaultSelector() as ready, contextlib.ExitStack() as stack:
        for client in clients:
            client.link = stack.enter_context(socket.create_connection(address, timeout=10))
            client.link.settimeout(None)  # with one, each call asks the system twice
            client.link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            client.answers = client.link.makefile("rb")
            ready.register(client.link, selectors.EVENT_READ, client)
        begun_s, begun_cpu_s = time.perf_counter(), time.process_time()
        for client in clients[:most]:
            client.send()
        under_way = min(most, len(clients))
        while under_way:
            for key, _ in ready.select():
                asking: Client = key.data
                statuses[asking.answer()] += 1
                now_s = time.perf_counter()
                took.append(now_s - asking.begun_s)
                if len(took) + under_way <= most and now_s - begun_s < most_s:
                    asking.send()
                else:
                    under_way -= 1
        wall_s, cpu_s = time.perf_counter() - begun_s, time.process_time() - begun_cpu_s
    return Asked(took, dict(statuses), wall_s, cpu_s)


def ask_warm(
    address: tuple[str, int],
    requests: Sequence[bytes],
    warm_up: int,
    answers: int,
    most_s: float,
) -> Asked:
    """Have clients ask once everything is loaded.

    Args:
        address: host and port of the server.
        requests: of each client, with `T_S` for the time.
        warm_up: answers that are not counted.
        answers: that are.
        most_s: longest time, s.

    Returns:
        Times and statuses of the answers.
    """
    clients = [Client(request) for request in requests]
    ask(address, clients, warm_up)
    return ask(address, clients, answers, most_s)
