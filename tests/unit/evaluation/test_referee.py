from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsp_gym.config.files import load_model, parse
from dsp_gym.engine import HERE
from dsp_gym.errors import ConfigError
from dsp_gym.evaluation.comparison import RefereeComparison, RefereePart
from dsp_gym.evaluation.frontier.config import UNSHIFTED
from dsp_gym.evaluation.frontier.play import CellRuns, PolicyRuns, entrants
from dsp_gym.evaluation.referee import ledger as ledgers
from dsp_gym.evaluation.referee.board import (
    board_of_referee,
    figures_of_referee,
    referee_fingerprint,
    render_referee_json,
    summary_of,
)
from dsp_gym.evaluation.referee.commit import commit_under_evaluation
from dsp_gym.evaluation.referee.config import RefereeConfig
from dsp_gym.evaluation.referee.development import development_runs
from dsp_gym.evaluation.referee.ledger import Ledger, RefereeEvaluation
from dsp_gym.evaluation.referee.page import report_of_referee
from dsp_gym.evaluation.referee.play import (
    PlayedReferee,
    PlayedTriples,
    RefereeRuns,
    joined,
    play_referee,
)
from dsp_gym.evaluation.referee.triples import DrawnSet, Triple, same_law, triples_of
from dsp_gym.evaluation.results import render_markdown
from dsp_gym.evaluation.statistics import Resampling
from dsp_gym.experiments.comparison import Chosen, read_comparison, with_choice
from dsp_gym.loads.generate import minute_means
from dsp_gym.policies.config import with_params

DOCUMENT = {
    "policies": [
        {"policy": "ds2", "rule": True, "knob": "target_utilization", "values": [0.5, 0.8]},
        {"policy": "static"},
    ],
    "jobs": [
        {"name": "graphs", "generator": "random-dag"},
        {"name": "nexmark", "named": ["nexmark-q1", "nexmark-q2", "nexmark-q3"]},
    ],
    "loads": [
        {
            "name": "day",
            "group": "known",
            "triples": 4,
            "under_shifts": 2,
            "load": {"form": "diurnal", "mean": {"between": [0.5, 0.7]}, "amplitude": 0.3},
        },
        {
            "name": "old",
            "group": "recorded",
            "triples": 2,
            "load": {"form": "trace", "path": {"one_of": ["no-such-trace"]}, "noise_cv": 0.1},
        },
        {
            "name": "steps",
            "group": "generated",
            "triples": 8,
            "load": {"form": "constant", "rate": {"log_between": [0.1, 1]}, "noise_cv": 0.1},
        },
    ],
    "shifts": {
        "policies": {"ds2": 0.8, "static": None},
        "shifts": [{"name": "slow", "outage": 2}],
    },
    "development": 1,
    "ledger": "ledger.jsonl",
    "episode_s": 600,
    "bootstrap": 200,
    "lateness": [0.2],
}


def config(**changes: object) -> RefereeConfig:
    return parse(RefereeConfig, with_params(DOCUMENT, changes), "referee")


@pytest.fixture(scope="module")
def core() -> RefereeConfig:
    return load_model(RefereeConfig, "referees", "core-v3")


def drawn(text: str) -> DrawnSet:
    return DrawnSet.test("0123", text)


# -- triples


@settings(max_examples=20, deadline=None)
@given(st.text(max_size=5), st.text(max_size=5))
def test_a_key_gives_its_triples_and_another_key_others_of_the_same_strata(one, other):
    found = triples_of(config(), drawn(one))
    assert found == triples_of(config(), drawn(one))
    second = triples_of(config(), drawn(other))
    for name, triples in found.items():
        assert [t.kind for t in triples] == [t.kind for t in second[name]]
        if one != other:
            assert not {t.seed for t in triples} & {t.seed for t in second[name]}
            assert {t.job for t in triples if t.kind == "graphs"}.isdisjoint(
                t.job for t in second[name]
            )


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**40), st.text(max_size=5))
def test_no_triple_of_a_development_set_is_in_any_other_set(seed, text):
    chosen_on = triples_of(config(), DrawnSet.development(seed))
    confirmed = triples_of(config(), drawn(text))
    for name, triples in chosen_on.items():
        assert max(t.seed for t in triples) < min(t.seed for t in confirmed[name])
        fresh = {t.job for t in triples if t.kind == "graphs"}
        assert fresh.isdisjoint(t.job for t in confirmed[name])


def test_core_v3_has_256_triples_64_of_them_under_shifts(core):
    found = triples_of(core, drawn("a"))
    triples = [one for family in found.values() for one in family]
    assert len(triples) == len(set(triples)) == 256
    assert len(found) == 8
    kinds = [kind.name for kind in core.jobs]
    assert len(kinds) == 4
    for family in found.values():
        assert [t.kind for t in family].count(kinds[0]) * 4 == len(family)
    assert sum(family.under_shifts for family in core.loads) == 64
    drawn_jobs = [t.job for t in triples if t.kind.endswith("graphs")]
    assert len(set(drawn_jobs)) == len(drawn_jobs)


def test_every_policy_of_core_v3_resolves_at_its_first_setting(core):
    for policy in core.policies:
        if policy.guardrails is None:
            assert len(entrants(policy.model_copy(update={"values": policy.values[:1]}))) == 1
    bare = {one.name for one in core.policies if one.guardrails is None}
    for name in ("planner-no-file", "planner", "learned-ppo"):
        assert name in bare
        assert {f"{name}-in-floor", f"{name}-deployed"} <= {one.name for one in core.policies}


def test_parameters_of_a_load_are_drawn_and_lie_in_their_ranges():
    steps = triples_of(config(), drawn("b"))["steps"]
    rates = [one.load.rate for one in steps]
    assert len(set(rates)) == len(rates)
    assert all(0.1 <= rate <= 1 for rate in rates)


@pytest.mark.parametrize(
    ("load", "said"),
    [
        ({"form": "constant", "rate": {"between": [2, 1]}}, "no range to draw from"),
        ({"form": "constant", "rate": {"log_between": [0, 1]}}, "no range to draw from"),
        ({"form": "constant", "rate": {"betwen": [0, 1]}}, "betwen"),
        ({"form": "diurnal", "mean": {"between": [0.1, 0.2]}, "amplitude": 0.5}, "exceeds mean"),
    ],
)
def test_a_load_that_cannot_be_drawn_is_refused(load, said):
    wrong = {"name": "wrong", "group": "known", "triples": 2, "load": load}
    with pytest.raises(ConfigError, match=said):
        parse(RefereeConfig, {**DOCUMENT, "loads": [wrong]}, "referee")


def test_triples_that_cannot_be_dealt_out_evenly_are_refused():
    wrong = [{**DOCUMENT["loads"][0], "triples": 3}]
    with pytest.raises(ConfigError, match="multiple of the 2 kinds"):
        parse(RefereeConfig, {**DOCUMENT, "loads": wrong}, "referee")


def test_a_family_without_its_traces_is_left_out_by_name_and_changes_no_other(tmp_path):
    here = RefereeRuns.of(config(), drawn("c"), base_dir=tmp_path)
    assert list(here.families) == ["day", "steps"]
    assert "no-such-trace" in here.left_out["old"]
    file = tmp_path / "no-such-trace.csv"
    file.write_text("t_seconds,rate\n0,1\n1000,1\n")
    named = {**DOCUMENT["loads"][1], "load": {"form": "trace", "path": str(file)}}
    whole = {**DOCUMENT, "loads": [DOCUMENT["loads"][0], named, DOCUMENT["loads"][2]]}
    every = RefereeRuns.of(parse(RefereeConfig, whole, "referee"), drawn("c"))
    assert {name: every.families[name] for name in here.families} == here.families


def test_a_part_is_the_first_triples_of_each_kind():
    asked = RefereeRuns.of(config(), drawn("d"), ["steps", "shifts"], 1)
    whole = triples_of(config(), drawn("d"))
    assert asked.families == {"steps": whole["steps"][:2]}
    assert asked.shifted == {"day": whole["day"][:2]}
    # Three settings of ten decisions; two policies at one, with a shift and without.
    assert asked.decisions(config()) == 2 * 10 * 3 + 2 * 10 * 2 * 2
    with pytest.raises(ConfigError, match=r"no family of load 'steep'.*steps"):
        RefereeRuns.of(config(), drawn("d"), ["steep"])


def test_the_fingerprint_tells_referees_apart_and_policies_do_not():
    mark = referee_fingerprint(config())
    fewer = with_choice(config(), Chosen(policies=("ds2",)))
    assert isinstance(fewer, RefereeConfig)
    assert [one.name for one in fewer.policies] == ["ds2"]
    assert referee_fingerprint(fewer) == mark
    assert referee_fingerprint(config(late_weight=1.0)) != mark


def test_the_name_of_a_referee_is_read_as_one():
    name, found = read_comparison("core-v3")
    assert name == "core-v3"
    assert isinstance(found, RefereeConfig)


# -- playing


def test_every_policy_meets_the_same_triples_and_results_do_not_depend_on_the_rest():
    asked = RefereeRuns.of(config(), DrawnSet.development(1), ["steps", "shifts"], 1)
    heard = []
    played = play_referee(
        config(), asked, told=lambda _label, done, total: heard.append((round(done), total))
    )
    steps, shifts = played.families["steps"], played.shifts
    assert heard[-1] == (14, 14)  # three settings on two triples, two under two shifts
    assert steps.runs.jobs == tuple(one.label for one in asked.families["steps"])
    assert [np.shape(one.cost) for one in steps.runs.policies] == [(2, 2, 1, 1), (1, 2, 1, 1)]
    assert list(shifts) == [UNSHIFTED, "slow"]
    alone = replace_families(asked, {"steps": asked.families["steps"][:1]})
    (one,) = play_referee(config(), alone).families.values()
    assert one.runs == steps.take("steps", [0]).runs


def replace_families(asked: RefereeRuns, families: dict[str, tuple[Triple, ...]]) -> RefereeRuns:
    return asked._replace(families=families, shifted={})


def test_who_may_know_a_law_is_told_loads_of_it_that_are_in_no_set():
    one = config()
    family = one.family("day")
    told = same_law(one, family)
    assert told.shape == (family.triples, one.episode_of(family) // 60)
    assert np.array_equal(told, same_law(one, family))
    runs = development_runs(one, families=("day",))[0].batch.runs
    assert np.array_equal(runs.same_law, told)
    reference = np.array([spec.source.rate_per_s for spec in runs.specs])[runs.job]
    for load in runs.rates / reference[:, None]:
        assert np.abs(told - minute_means(load)).max(axis=1).min() > 0.01


def test_the_development_set_is_a_batch_per_family_for_any_policy(core):
    day, steps = development_runs(config(), each=1)
    assert (day.family, steps.family) == ("day", "steps")
    assert len(day.batch) == len(day.reference_cost) == 2
    assert day.decisions == 20
    assert [cell.seed for cell in day.batch.runs.loads] == [
        one.seed for one in triples_of(config(), DrawnSet.development(1))["day"][:2]
    ]


# -- results


def results(name: str, costs: dict[str, list[tuple[float, float]]], kinds: str) -> PlayedTriples:
    """Policies by their points (late share, cost) on triples of these kinds of jobs."""
    triples = tuple(
        Triple({"g": "graphs", "n": "nexmark"}[kind], name, f"{kind}{k % 3}", None, k)
        for k, kind in enumerate(kinds)
    )
    size = np.array([1.0 + k for k in range(len(kinds))])  # triples are of any size

    def table(values: list[float], scaled: bool) -> object:
        factor = size if scaled else np.ones_like(size)
        return [[[[value * one]] for one in factor] for value in values]

    policies = tuple(
        PolicyRuns(
            policy=policy,
            rule=policy.startswith("rule"),
            knob=("x",),
            values=tuple(range(len(points))),
            late=table([late for late, _ in points], scaled=False),
            cost=table([cost for _, cost in points], scaled=True),
            rescales=table([0.0 for _ in points], scaled=False),
        )
        for policy, points in costs.items()
    )
    runs = CellRuns(
        cell=name,
        jobs=tuple(one.label for one in triples),
        loads=(name,),
        seeds=(0,),
        reference_cost=tuple(size.tolist()),
        policies=policies,
    )
    return PlayedTriples(triples, runs)


FAMILIES = {
    "day": {"rule": [(0.1, 10)], "mine": [(0.1, 5)], "clairvoyant": [(0.1, 6)]},
    "steps": {"rule": [(0.1, 10)], "mine": [(0.1, 12)], "clairvoyant": [(0.1, 5)]},
}


def board(families: dict[str, PlayedTriples], shifts: dict[str, PlayedTriples] | None = None):
    played = PlayedReferee(families, shifts or {}, {"old": "no trace"})
    return board_of_referee("small", config(), drawn("e"), played, {})


def test_ratios_are_paired_on_triples_and_each_family_is_judged_singly():
    found = board({name: results(name, costs, "gngn") for name, costs in FAMILIES.items()})
    whole = {one.policy: one for one in found.cells[0].frontiers}
    # A geometric mean over triples: half of the cost on half of them, 1.2 times on the others.
    assert whole["mine"].ratio[0.2].value == pytest.approx((0.5 * 1.2) ** 0.5)
    singly = {(one.policy, one.family): one for one in found.families}
    assert {family for _, family in singly} == {"day", "steps", "graphs", "nexmark"}
    assert singly["mine", "day"].ratio == pytest.approx((0.5, 0.5, 0.5))
    assert not singly["mine", "day"].loses
    assert singly["mine", "steps"].loses
    assert ("rule", "day") not in singly
    assert [len(cell.runs.jobs) for cell in found.cells] == [8, 4, 4]
    below = {one.policy: one for one in found.below}
    assert below["rule"].jobs == ()
    assert below["rule"].compared == 4


def test_one_job_of_each_kind_makes_neither_a_loss_nor_a_win_and_the_page_says_so():
    found = board({name: results(name, costs, "gn") for name, costs in FAMILIES.items()})
    assert {one.family for one in found.families} == {"day", "steps", "graphs", "nexmark"}
    assert not any(one.loses or one.wins for one in found.families)
    page = render_markdown(report_of_referee(found, "dsp-gym evaluate small --seeds 1"))
    assert "| mine | 0 of 4 | 0 |" in page
    assert "count as neither lost nor won: day, steps, graphs, nexmark." in page


def test_a_policy_that_is_too_late_where_a_rule_is_not_loses_the_family():
    costs = {"rule": [(0.1, 10)], "mine": [(0.3, 1)]}
    found = board({"day": results("day", costs, "gn")})
    assert all(one.loses and one.ratio is None for one in found.families)
    assert "mine/ratio" not in summary_of(found)


def test_intervals_are_over_jobs_and_a_kind_keeps_its_share():
    draws = Resampling.of_clusters(["a", "a", "b", "c"], ["x", "x", "x", "y"], 500)
    assert draws.jobs[0] == pytest.approx([0.25] * 4)
    assert draws.jobs.sum(axis=1) == pytest.approx(np.ones(501))
    assert draws.jobs[:, 3] == pytest.approx(np.full(501, 0.25))
    assert draws.jobs[:, 0] == pytest.approx(draws.jobs[:, 1])
    assert (draws.jobs[1:, 0] == 0).any()
    assert (draws.jobs[1:, 2] == 0).any()


def test_prices_under_a_shift_are_compared_with_the_best_rule_and_with_those_without_it():
    parts = {
        UNSHIFTED: results("day", {"rule": [(0.0, 1.0)], "mine": [(0.0, 0.5)]}, "gngn"),
        "slow": results("day", {"rule": [(0.0, 2.0)], "mine": [(0.0, 0.5)]}, "gngn"),
    }
    found = {(one.shift, one.policy): one for one in board({}, parts).shifts}
    assert found[UNSHIFTED, "mine"].ratio.value == pytest.approx(0.5)
    assert found[UNSHIFTED, "mine"].dearer is None
    assert found["slow", "mine"].ratio.value == pytest.approx(0.25)
    assert found["slow", "rule"].dearer == pytest.approx((2, 2, 2))


def test_the_page_says_who_is_cheapest_and_who_is_dearer_than_the_best_rule_under_each_shift():
    costs = {"rule": [(0.0, 2.0)], "mine": [(0.0, 1.0)], "other": [(0.0, 3.0)]}
    parts = {
        UNSHIFTED: results("day", costs, "gngn"),
        "slow": results("day", costs | {"rule": [(0.0, 4.0)]}, "gngn"),
    }
    page = render_markdown(report_of_referee(board({}, parts), "dsp-gym evaluate x"))
    lead = page.partition("\n## Shifts")[2].partition("\n<details")[0]
    assert f"| {UNSHIFTED} | rule | mine 0.5 | other 1.5 |" in lead
    assert "| slow | rule | mine 0.25 | – |" in lead
    assert "price, of that without the shift" in page.partition("\n<details")[2]


def test_the_headline_names_no_policy_that_is_told_the_load_or_its_law():
    costs = {"ds2": [(0.0, 1.0)], "static": [(0.0, 0.9)], "law": [(0.0, 0.5)]}
    law = {"policy": {"policy": "mdp", "params": {"known_law": True}}, "name": "law"}
    found = board({"day": results("day", costs, "gngn")})
    named = config(policies=[*DOCUMENT["policies"], law])
    page = render_markdown(report_of_referee(replace(found, config=named), "dsp-gym evaluate x"))
    assert "On all triples, static is the cheapest at 20 % late" in page


def test_the_page_names_the_commit_the_evaluations_and_what_was_left_out():
    found = board({name: results(name, costs, "gngn") for name, costs in FAMILIES.items()})
    found = replace(found, evaluations=(evaluation("begun"), evaluation("finished")))
    page = render_markdown(report_of_referee(found, "dsp-gym evaluate small --set test"))
    assert "triples of the test set of commit e." in page
    assert "lists 1 finished evaluation of test sets." in page
    assert "other people's jobs and traces are the stronger test" in page
    assert "| old | no trace |" in page
    assert "| mine | 1 of 4 | 3 |" in page
    document = json.loads(render_referee_json(found))
    assert document["schema"] == "dsp-gym/referee/1"
    assert document["commit"] == "e"
    assert len(document["triples"]) == 8
    assert dict(figures_of_referee(found))["all triples/mine/ratio_at_20_percent_late"] < 1


def test_a_page_names_policies_that_lose_everywhere_or_are_never_cheaper_in_one_sentence_each():
    costs = {"rule": [(0.1, 10)], "mine": [(0.1, 8)], "late": [(0.9, 1)], "clairvoyant": [(0.1, 9)]}
    found = board({"day": results("day", costs, "gngn")})
    page = render_markdown(report_of_referee(found, "dsp-gym evaluate small --set test"))
    losing, below = (
        page.partition(f"\n## {title}")[2].partition("\n<details")[0]
        for title in ("Families in which a policy loses", "Jobs on which a policy costs less than")
    )
    assert "In each family at no setting late at most 20 % of the time: late." in losing
    assert "| policy | loses in | wins in |\n" in losing
    assert "| mine | 0 of 3 | 3 |" in losing
    assert "| late |" not in losing
    assert "On no job: rule, late." in below
    assert "| mine | 4 of 4 | 100 % |" in below
    assert "<summary>By family, cost of the best rule's, 20 % late</summary>" in page


def test_parts_joined_and_taken_apart_again_are_the_same():
    parts = [results(name, costs, "gngn") for name, costs in FAMILIES.items()]
    whole = joined("both", parts)
    assert len(whole.triples) == 8
    for number, part in enumerate(parts):
        places = range(4 * number, 4 * number + 4)
        again = whole.take(part.runs.cell, list(places))
        assert again.triples == part.triples
        assert again.runs.policies == part.runs.policies


# -- the ledger and the commit


def evaluation(status: str, commit: str = "abc", triples: int = 8) -> RefereeEvaluation:
    return RefereeEvaluation(
        status=status,
        at="2026-11-27T12:00:00+00:00",
        commit=commit,
        fingerprint="0123",
        key_sha256="4567",
        policies=("ds2",),
        families=("day",),
        triples=triples,
        results={"ds2/ratio": 1.0} if status == "finished" else {},
    )


def test_a_ledger_only_grows(tmp_path):
    ledger = Ledger(tmp_path / "docs" / "ledger.jsonl")
    assert ledger.read() == ()
    before = b""
    for number in range(3):
        ledger.append(evaluation("finished", triples=number))
        content = ledger.file.read_bytes()
        assert content.startswith(before)
        assert content.count(b"\n") == number + 1
        before = content
    assert [one.triples for one in ledger.read()] == [0, 1, 2]


def test_a_torn_line_is_left_out_and_swallows_no_other(tmp_path):
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.append(evaluation("begun"))
    whole = ledger.file.read_bytes()
    for cut in range(1, len(whole) - 1, 37):
        ledger.file.write_bytes(whole + whole[:cut])
        ledger.append(evaluation("finished"))
        assert [one.status for one in ledger.read()] == ["begun", "finished"]
        assert ledger.file.read_bytes().startswith(whole + whole[:cut])


def test_an_evaluation_begins_once_and_counts_as_dropped_until_it_ends(tmp_path):
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.begin(evaluation("begun"))
    ledger.begin(evaluation("begun"))
    ledger.begin(evaluation("begun", commit="def"))
    assert len(ledger.read()) == 2
    ledger.append(evaluation("finished"))
    assert [one.commit for one in ledgers.unfinished(ledger.read())] == ["def"]
    ledger.begin(evaluation("begun"))
    assert len(ledgers.unfinished(ledger.read())) == 2


@pytest.fixture
def clone(tmp_path) -> Path:
    def git(*arguments: str) -> None:
        subprocess.run(["git", "-C", str(tmp_path), *arguments], check=True, capture_output=True)

    (tmp_path / "code.py").write_text("a = 1\n")
    git("init", "-q")
    git("add", "code.py")
    git("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "one")
    return tmp_path / "code.py"


def test_a_test_set_belongs_to_a_commit_and_a_changed_tree_has_none(clone):
    found = commit_under_evaluation("ledger.jsonl", clone)
    assert len(found.hash) == 40
    assert found.root.resolve() == clone.parent.resolve()
    (clone.parent / "ledger.jsonl").write_text("{}\n")
    assert commit_under_evaluation("ledger.jsonl", clone) == found
    (clone.parent / "more.py").write_text("")
    with pytest.raises(ConfigError, match=r"differs from its commit in 1 file, such as more.py"):
        commit_under_evaluation("ledger.jsonl", clone)
    (clone.parent / "more.py").unlink()
    clone.write_text("a = 2\n")
    with pytest.raises(ConfigError, match=r"such as code.py"):
        commit_under_evaluation("ledger.jsonl", clone)


def test_code_that_is_of_no_commit_has_no_test_set(clone, tmp_path):
    stray = clone.parent / "stray.py"
    stray.write_text("")
    with pytest.raises(ConfigError, match="of no commit"):
        commit_under_evaluation("ledger.jsonl", stray)


def test_an_evaluation_of_a_test_set_is_written_down_when_it_begins_and_when_it_ends(tmp_path):
    asked = RefereeRuns.of(config(), drawn("f"), ["steps"], 1)
    ledger = Ledger(tmp_path / "ledger.jsonl")
    comparison = RefereeComparison("small", config(), "x", drawn("f"), asked, ledger)
    told = []

    def watch(_label: str, done: float, total: int) -> None:
        assert round(done) <= total == 6
        told.extend(one.status for one in ledger.read() if not told)

    found = comparison.play(HERE, watch, None)
    assert told == ["begun"]
    assert [one.status for one in ledger.read()] == ["begun", "finished"]
    assert ledger.read()[1].results["ds2/ratio"] == 1.0
    assert "1 finished evaluation of test sets." in found.files["report.md"]


def test_a_file_of_ones_own_is_a_key(tmp_path):
    file = tmp_path / "mine"
    file.write_text("nobody else's")
    one = RefereeComparison.of("small", config(), "x", RefereePart(key=file, each=1))
    assert one.ledger is None
    assert one.drawn.name == "own"
    file.write_text("somebody's")
    other = RefereeComparison.of("small", config(), "x", RefereePart(key=file, each=1))
    assert one.asked.families["day"] != other.asked.families["day"]
