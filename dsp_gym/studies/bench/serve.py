"""What `POST /v1/decide` takes: answers per second, their times, slow clients, memory.

The server runs in this process and its clients in another, so that each has a core where there are
two. The processor time of an answer is this process's alone. Snapshots are those of the word count,
with the guardrails of a job that matters; each client asks about a job of its own, over one
connection, again as soon as it has its answer.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import multiprocessing
import socket
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

from dsp_gym.config.files import parse
from dsp_gym.control.config import RunConfig
from dsp_gym.control.serve.boards import Boards
from dsp_gym.control.serve.listener import room_for
from dsp_gym.control.serve.server import MOST_OPEN, StatusServer
from dsp_gym.control.serve.session import served, starting
from dsp_gym.control.serve.tokens import Tokens
from dsp_gym.errors import StorageError
from dsp_gym.job.catalog import load_job
from dsp_gym.loop.wire import Document, snapshot_to_json
from dsp_gym.studies.bench.clients import T_S, Asked, Client, ask
from dsp_gym.studies.bench.policies import recorded
from dsp_gym.studies.bench.shadow import Figure

__all__ = ["bench_serve"]

JOB, RULE, LEARNED = "flink-wordcount", "ds2", "learned"
AT_ONCE, MOST_AT_ONCE = 16, 64
WARM_UP = 200
LEAST_PER_S = 25
"""Answers per second below which clients give up."""

SLOW, SLOW_HEADERS = 1_000, 40
PROBES = 50

BARS = {
    f"answers, {RULE}": 2_000.0,
    f"answers, {LEARNED}": 1_000.0,
    f"p99, {RULE}": 20.0,
    f"p99, {LEARNED}": 20.0,
    "turned away": 0.0,
    "probe, slow clients": 100.0,
    "growth": 5.0,
}
"""1/s, ms and %: least answers, and most of everything else."""

_TOKEN = "bench-bench-bench"


def bench_serve(answers: int = 10_000, leak: int = 50_000) -> list[Figure]:
    """All figures.

    Args:
        answers: of each policy whose rate is measured.
        leak: answers until memory is looked at the second time; 0: it is not.

    Returns:
        Figures with their bars.
    """
    figures = []
    with _serving() as server:
        for policy in (RULE, LEARNED):
            before_s = time.process_time()
            found = _asked(server, policy, AT_ONCE, answers)
            cpu_ms = 1000 * (time.process_time() - before_s)
            took_ms = 1000 * np.array(found.took_s)
            how = f"{AT_ONCE} clients in another process, a job each, {len(took_ms)} answers"
            name = f"answers, {policy}"
            rate = len(took_ms) / found.wall_s
            answered = len(took_ms) + min(WARM_UP, answers)
            figures += [
                Figure(name, "1/s", rate, BARS[name], how),
                Figure(f"CPU per answer, {policy}", "ms", cpu_ms / answered, None, how),
                Figure(f"p50, {policy}", "ms", float(np.percentile(took_ms, 50)), None, how),
                Figure(
                    f"p99, {policy}",
                    "ms",
                    float(np.percentile(took_ms, 99)),
                    BARS[f"p99, {policy}"],
                    how,
                ),
            ]
        figures += [_turned_away(server, answers), *_beside_slow(server)]
        if leak:
            figures.append(_growth(server, leak))
    return figures


def _turned_away(server: StatusServer, answers: int) -> Figure:
    found = _asked(server, RULE, MOST_AT_ONCE, answers)
    refused = sum(number for status, number in found.statuses.items() if status != 200)
    how = f"answers other than 200 of {len(found.took_s)} to {MOST_AT_ONCE} clients"
    return Figure("turned away", "", refused, BARS["turned away"], how)


def _beside_slow(server: StatusServer) -> list[Figure]:
    """Probes and decisions while many connections say nothing, and some say it slowly."""
    host, port = _address(server.url)
    with ExitStack() as stack:
        for number in range(SLOW + SLOW_HEADERS):
            link = stack.enter_context(socket.create_connection((host, port), timeout=10))
            if number >= SLOW:
                link.sendall(b"GET /v1/status HTTP/1.1\r\nHost: 127.")
        took = []
        for _ in range(PROBES):
            begun_s = time.perf_counter()
            with urllib.request.urlopen(f"{server.probe_url}/healthz", timeout=10) as answer:
                answer.read()
            took.append(1000 * (time.perf_counter() - begun_s))
        asked = _asked(server, RULE, AT_ONCE, PROBES * AT_ONCE)
    how = (
        f"the longest of {PROBES} beside {SLOW} connections that say nothing and {SLOW_HEADERS} "
        f"unfinished headers; room for {room_for(MOST_OPEN)} connections"
    )
    given = asked.statuses.get(200, 0)
    return [
        Figure("probe, slow clients", "ms", max(took), BARS["probe, slow clients"], how),
        Figure("decisions beside them", "1/s", given / asked.wall_s, None, how),
    ]


def _growth(server: StatusServer, answers: int) -> Figure:
    """How much resident memory grows after the first tenth."""
    first = len(_asked(server, RULE, AT_ONCE, answers // 10).took_s)
    before = _resident_mib()
    more = len(_asked(server, RULE, AT_ONCE, answers - first).took_s)
    grown = 100 * (_resident_mib() / before - 1)
    how = f"of resident memory, {before:.0f} MiB after {first} answers, until {first + more}"
    return Figure("growth", "%", grown, BARS["growth"], how)


@contextmanager
def _serving() -> Iterator[StatusServer]:
    document = {
        "job": JOB,
        "policies": [RULE, LEARNED],
        "guardrails": "deployed",
        "serve": {"port": 0, "history_mib": 512},  # each call asks about jobs of its own
    }
    config = parse(RunConfig, document, "bench")
    with starting() as settle, served(config, Boards(), RULE, Tokens({"bench": _TOKEN})) as server:
        for policy in (RULE, LEARNED):
            _asked(server, policy, 1, 2)  # what is compiled is loaded
        settle()
        yield server


_CALLS = itertools.count()


def _asked(server: StatusServer, policy: str, clients: int, answers: int) -> Asked:
    """Have clients ask, from another process; each call is about jobs of its own."""
    call = next(_CALLS)
    requests = [_request(policy, f"bench-{call}-{number}") for number in range(clients)]
    process = multiprocessing.get_context("spawn")
    ours, theirs = process.Pipe()
    asking = process.Process(
        target=_ask, args=(_address(server.url), requests, answers, theirs), daemon=True
    )
    asking.start()
    theirs.close()
    try:
        found: Asked = ours.recv()
    except EOFError:
        raise StorageError("the clients ended without an answer", file=server.url) from None
    finally:
        asking.join()
    return found


def _ask(address: tuple[str, int], requests: list[bytes], answers: int, told: Connection) -> None:
    """What the other process does."""
    clients = [Client(request) for request in requests]
    with contextlib.closing(told):
        ask(address, clients, min(WARM_UP, answers))
        told.send(ask(address, clients, answers, max(60.0, answers / LEAST_PER_S)))


def _request(policy: str, job: str) -> bytes:
    """A request for a decision, with `T_S` for the time."""
    document = {**_snapshot(), "job": job, "t_s": int(T_S)}
    body = json.dumps(document).encode()
    head = (
        f"POST /v1/decide?policy={policy} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        f"Authorization: Bearer {_TOKEN}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


@cache
def _snapshot() -> Document:
    return snapshot_to_json(recorded([load_job(JOB)], 1)[-1].job(0))


def _address(url: str) -> tuple[str, int]:
    host, _, port = url.removeprefix("http://").rpartition(":")
    return host, int(port)


def _resident_mib() -> float:
    text = Path("/proc/self/status").read_text(encoding="ascii")
    (line,) = (line for line in text.splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) / 1024
