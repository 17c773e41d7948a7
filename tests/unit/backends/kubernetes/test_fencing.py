"""Fencing of writes: the stamp on the resource, the lease and the token."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np

from dsp_gym.backends.kubernetes.resources import DECISION, EPOCH, HOLDER, VERTICES
from dsp_gym.loop.protocols import ActuatorStatus
from tests.flink_resources import LISTED, MAP, SINK, SOURCE
from tests.simulating import wanted
from tests.unit.backends.kubernetes.conftest import KIND, Rig, text


def test_a_new_leader_stamps_the_resource_before_anything_else(rig, operator):
    first = rig.act("first")
    assert rig.annotations() == {EPOCH: "1", HOLDER: "first"}
    assert [r.parts for r in rig.patches("metadata")] == [{"metadata"}]
    first.close()
    rig.act("second")
    assert rig.annotations() == {EPOCH: "2", HOLDER: "second"}
    assert rig.patches() == []
    assert rig.fake.object(KIND, "words")["metadata"]["generation"] == 1


def test_a_write_frozen_after_the_look_at_the_lease_meets_a_conflict(rig, operator):
    old, frozen, woken = rig.act("old"), threading.Event(), threading.Event()
    api = old.writer._api
    first = api.merge_patch

    def freeze(*where: Any, **given: Any) -> Any:
        frozen.set()
        assert woken.wait(10)
        return first(*where, **given)

    api.merge_patch = freeze
    old.apply(wanted(np.array([[4, 3, 1]]), np.array([[0, 0, 0]])))
    assert frozen.wait(10)
    lease = rig.fake.object("Lease", "dsp-gym-words")  # as if it had run out
    old.lease._api.replace(
        "Lease", "jobs", "dsp-gym-words", {**lease, "spec": {"holderIdentity": ""}}
    )
    rig.act("new")
    woken.set()
    assert rig.settled(old) == ActuatorStatus.FAILED
    assert "'new' has taken over, with epoch 2 after 1" in rig.said("failed")["reason"]
    assert [r.code for r in rig.patches()] == [409]
    assert rig.written is None
    assert rig.annotations()[HOLDER] == "new"


def test_a_decision_that_is_older_than_its_interval_is_not_written(rig, operator):
    actuator = rig.act(interval_s=0.05)
    first = actuator.lease.try_acquire

    def then_sleep() -> bool:
        held = first()
        time.sleep(0.1)
        return held

    actuator.lease.try_acquire = then_sleep
    assert rig.ask(actuator, 3) == ActuatorStatus.FAILED
    assert "older than its interval" in rig.said("failed")["reason"]
    assert rig.patches() == []


def test_what_is_decided_again_while_it_waits_is_as_young_as_the_last_decision(rig, operator):
    actuator = rig.act(interval_s=0.6)
    first, asked = actuator.lease.try_acquire, wanted(np.array([[4, 3, 1]]), np.array([[0, 0, 0]]))

    def then_decide_again() -> bool:
        held = first()
        for _ in range(4):
            time.sleep(0.2)
            actuator.apply(asked)
        return held

    actuator.lease.try_acquire = then_decide_again
    assert rig.ask(actuator, 3) == ActuatorStatus.REACHED
    assert rig.written == text(4, 3, 1)


def test_the_id_of_a_decision_is_in_its_intent_and_on_the_resource(rig, operator):
    actuator = rig.act()
    assert rig.ask(actuator, 3) == ActuatorStatus.REACHED
    assert rig.annotations() == {EPOCH: "1", HOLDER: "me", DECISION: rig.said("asked")["id"]}
    before = rig.said("asked")["id"]
    assert rig.ask(actuator, 2) == ActuatorStatus.REACHED
    assert rig.annotations()[DECISION] == rig.said("asked")["id"] != before


def annotated(rig: Rig, annotations: dict[str, str]) -> None:
    rig.fake.store.change(
        rig.fake.resources["flinkdeployments"], "jobs", "words",
        lambda old: {**old, "metadata": {
            **old["metadata"], "annotations": {**LISTED, **annotations}, "resourceVersion": None,
        }},
        "someone", of_status=False,
    )  # fmt: skip


def test_an_epoch_that_is_no_number_is_named_and_nothing_is_written(rig, operator):
    actuator = rig.act()
    annotated(rig, {EPOCH: "seven"})
    assert rig.ask(actuator, 3) == ActuatorStatus.FAILED
    assert "dsp-gym.io/epoch is no number: 'seven'" in rig.said("failed")["reason"]
    assert rig.patches() == []


def test_what_the_owner_does_not_allow_is_not_even_sent(rig, operator):
    actuator = rig.act()
    annotated(rig, {VERTICES: f"{SOURCE}:4-4,{MAP}:1-8,{SINK}:1-1"})
    assert rig.ask(actuator, 9) == ActuatorStatus.FAILED
    assert "dsp-gym.io/vertices" in rig.said("failed")["reason"]
    assert rig.patches() == []
    assert rig.ask(actuator, 8) == ActuatorStatus.REACHED
    assert rig.written == text(4, 8, 1)


def test_a_stamp_that_somebody_removes_is_made_anew_with_a_greater_epoch(rig, operator):
    actuator = rig.act()
    annotated(rig, {})
    assert rig.ask(actuator, 3) == ActuatorStatus.REACHED
    assert rig.annotations()[EPOCH] == "2"


def test_without_the_file_of_its_token_nothing_is_written(rig, operator, tmp_path):
    rig.token_file = tmp_path / "token"
    rig.token_file.write_text(rig.token)
    actuator = rig.act()
    rig.token_file.unlink()
    assert rig.ask(actuator, 3) == ActuatorStatus.FAILED
    assert "the token cannot be read: No such file" in rig.said("failed")["reason"]
    assert str(rig.token_file) in rig.said("failed")["reason"]
    rig.token_file.write_text("")
    assert rig.ask(actuator, 3) == ActuatorStatus.FAILED
    assert "it is empty" in rig.said("failed")["reason"]
    assert rig.patches() == []
    rig.token_file.write_text(rig.token)
    assert rig.ask(actuator, 3) == ActuatorStatus.REACHED


def test_a_lease_of_something_else_is_named_and_never_taken(rig, operator):
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "dsp-gym-words"},
        "spec": {"holderIdentity": "flink-operator-7", "leaseDurationSeconds": 1},
    }
    rig.fake.store.create(rig.fake.resources["leases"], "jobs", lease, "operator-sdk", False)
    actuator = rig.act()
    time.sleep(1.1)  # it is over by now
    for _ in range(2):
        assert rig.ask(actuator, 3) == ActuatorStatus.FAILED
    said = rig.said("failed")["reason"]
    assert "belongs to something else: flink-operator-7, written by operator-sdk" in said
    assert "name another one with `lease`" in said
    assert rig.patches("metadata") == []
    held = rig.fake.object("Lease", "dsp-gym-words")["spec"]
    assert held["holderIdentity"] == "flink-operator-7"
