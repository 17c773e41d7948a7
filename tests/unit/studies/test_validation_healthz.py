"""Probes beside attacks: what is counted, and attacks that end in time."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from dsp_gym.studies.validation.attacks import ATTACKS, AttackedPort, play
from dsp_gym.studies.validation.healthz import ProbeTime, probed, summary


class Sink:
    """Takes connections, and answers what is asked."""

    def __init__(self, answer: bytes) -> None:
        self.answer, self.heard = answer, b""
        self.server = socket.create_server(("127.0.0.1", 0), backlog=2048)
        self.port = self.server.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                link, _ = self.server.accept()
                with suppress(OSError), link:
                    link.settimeout(0.01)
                    self.heard += link.recv(1 << 16)
                    link.sendall(self.answer)


@pytest.fixture
def sink() -> Iterator[Sink]:
    made = Sink(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    yield made
    made.server.close()


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_ends_in_time_and_says_what_it_began(sink, name):
    target = AttackedPort("127.0.0.1", sink.port, "secret", b'{"job": "words"}')
    begun_s = time.monotonic()
    began = play(name, target, 0.03)
    assert time.monotonic() - begun_s < 5.0
    assert (began > 0) == (name != "none")
    if name not in ("none", "silent connections", "connections opened and closed"):
        assert sink.heard.startswith((b"GET /", b"POST /v1/decide HTTP/1.1\r\n"))


def test_a_probe_counts_from_the_moment_at_which_it_was_due(sink):
    found = probed(sink.port, 0.1, period_s=0.02)
    assert [probe.status for probe in found] == [200] * 5
    sink.server.shutdown(socket.SHUT_RDWR)  # it would still be accepted from
    sink.server.close()
    assert probed(sink.port, 0.02, period_s=0.02)[0].status == 0


def test_the_bar_is_of_the_99th_percentile_and_of_every_answer():
    quick = [ProbeTime(0.001, 200)] * 199
    found = summary([*quick, ProbeTime(0.5, 200)], 7)
    assert found == {
        "probes": 200, "unanswered": 0, "p50_ms": 1.0, "p99_ms": 1.0, "max_ms": 500.0,
        "attacks": 7, "holds": True,
    }  # fmt: skip
    assert not summary([*quick, ProbeTime(0.001, 0)], 7)["holds"]
    assert not summary([*quick[:190], *[ProbeTime(0.2, 200)] * 10], 7)["holds"]
