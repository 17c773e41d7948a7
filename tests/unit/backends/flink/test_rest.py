"""Answers that no healthy Flink gives, from a small server; the rest is tested for real."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from dsp_gym.backends.flink.local.processes import free_ports
from dsp_gym.backends.flink.rest import FlinkRest
from dsp_gym.errors import FlinkError
from tests.answering import answering

Answers = dict[str, tuple[int, str]]


@pytest.fixture
def serve() -> Iterator[Callable[[Answers], FlinkRest]]:
    servers: list[ThreadingHTTPServer] = []

    def start(answers: Answers) -> FlinkRest:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, text = answers[self.path]
                self.send_response(status)
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, format: str, *args: object) -> None:
                return

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, args=[0.02], daemon=True).start()
        servers.append(server)
        return FlinkRest(f"http://127.0.0.1:{server.server_port}/")

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def jobs(*named: tuple[str, str, str]) -> str:
    listed = [{"jid": j, "name": n, "state": s, "start-time": 1500} for j, n, s in named]
    return json.dumps({"jobs": listed})


def test_the_one_job_that_has_not_ended_is_found_by_name(
    serve: Callable[[Answers], FlinkRest],
) -> None:
    answer = jobs(("1", "q5", "CANCELED"), ("2", "q5", "RESTARTING"), ("3", "q8", "RUNNING"),
                  ("4", "q8", "CREATED"), ("5", "q1", "FAILED"))  # fmt: skip
    rest = serve({"/jobs/overview": (200, answer)})
    found = rest.find_job("q5")
    assert (found.id, found.state, found.start_s) == ("2", "RESTARTING", 1.5)
    with pytest.raises(FlinkError, match=r"2 jobs are named 'q8': 3, 4\. Say which one by its id"):
        rest.find_job("q8")
    with pytest.raises(FlinkError, match=r"no job named 'q1' runs; running: q5, q8") as none:
        rest.find_job("q1")
    assert none.value.reason == "NotFound"


def test_an_error_names_address_status_and_root_cause(
    serve: Callable[[Answers], FlinkRest],
) -> None:
    trace = (
        "<Exception on server side:\norg.apache.flink.Outer: late\n\tat a.b\n"
        "Caused by: java.lang.IllegalArgumentException: --rate x: not a number\n\tat c.d\n\n"
        "End of exception on server side>"
    )
    rest = serve({
        "/a": (400, json.dumps({"errors": ["Internal server error.", trace]})),
        "/b": (404, json.dumps({"errors": ["org.x.NotFoundException: Job 12 not found"]})),
        "/c": (500, "<html>oops"),
        "/d": (503, ""),
    })  # fmt: skip
    with pytest.raises(
        FlinkError,
        match=r"GET http://127.0.0.1:\d+/a answered 400: IllegalArgumentException: --rate x: "
        r"not a number$",
    ):
        rest.get("/a")
    with pytest.raises(
        FlinkError, match=r"404: NotFoundException: Job 12 not found\. Flink forg"
    ) as gone:
        rest.get("/b")
    assert (gone.value.api, gone.value.reason) == ("flink", "NotFound")
    with pytest.raises(FlinkError, match="500: <html>oops") as broken:
        rest.get("/c")
    assert (broken.value.api, broken.value.reason) == ("flink", "Other")
    with pytest.raises(FlinkError, match=r"503: nothing\. The cluster is starting"):
        rest.get("/d")


def test_another_program_at_the_port_is_told(serve: Callable[[Answers], FlinkRest]) -> None:
    rest = serve({"/overview": (200, "<html>hello")})
    with pytest.raises(FlinkError, match="is not JSON: b'<html>hello'"):
        rest.overview()


def test_nobody_at_the_port_is_told_with_the_next_step() -> None:
    rest = FlinkRest(f"http://127.0.0.1:{free_ports(1)[0]}")
    with pytest.raises(FlinkError, match=r"Connection refused.*dsp-gym flink up") as down:
        rest.overview()
    assert (down.value.api, down.value.reason) == ("flink", "Unreachable")


def test_a_server_that_says_nothing_or_no_http_does_not_hold_us_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(FlinkError, match="no answer in time") as silent:
            FlinkRest(url, timeout_s=0.1).overview()
        assert silent.value.reason == "Timeout"
        server.accept()[0].close()

        def greet() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(b"220 mail.example.org\r\n")

        thread = threading.Thread(target=greet)
        thread.start()
        with pytest.raises(FlinkError, match=r"220 mail\.example\.org") as other:
            FlinkRest(url).overview()
        assert other.value.reason == "Other"
        thread.join()


def test_a_proxy_for_the_web_is_not_asked_for_this_machine(
    serve: Callable[[Answers], FlinkRest], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    assert serve({"/overview": (200, "{}")}).overview() == {}


def test_savepoints_are_under_way_done_or_failed(serve: Callable[[Answers], FlinkRest]) -> None:
    failure = {"class": "x.CompletionException", "stack-trace": "x.A: a\nCaused by: y.Disk: full"}
    rest = serve({
        "/jobs/j/savepoints/1": (200, '{"status": {"id": "IN_PROGRESS"}, "operation": null}'),
        "/jobs/j/savepoints/2": (
            200, '{"status": {"id": "COMPLETED"}, "operation": {"location": "file:/s"}}'
        ),
        "/jobs/j/savepoints/3": (
            200,
            json.dumps({"status": {"id": "COMPLETED"}, "operation": {"failure-cause": failure}}),
        ),
    })  # fmt: skip
    under_way, done, failed = (rest.savepoint("j", trigger) for trigger in "123")
    assert not under_way.done
    assert (done.done, done.location, done.failure) == (True, "file:/s", None)
    assert (failed.done, failed.location, failed.failure) == (True, None, "Disk: full")


@pytest.mark.parametrize(
    ("jar_id", "path"),
    [
        ("1_words.jar", "1_words.jar"),
        ("1_my job.jar", "1_my%20job.jar"),
        ("1_app#1.jar", "1_app%231.jar"),
        ("1_q?x.jar", "1_q%3Fx.jar"),
        ("1_100%.jar", "1_100%25.jar"),
        ("1_%41.jar", "1_%2541.jar"),
        ("1_b\u00fccher.jar", "1_b%C3%BCcher.jar"),
    ],
)
def test_a_jar_may_have_any_name(jar_id: str, path: str) -> None:
    plan = {"plan": {"name": "words", "nodes": [{"id": "a", "parallelism": 2}]}}
    with answering() as flink:
        flink.answers |= {f"/jars/{path}/run": {"jobid": "a1"}, f"/jars/{path}/plan": plan}
        rest = FlinkRest(flink.url)
        assert rest.run_program(jar_id, {}) == "a1"
        assert rest.plan(jar_id, {}).name == "words"


def test_a_jar_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(FlinkError, match=r"none\.jar: cannot be read"):
        FlinkRest().upload_jar(tmp_path / "none.jar")
