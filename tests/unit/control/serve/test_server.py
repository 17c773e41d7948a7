"""The HTTP server: its routes, its authorization and its bounds."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from urllib.parse import urlsplit

import pytest

from agents.planning.policy import MdpPolicy
from agents.trained import TrainedPolicy
from dsp_gym import redaction
from dsp_gym.control.config import RunConfig
from dsp_gym.control.serve import session as session_module
from dsp_gym.control.serve.decide import Decisions
from dsp_gym.control.serve.liveness import Liveness
from dsp_gym.control.serve.status import StatusBoard
from dsp_gym.control.serve.tokens import read_tokens
from dsp_gym.errors import ConfigError, FlinkError
from dsp_gym.loop.wire import decision_from_json, snapshot_from_json, snapshot_to_json
from tests.unit.control.serve.conftest import TOKEN, ask, session_of
from tests.unit.control.serve.malformed import MALFORMED

SHOWN = {"Authorization": f"Bearer {TOKEN}"}


def snapshots(session, n):
    """Snapshots of the simulated job, one per minute."""
    found = []
    for _ in range(n):
        session.run.backend.advance(60)
        found.append(snapshot_to_json(session.run.backend.collector.snapshot().job(0)))
    return found


def decide(session, document, query="", headers=SHOWN):
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    return ask(f"{session.server.url}/v1/decide{query}", body, headers)


def test_liveness_is_the_loops_and_readiness_the_jobs(serving, monkeypatch):
    session = serving()
    probes = session.server.probe_url
    assert ask(f"{probes}/healthz").status == 200
    assert ask(f"{probes}/readyz").status == 503
    session.run.turn()
    assert ask(f"{probes}/readyz").status == 200

    def refuses():
        raise FlinkError("http://prometheus: Prometheus did not answer within 5 s")

    monkeypatch.setattr(session.run.backend.collector, "snapshot", refuses)
    session.run.turn()
    ready = ask(f"{probes}/readyz")
    assert ready.status == 503
    assert "did not answer" in ready.text
    assert ask(f"{probes}/healthz").status == 200


def test_a_loop_that_stands_still_is_not_alive_within_two_intervals(serving):
    session = serving()
    now_s = [1000.0]
    board = StatusBoard(session.run, clock=lambda: now_s[0])
    session.server.boards.put(session.run.writer.job, board)
    session.server.liveness = Liveness(30.0, look_s=20.0, turn_s=59.0)
    probe = f"{session.server.probe_url}/healthz"
    board.decided(session.run.turn())
    now_s[0] += 59
    assert ask(probe).status == 200
    now_s[0] += 2
    dead = ask(probe)
    assert dead.status == 503
    assert "hangs: no sign of life for 61 s, expected one within 60 s" in dead.text
    assert ask(f"{session.server.probe_url}/readyz").status == 503
    for sign in (lambda: board.decided(session.run.turn()), board.passed):
        sign()
        assert ask(probe).status == 200
        now_s[0] += 61


@pytest.mark.parametrize(
    ("given", "loops", "expected_s"),
    [
        ({}, 1, 120.0),  # two intervals of 60 s
        ({}, 16, 120.0),
        ({}, 17, 60 + 72 + 20),  # one waits for a thread until another's turn has ended
        ({"interval_s": 5}, 1, 72.0),  # 4 answers of two looks, 2 of the platform, 4 policies
        ({"interval_s": 5, "where": {"timeout_s": 1.0}}, 1, 6 + 12),
        ({"interval_s": 60, "where": {"timeout_s": 60.0}}, 1, 6 * 60 + 12),
        ({"decide_timeout_s": 39.0}, 1, 60 + 4 * 40),
    ],
)
def test_a_loop_may_be_silent_as_long_as_its_time_limits_take(given, loops, expected_s):
    policies = ["ds2", "justin", "flink-autoscaler", "incumbent"]
    config = RunConfig.model_validate({"job": "nexmark-q11", "policies": policies, **given})
    assert Liveness.of(config).longest_s(loops) == expected_s


def test_a_job_without_a_decision_for_two_intervals_is_not_seen(serving):
    session = serving()
    now_s = [1000.0]
    board = StatusBoard(session.run, clock=lambda: now_s[0])
    session.server.boards.put(session.run.writer.job, board)
    board.decided(session.run.turn())
    now_s[0] += 2 * 30 - 1
    assert ask(f"{session.server.probe_url}/readyz").status == 200
    now_s[0] += 2
    ready = ask(f"{session.server.probe_url}/readyz")
    assert (ready.status, ready.text) == (503, "Silent: no decision was made for 61 s\n")
    assert ask(f"{session.server.probe_url}/healthz").status == 200
    metrics = session.server.exporter.text().decode()
    (ready_line,) = [one for one in metrics.splitlines() if 'condition="Ready"' in one]
    assert ready_line.endswith(" 0.0")


def test_the_status_is_json_and_the_page_is_closed_to_other_origins(serving):
    session = serving()
    session.run.run(steps=3)
    status = ask(f"{session.server.url}/v1/status")
    assert status.json == json.loads(json.dumps(session.board.document()))
    page = ask(f"{session.server.url}/")
    assert page.status == 200
    assert "default-src 'none'" in page.headers["Content-Security-Policy"]
    assert "Access-Control-Allow-Origin" not in page.headers
    assert ask(f"{session.server.url}/elsewhere").status == 404
    head = ask(f"{session.server.url}/v1/status", method="HEAD")
    assert (head.status, head.text) == (200, "")
    assert ask(f"{session.server.url}/v1/status", b"{}", SHOWN, method="DELETE").status == 405


def test_decisions_are_those_of_the_policy_on_the_same_history(serving):
    session = serving(guardrails=None)
    seen = snapshots(session, 8)
    answers = [decide(session, document, "?policy=ds2").json for document in seen]
    from dsp_gym.policies.registry import make

    alone = make("ds2-local")
    for document, answer in zip(seen, answers, strict=True):
        snapshot = snapshot_from_json([document])
        if document is seen[0]:
            alone.reset(snapshot.topology, [0])
        there = decision_from_json([answer], snapshot.topology)
        expected = alone.decide(snapshot)
        assert there.parallelism.tolist() == expected.parallelism.tolist()
        assert answer["schema"] == "dsp-gym/decision/1"
        assert answer["t_s"] == document["t_s"]


def test_the_loops_own_policies_do_not_notice(serving):
    session = serving()
    session.run.run(steps=3)
    before = session.run.policies[1].policy.state()
    for document in snapshots(session, 3):
        assert decide(session, document).status == 200
    assert session.run.policies[1].policy.state() == before


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"Authorization": f"Basic {TOKEN}"}, 401),
        ({"Authorization": f"Bearer {TOKEN}x"}, 401),
        ({"Authorization": "Bearer"}, 401),
        ({"Authorization": f"bearer {TOKEN}"}, 200),
    ],
)
def test_only_whoever_shows_the_token_gets_decisions(serving, headers, status):
    session = serving()
    answer = decide(session, snapshots(session, 1)[0], headers=headers)
    assert answer.status == status


def test_without_a_token_there_are_no_decisions_for_anybody(serving):
    session = serving(serve={"port": 0})
    assert decide(session, snapshots(session, 1)[0]).status == 403


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        (b"{", 400, "not valid JSON"),
        (b"[" * 100_000, 400, "not valid JSON"),
        (b"[]", 400, "expected a JSON object"),
        (b'{"schema": "dsp-gym/snapshot/9"}', 400, "dsp-gym/snapshot/1"),
        (b"\xff\xfe", 400, "not valid JSON"),
        (b"x" * 300_000, 413, "262144 are the most"),
    ],
)
def test_what_is_no_snapshot_is_refused_with_the_reason(serving, body, status, says):
    answer = decide(serving(), body)
    assert answer.status == status
    assert says in answer.json["error"]


def test_a_snapshot_out_of_order_and_an_unknown_policy_are_refused(serving):
    session = serving()
    first, second = snapshots(session, 2)
    assert decide(session, second).status == 200
    late = decide(session, first)
    assert late.status == 400
    assert "does not follow" in late.json["error"]
    unknown = decide(session, second, "?policy=ds3")
    assert unknown.status == 404
    assert "Did you mean 'ds2'" in unknown.json["error"]


def test_a_body_that_does_not_come_is_not_waited_for(serving):
    session = serving(timeout_s=0.3)
    parts = urlsplit(session.server.url)
    with socket.create_connection((parts.hostname, parts.port), timeout=10) as link:
        head = f"POST /v1/decide HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {TOKEN}\r\n"
        link.sendall(f"{head}Content-Length: 50\r\n\r\n{{".encode())
        begun = time.monotonic()
        answer = http.client.HTTPResponse(link)
        answer.begin()
        assert answer.status == 408
        assert time.monotonic() - begun < 5
        answer.close()


def test_a_request_that_says_nothing_is_closed(serving):
    session = serving(timeout_s=0.3)
    parts = urlsplit(session.server.url)
    with socket.create_connection((parts.hostname, parts.port), timeout=10) as link:
        link.sendall(b"GET /v1/sta")
        assert link.recv(100) == b""
    assert ask(f"{session.server.probe_url}/healthz").status == 200


def test_a_body_without_a_length_is_refused(serving):
    session = serving()
    parts = urlsplit(session.server.url)
    link = http.client.HTTPConnection(parts.hostname, parts.port, timeout=10)
    link.request("POST", "/v1/decide", body=iter([b"{}"]), headers=SHOWN, encode_chunked=True)
    assert link.getresponse().status == 411
    link.close()


def test_many_at_once_are_served_or_turned_away_and_it_goes_on(serving):
    session = serving()
    (document,) = snapshots(session, 1)
    statuses = []

    def client(number):
        body = {**document, "job": f"job-{number}"}
        statuses.append(decide(session, body).status)

    threads = [threading.Thread(target=client, args=(n,)) for n in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(statuses) <= {200, 429}
    assert 200 in statuses
    assert decide(session, {**document, "job": "later"}).status == 200


class _Occupied(ThreadPoolExecutor):
    """Threads that get to no plan before the next request does."""

    def submit(self, plan, /):
        return Future()


def test_a_request_that_comes_while_its_policy_plans_waits_and_the_others_do_not(
    serving, monkeypatch
):
    monkeypatch.setattr(session_module, "ThreadPoolExecutor", _Occupied)
    session = serving(policies=["ds2", "planner"])
    (document,) = snapshots(session, 1)
    planning, let_go, answered_by = threading.Event(), threading.Event(), []
    plan, decided = MdpPolicy.plan, MdpPolicy.decide

    def held_up(self, snapshot):
        planning.set()
        assert let_go.wait(10)
        plan(self, snapshot)

    def told(self, snapshot):
        answered_by.append(threading.current_thread().name)
        return decided(self, snapshot)

    monkeypatch.setattr(MdpPolicy, "plan", held_up)
    monkeypatch.setattr(MdpPolicy, "decide", told)

    def asked(job, t_s):
        metrics = {**document["metrics"], "counted_s": t_s - 5}
        moment = {"job": job, "t_s": t_s, "metrics": metrics}
        answer = decide(session, {**document, **moment}, "?policy=planner")
        answered_by.append(answer.status)

    begun_s = document["t_s"]
    for job in ("one", "other"):
        for minute in range(3):
            asked(job, begun_s + 60 * minute)
    answered_by.clear()
    asked("one", begun_s + 3900)
    waits = threading.Thread(target=asked, args=("one", begun_s + 3960))
    waits.start()
    assert planning.wait(10)
    asked("other", begun_s + 180)
    assert answered_by == ["dsp-gym http", 200] * 2
    assert waits.is_alive()
    let_go.set()
    waits.join(10)
    assert answered_by == ["dsp-gym http", 200] * 3


def test_a_fault_of_ours_while_a_request_waits_for_a_plan_is_an_answer(serving, monkeypatch):
    session = serving(policies=["ds2", "planner"])

    def fails(decisions, question):
        raise RuntimeError("a plan that cannot be looked for")

    monkeypatch.setattr(Decisions, "planned", fails)
    answer = decide(session, snapshots(session, 1)[0], "?policy=planner")
    assert answer.status == 500
    assert "a plan that cannot be looked for" in answer.json["error"]


def test_requests_without_a_thread_are_refused_and_take_no_place_from_later_ones(
    serving, monkeypatch
):
    monkeypatch.setattr("dsp_gym.control.serve.server.MOST_ASKED", 3)
    session = serving()
    (document,) = snapshots(session, 1)
    start = threading.Thread.start

    def refused(thread):
        if thread.name == "dsp-gym decide":
            raise RuntimeError("can't start new thread")
        start(thread)

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refused)
        for number in range(5):
            answer = decide(session, {**document, "job": f"job-{number}"})
            assert answer.status == 503
            assert "can't start new thread" in answer.json["error"]
    assert decide(session, document).status == 200


def test_a_slow_policy_answers_with_its_fallback_in_time(serving, monkeypatch):
    session = serving(decide_timeout_s=0.2)
    (document,) = snapshots(session, 1)
    assert decide(session, document, "?policy=network").status == 200
    let_go = threading.Event()
    monkeypatch.setattr(TrainedPolicy, "decide", lambda self, snapshot: let_go.wait(10))
    begun = time.monotonic()
    (document,) = snapshots(session, 1)
    answer = decide(session, document, "?policy=network")
    assert time.monotonic() - begun < 5
    let_go.set()
    assert answer.status == 200
    assert "late" in answer.json["reason"]


def test_the_interface_describes_itself(serving):
    session = serving()
    document = ask(f"{session.server.url}/v1/openapi.json").json
    assert document["openapi"].startswith("3.1")
    assert set(document["paths"]) == {
        "/metrics", "/v1/jobs", "/v1/status", "/v1/history", "/v1/twins", "/v1/openapi.json",
        "/v1/decide",
    }  # fmt: skip
    for path, methods in document["paths"].items():
        if "get" in methods:
            assert ask(f"{session.server.url}{path}").status == 200
    references = [part for part in str(document).split("'") if part.startswith("#/")]
    assert references
    for reference in references:
        found = document
        for key in reference.removeprefix("#/").split("/"):
            found = found[key]
    decide_ = document["paths"]["/v1/decide"]["post"]
    assert decide_["parameters"][0]["schema"]["enum"] == ["ds2", "network"]


def test_a_port_that_is_taken_is_a_message(serving, tmp_path):
    session = serving()
    port = urlsplit(session.server.url).port
    with pytest.raises(ConfigError, match=rf"127\.0\.0\.1:{port}.*--port 0"):
        serving(serve={"port": port}, journal=str(tmp_path / "other"))


@pytest.mark.parametrize(("text", "says"), [("short", "5 characters"), (None, "cannot be read")])
def test_a_token_file_that_is_no_use_is_a_message(tmp_path, text, says):
    file = tmp_path / "token"
    if text is not None:
        file.write_text(text)
        file.chmod(0o600)
    with pytest.raises(ConfigError, match=says):
        read_tokens(file)


def test_closing_it_ends_its_thread_and_frees_the_port(tmp_path):
    parts = None
    with session_of(tmp_path) as session:
        parts = urlsplit(session.server.url)
        ask(f"{session.server.probe_url}/healthz")
    names = [thread.name for thread in threading.enumerate()]
    assert not [name for name in names if name in ("dsp-gym http", "dsp-gym probes")]
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((parts.hostname, parts.port), timeout=1)


def test_malformed_requests_are_the_clients_fault_and_it_goes_on(serving):
    session = serving()
    parts = urlsplit(session.server.url)
    statuses = {}
    for name, request in MALFORMED.items():
        with socket.create_connection((parts.hostname, parts.port), timeout=10) as link:
            link.sendall(request)
            answer = http.client.HTTPResponse(link)
            answer.begin()
            statuses[name] = answer.status
            answer.close()
    assert len(statuses) == 31
    assert {name: status for name, status in statuses.items() if not 400 <= status < 500} == {}
    assert decide(session, snapshots(session, 1)[0]).status == 200


def test_without_public_reading_asks_for_the_token_and_the_page_does_not(serving, tmp_path):
    token = tmp_path / "token"  # written by `config`
    session = serving(serve={"port": 0, "token_file": str(token)})
    url = session.server.url
    for path in ("metrics", "v1/jobs", "v1/status", "v1/openapi.json"):
        assert ask(f"{url}/{path}").status == 401
        assert ask(f"{url}/{path}", headers={"Authorization": "Bearer " + "x" * 32}).status == 401
        assert ask(f"{url}/{path}", headers=SHOWN).status == 200
    assert ask(f"{url}/").status == 200
    assert ask(f"{session.server.probe_url}/healthz").status == 200


def test_with_neither_token_nor_public_nothing_is_shown(serving):
    session = serving(serve={"port": 0})
    answer = ask(f"{session.server.url}/v1/status")
    assert answer.status == 403
    assert "--public" in answer.json["error"]


def test_only_our_names_are_answered_to(serving):
    session = serving(serve={"port": 0, "public": True, "hosts": ["dsp-gym.dsp-gym.svc"]})
    url = f"{session.server.url}/v1/status"
    for host in ("127.0.0.1", "[::1]:80", "localhost:8466", "DSP-gym.dsp-gym.svc:8080"):
        assert ask(url, headers={"Host": host}).status == 200
    for host in ("evil.example", "dsp-gym.dsp-gym.svc.evil.example", "localhost.evil.example"):
        assert ask(url, headers={"Host": host}).status == 421


def test_slow_clients_keep_neither_probes_nor_decisions_waiting(serving):
    session = serving()
    document, later = snapshots(session, 2)
    assert decide(session, document).status == 200
    parts = urlsplit(session.server.url)
    links = []
    try:
        for number in range(240):
            links.append(socket.create_connection((parts.hostname, parts.port), timeout=10))
            links[-1].sendall(b"GET /v1/status HTTP/1.1\r\nHost: 127.0.0.1\r\n"[: 6 + number % 40])
        begun = time.monotonic()
        assert ask(f"{session.server.probe_url}/healthz").status == 200
        assert time.monotonic() - begun < 1
        assert decide(session, later).status == 200
    finally:
        for link in links:
            link.close()


def test_a_token_that_everybody_can_read_is_refused(tmp_path):
    file = tmp_path / "token"
    file.write_text(TOKEN)
    file.chmod(0o644)
    with pytest.raises(ConfigError, match=r"mode is 644.*chmod 600"):
        read_tokens(file)
    file.chmod(0o640)  # as a volume of a Secret has it
    assert read_tokens(file).client(f"Bearer {TOKEN}") == "client 1"


def test_clients_with_tokens_of_their_own_have_names(tmp_path):
    file = tmp_path / "token"
    file.write_text(f"operator {TOKEN}\n\n{'b' * 16}\n")
    file.chmod(0o600)
    tokens = read_tokens(file)
    assert tokens.client(f"Bearer {TOKEN}") == "operator"
    assert tokens.client(f"Bearer {'b' * 16}") == "client 2"
    assert tokens.client(f"Bearer {'c' * 16}") is None
    file.write_text(f"operator {TOKEN}\nother {TOKEN}\n")
    with pytest.raises(ConfigError, match="the same token"):
        read_tokens(file)


def test_a_secret_in_an_address_is_seen_nowhere(serving, monkeypatch):
    session = serving()

    def refuses():
        raise RuntimeError("no answer from http://user:pa$$word@prometheus:9090/api?token=s3cr3t")

    monkeypatch.setattr(session.run.backend.collector, "snapshot", refuses)
    session.run.turn()
    url, probes = session.server.url, session.server.probe_url
    told = [ask(f"{url}/{path}").text for path in ("v1/status", "v1/jobs", "metrics")]
    told += [ask(f"{probes}/readyz").text]
    told += [file.read_text() for file in session.run.writer._journal.folder.glob("*.jsonl")]
    assert "***@prometheus:9090" in told[0]
    assert "***@prometheus:9090" in told[-1]
    for text in told:
        assert "word" not in text.replace("wordcount", "")
        assert "s3cr3t" not in text


def test_the_thread_that_listens_searches_no_text(serving, monkeypatch):
    session, searched = serving(), []
    known = redaction._without_accounts

    def noted(text):
        searched.append(threading.current_thread().name)
        return known(text)

    documents = [{**one, "job": "x://me:s3cr3t@host"} for one in snapshots(session, 4)]
    monkeypatch.setattr(redaction, "_without_accounts", noted)
    url, probes = session.server.url, session.server.probe_url
    answers = [decide(session, document) for document in documents]
    assert [answer.status for answer in answers] == [200] * 4
    assert not any("s3cr3t" in answer.text for answer in answers)
    assert searched
    ask(f"{url}/http://me:s3cr3t@host/")
    ask(f"{url}/v1/decide?policy=http://me:s3cr3t@host&enacts=http://a@b", b"{}", SHOWN)
    ask(f"{url}/v1/status?job=http://me:s3cr3t@host")
    ask(f"{probes}/http://me:s3cr3t@host")
    ask(f"{probes}/readyz")
    assert not {name for name in searched if name in ("dsp-gym http", "dsp-gym probes")}


def test_a_token_is_revoked_at_once_and_a_new_one_taken(tmp_path):
    file = tmp_path / "tokens"
    one, two, three = ("x" * 20, "y" * 20, "z" * 20)

    def write(text):
        file.write_text(text)
        file.chmod(0o600)

    write(f"{one}\n{two}\neu {three}\n")
    tokens = read_tokens(file)
    client = lambda token: tokens.client(f"Bearer {token}")  # noqa: E731
    assert [client(token) for token in (one, two, three)] == ["client 1", "client 2", "eu"]
    write(f"{two}\n{'n' * 20}\neu {'e' * 20}\n")
    assert client(one) is None
    assert client(three) is None
    assert client(two) == "client 2"  # under which its jobs are known
    assert client("e" * 20) == "eu"
    new = client("n" * 20)
    assert new not in ("client 1", "client 2", "eu", None)  # nobody else's jobs are its own
    write("short\n")
    assert client(two) is None
    file.unlink()
    assert client(two) is None
    write(f"{two}\n")
    assert client(two) is not None
