"""A link to a real Prometheus whose answers may be late, old, partial or NaN."""

from __future__ import annotations

import json
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal

__all__ = ["FAULTS", "Fault", "PrometheusLink", "linked_to"]

Fault = Literal["slow", "stale", "partial", "torn", "nan", "gone"]

FAULTS: tuple[Fault, ...] = ("slow", "stale", "partial", "torn", "nan", "gone")
"""slow: later than the process waits; stale: as of an hour ago; partial: without one vertex;
torn: half a document; nan: every value is; gone: an error of the server."""

_OLD_S = 3600.0


class PrometheusLink:
    """Forwards queries to a Prometheus.

    Args:
        target: its address.
        late_s: how late a slow answer is, s.
        vertex: which one a partial answer lacks.
    """

    def __init__(self, target: str, late_s: float, vertex: str) -> None:
        self.target, self.late_s, self.vertex = target.rstrip("/"), late_s, vertex
        self.fault: Fault | None = None
        self.url = ""

    def answer(self, path: str, form: str = "") -> tuple[int, bytes]:
        """What the Prometheus says, or what is left of it."""
        fault = self.fault
        if fault == "gone":
            return 503, b"Service Unavailable"
        if fault == "slow":
            time.sleep(self.late_s)
        parts = urllib.parse.urlsplit(path)
        query = dict(urllib.parse.parse_qsl(f"{parts.query}&{form}"))
        if fault == "stale" and "time" in query:
            query["time"] = f"{float(query['time']) - _OLD_S:.3f}"
        asked = f"{self.target}{parts.path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(asked, timeout=10) as got:
            text = got.read()
        if fault == "torn":
            return 200, text[: len(text) // 2]
        if fault in ("partial", "nan"):
            return 200, json.dumps(self._changed(json.loads(text), fault)).encode()
        return 200, text

    def _changed(self, document: dict[str, Any], fault: Fault) -> dict[str, Any]:
        series = document["data"]["result"]
        if fault == "partial":
            kept = [one for one in series if self.vertex not in one["metric"].get("task_name", "")]
            document["data"]["result"] = kept
        else:
            for one in series:
                one["values"] = [[at, "NaN"] for at, _ in one["values"]]
        return document


@contextmanager
def linked_to(target: str, late_s: float, vertex: str) -> Iterator[PrometheusLink]:
    """A link on a free port, for as long as the context lasts."""
    link = PrometheusLink(target, late_s, vertex)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            try:
                length = int(self.headers.get("Content-Length") or 0)
                status, body = link.answer(self.path, self.rfile.read(length).decode())
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
            except OSError:
                return  # whoever asked did not wait

        do_POST = do_GET

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    link.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield link
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
