"""The parts of the nemesis: a schedule, links that fail, and checks that notice."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from dsp_gym.backends.flink.rest import FlinkRest
from dsp_gym.backends.kubernetes.api import KubernetesApi
from dsp_gym.backends.kubernetes.config import KubernetesPlace
from dsp_gym.backends.kubernetes.overrides import KEY, Override, text_of
from dsp_gym.backends.kubernetes.resources import DECISION, EPOCH, HOLDER
from dsp_gym.config.files import parse
from dsp_gym.errors import FlinkError, KubernetesError
from dsp_gym.job.spec import JobSpec
from dsp_gym.records.base import Body
from dsp_gym.records.journal import Journal
from tests.fakes.adaptive_job import AdaptiveJob, DirectRest
from tests.fakes.justin_endpoint import JustinCluster, served
from tests.fakes.kubernetes_api import FakeKubernetes, served_kubernetes
from tests.flink_resources import MAP, SINK, SOURCE, deployment
from tests.nemesis.checks import Writes, check_asked, check_increases, check_written
from tests.nemesis.journals import Tail
from tests.nemesis.links import PAGE, Link, Links
from tests.nemesis.pending import Account, Crash, Rotation
from tests.nemesis.program import stepped
from tests.nemesis.rivals import DirectRival, OperatedRival
from tests.nemesis.schedule import KINDS, Fault, round_of
from tests.nemesis.sinks import Ledger, Load, Violation
from tests.real_flink import WORD_COUNT


def test_a_round_follows_from_seed_and_number_alone():
    assert round_of(7, 12) == round_of(7, 12)
    rounds = [round_of(7, number) for number in range(1, 41)]
    assert len({one.faults for one in rounds}) == 40
    assert round_of(8, 12).faults != round_of(7, 12).faults
    for one in rounds:
        assert 1 <= len(one.faults) <= 3
        assert [f.at_s for f in one.faults] == sorted(f.at_s for f in one.faults)
        for fault in one.faults:
            assert fault.target in KINDS[fault.kind]
            assert 0 <= fault.at_s <= 4
            assert 1 <= fault.lasts_s <= 8
            if fault.kind == "token":
                assert 0 <= fault.value <= fault.lasts_s
            elif fault.kind == "crash":
                assert 0 <= fault.value <= 3


def test_every_kind_comes_up_in_as_many_rounds_as_there_are_kinds():
    for seed in range(20):
        numbers = range(1, len(KINDS) + 1)
        kinds = {f.kind for number in numbers for f in round_of(seed, number).faults}
        assert kinds == set(KINDS)


class TestLedger:
    @pytest.fixture
    def load(self) -> Load:
        return Load(epoch_s=int(time.time()) - 6, rate_per_s=1, on_s=3, off_s=100, lasts_s=50)

    @pytest.fixture
    def ledger(self, load, tmp_path) -> Ledger:
        return Ledger(tmp_path, load, words=2)

    def test_a_load_is_due_at_the_end_of_its_second_and_pauses(self, load):
        at = load.epoch_s
        assert [load.due(at + s) for s in (-5, 0, 1.5, 2, 3, 60)] == [1, 1, 2, 3, 3, 3]
        assert not load.pauses(at + 2.9, at + 3)
        assert load.pauses(at + 3, at + 9)

    def test_every_record_once_is_as_it_must_be(self, ledger, tmp_path):
        assert ledger.settled() == f"{tmp_path.name}: 0 of 6 records are written"
        (tmp_path / "part-a-0").write_text("(w1,1)\n(w1,2)\n(w2,1)\n")
        (tmp_path / ".part-b-0.inprogress.x").write_text("(w9,1)\n")
        assert "3 of 6" in ledger.settled()
        (tmp_path / "part-b-0").write_text("(w1,4)\n(w1,3)\n(w2,2)\n")
        assert ledger.settled() is None
        assert ledger.settled() is None

    def test_a_record_that_is_written_twice_is_found(self, ledger, tmp_path):
        (tmp_path / "part-a-0").write_text("(w1,1)\n(w1,2)\n")
        ledger.settled()
        (tmp_path / "part-b-0").write_text("(w1,2)\n")
        with pytest.raises(Violation, match=r"\(w1,2\) was written twice"):
            ledger.settled()

    def test_more_than_was_due_is_found(self, ledger, tmp_path):
        (tmp_path / "part-a-0").write_text("".join(f"(w1,{i})\n" for i in range(1, 8)))
        with pytest.raises(Violation, match="7 records written, 6 are due"):
            ledger.settled()

    def test_counts_with_gaps_are_found(self, ledger, tmp_path):
        (tmp_path / "part-a-0").write_text("".join(f"(w1,{i})\n" for i in (1, 2, 3, 4, 5, 7)))
        with pytest.raises(Violation, match="w1 have gaps"):
            ledger.settled()


class TestLinks:
    @pytest.fixture
    def echo(self) -> Iterator[str]:
        """A server that answers each line with itself."""
        listener = socket.create_server(("127.0.0.1", 0))

        def serve() -> None:
            while True:
                try:
                    one, _ = listener.accept()
                except OSError:
                    return
                threading.Thread(target=answer, args=(one,), daemon=True).start()

        def answer(one: socket.socket) -> None:
            with one, contextlib.suppress(ConnectionError):
                while data := one.recv(100):
                    heard.append(data)
                    one.sendall(data)

        heard: list[bytes] = []
        self.heard = heard
        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
        listener.close()

    @pytest.fixture
    def link(self, echo) -> Iterator[Link]:
        with Links() as links:
            yield links.to(echo)

    def connect(self, link: Link, timeout_s: float = 5.0) -> socket.socket:
        return socket.create_connection(("127.0.0.1", int(link.url.rpartition(":")[2])), timeout_s)

    def said(self, link: Link, text: bytes) -> bytes:
        """What comes back; empty where the connection breaks."""
        try:
            with self.connect(link) as one:
                one.sendall(text)
                return one.recv(100)
        except ConnectionError:
            return b""

    def test_an_open_link_forwards(self, link):
        assert self.said(link, b"hello") == b"hello"

    def test_a_cut_breaks_what_is_open_and_lets_nothing_through_until_it_is_mended(self, link):
        with self.connect(link) as one:
            one.sendall(b"a")
            assert one.recv(1) == b"a"
            link.become("cut")
            with pytest.raises(ConnectionError):
                one.recv(1)
        assert self.said(link, b"hello") == b""
        assert self.heard == [b"a"]
        link.become("open")
        assert self.said(link, b"hello") == b"hello"

    def test_what_is_held_arrives_in_the_end(self, link):
        link.become("hold")
        with self.connect(link, timeout_s=0.2) as one:
            one.sendall(b"hello")
            with pytest.raises(TimeoutError):
                one.recv(5)
            assert self.heard == []
            link.become("open")
            one.settimeout(5)
            assert one.recv(5) == b"hello"

    def test_a_delay_delays_both_ways(self, link):
        link.become("delay", 0.1)
        began = time.monotonic()
        assert self.said(link, b"hello") == b"hello"
        assert time.monotonic() - began >= 0.2

    def test_a_deaf_link_delivers_and_loses_the_answer(self, link):
        link.become("deaf")
        assert self.said(link, b"hello") == b""
        assert self.heard == [b"hello"]

    def test_answers_drip_until_the_link_is_mended(self, link):
        link.become("drip")
        with self.connect(link) as one:
            one.sendall(b"hello")
            assert one.recv(5) == b"h"
            one.settimeout(0.05)
            with pytest.raises(TimeoutError):
                one.recv(5)
            link.become("open")
            one.settimeout(5)
            assert one.recv(4, socket.MSG_WAITALL) == b"ello"

    def test_a_lying_link_delivers_and_answers_with_a_page(self, link):
        with self.connect(link) as one:
            one.sendall(b"hello")
            assert one.recv(5) == b"hello"
            link.become("lie")
            one.sendall(b"again")
            assert read_all(one) == PAGE
        assert self.heard == [b"hello", b"again"]

    def test_an_answer_ends_in_its_middle_in_order(self, link):
        link.become("close")
        with self.connect(link) as one:
            one.sendall(b"hello!")
            assert read_all(one) == b"hel"


def read_all(one: socket.socket) -> bytes:
    """What comes until the other end closes."""
    return b"".join(iter(lambda: one.recv(1000), b""))


class FakeReplica:
    """Notes when it is killed."""

    def __init__(self) -> None:
        self.again_s: list[float] = []
        self.starts, self.is_alive, self.restarts = 1, True, 0

    def kill(self, again_s: float) -> None:
        self.again_s.append(again_s)

    def restart(self) -> None:
        self.restarts += 1


class TestCrash:
    @pytest.fixture
    def tail(self, tmp_path) -> Tail:
        with Journal(tmp_path) as journal:
            journal.append("actuation", 1.0, "words", None, {"event": "asked"})
            journal.sync()
            self.journal = journal
            yield Tail(tmp_path)

    def crash(self, tail: Tail, value: float) -> tuple[FakeReplica, Crash]:
        replica = FakeReplica()
        return replica, Crash(replica, tail, Fault("crash", "direct", 0.0, 5.0, value))

    def begin_rescale(self) -> None:
        self.journal.append("actuation", 2.0, "words", None, {"event": "submitted"})
        self.journal.sync()

    def test_it_kills_in_the_next_rescale_and_once(self, tail):
        replica, crash = self.crash(tail, 0.0)
        crash.look()
        assert replica.again_s == []  # that rescale was begun before
        self.begin_rescale()
        crash.look()
        crash.look()
        crash.finish()
        assert replica.again_s == [pytest.approx(5.0, abs=1.0)]

    def test_it_waits_as_long_as_it_was_told_and_no_longer_than_the_fault(self, tail):
        replica, crash = self.crash(tail, 3.0)
        self.begin_rescale()
        crash.look()
        crash.look()
        assert replica.again_s == []
        crash.finish()
        assert len(replica.again_s) == 1


class TestRotation:
    def test_the_file_follows_the_server_after_a_while(self, tmp_path):
        fake = FakeKubernetes()
        old = fake.account("first")
        account = Account(fake, old, fake.kubeconfig(tmp_path / "config", old))
        rotation = Rotation(account, Fault("token", "first", 0.0, 5.0, 4.0))
        rotation.look()
        assert old not in fake.tokens
        assert old in account.file.read_text()
        rotation.finish()
        assert fake.tokens[account.token] == "first"
        assert f"token: {account.token}\n" in account.file.read_text()

    def test_a_token_that_is_written_at_once(self, tmp_path):
        fake = FakeKubernetes()
        token = fake.account("second")
        file = tmp_path / "token"
        file.write_text(token)
        account = Account(fake, token, file)
        Rotation(account, Fault("token", "second", 0.0, 5.0, 0.0)).look()
        assert file.read_text() == account.token != token


class TestRivals:
    """One of the resource; that of a plain Flink differs in where it writes."""

    NAMES = {SOURCE: "source", MAP: "flatmap", SINK: "count"}  # noqa: RUF012

    @pytest.fixture
    def fake(self) -> FakeKubernetes:
        fake = FakeKubernetes()
        fake.put(deployment("operated", {MAP: 2, SINK: 2}))
        return fake

    @pytest.fixture
    def replica(self) -> FakeReplica:
        return FakeReplica()

    @pytest.fixture
    def rival(self, fake, replica, tmp_path) -> Iterator[OperatedRival]:
        with Journal(tmp_path) as self.journal:
            yield OperatedRival(fake, self.NAMES, {"first": Tail(tmp_path)}, {"first": replica})

    def stamp(self, fake: FakeKubernetes, epoch: int, tasks: int | None = None) -> None:
        write(fake, tasks, "operated", epoch=str(epoch), holder="a", decision=f"d{epoch}")

    def act(self, rival: OperatedRival, fake: FakeKubernetes, epoch: int) -> None:
        """Take the lease, and decide twice."""
        self.stamp(fake, epoch)
        rival.tend()
        for _ in range(2):
            self.journal.append("decision", 1.0, "operated", "see-saw", {})
        self.journal.sync()

    def step(self, event: str, **body: object) -> None:
        self.journal.append("actuation", 1.0, "operated", None, {"event": event, **body})
        self.journal.sync()

    def overrides(self, fake: FakeKubernetes) -> dict[str, int]:
        options = fake.object("FlinkDeployment", "operated")["spec"]["flinkConfiguration"]
        return dict(Override.of(options).values)

    def test_it_waits_until_somebody_acts_and_no_change_is_under_way(self, rival, fake):
        assert not rival.write(4)
        self.stamp(fake, 1)
        assert not rival.write(4)
        self.act(rival, fake, 1)
        self.step("submitted")
        assert not rival.write(4)
        self.step("reached")
        assert rival.write(4)
        assert self.overrides(fake) == {SOURCE: 1, MAP: 4, SINK: 2}

    def test_it_must_be_named_and_then_somebody_is_started_again(self, rival, fake, replica):
        self.act(rival, fake, 1)
        assert rival.write(4)
        assert rival.missing() == "first has not named the rival, and been started again"
        assert rival.named() is None
        self.step("interference", seen_s=rival.writes[-1].wrote_s + 2.5)
        assert rival.named() == "first"
        assert rival.noticed_after_s(0.0) == pytest.approx(2.5)
        rival.restart("first")
        assert rival.missing() is None
        assert replica.restarts == 1

    def test_who_has_taken_over_since_need_not_name_it(self, rival, fake, replica):
        self.act(rival, fake, 1)
        assert rival.write(4)
        self.act(rival, fake, 2)
        assert rival.missing() is None
        assert rival.write(4)
        replica.starts += 1
        assert rival.missing() is None

    def test_a_change_after_it_was_named_is_found(self, rival, fake):
        self.act(rival, fake, 1)
        assert rival.write(4)
        self.step("interference", seen_s=1.0)
        self.step("refused")
        assert rival.named() == "first"
        self.step("submitted")
        with pytest.raises(Violation, match="first went on after the change of another"):
            rival.named()

    def test_a_write_over_it_in_the_same_term_is_found(self, rival, fake):
        writes = Writes(SimpleNamespace(server=fake))
        self.act(rival, fake, 1)
        self.stamp(fake, 1, tasks=3)
        assert rival.write(4)
        writes.take_in()
        assert writes.of_decision == {"d1": [{MAP: 3}]}
        self.stamp(fake, 1, tasks=2)
        with pytest.raises(Violation, match="wrote over the change of another controller"):
            writes.take_in()


def test_a_rival_of_a_plain_flink_puts_requirements(tmp_path):
    job = AdaptiveJob({"source": 4, "flatmap": 1, "count": 1})
    spec = parse(JobSpec, WORD_COUNT | {"job": "line"}, "line")
    with Journal(tmp_path) as journal:
        given = {"direct": Tail(tmp_path)}, {"direct": FakeReplica()}
        rival = DirectRival(DirectRest(job), spec, *given)
        rival.tend()
        assert not rival.write(3)  # nobody has looked yet
        for _ in range(2):
            journal.append("decision", 1.0, "line", "see-saw", {})
        journal.sync()
        assert rival.write(3)
    assert job.puts == [job.asking({"source": 4, "flatmap": 3, "count": 1})]
    assert rival.writes[-1].tasks == {"source": 4, "flatmap": 3, "count": 1}


TIMEOUT_S = 0.3


class TestClientsBehindLinks:
    """Those of the product: each question ends in time, as an error, and the next is answered."""

    @pytest.mark.parametrize("mode", ["drip", "lie", "close"])
    def test_a_question_to_flink(self, mode):
        with served(JustinCluster({"map": 1})) as url, Links() as links:
            link = links.to(url)
            rest = FlinkRest(link.url, TIMEOUT_S)
            self.check(link, mode, rest.jobs, FlinkError)

    @pytest.mark.parametrize("mode", ["drip", "lie", "close"])
    def test_a_question_to_the_api_server(self, mode, tmp_path):
        with served_kubernetes() as fake, Links() as links:
            fake.put(deployment("operated"))
            link = links.to(fake.url)
            file = fake.kubeconfig(tmp_path / "config", fake.account("first"))
            file.write_text(file.read_text().replace(fake.url, link.url))
            api = connected(file)
            self.check(link, mode, lambda: read(api), KubernetesError)

    def check(
        self, link: Link, mode: str, ask: Callable[[], object], error: type[Exception]
    ) -> None:
        ask()
        link.become(mode)
        began_s = time.monotonic()
        with pytest.raises(error):
            ask()
        assert time.monotonic() - began_s < 20 * TIMEOUT_S  # an answer would drip for minutes
        link.become("open")
        ask()

    @pytest.mark.parametrize("is_file", [False, True])
    def test_a_client_takes_a_new_token_up(self, is_file, tmp_path):
        with served_kubernetes() as fake:
            fake.put(deployment("operated"))
            token = fake.account("first")
            token_file = tmp_path / "token" if is_file else None
            file = fake.kubeconfig(tmp_path / "config", token, token_file=token_file)
            if token_file is not None:
                token_file.write_text(token)
            account = Account(fake, token, token_file or file)
            api = connected(file)
            read(api)
            rotation = Rotation(account, Fault("token", "first", 0.0, 5.0, 5.0))
            with pytest.raises(KubernetesError):
                read(api)
            rotation.finish()
            read(api)


def connected(file: Path) -> KubernetesApi:
    limits = {"timeout_s": TIMEOUT_S, "connect_timeout_s": TIMEOUT_S}
    return KubernetesApi.connect(KubernetesPlace(kubeconfig=file, name="operated", **limits))


def read(api: KubernetesApi) -> object:
    return api.get("FlinkDeployment", "jobs", "operated")


class TestWrites:
    @pytest.fixture
    def fake(self) -> FakeKubernetes:
        fake = FakeKubernetes()
        fake.put(deployment("words"))
        return fake

    def write(self, fake: FakeKubernetes, tasks: int | None, **stamp: str) -> None:
        write(fake, tasks, "words", **stamp)

    def test_each_write_is_noted_under_its_decision(self, fake):
        writes = Writes(SimpleNamespace(server=fake))
        self.write(fake, None, epoch="1", holder="a")
        self.write(fake, 2, epoch="1", holder="a", decision="x")
        writes.take_in()
        self.write(fake, 3, epoch="1", holder="a", decision="y")
        self.write(fake, None, epoch="2", holder="b", decision="y")
        self.write(fake, 4, epoch="2", holder="b", decision="y")
        writes.take_in()
        assert writes.epochs == [1, 2]
        assert writes.of_decision == {"x": [{MAP: 2}], "y": [{MAP: 3}, {MAP: 4}]}

    def test_an_epoch_that_does_not_rise_is_found(self, fake):
        self.write(fake, None, epoch="2", holder="a")
        self.write(fake, None, epoch="2", holder="b")
        with pytest.raises(Violation, match="the epoch went from"):
            Writes(SimpleNamespace(server=fake)).take_in()

    def test_a_write_over_the_stamp_of_another_is_found(self, fake):
        self.write(fake, None, epoch="1", holder="a")
        self.write(fake, 2, epoch="2", holder="b", decision="x")
        with pytest.raises(Violation, match="wrote over the stamp"):
            Writes(SimpleNamespace(server=fake)).take_in()

    def test_a_write_without_a_decision_is_found(self, fake):
        self.write(fake, None, epoch="1", holder="a")
        self.write(fake, 2, epoch="1", holder="a")
        with pytest.raises(Violation, match="without a decision"):
            Writes(SimpleNamespace(server=fake)).take_in()


def write(fake: FakeKubernetes, tasks: int | None, name: str, **stamp: str) -> None:
    """Write annotations, and tasks of the map unless they are None."""
    notes = {EPOCH: stamp["epoch"], HOLDER: stamp["holder"]}
    notes |= {DECISION: stamp["decision"]} if "decision" in stamp else {}

    def change(old: dict) -> dict:
        meta = old["metadata"] | {"annotations": notes}
        spec = old["spec"]
        if tasks is not None:
            options = spec["flinkConfiguration"] | {KEY: text_of({MAP: tasks})}
            spec = spec | {"flinkConfiguration": options}
        return old | {"metadata": meta, "spec": spec}

    resource = fake.resources["flinkdeployments"]
    fake.store.change(resource, "jobs", name, change, "test", of_status=False)


def test_a_decision_that_is_asked_twice_is_found():
    steps = [{"event": "asked", "decision": 3}, {"event": "asked", "decision": 7}]
    check_asked("first", steps)
    with pytest.raises(Violation, match="2 times for decision 7"):
        check_asked("first", [*steps, steps[1]])


def test_a_write_that_nobody_asked_for_or_that_is_made_twice_is_found():
    one, two, three = ({"map": tasks} for tasks in (1, 2, 3))
    intents = {"x": {"from": {"parallelism": one}, "to": {"parallelism": two}}}
    for fine in ([two], [two, one], [one]):
        check_written({"x": fine}, intents)
    for wrong in ([two, two], [two, one, two], [three]):
        with pytest.raises(Violation, match="decision x"):
            check_written({"x": wrong}, intents)
    with pytest.raises(Violation, match="in no journal"):
        check_written({"y": [two]}, intents)


def changed(event: str, before: int, after: int) -> Body:
    return {
        "event": event,
        "from": {"parallelism": {"map": before, "sink": 1}},
        "to": {"parallelism": {"map": after, "sink": 1}},
    }


def test_an_increase_that_is_taken_back_from_a_job_that_runs_is_found():
    up, back = changed("asked", 1, 2), changed("asked", 2, 1)
    rolled_back, restored = {"event": "rolled_back"}, {"event": "restored"}
    taken_back = [up, {"event": "reached"}, rolled_back, back]
    check_increases("first", taken_back, ["RUNNING", "RUNNING", "RESTARTING", "RUNNING"])
    check_increases("first", [up, back], ["RUNNING", "RUNNING"])  # as a policy may
    check_increases("first", [back, rolled_back, up], ["RUNNING"] * 3)  # a decrease
    for steps in (taken_back, [rolled_back, back], [up, rolled_back, restored]):
        with pytest.raises(Violation, match="first took an increase back"):
            check_increases("first", steps, ["RUNNING"] * len(steps))


def test_a_journal_is_read_on_and_anew_where_its_end_was_cut_off(tmp_path):
    tail = Tail(tmp_path)
    tail.take_in()
    with Journal(tmp_path) as journal:
        journal.append("actuation", 1.0, "words", None, {"event": "asked"})
        journal.append("snapshot", 1.0, "words", None, {"status": "RUNNING"})
        journal.append("error", 1.0, "words", None, {"reason": "x"})
        journal.sync()
        tail.take_in()
        assert (tail.steps, tail.kinds["error"]) == ([{"event": "asked"}], 1)
        journal.append("actuation", 2.0, "words", None, {"event": "reached"})
        journal.sync()
    tail.take_in()
    assert [step["event"] for step in tail.steps] == ["asked", "reached"]
    assert tail.statuses == ["", "RUNNING"]
    tail.check()
    (segment,) = tmp_path.glob("*.jsonl")
    lines = segment.read_bytes().splitlines(keepends=True)
    segment.write_bytes(b"".join(lines[:-1]))
    tail.take_in()
    assert [step["event"] for step in tail.steps] == ["asked"]


def test_a_clock_steps_as_its_file_says(tmp_path: Path):
    file = tmp_path / "clock"
    file.write_text("0.0")
    now = stepped(file, lambda: 100.0)
    assert now() == 100.0
    file.write_text("-30.5")
    time.sleep(0.06)
    assert now() == 69.5
