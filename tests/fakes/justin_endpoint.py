"""A fake of Justin's patched Flink: the REST calls an actuator needs, and his endpoint.

His Flink cannot be installed here, so its documented interface stands in: `GET` and
`PUT /jobs/:jobid/justin`, a map from vertex id to parallelism bounds and resource profile. Bodies
are checked as strictly as a JobManager that knows its classes would, and what was asked for comes
into effect after a while, during which no task runs.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MIB = 1024 * 1024
JOB_ID = "0123456789abcdef0123456789abcdef"
_PROFILE = {"cpuCores", "taskHeapMemory", "taskOffHeapMemory", "managedMemory", "networkMemory"}


class JustinCluster:
    """One job of `managed_mib` per subtask on TaskManagers of `process_mib`.

    Attributes:
        delay_s: seconds until what was asked for runs.
        heeds: False: it answers 200 and does nothing.
        refuses: it answers 400 to every PUT.
        silent: it breaks every connection.
        state: of the job.
        puts: bodies accepted, oldest first.
    """

    def __init__(
        self, parallelism: Mapping[str, int], managed_mib: int = 158, process_mib: int = 2048
    ) -> None:
        self.ids = {name: f"{number:032x}" for number, name in enumerate(parallelism, start=0xABC)}
        self.started_with = dict(parallelism)
        self.managed_mib = managed_mib
        self.process_mib = process_mib
        self.delay_s, self.slots_available = 0.05, 64
        self.heeds, self.refuses, self.silent, self.state = True, False, False, "RUNNING"
        self.puts: list[dict[str, Any]] = []
        self._stands = {
            vertex_id: {"parallelism": {"lowerBound": 1, "upperBound": parallelism[name]}}
            for name, vertex_id in self.ids.items()
        }
        self._runs = self._stands
        self._in_effect_at = 0.0

    def running(self, name: str) -> int:
        """Parallelism a vertex has now."""
        self._let_time_go_by()
        return int(self._runs[self.ids[name]]["parallelism"]["upperBound"])

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        """Status code and document."""
        self._let_time_go_by()
        if method == "PUT" and path == f"/jobs/{JOB_ID}/justin":
            return self._put(body)
        if method != "GET":
            return 405, {"errors": ["Method not allowed."]}
        found = self.documents().get(path)
        return (404, {"errors": ["Not found."]}) if found is None else (200, found)

    def _let_time_go_by(self) -> None:
        if time.monotonic() >= self._in_effect_at and self.heeds:
            self._runs = self._stands

    def _put(self, body: Any) -> tuple[int, Any]:
        if self.refuses:
            return 400, {"errors": ["Resource profile cannot be fulfilled."]}
        wrong = _what_is_wrong(body, set(self.ids.values()))
        if wrong:
            return 400, {"errors": [wrong]}
        self.puts.append(body)
        self._stands = body
        self._in_effect_at = time.monotonic() + self.delay_s
        return 200, {}

    def documents(self) -> dict[str, Any]:
        start_ms = 1_700_000_000_000
        managed = ",".join(f"{name}={self.managed_mib}" for name in self.ids)
        tasks = ",".join(f"{name}={p}" for name, p in self.started_with.items())
        user = {"parallelism": tasks, "managed-mib": managed, "slot-sharing": "per-vertex"}
        resource = {"managedMemory": 64 * 1024}
        subtask = {
            "start-time": start_ms, "status-duration": {"DEPLOYING": 200, "INITIALIZING": 1300}
        }  # fmt: skip
        return {
            "/jobs/overview": {
                "jobs": [
                    {"jid": JOB_ID, "name": "line", "state": self.state, "start-time": start_ms}
                ]
            },
            f"/jobs/{JOB_ID}": {"jid": JOB_ID, "name": "line", "state": self.state,
                                "timestamps": {"CREATED": start_ms},
                                "vertices": [self._vertex(name) for name in self.ids]},
            f"/jobs/{JOB_ID}/status": {"status": self.state},
            **{f"/jobs/{JOB_ID}/vertices/{vertex_id}": {"subtasks": [subtask]}
               for vertex_id in self.ids.values()},
            f"/jobs/{JOB_ID}/config": {"execution-config": {"user-config": user}},
            f"/jobs/{JOB_ID}/exceptions?maxExceptions=1": {"exceptionHistory": {"entries": []}},
            f"/jobs/{JOB_ID}/justin": self._stands,
            "/overview": {"slots-total": 72, "slots-available": self.slots_available},
            "/taskmanagers": {
                "taskmanagers": [
                    {
                        "freeResource": resource,
                        "totalResource": resource,
                        "slotsNumber": 72,
                        "memoryConfiguration": {"totalProcessMemory": self.process_mib * MIB},
                    }
                ]
            },
        }  # fmt: skip

    def _vertex(self, name: str) -> dict[str, Any]:
        p = int(self._runs[self.ids[name]]["parallelism"]["upperBound"])
        restarting = self.heeds and self._runs is not self._stands
        tasks = {"DEPLOYING": p} if restarting else {"RUNNING": p}
        return {"id": self.ids[name], "name": name, "parallelism": p, "tasks": tasks}


def _what_is_wrong(body: Any, vertex_ids: set[str]) -> str | None:
    if not isinstance(body, dict) or set(body) != vertex_ids:
        return "Every vertex of the job must be given, and no other."
    for part in body.values():
        if set(part) != {"parallelism", "resourceProfile"}:
            return "Unrecognized or missing field."
        bounds, profile = part["parallelism"], part["resourceProfile"]
        if set(bounds) != {"lowerBound", "upperBound"}:
            return "Unrecognized or missing bound."
        if not 1 <= bounds["lowerBound"] <= bounds["upperBound"]:
            return "Bounds must be 1 <= lower <= upper."
        if set(profile) != _PROFILE or profile["cpuCores"] != {
            "name": "CPU", "value": 1, "zero": False
        }:  # fmt: skip
            return "Resource profile cannot be read."
        if any(type(profile[key]["bytes"]) is not int for key in _PROFILE - {"cpuCores"}):
            return "Bytes must be whole."
    return None


@contextmanager
def served(cluster: JustinCluster) -> Iterator[str]:
    """The address at which the cluster answers."""

    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            body = json.loads(self.rfile.read(length)) if length else None
            if cluster.silent:
                self.close_connection = True
                return
            code, document = cluster.answer(self.command, self.path, body)
            text = json.dumps(document).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_PUT = do_POST = do_PATCH = _serve

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
