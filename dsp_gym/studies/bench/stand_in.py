"""A Kubernetes API server and a Prometheus that know some jobs, in a process of their own.

Every job is the same chain of vertices in steady state, sampled every 5 s. There is as much in an
answer as a real server would give; how long it takes to answer is not what is measured.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from dsp_gym.metrics.flink import FLINK_METRICS

NAMESPACE, SELECTOR = "jobs", "team=bench"
SAMPLE_S = 5.0
READS = ("get", "list", "watch")

_PER_S = {
    "accumulateBusyTimeMs": 300.0,
    "accumulateBackPressuredTimeMs": 0.0,
    "accumulateIdleTimeMs": 700.0,
    "numRecordsIn": 1000.0,
    "numRecordsOut": 1000.0,
}
_STEADY = {
    "busyTimeMsPerSecond": 300.0,
    "backPressuredTimeMsPerSecond": 0.0,
    "idleTimeMsPerSecond": 700.0,
}
_OF_TASKMANAGERS = tuple(
    "flink_taskmanager_" + re.sub(r"\W", "_", metric.flink[0])
    for metric in FLINK_METRICS
    if metric.scope == "taskmanager"
)


@contextmanager
def standing_in(jobs: int, tasks: dict[str, int]) -> Iterator[str]:
    """Run the servers while the block lasts.

    Args:
        jobs: how many there are.
        tasks: of each job, subtasks by vertex.

    Yields:
        The address of both.
    """
    code = f"from {__name__} import serve\nserve({jobs}, {tasks!r})"
    line = [sys.executable, "-c", code]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


def serve(jobs: int, tasks: dict[str, int]) -> None:
    """Print the address, and answer until the process is ended."""
    world = _World(jobs, tasks)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            query = {key: values[0] for key, values in parse_qs(parts.query).items()}
            if query.get("watch") == "true":
                self._hold(float(query.get("timeoutSeconds", 30)))
                return
            self._answer(world.resources() if parts.path.startswith("/apis/flink") else {})

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            parts = urlsplit(self.path)
            query = {key: values[0] for key, values in parse_qs(parts.query).items()}
            if parts.path.endswith("/api/v1/query"):
                series = world.series(query["query"], float(query["time"]))
                self._send(_framed(series))
                return
            if parts.path.endswith("/selfsubjectrulesreviews"):
                rule = {"verbs": READS, "apiGroups": ["*"], "resources": ["*"]}
                self._answer({"status": {"resourceRules": [rule], "incomplete": False}})
                return
            asked = json.loads(body)["spec"]["resourceAttributes"]
            self._answer({"status": {"allowed": asked["verb"] in READS}})

        def _hold(self, seconds: float) -> None:
            """Hold a watch in which nothing happens."""
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Connection", "close")
            self.end_headers()
            time.sleep(seconds)
            self.close_connection = True

        def _answer(self, document: object) -> None:
            self._send(json.dumps(document).encode())

        def _send(self, body: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            return

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 256

        def handle_error(self, *_: object) -> None:
            """Ignore a client that has left."""

    server = Server(("127.0.0.1", 0), Handler)
    sys.stdout.write(f"http://127.0.0.1:{server.server_address[1]}\n")
    sys.stdout.flush()
    server.serve_forever()


class _World:
    def __init__(self, jobs: int, tasks: dict[str, int]) -> None:
        self._names, self._tasks = [f"job-{n:03d}" for n in range(jobs)], tasks
        self._since_s = time.time() - 3600.0

    def resources(self) -> dict[str, object]:
        """List all resources."""
        return {
            "metadata": {"resourceVersion": "1"},
            "items": [self._resource(name) for name in self._names],
        }

    def _resource(self, name: str) -> dict[str, object]:
        spec = {
            "flinkVersion": "v2_1",
            "mode": "native",
            "flinkConfiguration": {"jobmanager.scheduler": "adaptive"},
            "job": {"jarURI": "local:///job.jar", "state": "running", "upgradeMode": "last-state"},
        }
        reconciled = {"spec": spec, "resource_metadata": {"metadata": {"generation": 1}}}
        return {
            "apiVersion": "flink.apache.org/v1beta1",
            "kind": "FlinkDeployment",
            "metadata": {
                "name": name,
                "namespace": NAMESPACE,
                "labels": dict([SELECTOR.split("=")]),
                "resourceVersion": "1",
                "generation": 1,
            },
            "spec": spec,
            "status": {
                "lifecycleState": "STABLE",
                "observedGeneration": 1,
                "jobStatus": {
                    "jobId": name,
                    "state": "RUNNING",
                    "startTime": str(round(self._since_s * 1000)),
                },
                "reconciliationStatus": {
                    "state": "DEPLOYED",
                    "lastReconciledSpec": json.dumps(reconciled),
                },
            },
        }

    def series(self, query: str, until_s: float) -> list[str]:
        """Select the series of a range selector, as JSON texts."""
        span_s = float(re.search(r"\[(\d+)ms\]", query)[1]) / 1000  # type: ignore[index]  # its own client asks
        first = int((until_s - span_s) // SAMPLE_S) + 1
        at = [n * SAMPLE_S for n in range(first, int(until_s // SAMPLE_S) + 1)]
        names, job = _selected(query, "__name__"), _selected(query, "job_id")
        if job:
            return [
                text
                for vertex, count in self._tasks.items()
                for subtask in range(count)
                for text in self._of_task(names, job, vertex, subtask, at)
            ]
        host = _selected(query, "tm_id")
        return [
            _text({"__name__": name, "tm_id": host}, _values(at, 0.0, 0.5, 0.0))
            for name in (
                f"flink_taskmanager_{re.sub(r'[^a-zA-Z0-9]', '_', n)}" for n in _OF_TASKMANAGERS
            )
            if host and re.fullmatch(names, name)
        ]

    def _of_task(
        self, names: str, job: str, vertex: str, subtask: int, at: list[float]
    ) -> Iterator[str]:
        labels = {
            "job_id": job,
            "tm_id": f"{job}-tm",
            "task_id": vertex,
            "task_name": vertex,
            "subtask_index": str(subtask),
        }
        for name in _known(names):
            per_s, steady = _PER_S.get(name, 0.0), _STEADY.get(name, 0.0)
            whole = {"__name__": f"flink_taskmanager_job_task_{name}", **labels}
            yield _text(whole, _values(at, per_s, steady, self._since_s))


@lru_cache(maxsize=64)
def _known(names: str) -> tuple[str, ...]:
    """List the metrics of tasks that a pattern names."""
    known = [*_PER_S, *_STEADY]
    return tuple(n for n in known if re.fullmatch(names, f"flink_taskmanager_job_task_{n}"))


@lru_cache(maxsize=1024)
def _selected(query: str, label: str) -> str:
    """Read the pattern of a label in a selector; empty without one."""
    found = re.search(rf'[{{,]{label}=~("(?:[^"\\]|\\.)*")', query)
    return "" if found is None else re.sub(r"\\(?=-)", "", str(json.loads(found[1])))


def _values(at: list[float], per_s: float, steady: float, since_s: float) -> str:
    pairs = (f'[{t},"{per_s * (t - since_s) + steady:.1f}"]' for t in at)
    return f"[{','.join(pairs)}]"


def _text(labels: dict[str, str], values: str) -> str:
    return f'{{"metric":{json.dumps(labels)},"values":{values}}}'


def _framed(series: list[str]) -> bytes:
    inside = ",".join(series)
    head = '{"status":"success","data":{"resultType":"matrix","result":['
    return f"{head}{inside}]}}}}".encode()
