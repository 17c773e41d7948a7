"""Backtests of journals of simulated jobs, where what would have happened can be run."""

from __future__ import annotations

import dataclasses
import json
import tracemalloc
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from dsp_gym.config.files import parse
from dsp_gym.control.backend_of import Substitute
from dsp_gym.control.config import RunConfig
from dsp_gym.control.gate import GateConfig
from dsp_gym.control.start import started
from dsp_gym.errors import ConfigError, SchemaError
from dsp_gym.job.catalog import load_job
from dsp_gym.records.journal import Journal, read
from dsp_gym.whatif.backtest import backtest
from dsp_gym.whatif.fleet_page import write_report
from dsp_gym.whatif.history import Decided, since
from dsp_gym.whatif.journal import read_run
from dsp_gym.whatif.journal_history import history_of_run, journal_histories
from dsp_gym.whatif.result import Ranged, Trust
from dsp_gym.whatif.verdict import VerdictTerms, judge
from tests.unit.whatif.histories import observed

HOURS = 2
POLICIES = [
    {"name": "justin", "policy": "justin-artifact"},
    {"name": "ds2", "policy": "ds2-justin"},
    "incumbent",
]
SEEDS = 4


def run(folder: Path, acting: str, **changed: object) -> RunConfig:
    """Lets one policy act on a simulated job for some hours, the others watching."""
    document = {
        "job": "nexmark-q11", "policies": POLICIES, "acting": acting, "guardrails": None,
        "mode": "active", "roll_back": {"slo_share": 1.0}, "gate": {"min_days": HOURS / 24},
        **changed,
    }  # fmt: skip
    config = parse(RunConfig, document, "run.yaml")
    place = Substitute(load="diurnal", duration_s=HOURS * 3600)
    with started(config, mode="active", substitute=place, journal=folder) as loop:
        loop.run(steps=HOURS * 60)
    return config


@pytest.fixture(scope="module")
def journals(tmp_path_factory) -> dict[str, Path]:
    """Journals of the same job under the same load, with one policy and with the other acting."""
    root = tmp_path_factory.mktemp("journals")
    for acting in ("justin", "ds2"):
        run(root / acting, acting)
    return {acting: root / acting for acting in ("justin", "ds2")}


def judged(*histories):
    return backtest(histories, "a test", seeds=SEEDS)


@pytest.fixture(scope="module")
def found(journals):
    return judged(*journal_histories(journals["justin"]))


@pytest.fixture(scope="module")
def job(found):
    return found.jobs[0]


def test_a_journal_says_what_ran_and_what_was_wanted(journals):
    course = read_run(journals["justin"])
    assert len(course) == HOURS * 60
    assert course.interval_s == 60
    assert course.vertices == tuple(v.name for v in load_job("nexmark-q11").topological_order())
    assert set(course.decided) == {"justin", "ds2", "incumbent"}
    ran = course.decided["incumbent"]
    assert np.array_equal(ran.parallelism, course.parallelism)
    (one,) = journal_histories(journals["justin"])
    assert one.coverage > 0.9
    (whole,) = one.stretches()
    assert whole.stop - whole.start >= HOURS * 60 - 1


def test_reading_a_journal_does_not_hold_it(journals):
    """A month of entries as JSON is gigabytes."""
    peaks = []
    for reader in (lambda: list(read(journals["justin"])), lambda: read_run(journals["justin"])):
        tracemalloc.start()
        try:
            kept = reader()
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
        del kept
    entries, course = peaks
    assert course < entries / 5


def _snapshot(t_s: float, tasks: Mapping[str, int]) -> dict[str, object]:
    vertices = [
        {"name": name, "parallelism": p, "memory_level": -1, "metrics": {"state_mib": 1.0}}
        for name, p in tasks.items()
    ]
    return {"t_s": t_s, "status": "RUNNING", "metrics": {}, "vertices": vertices}


def _guard(tasks: Mapping[str, int], *guardrails: str) -> dict[str, object]:
    vertices = [{"name": name, "parallelism": p, "memory_level": 0} for name, p in tasks.items()]
    return {"vertices": vertices, "interventions": [{"guardrail": name} for name in guardrails]}


def test_a_guardrail_steps_in_anew_after_an_hour_without(tmp_path):
    """In shadow a policy may want the same for hours, and waver."""
    trips = [("floor",), ("floor",), ("floor", "limit"), (), ("floor",), (), ("limit", "floor")]
    with Journal(tmp_path) as journal:
        for slot, guardrails in enumerate(trips):
            journal.append("snapshot", 0.0, "q", None, _snapshot(1800.0 * slot, {"a": 1}))
            journal.append("guard", 0.0, "q", "p", _guard({"a": 2}, *guardrails))
    assert read_run(tmp_path, "q").decided["p"].trips == {"floor": 3, "limit": 2}


def test_trips_failures_and_held_slots_before_the_last_days_do_not_count(tmp_path):
    trips = [("floor",), (), ("limit",), (), ("floor",), (), ("limit", "floor")]
    with Journal(tmp_path) as journal:
        for slot, guardrails in enumerate(trips):
            t_s = 1800.0 * slot
            journal.append("snapshot", t_s, "q", None, _snapshot(t_s, {"a": 1}))
            journal.append("guard", t_s + 1, "q", "p", _guard({"a": 2 + slot}, *guardrails))
            body = {"stage": "policy", "cause": "late" if slot == 4 else "raised"}
            if slot < 5:
                journal.append("error", t_s + 1, "q", "p", body)
            held = None if slot % 2 else "no answer"
            journal.append("actuation", t_s + 2, "q", None, {"event": "decided", "held": held})
    found = read_run(tmp_path, "q")
    assert len(found.held_s) == 4
    begin_s = 4 * 1800.0
    last = found.decided["p"].since(begin_s, found.t_s >= begin_s)
    assert last.parallelism.tolist() == last.proposed.tolist() == [[6], [7], [8]]
    assert last.asked.tolist() == [True, True, True]
    assert last.trips == {"floor": 2, "limit": 1}
    assert last.failures == {"late": 1}


def test_the_last_hour_of_a_journal_is_judged_by_its_own_decisions(journals):
    (whole,) = journal_histories(journals["justin"])
    hour = since(whole, 1 / 24)
    assert len(hour) == 60
    assert hour.watched.held_s.tolist() == [t for t in whole.watched.held_s if t >= hour.t_s[0]]
    for policy, decided in hour.watched.decided.items():
        before = whole.watched.decided[policy]
        assert np.array_equal(decided.parallelism, before.parallelism[-60:])
        assert np.array_equal(decided.memory_level, before.memory_level[-60:])
    claims = {one.policy: one for one in judged(hour).jobs[0].claims}
    assert claims["justin"].agreement > 0.9  # it acted
    assert all(sum(one.trips.values()) <= 1 for one in claims.values())


def test_a_journal_whose_graph_and_clock_changed_is_read_in_the_order_of_time(tmp_path):
    """Of several decisions or outcomes of a slot the last counts; slots of old graphs do not."""
    ab, ac = ({"a": 1, "b": 2}, {"a": 1, "c": 3})
    with Journal(tmp_path) as journal:

        def add(kind, body, policy=None, job="q"):
            journal.append(kind, 0.0, job, policy, body)

        add("outcome", {"cost": 9.0})  # of no slot
        add("snapshot", _snapshot(10.0, ab))
        add("guard", _guard({"a": 4, "b": 4}), "old")
        add("snapshot", _snapshot(30.0, ac))
        add("guard", _guard({"a": 5, "c": 5}, "bounds"), "late")
        add("guard", _guard({"a": 6, "c": 6}, "cool-down"), "late")
        add("outcome", {"cost": 1.0, "seconds": 10.0, "data_age_s": 2.0})
        add("outcome", {"cost": 2.0, "arrivals": [[30.0, 0.0], [35.0, 4.0]]})
        add("snapshot", _snapshot(20.0, ac))  # the clock went back
        add("guard", _guard({"a": 7, "c": 7}), "early")
        add("guard", _guard({"a": 8, "c": 8}), "late")
        add("error", {"stage": "policy", "cause": "raised"}, "late")
        add("snapshot", _snapshot(40.0, ac))
        add("snapshot", _snapshot(99.0, ab), job="another")
    found = read_run(tmp_path, "q")
    assert found.vertices == ("a", "c")
    assert found.other_graphs == {("a", "b"): 1}
    assert found.notes() == ["1 decision slot is of another graph (a, b) and left out"]
    assert found.t_s.tolist() == [20.0, 30.0, 40.0]
    assert found.parallelism.tolist() == [[1, 3]] * 3
    assert list(found.decided) == ["early", "late"]
    late = found.decided["late"]
    assert late.parallelism.tolist() == [[8, 8], [6, 6], [-1, -1]]
    assert late.asked.tolist() == [True, True, False]
    assert late.trips == {"cool-down": 1}
    assert late.failures == {"raised": 1}
    assert found.decided["early"].asked.tolist() == [True, False, False]
    assert np.array_equal(found.outcome["cost"], [np.nan, 2.0, np.nan], equal_nan=True)
    assert np.isnan(found.outcome["seconds"]).all()
    assert found.age_s.tolist() == [0.0, 0.0, 0.0]
    assert [len(arrivals) for arrivals in found.arrivals] == [0, 2, 0]
    with pytest.raises(SchemaError, match="several jobs: q, another"):
        read_run(tmp_path)
    with pytest.raises(SchemaError, match="'missing'; it has q, another"):
        read_run(tmp_path, "missing")


def test_a_gap_ends_a_stretch(journals, tmp_path):
    entries = list(read(journals["justin"]))
    begun_s = entries[0].t_s
    with Journal(tmp_path / "gap") as journal:
        for entry in entries:
            if not 2400 < entry.t_s - begun_s < 4200:
                journal.append(entry.kind, entry.t_s, entry.job, entry.policy, entry.body)
    (one,) = journal_histories(tmp_path / "gap")
    assert len(one.stretches()) == 2
    assert one.coverage < 0.95


def test_a_restart_without_a_rescale_is_left_out_and_counted(journals, tmp_path):
    whole = read_run(journals["justin"])
    (part,) = history_of_run(whole, "here").stretches()
    same = np.all(np.diff(whole.parallelism[part], axis=0) == 0, axis=1)
    k = part.start + 12 + int(np.flatnonzero(same[12:])[0])  # k + 1 runs as k does
    since = whole.running_since_s.copy()
    since[k + 1 :] = np.maximum(since[k + 1 :], whole.t_s[k] + 20.0)
    failed = dataclasses.replace(whole, running_since_s=since)
    assert failed.restarts() == [*whole.restarts(), slice(k, k + 1)]
    assert history_of_run(failed, "here").stretches()[0].stop == k
    assert "the job restarted once without a rescale" in failed.notes()[0]
    up = whole.up.copy()
    up[[k, k + 2]], up[k + 1] = True, False  # down for a slot, and back as it was
    down = dataclasses.replace(whole, up=up, parallelism=whole.parallelism[[k] * len(whole)])
    assert slice(k, k + 2) in down.restarts()


def test_the_model_is_right_about_a_job_it_is(job):
    assert job.observed.cost_error < 0.02
    assert job.observed.late_error < 0.02
    assert not job.distrust


def test_what_the_other_policy_costs_is_predicted_from_this_ones_journal(job, journals):
    """The other one's own run on the same load tells."""
    other = read_run(journals["ds2"]).outcome
    truth = 3600 * np.nansum(other["cost"]) / np.nansum(other["seconds"])
    (claim,) = (one for one in job.claims if one.policy == "ds2")
    said = job.observed.model_cost_per_month - claim.saving_per_month.value
    assert said / 730 == pytest.approx(truth, rel=0.15)


def test_the_incumbent_has_no_verdict(job):
    assert {claim.policy for claim in job.claims} == {"justin", "ds2"}
    assert job.claims[0].agreement > 0.9  # justin acted


def test_nothing_is_claimed_by_a_model_that_is_wrong(journals, tmp_path):
    spec = load_job("nexmark-q11")
    slow = spec.model_copy(
        update={
            "vertices": tuple(
                v.model_copy(update={"cpu_us_per_record": 30.0}) for v in spec.vertices
            )
        }
    )
    wrong = judged(*journal_histories(journals["justin"], slow))
    assert wrong.jobs[0].distrust
    assert {claim.verdict for claim in wrong.jobs[0].claims} == {"keep watching"}
    assert all(one.claimed_per_month == 0 for one in wrong.fleet)


def test_the_same_journal_gives_the_same_document(found, journals):
    assert judged(*journal_histories(journals["justin"])).to_json() == found.to_json()


def test_the_pages_stand_alone_and_hold_verdicts_and_plots(found, job, tmp_path):
    write_report(found, tmp_path)
    (page,) = tmp_path.glob("job-*.html")
    text = page.read_text(encoding="utf-8")
    assert text.count('<div class="chart"') == 1
    assert "src=" not in text
    document = json.loads((tmp_path / "backtest.json").read_text(encoding="utf-8"))
    assert document["schema"] == "dsp-gym/backtest/1"
    for claim in document["jobs"][0]["claims"]:
        assert claim["verdict"] in text


def test_a_model_of_another_job_is_refused(journals):
    with pytest.raises(ConfigError, match="the journal is of a job with"):
        journal_histories(journals["justin"], load_job("nexmark-q1"))


def test_an_empty_journal_says_so(tmp_path):
    with Journal(tmp_path) as journal:
        journal.append("error", 0.0, "q11", None, {"stage": "collector", "reason": "down"})
    with pytest.raises(SchemaError, match="holds no decisions"):
        journal_histories(tmp_path)


def test_a_few_decisions_are_too_few(tmp_path):
    run(tmp_path / "few", "justin")
    entries = list(read(tmp_path / "few"))[:40]
    with Journal(tmp_path / "cut") as journal:
        for entry in entries:
            journal.append(entry.kind, entry.t_s, entry.job, entry.policy, entry.body)
    with pytest.raises(ConfigError, match="no stretch of 10 slots"):
        judged(*journal_histories(tmp_path / "cut"))


def ranged(value, low, high) -> Ranged:
    return Ranged(value=value, low=low, high=high)


GOOD = {"saving": ranged(0.3, 0.2, 0.4), "later": ranged(0.0, -0.001, 0.001)}
SAVED = {"saving": ranged(-1.18, -1.2, -1.16), "later": ranged(-0.944, -0.95, -0.94)}
EXACT = observed(days=0.08, late=0.01, model_late=0.01)
LATE = observed(days=0.08, late=1.0, model_late=1.0)


def beside(**failures) -> Decided:
    none = np.zeros((240, 1), np.int64)
    failures_s = {cause: np.arange(float(times)) for cause, times in failures.items()}
    return Decided(none, none, none, np.ones(240, np.bool_), {}, failures_s)


def verdict(figures, seen, decided=None, **gate):
    terms = VerdictTerms(GateConfig.model_validate(gate), Trust())
    return judge(figures, seen, decided or beside(), terms)


@pytest.mark.parametrize(
    ("figures", "seen", "rescue", "word"),
    [
        (SAVED, LATE, {}, "rescue"),
        ({**SAVED, "saving": ranged(0.3, 0.2, 0.4)}, LATE, {}, "promote"),
        # A bit late is no emergency; a bit less late is no rescue; nobody pays any price.
        (SAVED, observed(days=0.08, late=0.04, model_late=0.04), {}, "reject"),
        ({**SAVED, "later": ranged(-0.5, -0.6, -0.4)}, LATE, {}, "reject"),
        (SAVED, LATE, {"max_cost": 2.0}, "reject"),
        (SAVED, LATE, {"cut": 0.96}, "reject"),
    ],
)
def test_a_policy_that_saves_the_slo_for_more_money_is_a_rescue(figures, seen, rescue, word):
    said, reasons = verdict(figures, seen, min_days=0.05, rescue=rescue)
    assert said == word
    few, _ = verdict(figures, seen, min_days=7.0, rescue=rescue)
    assert few == ("reject" if word == "reject" else "keep watching")
    (saving,) = (reason for reason in reasons if reason.subject == "saving")
    assert ("a rescue may cost up to 5 times as much" in saving.text) == (word == "rescue")


@pytest.mark.parametrize(
    ("figures", "seen", "days", "failures", "word", "subject"),
    [
        (GOOD, EXACT, 0.05, {}, "promote", None),
        (GOOD, EXACT, 7.0, {}, "keep watching", "days observed"),
        ({**GOOD, "saving": ranged(0.3, -0.1, 0.7)}, EXACT, 0.05, {}, "keep watching", "saving"),
        ({**GOOD, "saving": ranged(-0.3, -0.4, -0.2)}, EXACT, 0.05, {}, "reject", "saving"),
        ({**GOOD, "later": ranged(0.1, 0.09, 0.11)}, EXACT, 0.05, {}, "reject", "SLO"),
        ({**GOOD, "later": ranged(0.01, -0.1, 0.1)}, EXACT, 0.05, {}, "keep watching", "SLO"),
        (GOOD, observed(days=1.0, model_cost=1.2), 0.05, {}, "keep watching", "model"),
        (GOOD, EXACT, 0.05, {"raised": 3}, "reject", "failures"),
    ],
)
def test_the_gate_promotes_rejects_or_keeps_watching(figures, seen, days, failures, word, subject):
    said, reasons = verdict(figures, seen, beside(**failures), min_days=days)
    assert said == word
    wanting = {reason.subject for reason in reasons if not reason.holds}
    assert (subject in wanting) if subject else not wanting


def test_a_verdict_says_the_change_of_cost_and_lateness_in_words():
    figures = {"saving": ranged(-1.184, -1.25, -1.1), "later": ranged(-0.9439, -0.951, -0.94)}
    _, reasons = verdict(figures, EXACT, beside(raised=3))
    texts = {reason.subject: reason.text for reason in reasons}
    assert texts["saving"] == (
        "costs 118 % more [+110 to +125 % in cost], a saving of at least 5 % needed"
    )
    assert texts["SLO"] == (
        "late 94.4 points less than the incumbent [-95.1 to -94 points], "
        "at most 0.5 points more allowed"
    )
    assert texts["failures"] == "3 of 240 decisions failed, at most 0.10% allowed"
    assert texts["model"].startswith("errors on the deployed configurations: cost 0.0 %")
    _, lenient = verdict(figures, EXACT, min_saving=-0.1)
    (saving,) = (r.text for r in lenient if r.subject == "saving")
    assert saving.endswith("at most 10 % more allowed")
