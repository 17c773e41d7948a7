"""A real Flink and Prometheus, an API server with an operator, and three processes of dsp-gym."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from dsp_gym.backends.flink.local.cluster import LocalCluster
from dsp_gym.backends.flink.local.settings import ClusterSettings
from dsp_gym.backends.flink.rest import FlinkRest
from dsp_gym.backends.flink.submission import Configuration, Submission, load_arguments
from dsp_gym.backends.kubernetes.overrides import Override
from dsp_gym.config.files import parse
from dsp_gym.errors import FlinkError
from dsp_gym.job.spec import JobSpec
from tests.fakes.kubernetes_api import FakeKubernetes, only_override, served_kubernetes
from tests.flink_resources import deployment
from tests.nemesis.journals import Tail
from tests.nemesis.links import Link, Links
from tests.nemesis.operating import OperatedJob, PatientOperator, Person, is_left_to_dsp_gym
from tests.nemesis.pending import Account, Pending
from tests.nemesis.policy import offered_in
from tests.nemesis.replicas import ROOT, Replica
from tests.nemesis.rivals import DirectRival, OperatedRival, Rival
from tests.nemesis.schedule import LINKS, Fault
from tests.nemesis.sinks import Ledger, Load
from tests.real_flink import SMALL_SEGMENT_KIB, WORD_COUNT, WORDS, short_lived_jvms

__all__ = ["World", "world"]

JOBS = ("direct", "operated")
RATE_PER_S, ON_S, OFF_S = 60, 3, 5
RIGHTS = {"flinkdeployments": ("get", "list", "watch", "patch"),
          "leases": ("get", "create", "update"), "events": ("create",)}  # fmt: skip
SETTINGS: dict[str, Any] = {
    "slots": 14, "managed_mib": 14 * 16, "task_heap_mib": 256, "network_mib": 96,
    "rest_port": 0, "prometheus_port": 0, "scrape_interval_s": 2, "metric_fetch_s": 1,
    "network_segment_kib": SMALL_SEGMENT_KIB, "scheduler": "adaptive",
    "checkpoint_interval_s": 1, "restart_delay_s": 0.5, "restart_attempts": 100_000,
}  # fmt: skip
PERSON_LOOKS_S = 1.0
RIVAL_TIMEOUT_S = 1.0
START_TRIES = 4


@dataclass
class World:
    """All that the nemesis acts on; it is ended with the context that made it."""

    home: Path
    cluster: LocalCluster
    server: FakeKubernetes
    operated: OperatedJob
    specs: dict[str, JobSpec]
    people: dict[str, Person]
    ledgers: dict[str, Ledger]
    links: dict[str, Link]
    accounts: dict[str, Account]
    replicas: dict[str, Replica]
    tails: dict[str, Tail]
    rivals: dict[str, Rival]
    pause_file: Path
    pending: dict[Fault, Pending] = field(default_factory=dict)
    _starting: list[threading.Thread] = field(default_factory=list)
    _ending: threading.Event = field(default_factory=threading.Event)
    _watch: threading.Thread | None = None

    def begin(self) -> None:
        """Let people look after the jobs from now on."""
        self._watch = threading.Thread(target=self._look_after_jobs, name="people")
        self._watch.start()

    def tend(self) -> None:
        """Start processes of dsp-gym that have ended, as a kubelet would; let faults come about."""
        for replica in self.replicas.values():
            replica.tend()
        for rival in self.rivals.values():
            rival.tend()
        for one in self.pending.values():
            one.look()

    def answer_rivals(self) -> bool:
        """Start each process anew that has named another controller; whether there was one."""
        found = False
        for rival in self.rivals.values():
            if (name := rival.named()) is not None:
                self.note(f"{name} is started again: it has named a rival")
                rival.restart(name)
                found = True
        return found

    def note(self, line: str) -> None:
        """Write a line to the log of the nemesis."""
        with (self.home / "nemesis.log").open("a") as log:
            log.write(f"{time.time():.2f} {line}\n")

    def signal(self, part: str, number: signal.Signals) -> None:
        """Send a signal to a part of the cluster, if it runs."""
        pid = self.cluster.pid(part)
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def start_parts(self) -> None:
        """Start the parts of the cluster that are down; in a thread, for it takes a while."""

        def start() -> None:
            with contextlib.suppress(FlinkError), short_lived_jvms():
                LocalCluster.up(home=self.cluster.home.folder)

        thread = threading.Thread(target=start, name="start")
        thread.start()
        self._starting.append(thread)

    def wait_for_parts(self) -> None:
        """Wait until every part runs; what did not come up beside a fault is started again."""
        for _ in range(START_TRIES):
            for thread in self._starting:
                thread.join()
            self._starting.clear()
            if all(self.cluster.pid(part) is not None for part in self.cluster.parts):
                return
            self.start_parts()

    def _look_after_jobs(self) -> None:
        while not self._ending.wait(PERSON_LOOKS_S):
            for name, person in self.people.items():
                with contextlib.suppress(FlinkError):
                    self._look_after(name, person)

    def _look_after(self, name: str, person: Person) -> None:
        if person.look() or any(thread.is_alive() for thread in self._starting):
            return
        if name == "direct" and is_left_to_dsp_gym(self.replicas[name].journal):
            return
        person.start(self._wanted(name))
        self.note(f"{name} was started again from {person.restarts[-1]}")
        if name == "direct":  # which takes that for interference until it is started again
            self.replicas[name].restart()

    def _wanted(self, name: str) -> Configuration:
        """What a job that nothing runs of is to be started with."""
        if name == "direct":
            return Configuration.of_spec(self.specs[name])
        spec = self.server.object("FlinkDeployment", name)["spec"]
        return self.operated.as_asked(Override.of(spec["flinkConfiguration"]).values)

    def end(self) -> None:
        """Wake everything, and end every process of dsp-gym."""
        self._ending.set()
        for part in self.cluster.parts:
            self.signal(part, signal.SIGCONT)
        for replica in self.replicas.values():
            replica.end()
        for thread in (*self._starting, self._watch):
            if thread is not None:
                thread.join()


@contextmanager
def world(folder: Path, lasts_s: int) -> Iterator[World]:
    """Everything up, both jobs running and three processes of dsp-gym beside them."""
    with ExitStack() as stack:
        stack.enter_context(short_lived_jvms())
        cluster = LocalCluster.up(ClusterSettings(**SETTINGS), folder / "cluster")
        stack.callback(cluster.down)
        specs = {name: _spec(name, folder) for name in JOBS}
        people, ledgers = {}, {}
        epoch_s = int(time.time()) + 1
        load = Load(epoch_s, RATE_PER_S, ON_S, OFF_S, lasts_s)  # both pause at the same time
        arguments = load_arguments(load.rates, folder / "loads", epoch_s * 1000)
        for name, spec in specs.items():
            submission = Submission.of_spec(spec, arguments, name)
            submission.submit(cluster.rest, Configuration.of_spec(spec))
            people[name] = Person(cluster.rest, submission, cluster.home.folder)
            people[name].look()
            ledgers[name] = Ledger(folder / "results" / name, load, WORDS)
        server = stack.enter_context(served_kubernetes())
        job = OperatedJob(cluster.rest, specs["operated"])
        server.put(deployment("operated", vertices=list(job.ids.values())))
        stack.enter_context(PatientOperator(server, "operated", job))
        links = _links(stack.enter_context(Links()), cluster, server)
        pause = folder / "pause"
        accounts = {name: _account(name, folder, server, links) for name in ("first", "second")}
        replicas = _replicas(folder, cluster, links, pause)
        tails = {name: Tail(one.journal) for name, one in replicas.items()}
        rivals = _rivals(cluster, server, job, specs["direct"], tails, replicas)
        made = World(folder, cluster, server, job, specs, people, ledgers, links, accounts,
                     replicas, tails, rivals, pause)  # fmt: skip
        stack.callback(made.end)
        made.begin()
        yield made


def _spec(name: str, folder: Path) -> JobSpec:
    """The word count, whose sink also writes files, as a job file."""
    results = folder / "results" / name
    arguments = {"cpu-us": "flatmap=500,count=10", "words": WORDS, "keys": 50}
    document = WORD_COUNT | {
        "job": name,
        "flink": {"program": "wordcount", "arguments": {**arguments, "results": str(results)}},
    }
    (folder / f"{name}.yaml").write_text(yaml.safe_dump(document))
    return parse(JobSpec, document, name)


def _links(made: Links, cluster: LocalCluster, server: FakeKubernetes) -> dict[str, Link]:
    assert cluster.prometheus_url is not None
    targets = {"flink": cluster.rest_url, "prometheus": cluster.prometheus_url, "api": server.url}
    return {name: made.to(targets[name.partition(">")[2]]) for name in LINKS}


def _account(name: str, folder: Path, server: FakeKubernetes, links: dict[str, Link]) -> Account:
    """One that may write the override; the first has its token in the kubeconfig itself."""
    file, token = _kubeconfig(folder, name), server.account(name, RIGHTS)
    token_file = None if name == "first" else folder / f"token-{name}"
    server.kubeconfig(file, token, token_file=token_file)
    file.write_text(file.read_text().replace(server.url, links[f"{name}>api"].url))
    if token_file is not None:
        token_file.write_text(token)
    server.admission.append(only_override(name))
    return Account(server, token, token_file or file)


def _kubeconfig(folder: Path, name: str) -> Path:
    return folder / f"kubeconfig-{name}"


def _rivals(
    cluster: LocalCluster, server: FakeKubernetes, job: OperatedJob, direct: JobSpec,
    tails: dict[str, Tail], replicas: dict[str, Replica],
) -> dict[str, Rival]:  # fmt: skip
    rest = FlinkRest(cluster.rest_url, RIVAL_TIMEOUT_S)
    kept = {
        "direct": ({"direct": tails["direct"]}, {"direct": replicas["direct"]}),
        "operated": tuple(
            {name: one for name, one in many.items() if name != "direct"}
            for many in (tails, replicas)
        ),
    }
    return {
        "direct": DirectRival(rest, direct, *kept["direct"]),
        "operated": OperatedRival(server, job.names(), *kept["operated"]),
    }


def _replicas(
    folder: Path, cluster: LocalCluster, links: dict[str, Link], pause: Path
) -> dict[str, Replica]:
    path = os.pathsep.join((str(ROOT), str(offered_in(folder / "plugins"))))
    patience = {"timeout_s": 3, "rescale_timeout_s": 40}
    places: dict[str, dict[str, Any]] = {
        "direct": {
            "rest_url": links["direct>flink"].url,
            "prometheus_url": links["direct>prometheus"].url,
            "savepoints": str(cluster.savepoints),
            **patience,
        }
    }
    for name in ("first", "second"):
        at = {
            "kubeconfig": str(_kubeconfig(folder, name)), "namespace": "jobs", "name": "operated",
            "watch_s": 2,
            "rest_url": links[f"{name}>flink"].url, "connect_timeout_s": 1, "lease_s": 9,
            "prometheus_url": links[f"{name}>prometheus"].url, "reaction_s": 20, **patience,
        }  # fmt: skip
        places[name] = {"kubernetes": at, "timeout_s": 3, "rescale_timeout_s": 40}
    replicas = {}
    for name, where in places.items():
        job = "direct" if name == "direct" else "operated"
        document = {
            "job": str(folder / f"{job}.yaml"), "where": where, "policy": "see-saw",
            "guardrails": None, "interval_s": 5, "decide_timeout_s": 10, "max_slots": 7,
            "window": {"window_s": 10, "stabilization_s": 0}, "stop_file": str(pause),
            "roll_back": {"return_s": 60, "watch_s": 60, "slo_share": 1, "cool_down_s": 0},
            "restraint": {"changes_per_hour": 3600, "vain_increases": 100},  # else it soon rests
        }  # fmt: skip
        replicas[name] = Replica(name, folder / name, document, job, path)
    return replicas
