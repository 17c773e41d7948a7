"""The status of a loop: configurations and reasons per vertex, and active conditions."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from dsp_gym.control.serve.conditions import CONDITIONS
from dsp_gym.errors import FlinkError
from dsp_gym.loop.snapshot import FAILED, JOB, RESTARTING, RUNNING, VERTEX


def condition(document, name):
    return next(c for c in document["conditions"] if c["type"] == name)


def decided(session, steps):
    session.run.run(steps=session.run.turns + steps)
    return session.board.document()


def test_before_the_first_decision_everything_is_unknown(serving):
    document = serving().board.document()
    assert document["schema"] == "dsp-gym/status/1"
    assert [c["type"] for c in document["conditions"]] == list(CONDITIONS)
    assert {c["status"] for c in document["conditions"]} == {"Unknown"}
    assert document["vertices"] == []


def test_labels_of_copies_are_named(serving, monkeypatch):
    session = serving()
    assert decided(session, 1)["data"]["folded"] == []
    monkeypatch.setattr(type(session.run.backend), "folded", {"replica", "pod"})
    assert decided(session, 1)["data"]["folded"] == ["pod", "replica"]


def test_every_vertex_says_what_runs_and_what_each_policy_wants(serving):
    document = decided(serving(), 20)
    json.dumps(document, allow_nan=False)
    assert [v["name"] for v in document["vertices"]] == ["source", "flatmap", "count"]
    for vertex in document["vertices"]:
        assert list(vertex["policies"]) == ["network", "ds2", "incumbent"]
        for policy in vertex["policies"].values():
            assert policy["lower"] <= policy["target"] <= policy["upper"]
            assert policy["reason"]
            assert policy["sentence"]
        assert vertex["policies"]["incumbent"]["target"] == vertex["current"]["parallelism"]
    sure = [v["policies"]["network"]["confidence"] for v in document["vertices"]]
    assert all(0 < value <= 1 for value in sure)
    assert document["vertices"][0]["policies"]["ds2"]["confidence"] is None


def test_while_the_window_fills_the_guardrail_is_the_reason(serving):
    session = serving(policies=["static", {"name": "greedy", "policy": "hpa-cpu"}],
                      acting="greedy", guardrails="default")  # fmt: skip
    document = decided(session, 1)
    fresh = condition(document, "DataFresh")
    assert (fresh["status"], fresh["reason"]) == ("False", "WindowFilling")
    assert condition(document, "Ready")["status"] == "True"
    document = decided(session, 4)
    assert condition(document, "DataFresh")["status"] == "True"


def test_a_limited_decision_names_the_guardrail_and_shows_what_was_wanted(serving):
    rules = {"guardrails": [{"kind": "bounds_and_quota", "max_parallelism": 1}]}
    session = serving(policies=[{"name": "ds2", "policy": "ds2-local"}], guardrails=rules)
    for _ in range(100):
        session.run.turn()
        document = session.board.document()
        if condition(document, "Limited")["status"] == "True":
            break
    flatmap = document["vertices"][1]["policies"]["ds2"]
    assert flatmap["uncapped"] > flatmap["target"] == flatmap["upper"] == 1
    assert flatmap["reason"] == "bounds_and_quota"
    assert "bounds_and_quota" in condition(document, "Limited")["message"]


def test_a_job_that_cannot_be_seen_is_said_and_then_forgotten(serving, monkeypatch):
    session = serving()
    decided(session, 3)
    jobs = session.run.backend.collector

    def refuses():
        raise FlinkError("http://flink:8081: did not answer within 10 s")

    with monkeypatch.context() as patch:
        patch.setattr(jobs, "snapshot", refuses)
        document = decided(session, 1)
    ready = condition(document, "Ready")
    assert (ready["status"], ready["reason"]) == ("False", "JobNotSeen")
    assert "within 10 s" in ready["message"]
    assert condition(document, "DataFresh")["status"] == "False"
    assert document["held"] is not None
    assert document["decisions"][0]["held"] is not None
    since_s = ready["since_s"]
    document = decided(session, 1)
    assert condition(document, "Ready")["status"] == "True"
    assert condition(document, "Ready")["since_s"] > since_s


def test_samples_that_stop_coming_grow_old_for_as_long_as_they_stay_away(serving, monkeypatch):
    """Whatever the look reaches back: the alert waits for samples that are three minutes old."""
    session = serving()
    fresh_s = decided(session, 3)["data"]["age_s"]
    jobs = session.run.backend.collector
    with monkeypatch.context() as patch:
        patch.setattr(jobs, "age_s", math.nan)  # no sample within the window
        assert decided(session, 8)["data"]["age_s"] == fresh_s + 8 * 30

    def refuses():
        raise FlinkError("http://flink:8081: did not answer within 10 s")

    with monkeypatch.context() as patch:
        patch.setattr(jobs, "snapshot", refuses)
        decided(session, 8)
        assert session.board.data_age_s >= 8 * 30
    assert decided(session, 1)["data"]["age_s"] == fresh_s


def test_a_job_that_does_not_run_has_no_old_metrics(serving, monkeypatch):
    session = serving()
    decided(session, 3)
    jobs = session.run.backend.collector
    looked = jobs.snapshot

    def down():
        seen = looked()
        seen.status[:] = FAILED
        return seen

    with monkeypatch.context() as patch:
        patch.setattr(jobs, "age_s", math.nan)
        patch.setattr(jobs, "snapshot", down)
        assert decided(session, 1)["data"]["age_s"] is None


def test_a_job_that_is_down_is_behind_and_of_one_without_metrics_it_is_not_known(
    serving, monkeypatch
):
    session = serving()
    jobs = session.run.backend.collector
    looked = jobs.snapshot

    def behind(status, latency_s):
        """The condition of a job that tells nothing of its backlog."""

        def shown():
            seen = looked()
            seen.status[:] = status
            seen.arrays.job[JOB.latency_p95_s] = latency_s
            seen.arrays.vertex[VERTEX.pending_records] = np.nan
            return seen

        with monkeypatch.context() as patch:
            patch.setattr(jobs, "snapshot", shown)
            found = condition(decided(session, 1), "Behind")
        return found["status"], found["reason"], found["message"]

    assert behind(FAILED, np.nan) == ("True", "Down", "the job has failed, or is gone")
    assert behind(RESTARTING, np.nan) == ("True", "Down", "the job is RESTARTING")
    assert behind(RUNNING, np.nan)[:2] == ("Unknown", "NotKnown")
    assert behind(RUNNING, 0.1)[:2] == ("False", "InTime")
    assert behind(RUNNING, 1000.0)[:2] == ("True", "Behind")


def test_a_stop_file_pauses(serving, tmp_path):
    stop = tmp_path / "stop"
    session = serving(stop_file=str(stop))
    assert condition(decided(session, 1), "Paused")["status"] == "False"
    stop.touch()
    paused = condition(decided(session, 1), "Paused")
    assert (paused["status"], paused["reason"]) == ("True", "Stopped")


def test_a_policy_that_fails_shows_who_decides_instead(serving, monkeypatch):
    session = serving()
    decided(session, 4)

    def raises(snapshot):
        raise ZeroDivisionError("no rate")

    monkeypatch.setattr(session.run.policies[1].policy, "decide", raises)
    document = decided(session, 1)
    active = condition(document, "FallbackActive")
    assert (active["status"], active["reason"]) == ("True", "PolicyRaised")
    assert document["policies"]["ds2"]["failures"] == 1
    assert document["vertices"][1]["policies"]["ds2"]["reason"] == "policy_raised"
    assert "no rate" in document["vertices"][1]["policies"]["ds2"]["sentence"]


def test_the_list_of_decisions_is_bounded_and_newest_first(serving):
    document = decided(serving(), 60)
    assert len(document["decisions"]) == 50
    assert [d["number"] for d in document["decisions"][:2]] == [60, 59]


def test_versions_tell_two_policies_apart(serving):
    policies = serving(
        policies=["planner", "ds2", {"name": "other", "policy": "ds2-local"}]
    ).board.document()["policies"]
    hashes = [policy["sha256"] for policy in policies.values()]
    assert len(set(hashes)) == 3
    assert all(len(value) == 64 for value in hashes)


@pytest.mark.parametrize("mode", ["off"])
def test_in_mode_off_only_what_runs_is_shown(serving, mode):
    session = serving()
    session.run.permission.mode = mode
    document = decided(session, 2)
    assert document["mode"] == "off"
    assert document["vertices"][0]["policies"] == {}
    assert condition(document, "Limited")["status"] == "Unknown"


def test_a_policy_that_wants_more_than_the_fit_has_seen_says_so(serving):
    from dsp_gym.job.evidence import Evidence

    session = serving()
    assert decided(session, 2)["policies"]["ds2"]["validity"] is None  # nobody fitted the job
    seen = Evidence(command="mine", runs=3, slots=(100, 200))
    spec = session.board.turn.snapshot.topology.spec(0)
    object.__setattr__(spec, "fitted", seen)
    found = decided(session, 1)["policies"]["ds2"]["validity"]
    assert found["doublings"] > 0
    assert "fitted on 100 to 200" in found["sentences"][0]
