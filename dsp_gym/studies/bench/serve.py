"""What `POST /v1/decide` takes: answers per second, their times, slow clients, memory.

The server runs in this process and its clients in another, so that each has a core where there are
two. The processor time of an answer is this process's alone. Snapshots are those of the word count,
with the guardrails of a job that matters; each client asks about its own job, over one
connection, again as soon as it has its answer.
"""

from __future__ import annotations

import itertools
import json
import multiprocessing
import socket
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import cache, partial

import numpy as np

from dsp_gym.config.files import parse
from dsp_gym.control.config import RunConfig
from dsp_gym.control.serve.boards import Boards
from dsp_gym.control.serve.listener import room_for
from dsp_gym.control.serve.server import MOST_OPEN, StatusServer
from dsp_gym.control.serve.session import served, starting
from dsp_gym.control.serve.tokens import Tokens
from dsp_gym.job.catalog import load_job
from dsp_gym.loop.wire import Document, snapshot_to_json
from dsp_gym.studies.bench.clients import T_S, Asked, ask_warm
from dsp_gym.studies.bench.machine import Figure, process_status, timed
from dsp_gym.studies.bench.policies import recorded

JOB = "flink-wordcount"
RULE, PLANNER = "ds2", "planner"
POLICIES = (RULE, "justin-artifact", PLANNER)
AT_ONCE = (1, 16, 64)
CLIENTS = 16
"""With so many the bars hold, and everything else is measured."""

WARM_UP = 200
LEAST_PER_S = 25
"""Answers per second below which clients give up."""

SLOW, SLOW_HEADERS = 1_000, 40
PROBES = 50

LEAST = {RULE: 2_000.0, "justin-artifact": 2_000.0, PLANNER: 1_000.0}
"""Answers per second."""

BARS = {"p99": 20.0, "turned away": 0.0, "probe, slow clients": 100.0, "growth": 5.0}
"""ms and %, at most."""

_TOKEN = "bench-bench-bench"


def bench_serve(answers: int = 10_000, leak: int = 50_000) -> list[Figure]:
    """Measure all figures.

    Args:
        answers: of each policy and each number of clients.
        leak: answers until memory is looked at the second time; 0: it is not.

    Returns:
        Figures with their bars.
    """
    with _serving() as server:
        figures = [
            figure
            for policy in POLICIES
            for clients in AT_ONCE
            for figure in _answers(server, policy, clients, answers)
        ]
        figures += _beside_slow(server)
        figures += [_growth(server, leak)] if leak else []
    return figures


def _answers(server: StatusServer, policy: str, clients: int, answers: int) -> list[Figure]:
    """Measure the rate of answers, their time, and their cost on both sides."""
    before_s = time.process_time()
    found = _asked(server, policy, clients, answers)
    cpu_ms = 1000 * (time.process_time() - before_s)
    p50, p99 = np.percentile(1000 * np.array(found.took_s), (50, 99)).tolist()
    number, is_barred = len(found.took_s), clients == CLIENTS
    refused = sum(found.statuses.values()) - found.statuses.get(200, 0)
    how = f"clients in another process, a job each, {number} answers"
    return [
        Figure(f"{name}, {policy}, {clients} clients", unit, value, bar, how)
        for name, unit, value, bar in (
            ("answers", "1/s", number / found.wall_s, LEAST[policy] if is_barred else None),
            ("p50", "ms", p50, None),
            ("p99", "ms", p99, BARS["p99"] if is_barred else None),
            ("server CPU per answer", "ms", cpu_ms / (number + min(WARM_UP, answers)), None),
            ("client CPU per answer", "ms", 1000 * found.cpu_s / number, None),
            ("turned away", "", refused, BARS["turned away"]),
        )
    ]


def _beside_slow(server: StatusServer) -> list[Figure]:
    """Time probes and decisions beside many silent and some slow connections."""
    host, port = _address(server.url)
    with ExitStack() as stack:
        for number in range(SLOW + SLOW_HEADERS):
            link = stack.enter_context(socket.create_connection((host, port), timeout=10))
            if number >= SLOW:
                link.sendall(b"GET /v1/status HTTP/1.1\r\nHost: 127.")
        probe = partial(urllib.request.urlopen, f"{server.probe_url}/healthz", timeout=10)
        took_s = timed(lambda: probe().read(), PROBES)
        asked = _asked(server, RULE, CLIENTS, PROBES * CLIENTS)
    how = (
        f"the longest of {PROBES} beside {SLOW} connections that say nothing and {SLOW_HEADERS} "
        f"unfinished headers; room for {room_for(MOST_OPEN)} connections"
    )
    return [
        Figure("probe, slow clients", "ms", 1000 * max(took_s), BARS["probe, slow clients"], how),
        Figure(
            "decisions beside them", "1/s", asked.statuses.get(200, 0) / asked.wall_s, None, how
        ),
    ]


def _growth(server: StatusServer, answers: int) -> Figure:
    """Measure the growth of resident memory after the first tenth."""
    first = len(_asked(server, RULE, CLIENTS, answers // 10).took_s)
    before = process_status("VmRSS") / 1024
    more = len(_asked(server, RULE, CLIENTS, answers - first).took_s)
    grown = 100 * (process_status("VmRSS") / 1024 / before - 1)
    how = f"of resident memory, {before:.0f} MiB after {first} answers, until {first + more}"
    return Figure("growth", "%", grown, BARS["growth"], how)


@contextmanager
def _serving() -> Iterator[StatusServer]:
    config = parse(
        RunConfig,
        {
            "job": JOB,
            "policies": list(POLICIES),
            "guardrails": "deployed",
            "serve": {"port": 0, "history_mib": 512},  # each call asks about its own jobs
        },
        "bench",
    )
    with starting() as settle, served(config, Boards(), RULE, Tokens({"bench": _TOKEN})) as server:
        for policy in POLICIES:
            _asked(server, policy, 1, 2)  # what is compiled is loaded
        settle()
        yield server


_CALLS = itertools.count()


def _asked(server: StatusServer, policy: str, clients: int, answers: int) -> Asked:
    """Have clients ask, from another process; each call is about its own jobs."""
    call = next(_CALLS)
    requests = [_request(policy, f"bench-{call}-{number}") for number in range(clients)]
    warm_up, most_s = min(WARM_UP, answers), max(60.0, answers / LEAST_PER_S)
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn) as other:
        asking = other.submit(ask_warm, _address(server.url), requests, warm_up, answers, most_s)
        return asking.result()


def _request(policy: str, job: str) -> bytes:
    """Write a request for a decision, with `T_S` for the time."""
    body = json.dumps({**_snapshot(), "job": job, "t_s": int(T_S)}).encode()
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
