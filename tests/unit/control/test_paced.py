"""Simulated jobs and recordings behind a live loop: as fast as can be, and journaled alike."""

from __future__ import annotations

import threading

import pytest

from dsp_gym.backends.base import Clock
from dsp_gym.backends.simulated.recording import SimulatedRecording
from dsp_gym.config.files import parse
from dsp_gym.control.backend_of import Substitute
from dsp_gym.control.config import RunConfig
from dsp_gym.control.start import check_alone, mode_of, policy_names, started
from dsp_gym.errors import ConfigError
from dsp_gym.job.catalog import load_job
from dsp_gym.loop.configuration import Configuration
from dsp_gym.records.journal import read
from dsp_gym.records.manifest import RecordedLoad

JOB = "flink-wordcount"
POLICIES = [{"name": "ds2", "policy": "ds2-local"}, "flink-autoscaler", "incumbent"]


def config(tmp_path, **given) -> RunConfig:
    document = {
        "job": JOB,
        "policies": POLICIES,
        "interval_s": 30,
        "window": {"window_s": 30, "stabilization_s": 20},
        "journal": str(tmp_path / "journal"),
        **given,
    }
    return parse(RunConfig, document, "shadow.yaml")


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    """Two runs of ten minutes: one that the job carries, one that needs more tasks."""
    folder = tmp_path_factory.mktemp("recording")
    spec = load_job(JOB)
    made = SimulatedRecording(folder, spec)
    for name, rate in (("calm", 200.0), ("busy", 1500.0)):
        load = RecordedLoad(name=name, steps=((0.0, rate),))
        made.add(name, Configuration.of_spec(spec), load, 600, seed=1)
    return folder


def test_every_policy_leaves_its_entries_for_the_same_snapshot(tmp_path):
    with started(config(tmp_path), substitute=Substitute(load="diurnal")) as run:
        run.run(steps=4)
    entries = [e for e in read(tmp_path / "journal" / JOB) if e.body.get("event") != "started"]
    names = ["ds2", "flink-autoscaler", "incumbent"]
    turn = [("snapshot", None)]
    turn += [(kind, name) for name in names for kind in ("decision", "guard")]
    turn += [("actuation", "ds2"), ("outcome", None)]
    assert [(e.kind, e.policy) for e in entries] == turn * 4
    for begin in range(0, len(entries), len(turn)):
        decisions = entries[begin : begin + len(turn) - 2]
        assert {e.body["t_s"] for e in decisions} == {entries[begin].t_s}


def test_in_shadow_the_job_stays_as_it_is_and_in_active_it_changes(tmp_path):
    policies = [{"name": "ds2", "policy": "ds2-local"}]
    for mode, changes in (("shadow", False), ("active", True)):
        given = config(tmp_path / mode, policies=policies, guardrails=None, mode=mode)
        substitute = Substitute(load="flash-crowd", duration_s=7200)
        with started(given, mode=mode, substitute=substitute) as run:
            run.run()
        seen = {e.body["vertices"][1]["parallelism"] for e in journal(tmp_path / mode, "snapshot")}
        asked = [e for e in journal(tmp_path / mode, "actuation") if e.body.get("asked")]
        assert (len(seen) > 1) == changes
        assert bool(asked) == changes


def journal(folder, kind):
    return [e for e in read(folder / "journal" / JOB) if e.kind == kind]


def test_mode_off_watches_and_asks_nobody(tmp_path):
    with started(config(tmp_path, mode="off"), mode="off", substitute=Substitute()) as run:
        run.run(steps=3)
    assert len(journal(tmp_path, "snapshot")) == 3
    assert not journal(tmp_path, "decision")


def test_a_recording_is_replayed_run_by_run_to_its_end(tmp_path, recording):
    with started(config(tmp_path), substitute=Substitute(recording=recording)) as run:
        run.run()
        assert run.backend.now_s() >= 1200
    rates = [
        e.body["vertices"][0]["metrics"]["records_out_per_s"] for e in journal(tmp_path, "snapshot")
    ]
    assert any(r is not None and 150 < r < 250 for r in rates)
    assert any(r is not None and r > 300 for r in rates)
    wanted = [e.body["vertices"][1]["parallelism"] for e in journal(tmp_path, "guard")]
    assert max(wanted) > 1
    assert all(e.body["rescales"] == 0 for e in journal(tmp_path, "outcome"))


def test_a_recording_of_another_job_is_refused(tmp_path, recording):
    with (
        pytest.raises(ConfigError, match=r"is a recording of .*flatmap.*'nexmark-q1'"),
        started(config(tmp_path, job="nexmark-q1"), substitute=Substitute(recording=recording)),
    ):
        pass


def test_a_replay_at_a_speed_can_be_stopped(tmp_path):
    stop = threading.Event()
    timer = threading.Timer(0.3, stop.set)
    timer.start()
    with started(config(tmp_path), substitute=Substitute(speed=1.0), clock=Clock(stop=stop)) as run:
        run.run()  # of a day, at the speed of a real one
        assert run.turns <= 2
    timer.join()


def test_same_seed_same_decisions(tmp_path):
    bodies = []
    for name in ("a", "b"):
        with started(config(tmp_path / name, seed=4), substitute=Substitute(load="markov")) as run:
            run.run(steps=20)
        bodies.append([e.body for e in journal(tmp_path / name, "guard")])
    assert bodies[0] == bodies[1]


def test_a_policy_that_does_not_fit_the_job_is_refused_before_the_first_decision(tmp_path):
    given = config(tmp_path, policies=["ds2", "clairvoyants"])
    with (
        pytest.raises(ConfigError, match="no policy 'clairvoyants'"),
        started(given, substitute=Substitute()),
    ):
        pass


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"policies": ["ds2", "ds2"]}, "two policies are called 'ds2'"),
        ({"policies": ["ds2"], "acting": "incumbent"}, "not one of the policies"),
        ({"acting": "ds3"}, "Did you mean 'ds2'"),
    ],
)
def test_names_that_do_not_fit_are_refused(tmp_path, given, message):
    with pytest.raises(ConfigError, match=message):
        policy_names(config(tmp_path, **given))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"policies": []}, "no policy decides"),
        ({"policy": "ds2"}, "give one"),
        ({"policies": ["incumbent"]}, "decides nothing"),
        ({"mode": "canary"}, "give both"),
        ({"mode": "active", "canary": {"share": 0.5}}, "give both"),
        ({"mode": "canary", "canary": {}}, "share below 1"),
        ({"mode": "act"}, "'active'"),
        ({"policies": ["ds2", {"policy": "ds2", "name": "two words"}]}, "name"),
    ],
)
def test_what_makes_no_sense_is_refused(tmp_path, given, message):
    with pytest.raises(ConfigError, match=message):
        config(tmp_path, **given)


@pytest.mark.parametrize("mode", ["advise", "canary", "active"])
def test_nothing_acts_without_apply(tmp_path, mode):
    canary = {"canary": {"share": 0.5}} if mode == "canary" else {}
    given = config(tmp_path, mode=mode, **canary)
    assert mode_of(given, apply=True) == mode
    assert mode_of(given, apply=False) == "shadow"
    with pytest.raises(ConfigError, match="--apply is missing"):
        mode_of(given, apply=False, asked=True)


def test_apply_acts_where_no_mode_is_given_and_is_refused_where_it_writes_nothing(tmp_path):
    assert mode_of(config(tmp_path), apply=False) == "shadow"
    assert mode_of(config(tmp_path), apply=True) == "active"
    assert mode_of(config(tmp_path, mode="off"), apply=False) == "off"
    for mode in ("off", "shadow"):
        with pytest.raises(ConfigError, match="nothing to apply"):
            mode_of(config(tmp_path, mode=mode), apply=True)


def test_acting_on_a_plain_flink_needs_a_lease_or_the_word_that_nobody_else_acts(tmp_path):
    plain, leased = config(tmp_path), config(tmp_path, where={"lease": str(tmp_path)})
    with pytest.raises(ConfigError, match="no lease keeps them apart") as raised:
        check_alone(plain, "active", sole=False)
    assert "where: {lease:" in str(raised.value.remedy)
    assert "--sole" in str(raised.value.remedy)
    check_alone(plain, "active", sole=True)
    check_alone(plain, "shadow", sole=False)
    check_alone(leased, "canary", sole=False)


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ({"lease": "s3://bucket/leases"}, "cannot be kept in s3://"),
        ({"lease": "kubernetes://flink"}, "kubernetes://NAMESPACE/NAME"),
        ({"lease": "/leases", "lease_s": 10}, "raise lease_s, or lower timeout_s"),
    ],
)
def test_a_lease_that_cannot_be_kept_is_refused(tmp_path, where, message):
    with pytest.raises(ConfigError, match=message):
        config(tmp_path, where=where)
