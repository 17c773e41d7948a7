"""A question ends at its deadline, whatever the server does; real sockets throughout."""

from __future__ import annotations

import socket
import threading
import time
from types import SimpleNamespace

import pytest

from dsp_gym.backends.flink.job import FlinkJob
from dsp_gym.backends.flink.prometheus import PrometheusSamples
from dsp_gym.backends.flink.rest import FlinkRest
from dsp_gym.backends.kubernetes.api import KubernetesApi
from dsp_gym.backends.kubernetes.config import KubernetesPlace
from dsp_gym.backends.kubernetes.watch import Watcher
from dsp_gym.backends.upstream.access import AccessConfig
from dsp_gym.backends.upstream.deadlines import UPSTREAMS, origin, within
from dsp_gym.backends.upstream.interpreter_turn import computing
from dsp_gym.backends.upstream.timed_calls import LateError, Worker, Workers, deadline
from dsp_gym.control.serve.scheduler import Scheduler
from dsp_gym.errors import FlinkError, KubernetesError, RegistryError
from dsp_gym.loop.snapshot import Status
from dsp_gym.trackers import mlflow
from tests.hanging import FAULTS, hanging
from tests.simulating import line

TIMEOUT_S = 0.25
MOST_S = TIMEOUT_S + 1.0


def kubeconfig(tmp_path, url):
    file = tmp_path / "kubeconfig"
    file.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: a\n"
        f"clusters: [{{name: a, cluster: {{server: '{url}'}}}}]\n"
        "contexts: [{name: a, context: {cluster: a, user: a}}]\n"
        "users: [{name: a, user: {token: abc}}]\n"
    )
    return file


def kubernetes_at(tmp_path, url):
    place = KubernetesPlace(
        kubeconfig=kubeconfig(tmp_path, url),
        name="words",
        timeout_s=TIMEOUT_S,
        connect_timeout_s=0.05,
        watch_s=1,
    )
    return KubernetesApi.connect(place)


def ask_flink(tmp_path, url):
    FlinkRest(url, TIMEOUT_S).jobs()


def ask_prometheus(tmp_path, url):
    job = SimpleNamespace(names=("a",), ids=("a1",), job_id="a1")
    PrometheusSamples(url, job, line(), TIMEOUT_S).samples(0.0, 100.0)


def ask_kubernetes(tmp_path, url):
    kubernetes_at(tmp_path, url).get("FlinkDeployment", "jobs", "words")


NOBODY = "http://127.0.0.1:9"
"""Nothing listens there, so that an answer is known at once."""


@pytest.fixture(scope="module", autouse=True)
def _loaded(tmp_path_factory):
    """Import what the first question of each kind imports: on a busy machine that takes seconds."""
    for ask in (ask_flink, ask_prometheus, ask_kubernetes):
        with pytest.raises((FlinkError, KubernetesError)):
            ask(tmp_path_factory.mktemp("first"), NOBODY)


def ends_soon(url):
    """The thread of a late question ends as soon as its caller has left."""
    until_s = time.monotonic() + 5
    while (late := UPSTREAMS.late().get(origin(url))) is not None and late.now:
        assert time.monotonic() < until_s
        time.sleep(0.01)


@pytest.mark.parametrize("ask", [ask_flink, ask_prometheus, ask_kubernetes])
@pytest.mark.parametrize("fault", FAULTS)
def test_every_question_ends_at_its_deadline(fault, ask, tmp_path):
    with hanging(fault) as url:
        begun = time.monotonic()
        with pytest.raises((FlinkError, KubernetesError)) as found:
            ask(tmp_path, url)
        assert time.monotonic() - begun < MOST_S
        assert url in str(found.value)
        assert found.value.reason in ("Timeout", "Unreachable", "Other")
        ends_soon(url)


@pytest.mark.parametrize("fault", FAULTS)
def test_one_look_at_a_job_has_one_deadline(fault):
    with hanging(fault) as url:
        job = FlinkJob(FlinkRest(url, TIMEOUT_S), "mine", line())
        begun = time.monotonic()
        seen = job.observe(1000.0)
        assert time.monotonic() - begun < MOST_S
        assert seen.status == Status.RESTARTING
        assert url in str(job.trouble)


def test_the_answers_of_one_block_share_its_deadline():
    with hanging("fine") as url:
        rest, begun = FlinkRest(url, 5.0), time.monotonic()
        rest.jobs()
        with deadline(0.2), pytest.raises(FlinkError, match="no answer in time"):
            for _ in iter(rest.jobs, None):
                pass
        assert time.monotonic() - begun < 1.5
        assert rest.jobs() == []  # outside of the block there is time again


def test_a_watch_that_drips_ends_when_the_server_should_have_ended_it(tmp_path):
    with hanging("chunks") as url:
        api = kubernetes_at(tmp_path, url)
        stream = api.watch("FlinkDeployment", namespace="jobs", since="1", timeout_s=1)
        stream._most_s = 0.3
        begun = time.monotonic()
        with pytest.raises(KubernetesError, match="no answer in time"):
            list(stream)
        assert time.monotonic() - begun < 1.3
        api.close()


def test_a_watcher_of_a_server_that_drips_says_so_and_ends(tmp_path):
    with hanging("body") as url:
        api = kubernetes_at(tmp_path, url)
        watcher = Watcher(api, "FlinkDeployment", "jobs", least_wait_s=0.01)
        until_s = time.monotonic() + 5
        while watcher.errors["Timeout"] < 2:
            assert time.monotonic() < until_s
            time.sleep(0.01)
        assert not watcher.wait(0)
        watcher.close()
        api.close()


def test_a_name_that_is_never_looked_up_costs_a_few_threads_which_are_counted(monkeypatch):
    let_go, known = threading.Event(), socket.getaddrinfo

    def looked_up(host, *args, **kwargs):
        if host == "127.0.0.1":
            return known(host, *args, **kwargs)
        return let_go.wait(10) and []

    monkeypatch.setattr(socket, "getaddrinfo", looked_up)
    url = "http://flink.silent-dns.example:8081"
    rest, refused = FlinkRest(url, 0.05), 0
    threads = threading.active_count()
    try:
        for _ in range(12):
            begun = time.monotonic()
            with pytest.raises(FlinkError, match="no answer in time") as found:
                rest.overview()
            assert time.monotonic() - begun < 1.05
            refused += "have not ended" in str(found.value)
        late = UPSTREAMS.late()[url]
        assert (late.now, late.ever, refused) == (4, 4, 8)
        assert threading.active_count() <= threads + 5
        with hanging("fine") as other:  # another server is asked as if nothing were
            assert FlinkRest(other, 5.0).jobs() == []
    finally:
        let_go.set()
    until_s = time.monotonic() + 5
    while UPSTREAMS.late()[url].now:
        assert time.monotonic() < until_s
        time.sleep(0.01)


def test_late_calls_are_few_in_all():
    workers, let_go = Workers(most=3), threading.Event()
    for number in range(5):
        with pytest.raises(LateError):
            workers.call(f"server {number}", lambda: let_go.wait(10), 0.01)
    assert sum(calls.now for calls in workers.late().values()) == 3
    let_go.set()


def test_many_questions_at_once_to_one_server_are_no_late_ones():
    begun, let_go = threading.Semaphore(0), threading.Event()

    def ask():
        begun.release()
        return let_go.wait(10)

    found: list[bool] = []
    threads = [
        threading.Thread(target=lambda: found.append(within("http://busy", 10.0, ask)))
        for _ in range(40)
    ]
    for thread in threads:
        thread.start()
    for _ in threads:
        assert begun.acquire(timeout=10)
    let_go.set()
    for thread in threads:
        thread.join(10)
    assert found == [True] * 40


class Turns:
    """A loop that looks at one job, as those of a fleet do."""

    def __init__(self, url, steps):
        self.job = FlinkJob(FlinkRest(url, TIMEOUT_S), "mine", line())
        self.left, self.over, self.took_s = steps, threading.Event(), []

    def step(self):
        begun = time.monotonic()
        with computing():
            self.job.observe(1000.0)
        self.took_s.append(time.monotonic() - begun)
        self.left -= 1
        if self.left == 0:
            self.over.set()
            return None
        return 0.01


@pytest.mark.flaky(reruns=1)  # other tests may have the processor at one of sixty turns
def test_the_server_of_one_job_holds_up_no_other_job():
    with hanging("headers") as bad, hanging("fine") as good:
        lanes, slow, quick = Scheduler(), [Turns(bad, 3) for _ in range(20)], Turns(good, 30)
        for loop in (*slow, quick):
            lanes.begin(loop)
        assert quick.over.wait(20)
        assert sorted(quick.took_s)[15] < TIMEOUT_S  # half of the turns take no time to speak of
        for loop in slow:
            assert loop.over.wait(30)
            assert max(loop.took_s) < MOST_S
        lanes.close()


def test_a_policy_that_waits_for_something_holds_up_no_other_job():
    begun, let_go, found = threading.Event(), threading.Event(), []

    def wait():
        begun.set()
        return let_go.wait(10)

    def turn():
        with computing():
            found.append(Worker("waits").call(wait, 10.0))

    thread = threading.Thread(target=turn)
    thread.start()
    assert begun.wait(10)
    with computing():  # in the middle of the other's turn
        let_go.set()
    thread.join(10)
    assert found == [True]


def test_a_tracking_server_that_drips_is_given_up(monkeypatch, tmp_path):
    monkeypatch.setattr(mlflow, "STORE_S", 0.3)
    mlflow.require()
    with pytest.raises(RegistryError):  # loads what the first pull imports
        mlflow.pull("models:/q11@champion", tmp_path / "policy", NOBODY)
    with hanging("headers") as url:
        begun = time.monotonic()
        with pytest.raises(RegistryError, match="did not answer in time"):
            mlflow.pull("models:/q11@champion", tmp_path / "policy", url)
        assert time.monotonic() - begun < 1.3


@pytest.mark.parametrize("way", ["tls", "proxy"])
def test_a_handshake_or_a_proxy_that_hangs_ends_at_the_deadline(way):
    with hanging("accept") as url:
        access = AccessConfig(proxy=url) if way == "proxy" else None
        target = "https://flink.example" if way == "proxy" else url.replace("http:", "https:")
        begun = time.monotonic()
        with pytest.raises(FlinkError, match="no answer in time"):
            FlinkRest(target, TIMEOUT_S, access).overview()
        assert time.monotonic() - begun < MOST_S
        ends_soon(target)
