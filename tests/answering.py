"""A small HTTP server with answers that a test sets, for cases that are rare with real servers.

`tell` makes it a Flink that runs one job; `Scripted` is a source of that job's samples.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from dsp_gym.errors import FlinkError
from dsp_gym.metrics.samples import SAMPLE_S, Samples

Answer = Any
"""A JSON document, or (status, text), or a function of the query that gives one of them."""


TASKS = {"source": 4, "map": 3, "sink": 1}
START_MS = 1_000_000


@dataclass
class Answering:
    """Answers by path; `late_s` holds every answer back, `asked` lists what came.

    `accounts` lists what stood in each request's Authorization, `bodies` the JSON that was sent.
    """

    url: str
    answers: dict[str, Answer] = field(default_factory=dict)
    late_s: float = 0.0
    asked: list[str] = field(default_factory=list)
    accounts: list[str | None] = field(default_factory=list)
    bodies: list[Any] = field(default_factory=list)

    def answer(self, target: str) -> tuple[int, str]:
        self.asked.append(target)
        time.sleep(self.late_s)
        parts = urlsplit(target)
        found = self.answers.get(parts.path, (404, '{"errors": ["Not found."]}'))
        if isinstance(found, Callable):  # type: ignore[arg-type]
            found = found({key: values[0] for key, values in parse_qs(parts.query).items()})
        return found if isinstance(found, tuple) else (200, json.dumps(found))


@contextmanager
def answering() -> Iterator[Answering]:
    """Runs the server on a free port while the context lasts."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            told.accounts.append(self.headers.get("Authorization"))
            sent = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if sent and self.headers.get("Content-Type") == "application/json":
                told.bodies.append(json.loads(sent))
            status, text = told.answer(self.path)
            try:
                self.send_response(status)
                self.end_headers()
                self.wfile.write(text.encode())
            except OSError:
                return  # whoever asked did not wait

        do_POST = do_PUT = do_GET

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    told = Answering(f"http://127.0.0.1:{server.server_address[1]}")
    told.answers["/jobs/overview"] = {"jobs": []}
    told.answers["/taskmanagers"] = {"taskmanagers": [{"id": "one"}, {"id": "two"}]}
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield told
    finally:
        told.late_s = 0.0
        server.shutdown()
        thread.join()
        server.server_close()


def tell(cluster, job_id="a1", state="RUNNING", running=None, since_ms=START_MS, **times):
    """One job as `GET /jobs/:id` and its neighbours show it."""
    start_ms = times.pop("start_ms", START_MS)
    running = TASKS if running is None else running
    overview = cluster.answers["/jobs/overview"]["jobs"]
    overview[:] = [known for known in overview if known["jid"] != job_id]
    overview.append({"jid": job_id, "name": "mine", "state": state, "start-time": start_ms})
    cluster.answers[f"/jobs/{job_id}"] = {
        "jid": job_id, "name": "mine", "state": state, "end-time": times.pop("ended_ms", -1),
        "timestamps": {"RESTARTING": 0, **times},
        "vertices": [
            {"id": f"v-{name}", "name": f"Source: {name}" if name == "source" else name,
             "parallelism": tasks, "tasks": {"RUNNING": running.get(name, 0)}}
            for name, tasks in TASKS.items()
        ],
    }  # fmt: skip
    for name, tasks in TASKS.items():
        subtasks = [{"timestamps": {"RUNNING": since_ms - 10 * k}} for k in range(tasks)]
        cluster.answers[f"/jobs/{job_id}/vertices/v-{name}/subtasktimes"] = {"subtasks": subtasks}
    arguments = {"parallelism": "map=3", "slot-sharing": "per-vertex", "managed-mib": "map=316"}
    cluster.answers[f"/jobs/{job_id}/config"] = {"execution-config": {"user-config": arguments}}
    cluster.answers[f"/jobs/{job_id}/checkpoints"] = {"history": []}


@dataclass
class Scripted:
    """A source of samples of the job that `tell` tells of, steady since it began; tests break it.

    Each subtask takes 100 records/s and is busy for a quarter of the time.
    """

    since_s: float
    now_s: float = 1500.0
    until_s: float = float("inf")
    silent: tuple[str, int] | None = None
    failure: FlinkError | None = None
    folded: frozenset[str] = frozenset()

    def poll(self) -> None:
        return

    def samples(self, since_s: float, until_s: float) -> Samples:
        if self.failure is not None:
            raise self.failure
        return Samples.of(self._rows()).between(since_s, min(until_s, self.until_s))

    def _rows(self) -> Iterator[tuple[float, str, int, str, float]]:
        for step in range(1, int((self.now_s - self.since_s) // SAMPLE_S) + 1):
            ran_s = step * SAMPLE_S
            values = {"records_in_total": 100.0, "records_out_total": 100.0, "busy_ms_total": 250.0}
            for vertex, tasks in TASKS.items():
                for subtask in range(tasks):
                    if (vertex, subtask) != self.silent:
                        for name, per_s in values.items():
                            yield self.since_s + ran_s, vertex, subtask, name, per_s * ran_s
