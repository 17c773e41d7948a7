"""Clients of `POST /v1/decide`, all in one thread: each asks again as soon as it has its answer."""

from __future__ import annotations

import selectors
import socket
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

__all__ = ["T_S", "Asked", "Client", "ask"]

T_S = b"1000000000"
"""Stands in a body for the seconds of its time; those of every other have as many digits."""

_END = b"\r\n\r\n"
_LENGTH = b"content-length:"


class Asked(NamedTuple):
    """What came of it."""

    took_s: list[float]  # each answer
    statuses: dict[int, int]  # how many of each
    wall_s: float


@dataclass(slots=True)
class Client:
    """One connection and what it sends."""

    request: bytes  # with `T_S` for the time, everything else as it is sent
    t_s: int = int(T_S)  # of the last snapshot
    link: socket.socket = field(default_factory=socket.socket)
    begun_s: float = 0.0
    came: bytes = b""

    def send(self) -> None:
        """Send the next snapshot, a minute after the last."""
        self.t_s += 60
        self.came, self.begun_s = b"", time.perf_counter()
        self.link.sendall(self.request.replace(T_S, b"%d" % self.t_s))

    def answer(self) -> int | None:
        """Read what came.

        Returns:
            Status of a whole answer; None: there is more to come.
        """
        part = self.link.recv(65_536)
        if not part:
            raise ConnectionError("the server has closed the connection")
        self.came += part
        end = self.came.find(_END)
        if end < 0:
            return None
        head = self.came[:end].lower()
        at = head.index(_LENGTH) + len(_LENGTH)
        length = int(head[at:].split(b"\r\n", 1)[0])
        return int(head[9:12]) if len(self.came) >= end + len(_END) + length else None


def ask(
    address: tuple[str, int], clients: Sequence[Client], most: int, most_s: float = 60.0
) -> Asked:
    """Have clients ask side by side.

    Args:
        address: host and port of the server.
        clients: each on a connection of its own; their times go on where they ended.
        most: answers in all.
        most_s: longest time, s.

    Returns:
        Times and statuses of the answers.

    Raises:
        OSError: A connection was refused, or closed.
    """
    took, statuses = [], Counter[int]()
    with selectors.DefaultSelector() as ready:
        for client in clients:
            client.link = socket.create_connection(address, timeout=10)
            client.link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            ready.register(client.link, selectors.EVENT_READ, client)
        begun_s, under_way = time.perf_counter(), 0
        for client in clients[:most]:
            client.send()
            under_way += 1
        while under_way:
            for key, _ in ready.select():
                asking: Client = key.data
                status = asking.answer()
                if status is None:
                    continue
                now_s = time.perf_counter()
                took.append(now_s - asking.begun_s)
                statuses[status] += 1
                if len(took) + under_way <= most and now_s - begun_s < most_s:
                    asking.send()
                else:
                    under_way -= 1
        wall_s = time.perf_counter() - begun_s
        for client in clients:
            client.link.close()
    return Asked(took, dict(statuses), wall_s)
