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
from urllib.parse import parse_qsl, urlsplit

from dsp_gym.metrics.flink import FLINK_METRICS

NAMESPACE, SELECTOR = "jobs", "team=bench"
SAMPLE_S = 5.0
READS = ("get", "list", "watch")

_TASK = "flink_taskmanager_job_task_"
_OF_TASKS = {
    _TASK + "accumulateBusyTimeMs": (300.0, 0.0),
    _TASK + "accumulateBackPressuredTimeMs": (0.0, 0.0),
    _TASK + "accumulateIdleTimeMs": (700.0, 0.0),
    _TASK + "numRecordsIn": (1000.0, 0.0),
    _TASK + "numRecordsOut": (1000.0, 0.0),
    _TASK + "busyTimeMsPerSecond": (0.0, 300.0),
    _TASK + "backPressuredTimeMsPerSecond": (0.0, 0.0),
    _TASK + "idleTimeMsPerSecond": (0.0, 700.0),
}
"""Metrics of every subtask: how much they rise in a second, and the constant they add to that."""

_OF_TASKMANAGERS = tuple(
    "flink_taskmanager_" + re.sub(r"[^a-zA-Z0-9]", "_", metric.flink[0])
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
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


def serve(jobs: int, tasks: dict[str, int]) -> None:
    """Print the address, and answer until the process is ended."""
    since_s = time.time() - 3600.0
    resources = {
        "metadata": {"resourceVersion": "1"},
        "items": [_resource(f"job-{n:03d}", since_s) for n in range(jobs)],
    }
    rules = {
        "resourceRules": [{"verbs": READS, "apiGroups": ["flink.apache.org"], "resources": ["*"]}],
        "incomplete": False,
    }

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            path, query = self._asked()
            if query.get("watch") == "true":
                self._hold(float(query.get("timeoutSeconds", 30)))
            else:
                self._answer(resources if path.startswith("/apis/flink") else {})

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            path, query = self._asked()
            if path.endswith("/api/v1/query"):
                self._send(_series(query["query"], float(query["time"]), tasks, since_s))
            elif path.endswith("/selfsubjectrulesreviews"):
                self._answer({"status": rules})
            else:
                asked = json.loads(body)["spec"]["resourceAttributes"]
                self._answer({"status": {"allowed": asked["verb"] in READS}})

        def _asked(self) -> tuple[str, dict[str, str]]:
            parts = urlsplit(self.path)
            return parts.path, dict(parse_qsl(parts.query))

        def _hold(self, seconds: float) -> None:
            """Hold a watch in which nothing happens."""
            self._begin("Connection", "close")
            time.sleep(seconds)
            self.close_connection = True

        def _answer(self, document: object) -> None:
            self._send(json.dumps(document).encode())

        def _send(self, body: bytes) -> None:
            self._begin("Content-Length", str(len(body)))
            self.wfile.write(body)

        def _begin(self, header: str, value: str) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header(header, value)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            return

    class Server(ThreadingHTTPServer):
        request_queue_size = 256

        def handle_error(self, *_: object) -> None:
            """Ignore a client that has left."""

    server = Server(("127.0.0.1", 0), Handler)
    sys.stdout.write(f"http://127.0.0.1:{server.server_address[1]}\n")
    sys.stdout.flush()
    server.serve_forever()


def _resource(name: str, since_s: float) -> dict[str, object]:
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
                "startTime": str(round(since_s * 1000)),
            },
            "reconciliationStatus": {
                "state": "DEPLOYED",
                "lastReconciledSpec": json.dumps(reconciled),
            },
        },
    }


def _series(query: str, until_s: float, tasks: dict[str, int], since_s: float) -> bytes:
    """Answer a range selector."""
    span_s = float(re.search(r"\[(\d+)ms\]", query)[1]) / 1000  # type: ignore[index]  # its own client asks
    first = int((until_s - span_s) // SAMPLE_S) + 1
    at = [n * SAMPLE_S for n in range(first, int(until_s // SAMPLE_S) + 1)]
    names, job = _selected(query, "__name__"), _selected(query, "job_id")
    host = _selected(query, "tm_id")
    of_tasks = [
        _text(
            {
                "__name__": name,
                "job_id": job,
                "tm_id": f"{job}-tm",
                "task_id": vertex,
                "task_name": vertex,
                "subtask_index": str(subtask),
            },
            [per_s * (t - since_s) + steady for t in at],
            at,
        )
        for vertex, count in tasks.items()
        for subtask in range(count)
        for name, (per_s, steady) in _known(names)
        if job
    ]
    of_hosts = [
        _text({"__name__": name, "tm_id": host}, [0.5] * len(at), at)
        for name in _OF_TASKMANAGERS
        if host and not job and re.fullmatch(names, name)
    ]
    series = ",".join(of_tasks + of_hosts)
    head = '{"status":"success","data":{"resultType":"matrix","result":['
    return f"{head}{series}]}}}}".encode()


@lru_cache(maxsize=64)
def _known(names: str) -> list[tuple[str, tuple[float, float]]]:
    """List the metrics of tasks that a pattern names, each with its rise and its constant."""
    return [item for item in _OF_TASKS.items() if re.fullmatch(names, item[0])]


@lru_cache(maxsize=1024)
def _selected(query: str, label: str) -> str:
    """Read the pattern of a label in a selector; empty without one."""
    found = re.search(rf'[{{,]{label}=~("(?:[^"\\]|\\.)*")', query)
    return "" if found is None else re.sub(r"\\(?=-)", "", str(json.loads(found[1])))


def _text(labels: dict[str, str], values: list[float], at: list[float]) -> str:
    pairs = ",".join(f'[{t},"{value:.1f}"]' for t, value in zip(at, values, strict=True))
    return f'{{"metric":{json.dumps(labels)},"values":[{pairs}]}}'
