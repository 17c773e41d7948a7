"""A deployment under an operator that pretends, and actuators that rescale it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dsp_gym.backends.kubernetes.actuator import KubernetesActuator, Pace
from dsp_gym.backends.kubernetes.api import KubernetesApi
from dsp_gym.backends.kubernetes.config import KubernetesPlace
from dsp_gym.backends.kubernetes.lease import Lease
from dsp_gym.backends.kubernetes.overrides import KEY
from dsp_gym.backends.kubernetes.resources import OWN_ANNOTATIONS
from tests.fakes.flink_operator import FlinkOperator, PretendedJob
from tests.fakes.kubernetes_api import FakeKubernetes, only_override, served_kubernetes
from tests.flink_resources import MAP, SINK, SOURCE, deployment
from tests.simulating import line, wanted

KIND = "FlinkDeployment"
IDS = {"source": SOURCE, "map": MAP, "sink": SINK}
START = {"source": 4, "map": 1, "sink": 1}


BEFORE = wanted(np.array([[4, 9, 1]]), np.array([[0, 0, 0]]))
"""Not the configuration from before: the actuator knows it better than its caller."""


def text(source: int, map_: int, sink: int) -> str:
    return f"{SOURCE}:{source},{MAP}:{map_},{SINK}:{sink}"


class Rig:
    """A deployment under the operator, an actuator, and what it told."""

    def __init__(self, fake: FakeKubernetes, folder: Any) -> None:
        self.fake, self._folder, self.spec = fake, folder, line()
        self.job = PretendedJob(IDS, START)
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.on: Callable[[str], object] = lambda kind: None
        self.made: list[KubernetesActuator] = []
        rights = {"flinkdeployments": ("get", "list", "watch", "patch"),
                  "leases": ("get", "create", "update")}  # fmt: skip
        self.token = fake.account("actuator", rights)
        self.token_file: Path | None = None  # in place of the token
        fake.admission.append(only_override("actuator"))

    def act(
        self, holder: str = "me", close_s: float = 2.0, interval_s: float = 60.0, **given: Any
    ) -> KubernetesActuator:
        limits = {"reaction_s": 5.0, "rescale_timeout_s": 5.0, "timeout_s": 2.0, **given}
        file = self.fake.kubeconfig(
            self._folder / f"{holder}.yaml", self.token, token_file=self.token_file
        )
        place = KubernetesPlace(kubeconfig=file, namespace="jobs", name="words", **limits)
        api = KubernetesApi.connect(place)

        def listen(kind: str, body: dict[str, Any]) -> None:
            self.events.append((kind, body))
            self.on(kind)

        actuator = KubernetesActuator(
            api, place, "words", self.spec, self.job.look,
            Lease(api, "jobs", "dsp-gym-words", holder, 30),
            pace=Pace(0.02, close_s, lambda s: time.sleep(min(s, 0.02)), interval_s),
            on_event=listen,
        )  # fmt: skip
        self.made.append(actuator)
        end = time.monotonic() + 10
        while not self._is_decided(actuator):  # who leads, and has stamped the resource
            assert time.monotonic() < end
            time.sleep(0.01)
        return actuator

    def taken_in(self) -> None:
        """Wait until the operator has looked at the newest spec, and tells the job's state."""
        end = time.monotonic() + 10
        while True:
            body = self.fake.object(KIND, "words")
            status = body["status"]
            told = status["observedGeneration"], status["jobStatus"]["state"]
            if told == (body["metadata"]["generation"], self.job.word):
                return
            assert time.monotonic() < end, status
            time.sleep(0.01)

    def _is_decided(self, actuator: KubernetesActuator) -> bool:
        holders = [one["spec"]["holderIdentity"] for one in self.fake.objects("Lease")]
        lease = actuator.lease
        if not holders or holders == [""]:
            return False
        return holders != [lease.holder] or (
            lease.is_held_now() and actuator.keeper.term == lease.term
        )

    def ask(self, actuator: KubernetesActuator, tasks: int, level: int = 0) -> int:
        """Ask for that many tasks of the map; the status when it has ended."""
        actuator.apply(wanted(np.array([[4, tasks, 1]]), np.array([[0, level, 0]])))
        return self.settled(actuator)

    def settled(self, actuator: KubernetesActuator) -> int:
        assert actuator.wait(15), self.events
        return int(actuator.status()[0])

    @property
    def written(self) -> str | None:
        configuration = self.fake.object(KIND, "words")["spec"]["flinkConfiguration"]
        return configuration.get(KEY)

    def said(self, kind: str) -> dict[str, Any]:
        return dict(self.events)[kind]

    def patches(self, part: str = "spec") -> list[Any]:
        mine = [r for r in self.fake.requests if r.method == "PATCH" and r.account == "actuator"]
        return [request for request in mine if part in request.parts]

    def annotations(self) -> dict[str, str]:
        """Those that the actuator writes."""
        found = self.fake.object(KIND, "words")["metadata"].get("annotations") or {}
        return {name: found[name] for name in OWN_ANNOTATIONS if name in found}


@pytest.fixture
def rig(tmp_path) -> Iterator[Rig]:
    with served_kubernetes() as fake:
        fake.put(deployment())
        made = Rig(fake, tmp_path)
        yield made
        fake.thaw()
        for actuator in made.made:
            actuator.close()


@pytest.fixture
def operator(rig) -> Iterator[FlinkOperator]:
    with FlinkOperator(rig.fake, "words", rig.job) as running:
        yield running
