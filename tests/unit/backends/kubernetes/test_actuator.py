"""Rescaling through the resource: its writes, its refusals, and its roll-back."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import numpy as np
import pytest

from dsp_gym.backends.kubernetes.collector import RunningVertices
from dsp_gym.backends.kubernetes.overrides import KEY
from dsp_gym.job.deployment import kept_memory
from dsp_gym.loop.configuration import Configuration
from dsp_gym.loop.protocols import ActuatorStatus
from tests.flink_resources import LISTED, MAP, SINK, SOURCE, deployment
from tests.simulating import wanted
from tests.unit.backends.kubernetes.conftest import BEFORE, KIND, text


def test_one_key_is_written_for_every_vertex_and_the_parallelism_is_seen_to_run(rig, operator):
    rig.job.delay_s = 0.2
    actuator = rig.act()
    before = rig.fake.object(KIND, "words")["spec"]
    assert rig.ask(actuator, 3) == ActuatorStatus.REACHED
    assert rig.written == text(4, 3, 1)
    after = rig.fake.object(KIND, "words")["spec"]
    after["flinkConfiguration"].pop(KEY)
    assert after == before
    assert len(rig.patches()) == 1
    assert rig.patches()[0].query["fieldManager"] == "dsp-gym"
    assert rig.said("running")["seconds"] >= 0.2
    assert rig.job.running()["map"] == 3


def test_what_runs_already_is_not_written(rig, operator):
    assert rig.ask(rig.act(), 1) == ActuatorStatus.IDLE
    assert rig.patches() == []


def test_the_form_the_resource_uses_stays(rig, operator):
    rig.fake.put(deployment(configuration={KEY: {MAP: 1, "old": 5}}))
    rig.taken_in()
    assert rig.ask(rig.act(), 2) == ActuatorStatus.REACHED
    assert rig.written == {MAP: 2, "old": 5, SOURCE: "4", SINK: "1"}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"configuration": {"job.autoscaler.enabled": "true"}}, "built-in autoscaler"),
        ({"job": {"upgradeMode": "stateless", "state": "running"}}, "stateless"),
        ({"job": {"upgradeMode": "savepoint", "state": "suspended"}}, "suspended"),
        ({"configuration": {KEY: "a:1", f"{KEY}.a": "1"}}, "several forms"),
    ],
)
def test_where_nothing_may_be_written_nothing_is(rig, operator, change, said):
    rig.fake.put(deployment(**change))
    rig.taken_in()
    assert rig.ask(rig.act(), 3) == ActuatorStatus.FAILED
    assert said in rig.said("failed")["reason"]
    assert rig.patches() == []


def test_the_kill_switch_stops_writes_and_lets_them_through_again(rig, operator):
    def annotate(value: str | None) -> None:
        body = rig.fake.object(KIND, "words")
        meta = {**body["metadata"], "annotations": {**LISTED, "dsp-gym.io/stop": value}}
        rig.fake.store.change(
            rig.fake.resources["flinkdeployments"], "jobs", "words",
            lambda old: {**old, "metadata": meta | {"resourceVersion": None}}, "someone",
            of_status=False,
        )  # fmt: skip

    actuator = rig.act()
    annotate("true")
    assert rig.ask(actuator, 3) == ActuatorStatus.FAILED
    assert "annotation" in rig.said("failed")["reason"]
    annotate("false")
    assert rig.ask(actuator, 3) == ActuatorStatus.REACHED


def test_conflicts_with_the_operators_status_are_met_with_another_look(rig, operator):
    actuator = rig.act()
    rig.fake.status_writes = 4
    assert rig.ask(actuator, 3) == ActuatorStatus.REACHED
    assert actuator.writer.outcomes["conflict"] == 4
    assert actuator.writer.outcomes["written"] == 1


def test_a_storm_of_conflicts_ends_in_a_refusal(rig, operator):
    actuator = rig.act()
    rig.fake.status_writes = 1000
    assert rig.ask(actuator, 3) == ActuatorStatus.FAILED
    assert "met with a conflict" in rig.said("failed")["reason"]
    assert rig.written is None


def test_a_spec_that_somebody_else_changed_meanwhile_is_left_alone(rig, operator):
    actuator = rig.act()
    first = actuator.lease.try_acquire

    def then_meddle() -> bool:
        held = first()
        rig.fake.put(deployment(overrides={MAP: 7, SOURCE: 4, SINK: 1}))
        return held

    actuator.lease.try_acquire = then_meddle
    assert rig.ask(actuator, 3) == ActuatorStatus.FAILED
    assert rig.written == f"{MAP}:7,{SOURCE}:4,{SINK}:1"


def test_an_answer_that_is_lost_is_looked_for_and_not_repeated(rig, operator):
    actuator = rig.act()
    first = actuator.lease.try_acquire

    def then_lose() -> bool:
        held = first()
        rig.fake.lost_answers = 1
        return held

    actuator.lease.try_acquire = then_lose
    assert rig.ask(actuator, 3) == ActuatorStatus.REACHED
    assert len(rig.patches()) == 1
    assert rig.patches()[0].code == 0
    assert actuator.writer.outcomes == {"lost": 1, "written": 1}


def test_a_request_that_is_lost_is_repeated_after_a_look(rig, operator):
    actuator = rig.act()
    first = actuator.lease.try_acquire

    def then_lose() -> bool:
        held = first()
        rig.fake.lost_requests = 1
        return held

    actuator.lease.try_acquire = then_lose
    assert rig.ask(actuator, 3) == ActuatorStatus.REACHED
    assert rig.written == text(4, 3, 1)
    assert actuator.writer.outcomes["lost"] == 1


def test_a_frozen_server_costs_time_and_writes_nothing(rig, operator):
    actuator = rig.act(timeout_s=0.3, connect_timeout_s=0.3)
    rig.fake.freeze()
    assert rig.ask(actuator, 3) == ActuatorStatus.FAILED
    assert "no answer in time" in rig.said("failed")["reason"]
    rig.fake.thaw()
    assert rig.patches() == []
    assert rig.ask(actuator, 3) == ActuatorStatus.REACHED


def test_a_server_that_dies_while_a_write_is_followed_changes_nothing_about_it(rig, operator):
    rig.job.delay_s = 0.3
    actuator = rig.act()
    killed = []

    def kill(kind: str) -> None:
        if kind == "submitted":
            rig.fake.kill()
            killed.append(threading.Timer(0.6, rig.fake.restart))
            killed[0].start()

    rig.on = kill
    assert rig.ask(actuator, 3) == ActuatorStatus.REACHED
    killed[0].join()
    assert len(rig.patches()) == 1
    assert actuator.writer.outcomes == {"written": 1}


def test_a_job_that_is_redeployed_under_another_id_is_the_same_job(rig, operator):
    actuator = rig.act()
    first = rig.job.realize

    def redeploy(overrides, arguments):
        rig.job.job_id = "b" * 32
        first(overrides, arguments)

    rig.job.realize = redeploy
    assert rig.ask(actuator, 3) == ActuatorStatus.REACHED
    assert rig.said("submitted")["job_id"] == "a" * 32
    assert rig.said("running")["job_id"] == "b" * 32
    assert rig.ask(actuator, 2) == ActuatorStatus.REACHED


def test_rights_that_are_taken_away_are_told(rig, operator):
    actuator = rig.act()
    rig.fake.accounts["actuator"]["flinkdeployments"] = ("get",)
    assert rig.ask(actuator, 3) == ActuatorStatus.FAILED
    assert "cannot patch" in rig.said("failed")["reason"]
    assert rig.written is None


def test_without_the_lease_nothing_is_written(rig, operator):
    other = rig.act("other")
    assert rig.ask(other, 2) == ActuatorStatus.REACHED
    assert rig.ask(rig.act("me"), 3) == ActuatorStatus.FAILED
    assert "another instance holds the lease" in rig.said("failed")["reason"]
    other.close()
    assert rig.ask(rig.made[-1], 3) == ActuatorStatus.REACHED


def test_an_operator_that_does_not_react_gets_the_old_numbers_back(rig, operator):
    operator.heeds = False
    actuator = rig.act(reaction_s=0.2)
    rig.on = lambda kind: setattr(operator, "heeds", True) if kind == "failed" else None
    assert rig.ask(actuator, 3) == ActuatorStatus.TIMED_OUT
    assert "did not react within 0.2 s" in rig.said("failed")["reason"]
    assert rig.written == text(4, 1, 1)
    assert "restored" in dict(rig.events)


def test_a_parallelism_there_are_no_resources_for_is_taken_back(rig, operator):
    rig.job.most = 4
    actuator = rig.act(rescale_timeout_s=0.4)
    assert rig.ask(actuator, 8) == ActuatorStatus.TIMED_OUT
    assert "it runs source=4, map=4, sink=1" in rig.said("failed")["reason"]
    assert rig.written == text(4, 1, 1)
    assert rig.job.running()["map"] == 1


def test_a_job_that_does_not_come_back_gets_the_old_numbers(rig, operator):
    operator.fails = True
    actuator = rig.act()
    assert rig.ask(actuator, 3) == ActuatorStatus.FAILED
    assert "is FAILED" in rig.said("failed")["reason"]
    assert rig.job.realized[-1] == {SOURCE: 4, MAP: 1, SINK: 1}
    assert "restored" in dict(rig.events)


@pytest.mark.parametrize("word", ["FINISHED", "CANCELED"])
def test_a_job_that_ends_during_a_change_is_not_started_again(rig, operator, word):
    rig.job.delay_s = 30
    rig.on = lambda kind: setattr(rig.job, "word", word) if kind == "submitted" else None
    actuator = rig.act()
    assert rig.ask(actuator, 3) == ActuatorStatus.FAILED
    assert f"its job is {word}" in rig.said("failed")["reason"]
    assert rig.written == text(4, 3, 1)
    assert len(rig.job.realized) == 1
    actuator.roll_back(BEFORE, "the job is down")
    assert rig.settled(actuator) == ActuatorStatus.FAILED
    assert len(rig.job.realized) == 1


def test_numbers_that_cannot_be_put_back_are_an_alarm_that_names_them(rig, operator):
    operator.fails = True
    rig.on = lambda kind: (
        rig.fake.accounts["actuator"].update(flinkdeployments=("get",))
        if kind == "submitted"
        else None
    )
    assert rig.ask(rig.act(), 3) == ActuatorStatus.FAILED
    assert rig.said("alarm")["overrides"] == {SOURCE: 4, MAP: 1, SINK: 1}


def test_an_override_that_somebody_writes_over_is_not_put_back(rig, operator):
    rig.job.delay_s = 30
    actuator = rig.act()
    rig.on = lambda kind: (
        rig.fake.put(deployment(overrides={MAP: 9})) if kind == "submitted" else None
    )
    assert rig.ask(actuator, 3) == ActuatorStatus.FAILED
    assert "another client has overwritten the override" in rig.said("failed")["reason"]
    assert rig.written == f"{MAP}:9"


def test_a_change_is_rolled_back_by_writing_the_old_numbers(rig, operator):
    actuator = rig.act()
    assert rig.ask(actuator, 3) == ActuatorStatus.REACHED
    actuator.roll_back(BEFORE, "the objective is missed")
    assert rig.settled(actuator) == ActuatorStatus.REACHED
    assert rig.written == text(4, 1, 1)
    assert rig.said("submitted")["reason"] == "the objective is missed"
    actuator.roll_back(BEFORE, "again")
    assert "no change to take back" in rig.said("refused")["reason"]
    assert rig.settled(actuator) == ActuatorStatus.FAILED


def test_without_a_record_of_the_intent_the_resource_is_not_written(rig, operator):
    before = rig.fake.object(KIND, "words")["metadata"]["generation"]

    def full_disk(kind: str) -> None:
        if kind == "asked":
            raise OSError("No space left on device")

    actuator = rig.act()
    rig.on = full_disk
    assert rig.ask(actuator, 3) == ActuatorStatus.FAILED
    assert rig.said("failed")["reason"].endswith("No space left on device")
    assert rig.fake.object(KIND, "words")["metadata"]["generation"] == before


def test_a_change_of_an_earlier_process_is_rolled_back_by_the_numbers_given(rig, operator):
    first = rig.act()
    assert rig.ask(first, 3) == ActuatorStatus.REACHED
    first.close()
    again = rig.act()
    again.roll_back(BEFORE, "the objective is missed")
    assert rig.settled(again) == ActuatorStatus.REACHED
    assert rig.written == text(4, 9, 1)  # as BEFORE says
    again.roll_back(BEFORE, "again")
    assert "no change to take back" in rig.said("refused")["reason"]


def test_a_task_that_is_not_seen_is_no_other_configuration(rig, operator):
    actuator = rig.act()
    assert rig.ask(actuator, 4) == ActuatorStatus.REACHED
    look = rig.job.look

    def partial() -> RunningVertices:  # by metrics alone; one TaskManager is not scraped
        ran = look()
        return replace(ran, parallelism={**ran.parallelism, "map": ran.parallelism["map"] - 1})

    actuator._look = partial
    rig.events.clear()
    assert rig.ask(actuator, 4) == ActuatorStatus.REACHED
    assert rig.events == []
    actuator.timeout_s = 0.3
    assert rig.ask(actuator, 6) == ActuatorStatus.TIMED_OUT
    assert rig.said("asked")["from"]["parallelism"]["map"] == 4
    assert rig.written == text(4, 4, 1)
    assert rig.job.running()["map"] == 4


def test_of_a_job_that_does_not_run_in_full_only_the_resource_says_what_it_had(rig, operator):
    actuator = rig.act()
    look = rig.job.look
    actuator._look = lambda: replace(look(), settled=False)
    assert rig.ask(actuator, 3) == ActuatorStatus.FAILED
    said = "not every task of the job runs: source=4, map=1, sink=1"
    assert said in rig.said("failed")["reason"]
    assert rig.written is None


def test_a_job_in_trouble_and_out_of_reach_can_be_rolled_back(rig, operator):
    actuator = rig.act()
    assert rig.ask(actuator, 3) == ActuatorStatus.REACHED
    rig.job.word, rig.job.silent = "RESTARTING", True
    rig.taken_in()
    assert rig.ask(actuator, 5) != ActuatorStatus.REACHED  # nothing else is asked of it
    actuator.roll_back(BEFORE, "the job is down")
    time.sleep(0.3)
    rig.job.word, rig.job.silent = "RUNNING", False
    assert rig.settled(actuator) == ActuatorStatus.REACHED
    assert rig.written == text(4, 1, 1)


def test_a_change_under_way_is_given_up_and_taken_back(rig, operator):
    rig.job.delay_s = 30
    actuator = rig.act()
    actuator.apply(wanted(np.array([[4, 3, 1]]), np.array([[0, 0, 0]])))
    while not rig.job.realized:
        time.sleep(0.01)
    rig.job.delay_s = 0
    actuator.roll_back(BEFORE, "latency")
    assert rig.settled(actuator) == ActuatorStatus.FAILED
    assert "taken back: latency" in rig.said("failed")["reason"]
    assert rig.written == text(4, 1, 1)


def test_closing_does_not_wait_for_ever_and_lets_the_operator_go_on(rig, operator):
    rig.job.delay_s = 30
    actuator = rig.act(close_s=0.1)
    actuator.apply(wanted(np.array([[4, 3, 1]]), np.array([[0, 0, 0]])))
    while "submitted" not in dict(rig.events):
        time.sleep(0.01)
    began = time.monotonic()
    actuator.close()
    assert time.monotonic() - began < 10
    assert rig.written == text(4, 3, 1)
    assert "left" in dict(rig.events)
    lease = rig.fake.object("Lease", "dsp-gym-words")
    assert lease["spec"]["holderIdentity"] == ""
    assert not [t for t in threading.enumerate() if t.name == "lease-dsp-gym-words"]


def test_a_job_that_is_down_at_the_start_is_scaled_when_it_runs(rig, operator):
    rig.job.silent = True
    actuator = rig.act()
    assert rig.ask(actuator, 3) == ActuatorStatus.FAILED
    rig.job.silent = False
    assert rig.ask(actuator, 3) == ActuatorStatus.REACHED
    assert rig.written == text(4, 3, 1)


def test_memory_without_a_route_is_refused(rig, operator):
    assert rig.ask(rig.act(), 1, level=1) == ActuatorStatus.FAILED
    assert "memory_route" in rig.said("failed")["reason"]
    assert rig.patches() == []


@pytest.mark.parametrize("level", [0, 1, -1])
def test_where_every_slot_has_the_same_memory_tasks_change_whatever_level_is_asked_for(
    rig, operator, level
):
    """A planner asks for no memory where a vertex has no state; the slot has it all the same."""
    rig.spec = kept_memory(rig.spec, Configuration.of_spec(rig.spec).memory_level)
    assert rig.ask(rig.act(), 3, level=level) == ActuatorStatus.REACHED
    assert rig.written == text(4, 3, 1)


def test_memory_by_the_jobs_own_arguments_is_a_full_upgrade(rig, operator):
    rig.fake.admission.clear()
    arguments = ["--program", "micro-update", "--managed-mib", "map=158", "--seed", "7"]
    job = deployment()["spec"]["job"] | {"args": arguments}
    rig.fake.put(deployment(job=job))
    rig.taken_in()
    actuator = rig.act(memory_route="job-arguments")
    actuator.apply(wanted(np.array([[4, 2, 1]]), np.array([[-1, 1, -1]])))
    assert rig.settled(actuator) == ActuatorStatus.REACHED
    spec = rig.fake.object(KIND, "words")["spec"]
    assert spec["job"]["args"] == [
        "--program", "micro-update", "--seed", "7", "--managed-mib", "map=316",
    ]  # fmt: skip
    assert len(rig.patches()) == 1
    actuator.roll_back(BEFORE, "slower")
    assert rig.settled(actuator) == ActuatorStatus.REACHED
    assert "map=158" in rig.fake.object(KIND, "words")["spec"]["job"]["args"]


def test_an_override_that_another_client_writes_stops_this_process(rig, operator):
    actuator = rig.act()
    assert actuator.interference() is None
    assert rig.ask(actuator, 3) == ActuatorStatus.REACHED
    assert actuator.interference() is None
    rig.fake.put(deployment(overrides={MAP: 7, SOURCE: 4, SINK: 1}))
    found = actuator.interference()
    assert found is not None
    assert found.before == "source=4@0 map=3@0 sink=1@0"
    assert found.after == "map=7 source=4 sink=1"
    assert rig.said("interference")["reason"] == found.reason
    rig.taken_in()
    assert rig.ask(actuator, 2) == ActuatorStatus.FAILED
    assert len(rig.patches()) == 1


def test_what_another_instance_wrote_while_it_led_is_the_baseline(rig, operator):
    first, second = rig.act("first"), rig.act("second")
    assert second.interference() is None
    assert rig.ask(first, 3) == ActuatorStatus.REACHED
    assert second.interference() is None
    first.close()
    assert second.lease.try_acquire()
    assert second.interference() is None
    rig.fake.put(deployment(overrides={MAP: 7, SOURCE: 4, SINK: 1}))
    assert second.interference() is not None
