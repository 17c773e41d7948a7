"""Contents of a FlinkDeployment, and the states in which it must not be written."""

from __future__ import annotations

import json

import pytest

from dsp_gym.backends.kubernetes.overrides import KEY
from dsp_gym.backends.kubernetes.resources import FlinkResource
from dsp_gym.errors import KubernetesError
from tests.fakes.kubernetes_selectors import merged
from tests.flink_resources import MAP, SINK, deployment, stable


def body(overrides=None, **given):
    made = deployment(overrides=overrides, **given)
    made["metadata"] |= {"uid": "u", "resourceVersion": "7", "generation": 1}
    return made | {"status": stable(made)}


def parsed(change=None, **given):
    return FlinkResource.parse(merged(body(**given), change or {}))


def test_everything_of_a_stable_deployment_is_read():
    one = parsed(overrides={MAP: 2})
    assert (one.kind, one.namespace, one.name, one.uid) == ("FlinkDeployment", "jobs", "words", "u")
    assert (one.resource_version, one.generation, one.observed_generation) == ("7", 1, 1)
    assert (one.lifecycle_state, one.job_state, one.job_id) == ("STABLE", "RUNNING", "a" * 32)
    assert (one.upgrade_mode, one.mode, one.flink_version) == ("last-state", "native", "v2_1")
    assert one.overrides == one.effective_overrides == {MAP: 2}
    assert one.override_form == "flat"
    assert one.configuration["jobmanager.scheduler"] == "adaptive"
    assert one.builtin_autoscaler == "off"
    assert one.reason_not_to_act() is None


def test_nothing_at_all_is_read_leniently():
    one = FlinkResource.parse({})
    assert (one.lifecycle_state, one.job_state, one.flink_version) == ("unknown",) * 3
    assert one.generation is None
    assert one.reason_not_to_act() is not None


@pytest.mark.parametrize(
    "status",
    [
        {"lifecycleState": "DANCING", "jobStatus": {"state": "SINGING"}},
        {"lifecycleState": 7, "jobStatus": [], "reconciliationStatus": "x"},
        {"reconciliationStatus": {"lastReconciledSpec": "{not json"}},
        {"reconciliationStatus": {"lastReconciledSpec": "[]"}},
        None,
    ],
)
def test_words_nobody_knows_yet_are_unknown_and_stop_nothing_but_acting(status):
    made = body()
    made["status"] = status
    assert FlinkResource.parse(made).reason_not_to_act() is not None


def test_a_spec_reconciled_by_an_old_operator_is_not_wrapped():
    made = body(overrides={MAP: 2})
    made["status"]["reconciliationStatus"]["lastReconciledSpec"] = json.dumps(made["spec"])
    assert FlinkResource.parse(made).effective_overrides == {MAP: 2}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"metadata": {"annotations": {"dsp-gym.io/stop": "true"}}}, "annotation"),
        ({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}, "being deleted"),
        ({"metadata": {"generation": 2}}, "pending"),
        ({"spec": {"job": None}}, "session cluster"),
        ({"spec": {"job": {"upgradeMode": "stateless"}}}, "stateless"),
        ({"spec": {"job": {"upgradeMode": None}}}, "stateless"),
        ({"spec": {"job": {"upgradeMode": "teleport"}}}, "not known"),
        ({"spec": {"job": {"state": "suspended"}}}, "suspended"),
        ({"spec": {"flinkConfiguration": {"job.autoscaler.enabled": "true"}}}, "built-in"),
        (
            {"spec": {"flinkConfiguration": {KEY: "a:1", f"{KEY}.a": "1"}}},
            "several forms",
        ),
        ({"spec": {"flinkConfiguration": {KEY: f"{MAP}:3"}}}, "not been taken in"),
        ({"status": {"lifecycleState": "DEPLOYED"}}, "DEPLOYED, not STABLE"),
        ({"status": {"lifecycleState": "ROLLED_BACK"}}, "ROLLED_BACK"),
        ({"status": {"reconciliationStatus": {"state": "ROLLED_BACK"}}}, "ROLLED_BACK"),
        ({"status": {"jobStatus": {"state": "RECONCILING"}}}, "RECONCILING"),
        ({"status": {"jobStatus": {"state": "FINISHED"}}}, "a change would start it again"),
        ({"status": {"jobStatus": {"state": "CANCELED"}}}, "a change would start it again"),
    ],
)
def test_nothing_is_written_where_the_operator_would_not_expect_it(change, reason):
    assert reason in parsed(change).reason_not_to_act()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({}, True),
        ({"status": {"lifecycleState": "UPGRADING"}}, False),
        ({"metadata": {"generation": 2}}, False),
    ],
)
def test_a_job_that_is_stopped_for_an_upgrade_has_not_ended(change, says):
    stopped = merged(change, {"status": {"jobStatus": {"state": "FINISHED"}}})
    assert parsed(stopped).has_ended == says
    assert (parsed(stopped).reason_not_to_write() is not None) == says


@pytest.mark.parametrize("prefix", ["", "kubernetes.operator."])
def test_an_autoscaler_that_only_advises_is_no_second_writer(prefix):
    options = {f"{prefix}job.autoscaler.enabled": True}
    assert parsed(configuration=options).builtin_autoscaler == "on"
    advisor = {**options, "job": {"autoscaler": {"scaling": {"enabled": False}}}}
    one = parsed(configuration=advisor)
    assert one.builtin_autoscaler == "advisor"
    assert one.reason_not_to_act() is None


def test_a_kill_switch_that_says_something_else_stops_nothing():
    assert not parsed({"metadata": {"annotations": {"dsp-gym.io/stop": "false"}}}).kill_switch


def test_the_patch_is_for_that_key_alone():
    one = parsed(overrides={MAP: 1, SINK: 2})
    assert one.patch_for({MAP: 3}) == {"spec": {"flinkConfiguration": {KEY: f"{MAP}:3,{SINK}:2"}}}


def test_an_override_that_cannot_be_read_is_not_written_over():
    with pytest.raises(KubernetesError, match="cannot be read"):
        parsed(configuration={KEY: "a:many"}).patch_for({MAP: 3})


def test_a_session_job_is_read_too():
    made = body()
    made["kind"] = "FlinkSessionJob"
    made["spec"] = {"deploymentName": "session", "job": made["spec"]["job"]}
    one = FlinkResource.parse(made)
    assert (one.kind, one.overrides, one.is_session_cluster) == ("FlinkSessionJob", {}, False)
    assert one.reason_not_to_act() is None


def test_the_server_says_which_client_wrote_the_override():
    body = deployment(overrides={MAP: 2})
    written = {"f:spec": {"f:flinkConfiguration": {f"f:{KEY}": {}}}}
    body["metadata"]["managedFields"] = [
        {"manager": "dsp-gym", "time": "2026-11-26T10:00:00Z", "fieldsV1": written},
        {"manager": "kubectl-edit", "time": "2026-11-26T11:00:00Z", "fieldsV1": written},
        {"manager": "flink-operator", "time": "2026-11-26T12:00:00Z", "fieldsV1": {"f:status": {}}},
    ]
    assert FlinkResource.parse(body).override_manager == "kubectl-edit"
    del body["metadata"]["managedFields"]
    assert FlinkResource.parse(body).override_manager is None
