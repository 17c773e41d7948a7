"""Two replicas beside one resource: one acts, and the other continues where it ended."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest

from dsp_gym.backends.kubernetes.lease import MEMORY
from dsp_gym.config.files import parse
from dsp_gym.control.autoscaler import JobAutoscaler
from dsp_gym.control.config import RunConfig
from dsp_gym.control.executor import Verdict
from dsp_gym.control.start import started
from dsp_gym.records.journal import read
from tests.answering import answering, tell
from tests.fakes.kubernetes_api import only_override, served_kubernetes
from tests.flink_resources import deployment, stable
from tests.simulating import line, wanted

RIGHTS = {"flinkdeployments": ("get", "list", "watch", "patch"),
          "leases": ("get", "create", "update")}  # fmt: skip


@pytest.fixture
def fake():
    with served_kubernetes() as server:
        body = deployment()
        server.put(body | {"status": stable(body, job_id="a1")})
        server.admission.append(only_override("acts"))
        yield server


@pytest.fixture
def replica(fake, tmp_path) -> Iterator[Callable[[str], AbstractContextManager[JobAutoscaler]]]:
    with answering() as flink:
        tell(flink, since_ms=round(time.time() * 1000) - 20_000)
        flink.answers["/api/v1/query"] = lambda asked: {
            "status": "success", "data": {"resultType": "matrix", "result": []}
        }  # fmt: skip
        (tmp_path / "words.yaml").write_text(line().model_dump_json(by_alias=True))
        file = fake.kubeconfig(tmp_path / "config", fake.account("acts", RIGHTS))

        def made(name: str) -> AbstractContextManager[JobAutoscaler]:
            where: dict[str, Any] = {
                "kubeconfig": str(file), "namespace": "jobs", "name": "words", "lease_s": 9,
                "timeout_s": 2, "prometheus_url": flink.url, "rest_url": flink.url, "watch_s": 1,
            }  # fmt: skip
            document = {"job": str(tmp_path / "words.yaml"), "where": {"kubernetes": where},
                        "policies": ["ds2"], "journal": str(tmp_path / name)}  # fmt: skip
            config = parse(RunConfig, document, "run.yaml")
            return started(config, mode="active", journal=tmp_path / name)

        yield made


def holds(run: JobAutoscaler) -> bool:
    leadership = run.backend.platform.leadership
    assert leadership is not None
    return leadership.standby() is None


def soon(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


def left(fake) -> str | None:
    return fake.object("Lease", "dsp-gym-words")["metadata"].get("annotations", {}).get(MEMORY)


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["closed", "killed"])
def test_the_second_replica_rests_as_the_first_would(replica, fake, tmp_path, ending):
    with replica("pod-0") as acts, replica("pod-1") as waits:
        assert acts.decide().held_code != "standby"
        turn = waits.decide()
        assert turn.held_code == "standby"
        assert "another instance holds the lease" in turn.held
        assert not (tmp_path / "pod-1" / "memory.json").exists()
        until_s = time.time() + 3600
        acts.permission.rests_until_s = until_s
        acts.decide()
        soon(lambda: str(until_s) in (left(fake) or ""))
        keeper = acts.backend.actuator._actuator.keeper
        if ending == "closed":
            keeper.close()
        else:
            keeper._closing.set()  # it renews no more, and gives nothing up
        soon(lambda: holds(waits))
        waits.decide()
        assert waits.permission.rests_until_s == until_s
        assert acts.decide().held_code == "standby"
        (told,) = (e.body for e in read(tmp_path / "pod-1") if e.body.get("event") == "took over")
        assert told["from"] == acts.backend.platform.leadership.holder
        assert (tmp_path / "pod-1" / "memory.json").exists()


def test_the_lease_knows_of_a_change_before_the_resource_does(replica, fake):
    known: list[str] = []

    def look(who: str, plural: str, before: Any, after: Any) -> None:
        if before is not None and plural == "flinkdeployments" and before["spec"] != after["spec"]:
            known.append(left(fake) or "")

    with replica("pod-0") as acts:
        acts.decide()
        seen = acts.backend.collector.snapshot()
        fake.admission.append(look)
        change = wanted(seen.parallelism + 1, seen.memory_level)
        assert acts._realizer.realize(seen, change, Verdict(None, asks=True)).asks
        soon(lambda: bool(known))
        before = [seen.parallelism.tolist(), seen.memory_level.tolist()]
        assert json.loads(known[0])["roll_back"]["before"] == before
        acts.backend.actuator._actuator._left.set()  # nobody carries it out here
