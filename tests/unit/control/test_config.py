"""What `dsp-gym shadow` reads, and the slots it keeps to."""

from __future__ import annotations

import numpy as np
import pytest

from dsp_gym.config.files import load, names, parse
from dsp_gym.control.backend_of import Substitute
from dsp_gym.control.config import RunConfig
from dsp_gym.control.start import journal_folder, started
from dsp_gym.errors import ConfigError
from dsp_gym.guardrails.chain import build
from dsp_gym.guardrails.slots import bounded
from dsp_gym.job.placement import slots_of
from dsp_gym.loop.topology import Topology
from dsp_gym.records.journal import read
from tests.simulating import constant, exact, line, wanted


def config(**given) -> RunConfig:
    return parse(RunConfig, {"job": "nexmark-q1", "policy": "ds2", **given}, "run.yaml")


@pytest.mark.parametrize("name", names("shadow"))
def test_shipped_runs_are_valid(name):
    assert load("shadow", name).description


def test_a_run_needs_a_job_and_a_policy_only():
    made = config()
    assert made.guardrails == "default"
    assert made.where.actuator == "resubmit"
    assert made.interval_s == 60


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ({"rest_url": "localhost:8081"}, "http://"),
        ({"rest_url": "http://a", "home": "/b"}, "give one"),
        ({"rest_url": "http://a"}, "prometheus_url"),
        ({"metrics": "jmx"}, "'prometheus' or 'rest'"),
        ({"resturl": "http://a"}, "Did you mean 'rest_url'"),
    ],
)
def test_a_place_that_makes_no_sense_is_refused(where, message):
    with pytest.raises(ConfigError, match=message):
        config(where=where)


def test_slots_are_the_sum_or_where_they_are_shared_the_largest():
    given = {"source": 4, "map": 6, "sink": 1}
    assert slots_of(given, shared=line().slot_sharing) == 11
    assert slots_of(given, shared=line(slot_sharing=True).slot_sharing) == 6


@pytest.mark.parametrize("shared", [False, True])
def test_no_decision_takes_more_slots_than_allowed(shared):
    spec = line(slot_sharing=shared)
    jobs = constant(spec, 100.0, exact(), map=5)
    jobs.advance(300)
    chain = build(bounded(None, spec, 11))
    topology = Topology.of([spec])
    chain.reset(topology, np.array([0]))
    asked = jobs.state.parallelism.copy()
    asked[0, 1] = 20
    guarded = chain.allow(jobs.snapshot(), wanted(asked, jobs.state.level.copy()).proposed)
    by_name = dict(zip(topology.names(0), guarded.parallelism[0].tolist(), strict=True))
    assert slots_of(by_name, shared=shared) <= 11
    assert guarded.interventions[0].guardrail == "bounds_and_quota"


def test_bounds_of_the_guardrails_stay_when_they_are_tighter():
    made = bounded("default", line(), 100)
    assert {g.kind for g in made.guardrails} >= {"bounds_and_quota", "freeze", "stale_metrics"}
    own = bounded(None, line(), 100).guardrails[0]
    assert own.cores == 96


def test_slots_that_not_even_the_sources_fit_into_are_refused():
    with pytest.raises(ConfigError, match="4 source tasks"):
        bounded(None, line(), 4)


def test_a_journal_gives_back_the_configuration_of_its_run(tmp_path):
    rules = {"guardrails": [{"kind": "freeze"}, {"kind": "cool_down", "reversal_s": 0}]}
    made = config(guardrails=rules)
    with started(made, substitute=Substitute(load="constant"), journal=tmp_path):
        pass
    (body,) = [e.body for e in read(tmp_path) if e.body.get("event") == "started"]
    assert parse(RunConfig, body["configuration"], "journal") == made


@pytest.mark.parametrize("name", ["ads clicks: sessions/v2/", "../../evil", "/etc", "..", "a b"])
def test_no_name_of_a_job_leads_out_of_the_folder_of_journals(name, tmp_path):
    folder = journal_folder(config(job_name=name, journal=tmp_path))
    assert folder.parent == tmp_path
    assert folder.resolve().parent == tmp_path.resolve()
    other = journal_folder(config(job_name=name + " ", journal=tmp_path))
    assert folder != other


def test_a_plain_name_is_that_of_its_folder(tmp_path):
    assert journal_folder(config(job_name="orders-2.v1", journal=tmp_path)).name == "orders-2.v1"
    assert journal_folder(config(journal=tmp_path)).name == "nexmark-q1"
