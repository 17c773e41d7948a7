"""The counterfactual scorecard on simulated jobs, where the alternative can be run."""

from __future__ import annotations

import dataclasses
import json
import math
import tracemalloc
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import yaml

from dsp_gym.config.files import parse
from dsp_gym.control.backend_of import Elsewhere
from dsp_gym.control.config import RunConfig
from dsp_gym.control.gate import GateConfig
from dsp_gym.control.start import started
from dsp_gym.errors import ConfigError, SchemaError
from dsp_gym.evaluation.counterfactual.claims import (
    Claim,
    Estimated,
    ModelError,
    Trust,
    claim_of,
)
from dsp_gym.evaluation.counterfactual.course import read_course
from dsp_gym.evaluation.counterfactual.evaluation import CounterfactualConfig, evaluate_journal
from dsp_gym.evaluation.counterfactual.report import write_page
from dsp_gym.evaluation.counterfactual.uncertainty import with_capacity
from dsp_gym.evaluation.counterfactual.verdict import NO_CLAIM, judge
from dsp_gym.job.capacity import mst
from dsp_gym.job.catalog import load_job
from dsp_gym.records.journal import Journal, read

HOURS = 2
POLICIES = [
    {"name": "justin", "policy": "justin-artifact"},
    {"name": "ds2", "policy": "ds2-justin"},
    "incumbent",
]
HOW = CounterfactualConfig(seeds=4)


def run(folder: Path, acting: str, **changed: object) -> RunConfig:
    """Lets one policy act on a simulated job for some hours, the others watching."""
    document = {
        "job": "nexmark-q11", "policies": POLICIES, "acting": acting, "guardrails": None,
        "mode": "active", "roll_back": {"slo_share": 1.0}, "gate": {"min_days": HOURS / 24},
        **changed,
    }  # fmt: skip
    config = parse(RunConfig, document, "run.yaml")
    place = Elsewhere(load="diurnal", duration_s=HOURS * 3600)
    with started(config, mode="active", elsewhere=place, journal=folder) as loop:
        loop.run(steps=HOURS * 60)
    return config


@pytest.fixture(scope="module")
def journals(tmp_path_factory) -> dict[str, Path]:
    """Journals of the same job under the same load, with one policy and with the other acting."""
    root = tmp_path_factory.mktemp("journals")
    for acting in ("justin", "ds2"):
        run(root / acting, acting)
    return {acting: root / acting for acting in ("justin", "ds2")}


@pytest.fixture(scope="module")
def card(journals):
    return evaluate_journal(journals["justin"], how=HOW)


def test_a_journal_says_what_ran_and_what_was_wanted(journals):
    course = read_course(journals["justin"])
    assert len(course) == HOURS * 60
    assert course.interval_s == 60
    assert course.vertices == tuple(v.name for v in load_job("nexmark-q11").topological_order())
    assert set(course.decided) == {"justin", "ds2", "incumbent"}
    ran = course.decided["incumbent"]
    assert np.array_equal(ran.parallelism, course.parallelism)
    assert course.coverage > 0.9
    (whole,) = course.segments()
    assert whole.stop - whole.start >= HOURS * 60 - 1


def test_reading_a_journal_does_not_hold_it(journals):
    """A month of entries as JSON is gigabytes."""
    peaks = []
    for reader in (lambda: list(read(journals["justin"])), lambda: read_course(journals["justin"])):
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
    assert read_course(tmp_path, "q").decided["p"].trips == {"floor": 3, "limit": 2}


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
    found = read_course(tmp_path, "q")
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
        read_course(tmp_path)
    with pytest.raises(SchemaError, match="'missing'; it has q, another"):
        read_course(tmp_path, "missing")


def test_a_gap_ends_a_stretch(journals, tmp_path):
    entries = list(read(journals["justin"]))
    begun_s = entries[0].t_s
    with Journal(tmp_path / "gap") as journal:
        for entry in entries:
            if not 2400 < entry.t_s - begun_s < 4200:
                journal.append(entry.kind, entry.t_s, entry.job, entry.policy, entry.body)
    course = read_course(tmp_path / "gap")
    assert len(course.segments()) == 2
    assert course.coverage < 0.95


def test_a_restart_without_a_rescale_is_left_out_and_counted(journals, tmp_path):
    whole = read_course(journals["justin"])
    (part,) = whole.segments()
    same = np.all(np.diff(whole.parallelism[part], axis=0) == 0, axis=1)
    k = part.start + 12 + int(np.flatnonzero(same[12:])[0])  # k + 1 runs as k does
    since = whole.running_since_s.copy()
    since[k + 1 :] = np.maximum(since[k + 1 :], whole.t_s[k] + 20.0)
    failed = dataclasses.replace(whole, running_since_s=since)
    assert failed.restarts() == [*whole.restarts(), slice(k, k + 1)]
    assert next(cut.stop for cut in failed.segments()) == k
    assert "the job restarted once without a rescale" in failed.notes()[0]
    up = whole.up.copy()
    up[[k, k + 2]], up[k + 1] = True, False  # down for a slot, and back as it was
    down = dataclasses.replace(whole, up=up, parallelism=whole.parallelism[[k] * len(whole)])
    assert slice(k, k + 2) in down.restarts()


def test_the_model_is_right_about_a_job_it_is(card):
    assert card.error.cost < 0.02
    assert card.error.slo < 0.02
    assert not card.error.beyond(Trust())


def test_what_the_other_policy_costs_is_predicted_from_this_ones_journal(card, journals):
    """The other one's own run on the same load tells."""
    other = read_course(journals["ds2"]).outcome
    truth = 3600 * np.nansum(other["cost"]) / np.nansum(other["seconds"])
    (claim,) = (one for one in card.claims if one.policy == "ds2")
    assert claim.figures["cost_per_h"].value == pytest.approx(truth, rel=0.15)


def test_the_incumbent_saves_nothing_and_agrees_with_itself(card):
    (ran,) = (one for one in card.claims if one.policy == "incumbent")
    assert ran.figures["saving"].value == 0
    assert ran.agreement == 1
    assert "incumbent" not in card.verdicts


def test_nothing_is_claimed_by_a_model_that_is_wrong(journals, tmp_path):
    spec = load_job("nexmark-q11")
    slow = tuple(
        v.model_copy(update={"cpu_us_per_record": v.cpu_us_per_record.model_copy(
            update={"value": 30.0})} if hasattr(v.cpu_us_per_record, "value")
            else {"cpu_us_per_record": 30.0})
        for v in spec.vertices
    )  # fmt: skip
    import yaml

    document = spec.model_copy(update={"vertices": slow}).model_dump(
        mode="json", by_alias=True, exclude_defaults=True
    )
    (tmp_path / "slow.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
    config = parse(
        RunConfig, {"job": str(tmp_path / "slow.yaml"), "policies": POLICIES}, "slow.yaml"
    )
    found = evaluate_journal(journals["justin"], config, how=HOW)
    assert found.error.beyond(Trust())
    assert not any(one.figures for one in found.claims)
    assert {verdict.word for verdict in found.verdicts.values()} == {"keep watching"}
    write_page(found, tmp_path / "page.html")
    assert "No claims: the model" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_near_saturation_an_interval_holds_the_truth_where_a_claim_was_withheld(journals, tmp_path):
    """A model whose capacity is too small by as much as its fit's error says it may be."""
    off = 0.25
    evidence = {
        "command": "dsp-gym calibrate", "runs": 9,
        "error": {"left_out": "runs", "predictions": 9, "median": 0.1, "p90": off, "within": off},
    }  # fmt: skip
    slow = with_capacity(load_job("nexmark-q11"), math.exp(-off))
    document = slow.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    cards = []
    for name, told in (("silent", {}), ("honest", {"fitted": evidence})):
        file = tmp_path / f"{name}.yaml"
        file.write_text(yaml.safe_dump(document | told), encoding="utf-8")
        config = parse(RunConfig, {"job": str(file), "policies": POLICIES}, "slow.yaml")
        cards.append(evaluate_journal(journals["justin"], config, how=HOW))
    silent, honest = cards
    assert silent.error.beyond(Trust())
    assert not any(one.figures for one in silent.claims)
    assert honest.error.slo == silent.error.slo
    assert honest.error.slo_unexplained <= Trust().slo_share
    assert not honest.error.beyond(Trust())
    (ran,) = (one for one in honest.claims if one.policy == "incumbent")
    late = ran.figures["slo_share"]
    assert late.low <= honest.error.slo_share[1] <= late.high
    assert late.high - late.low >= silent.error.slo
    reasons = {one.subject: one for one in honest.verdicts["ds2"].reasons}
    assert reasons["model"].holds
    assert "within the error of its capacity it is late" in reasons["model"].text


def test_a_capacity_twice_as_large_carries_twice_as_much():
    spec = load_job("nexmark-q11")
    assert mst(with_capacity(spec, 2.0)).rate_per_s == pytest.approx(
        2.0 * mst(spec).rate_per_s, rel=0.05
    )


def test_the_same_journal_gives_the_same_scorecard(card, journals):
    assert evaluate_journal(journals["justin"], how=HOW).to_json() == card.to_json()


def test_no_figure_lies_beyond_what_is_possible(card):
    """An interval as wide as the model's error may reach below nothing at all."""
    bounds = {"slo_share": (0, 1), "later": (-1, 1), "saving": (-math.inf, 1)}
    wrong = ModelError((50.0, 11.0), (0.015, 0.0), (1.1, 1.0))
    values = {
        name: np.array([0.0, 0.4])
        for name in ("cost_per_h", "slo_share", "rescales_per_day", "lag_s", "latency_p95_s")
    }
    lenient = Trust(lag=10.0, slo_share=1.0, cost=10.0)
    base = {name: found + 1.0 for name, found in values.items()}
    made = claim_of("p", values, base, wrong, lenient, None, None)
    for one in (made, *card.claims):
        assert one.figures
        for name, found in one.figures.items():
            low, high = bounds.get(name, (0, math.inf))
            assert low <= found.low <= found.value <= found.high <= high
    assert made.figures["rescales_per_day"].low == 0.0


def test_the_page_stands_alone_and_holds_verdicts_and_plots(card, tmp_path):
    text = write_page(card, tmp_path / "page.html").read_text(encoding="utf-8")
    assert text.count('<div class="chart"') == 1
    assert "ds2: " in text
    assert "src=" not in text
    document = json.loads(card.to_json())
    assert document["schema"] == "dsp-gym/shadow-scorecard/1"
    assert document["verdicts"]["ds2"]["word"] in text


def test_a_model_of_another_job_is_refused(journals):
    config = parse(RunConfig, {"job": "nexmark-q1", "policies": POLICIES}, "other.yaml")
    with pytest.raises(ConfigError, match="the journal is of a job with"):
        evaluate_journal(journals["justin"], config)


def test_an_empty_journal_says_so(tmp_path):
    with Journal(tmp_path) as journal:
        journal.append("error", 0.0, "q11", None, {"stage": "collector", "reason": "down"})
    with pytest.raises(SchemaError, match="holds no decisions"):
        evaluate_journal(tmp_path)


def test_a_few_decisions_are_too_few(tmp_path):
    run(tmp_path / "few", "justin")
    entries = list(read(tmp_path / "few"))[:40]
    with Journal(tmp_path / "cut") as journal:
        for entry in entries:
            journal.append(entry.kind, entry.t_s, entry.job, entry.policy, entry.body)
    with pytest.raises(ConfigError, match="no stretch of ten decisions"):
        evaluate_journal(tmp_path / "cut")


GOOD = {"saving": Estimated(0.3, 0.2, 0.4), "later": Estimated(0.0, -0.001, 0.001)}
EXACT = ModelError((10.0, 10.0), (0.01, 0.01), (1.0, 1.0))


LATE = ModelError((10.0, 10.0), (1.0, 1.0), (1.0, 1.0))
SAVED = {"saving": Estimated(-1.18, -1.2, -1.16), "later": Estimated(-0.944, -0.95, -0.94)}


@pytest.mark.parametrize(
    ("figures", "error", "gate", "word"),
    [
        (SAVED, LATE, {}, "rescue"),
        ({**SAVED, "saving": Estimated(0.3, 0.2, 0.4)}, LATE, {}, "promote"),
        # A bit late is no emergency; a bit less late is no rescue; nobody pays any price.
        (SAVED, ModelError((1.0, 1.0), (0.04, 0.04), (1.0, 1.0)), {}, "reject"),
        ({**SAVED, "later": Estimated(-0.5, -0.6, -0.4)}, LATE, {}, "reject"),
        (SAVED, LATE, {"max_cost": 2.0}, "reject"),
        (SAVED, LATE, {"cut": 0.96}, "reject"),
    ],
)
def test_a_policy_that_saves_the_slo_for_more_money_is_a_rescue(
    journals, figures, error, gate, word
):
    course = read_course(journals["justin"])
    claim = Claim("p", figures, 0.5, 0.6, {}, {}, 240)
    config = GateConfig.model_validate({"min_days": 0.05, "rescue": gate})
    verdict = judge(course, claim, error, config, Trust())
    assert verdict.word == word
    few = judge(course, claim, error, config.model_copy(update={"min_days": 7.0}), Trust())
    assert few.word == ("reject" if word == "reject" else "keep watching")
    (saving,) = (reason for reason in verdict.reasons if reason.subject == "saving")
    assert ("a rescue may cost up to 5 times as much" in saving.text) == (word == "rescue")


@pytest.mark.parametrize(
    ("figures", "error", "days", "failures", "word", "subject"),
    [
        (GOOD, EXACT, 0.05, {}, "promote", None),
        (GOOD, EXACT, 7.0, {}, "keep watching", "days observed"),
        ({**GOOD, "saving": Estimated(0.3, -0.1, 0.7)}, EXACT, 0.05, {}, "keep watching", "saving"),
        ({**GOOD, "saving": Estimated(-0.3, -0.4, -0.2)}, EXACT, 0.05, {}, "reject", "saving"),
        ({**GOOD, "later": Estimated(0.1, 0.09, 0.11)}, EXACT, 0.05, {}, "reject", "SLO"),
        ({**GOOD, "later": Estimated(0.01, -0.1, 0.1)}, EXACT, 0.05, {}, "keep watching", "SLO"),
        ({}, ModelError((30.0, 10.0), (0.0, 0.0), (1.0, 1.0)), 0.05, {}, "keep watching", "model"),
        (GOOD, EXACT, 0.05, {"raised": 3}, "reject", "failures"),
    ],
)
def test_the_gate_promotes_rejects_or_keeps_watching(
    journals, figures, error, days, failures, word, subject
):
    course = read_course(journals["justin"])
    claim = Claim("p", figures, 0.5, 0.6, {}, failures, 240)
    verdict = judge(course, claim, error, GateConfig(min_days=days), Trust())
    assert verdict.word == word
    wanting = {reason.subject for reason in verdict.reasons if not reason.holds}
    assert (subject in wanting) if subject else not wanting


def test_a_verdict_says_the_change_of_cost_and_lateness_in_words(journals):
    course = read_course(journals["justin"])
    figures = {
        "saving": Estimated(-1.184, -1.25, -1.1),
        "later": Estimated(-0.9439, -0.951, -0.94),
    }
    claim = Claim("p", figures, 0.5, 0.6, {}, {"raised": 3}, 240)
    verdict = judge(course, claim, EXACT, GateConfig(), Trust())
    texts = {reason.subject: reason.text for reason in verdict.reasons}
    assert texts["saving"] == (
        "costs 118 % more [+110 to +125 % in cost], a saving of at least 5 % needed"
    )
    assert texts["SLO"] == (
        "late 94.4 points less than the incumbent [-95.1 to -94 points], "
        "at most 0.5 points more allowed"
    )
    assert texts["failures"] == "3 of 240 decisions failed, at most 0.10% allowed"
    assert texts["model"].startswith("errors on the observed run: lag 0.0%")
    lenient = judge(course, claim, EXACT, GateConfig(min_saving=-0.1), Trust())
    (saving,) = (r.text for r in lenient.reasons if r.subject == "saving")
    assert saving.endswith("at most 10 % more allowed")
    nothing = judge(course, Claim("p", {}, 0.5, 0.6, {}, {}, 240), EXACT, GateConfig(), Trust())
    assert [r.text for r in nothing.reasons if r.subject in ("saving", "SLO")] == 2 * [NO_CLAIM]


@pytest.mark.parametrize("job", ["flink-runs-direct-update", "flink-wordcount"])
def test_a_job_with_more_capacity_takes_as_many_times_as_many(job):
    spec = load_job(job)
    before, after = mst(spec).rate_per_s, mst(with_capacity(spec, 1.2)).rate_per_s
    assert after == pytest.approx(1.2 * before)
