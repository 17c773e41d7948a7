"""The headline, the verdict and the pages of a backtest."""

from __future__ import annotations

import json
import re

import pytest

from dsp_gym.control.gate import GateConfig
from dsp_gym.whatif.fleet_page import JOB_COLUMNS, job_rows, page_names, write_report
from dsp_gym.whatif.fleet_page import headline as fleet_headline
from dsp_gym.whatif.history import Decided
from dsp_gym.whatif.job_page import beside_rows, headline, job_page, verdict_rows
from dsp_gym.whatif.result import (
    Assumption,
    JobResult,
    PolicyClaim,
    Ranged,
    ReplayedIncumbent,
    Trust,
)
from dsp_gym.whatif.summary import job_line, leading, verdict_summary
from dsp_gym.whatif.verdict import VerdictTerms, judge
from tests.unit.whatif.histories import document, observed


def ranged(value, low, high) -> Ranged:
    return Ranged(value=value, low=low, high=high)


GOOD = ranged(0.145, 0.123, 0.164), ranged(0.001, -0.001, 0.002)
WORSE = ranged(-11.84, -12.5, -11.1), ranged(-0.2, -0.3, -0.1)
LATE = ranged(0.5, 0.45, 0.55), ranged(0.3, 0.2, 0.4)
MONTH = 1460.0
"""Of the incumbent: 2 an hour."""


def claim(policy, figures, seen, decided=None, gate=None, **given) -> PolicyClaim:
    saving, later = figures
    told = {"saving": saving, "saving_per_month": saving.times(MONTH), "later": later}
    told["late"] = later
    terms = VerdictTerms(gate or GateConfig(), Trust())
    word, reasons = judge(told, seen, decided, terms)
    return PolicyClaim(
        policy=policy,
        **told,
        lag_s=0.1,
        latency_p95_s=0.2,
        rescales_per_day=3.0,
        verdict=word,
        reasons=reasons,
        claimed_per_month=max(0.0, told["saving_per_month"].low) if word == "promote" else 0.0,
        **given,
    )


def job(policies, days=7.0, **given) -> JobResult:
    """A job with policies of given figures."""
    seen = observed(days=days, **given)
    claims = tuple(claim(name, figures, seen) for name, figures in policies.items())
    (one,) = document(["orders"]).jobs
    return one.model_copy(update={"claims": claims, "observed": seen})


@pytest.mark.parametrize(
    ("policies", "days", "said"),
    [
        # 730 hours at 2 an hour are 1,460 a month, of which 14.5 % are saved.
        (
            {"ds2": GOOD},
            2.0,
            "ds2 would save 212 USD a month (180 to 239), late +0.1 points; verdict: keep "
            "watching, days observed: 2 of 7 days (≥ 7 days needed).",
        ),
        (
            {"ds2": GOOD},
            7.0,
            "ds2 would save 212 USD a month (180 to 239), late +0.1 points; verdict: promote.",
        ),
        (
            {"ds2": WORSE},
            7.0,
            "ds2 would cost 17,286 USD a month more (16,206 to 18,250), late -20 points; verdict: "
            "reject, saving: -1,250 to -1,110 % (≥ 5 % needed).",
        ),
        (
            {"ds2": WORSE, "ours": GOOD},
            7.0,
            "ours would save 212 USD a month (180 to 239), late +0.1 points; verdict: promote.",
        ),
    ],
)
def test_the_headline_says_money_lateness_and_verdict(policies, days, said):
    assert headline(job(policies, days)) == said


def test_the_headline_never_names_a_policy_whose_lateness_forbids_it():
    """DS2 saves half the money and is late 30 points more: it may not lead the report."""
    both = job({"ds2": LATE, "ours": GOOD})
    assert "ds2" not in headline(both)
    assert headline(both).startswith("ours would save")
    alone = job({"ds2": LATE})
    assert headline(alone) == "orders: no policy is sure to keep its lateness within the bound."


def test_where_no_policy_could_be_replayed_the_pages_say_so_and_not_that_each_is_late(tmp_path):
    failures = {"mine": "too many vertices.", "ds2": "no rates"}
    none = job({}).model_copy(update={"failures": failures})
    said = "orders: no policy could be replayed: mine: too many vertices; ds2: no rates."
    assert headline(none) == said
    line = job_line(none, none.best)
    assert line.cause == "replay"
    assert line.verdict.sentence == said
    both = fleet(none, job({"ds2": LATE}))
    why = {row[0]: row[-1] for row in job_rows(both)}
    assert why == {"a": "no policy could be replayed", "b": "every policy is late too often"}
    assert "no policy could be replayed (1 job); every policy is late" in fleet_headline(both)
    files = [file.read_text(encoding="utf-8") for file in write_and_list(both, tmp_path)]
    assert any("no policy could be replayed: mine: too many vertices" in text for text in files)
    alone = job({})
    assert headline(alone) == "orders: no policy was replayed beside the deployed configurations."


def write_and_list(found, folder):
    write_report(found, folder)
    return sorted(folder.glob("job-*.html"))


def test_what_decides_the_verdict_and_was_assumed_is_named_in_it():
    assumed = Assumption(of="outage_s", values=(5.0, 8.0, 12.0), late=0.003, decides=True)
    one = job({"ds2": GOOD})
    named = one.claims[0].model_copy(update={"assumed": (assumed,)})
    said = headline(one.model_copy(update={"claims": (named,)}))
    assert said.endswith(
        "promote; not measured: an outage of 5 to 12 s for each rescale, which decides the verdict."
    )
    subject, mark, text = verdict_rows(named)[-1]
    assert (subject, mark) == ("not measured", "assumed")
    assert "5 to 12 s" in text


def test_the_page_names_the_policy_that_the_others_would_replace():
    base = ReplayedIncumbent(
        policy="dataflow",
        cost_per_month=ranged(MONTH, MONTH, MONTH),
        late=ranged(0.02, 0.01, 0.03),
        lag_s=1.0,
        latency_p95_s=1.0,
        rescales_per_day=9.0,
    )
    one = job({"ds2": GOOD, "worse": WORSE}).model_copy(update={"incumbent": base})
    assert headline(one).startswith(
        "ds2 would save 212 USD a month against dataflow (180 to 239), late +0.1 points;"
    )
    rows = beside_rows(one)
    assert [row[0] for row in rows] == ["now, observed", "dataflow", "ds2", "worse"]
    assert rows[2][1] == "1,248"  # of 1,460 a month, 212 are saved
    page = job_page(one, Trust())
    assert "What leaving dataflow would save" in page
    assert "late, points vs. dataflow" in page
    worse = one.model_copy(update={"claims": one.claims[1:]})
    assert "would cost 17,286 USD a month more than dataflow (" in headline(worse)


def test_policies_are_ranked_by_verdict_then_by_what_they_save_at_least():
    less = ranged(0.3, 0.08, 0.5), GOOD[1]
    found = job({"late": LATE, "bad": WORSE, "less": less, "more": GOOD})
    assert [one.policy for one in found.ranked()] == ["more", "less", "bad", "late"]


def test_a_late_incumbent_is_rescued_at_a_price():
    dear = ranged(-1.18, -1.2, -1.16), ranged(-0.944, -0.95, -0.94)
    late = observed(late=1.0, model_late=1.0)
    assert claim("ds2", dear, late).verdict == "rescue"
    assert claim("ds2", dear, observed()).verdict == "reject"
    few = dear[0], ranged(-0.3, -0.4, -0.2)
    assert claim("ds2", few, late).verdict == "reject"


@pytest.mark.parametrize(
    ("trips", "failures", "word"),
    [({}, {}, "promote"), ({"floor": 300}, {}, "reject"), ({}, {"raised": 3}, "reject")],
)
def test_trips_and_failures_beside_the_job_speak_against_a_policy(trips, failures, word):
    import numpy as np

    asked = np.ones(100, np.bool_)
    none = np.zeros((100, 1), np.int64)
    times_s = [{name: np.arange(float(n)) for name, n in one.items()} for one in (trips, failures)]
    decided = Decided(none, none, none, asked, *times_s)
    assert claim("ds2", GOOD, observed(days=7.0), decided).verdict == word


def test_one_matrix_holds_every_policy_and_criterion():
    text = job_page(job({"ds2": WORSE, "ours": GOOD}, days=2.0), Trust())
    matrix = text[text.index("<table") : text.index("</table>")]
    rows = re.findall(r"<tr.*?>(.*?)</tr>", matrix)
    cells = [re.sub("<.*?>", "|", row).strip("|").split("||") for row in rows]
    assert cells[0][:4] == ["policy", "verdict", "days observed", "coverage"]
    assert cells[1][0] == "needed"
    assert rows[2].startswith("<td>ours</td>")
    assert '<span class="is-wait">… 2 of 7 days' in matrix
    assert '<span class="is-bad">✗ -1,250 to -1,110 %' in matrix
    assert len(rows) == 4


def test_what_was_observed_is_in_front_and_the_page_needs_nothing_else():
    text = job_page(job({"ds2": GOOD}), Trust())
    (chart,) = map(json.loads, re.findall(r'type="application/json">(.*?)</script>', text))
    assert next(iter(chart["colours"])) == "now, observed"
    assert chart["hidden"][0] == "now, by the model"
    (latency,) = [panel for panel in chart["panels"] if panel["bound"] is not None]
    assert latency["lines"][0]["name"] == "now, observed"
    assert not re.search(r"<(link|img|script[^>]*src)", text)
    assert not re.search(r"\d[eE][+-]\d", text.split("<script")[0])


def test_names_of_others_become_neither_paths_nor_markup(tmp_path):
    names = ["../../evil", "<img src=x onerror=alert(1)>", "a/b", "", "ä" * 300, "<!--<script>"]
    assert len(set(page_names(names))) == len(names)
    write_report(document(names), tmp_path / "report")
    assert [one.name for one in tmp_path.iterdir()] == ["report"]
    files = sorted(tmp_path.rglob("*.html"))
    assert len(files) == len(names) + 1
    for file in files:
        text = file.read_text(encoding="utf-8")
        assert "<img" not in text
        assert "<!--<script>" not in text
        assert "<i>1/s" not in text


def fleet(*jobs: JobResult):
    """Jobs of one document, called a, b, c, ..."""
    named = [one.model_copy(update={"name": "abcdef"[k]}) for k, one in enumerate(jobs)]
    return document(["orders"]).model_copy(update={"jobs": tuple(named)})


def test_the_fleet_leads_with_money_certainty_and_what_is_in_the_way():
    """Costs are those of the document's jobs; of 1,460 a month 180 are certain, 212 likely."""
    found = fleet(job({"ds2": GOOD}), job({"ds2": GOOD}, 2.0), job({"ds2": LATE}))
    spent = sum(one.observed.cost_per_month for one in found.jobs)
    assert fleet_headline(found) == (
        f"3 jobs cost {spent:,.0f} USD a month. 180 USD can be saved for certain, on 1 job; "
        "another 212 USD (180 to 239) likely, on 1 job. What blocks the rest: not watched for long "
        "enough (1 job); every policy is late too often (1 job)."
    )


def test_of_a_fleet_late_jobs_come_first_then_those_that_save_most():
    late = job({"ds2": GOOD}).model_copy(update={"late_since_s": 3600.0})
    less = ranged(0.08, 0.06, 0.1), GOOD[1]
    rows = job_rows(fleet(job({"ds2": less}), job({"ds2": GOOD}), late))
    assert [row[0] for row in rows] == ["c", "b", "a"]
    assert rows[0][1].startswith("late since ")
    assert {row[1] for row in rows[1:]} == {"in time"}
    assert all(len(row) == len(JOB_COLUMNS) for row in rows)


def test_a_job_whose_lateness_was_never_measured_is_not_called_in_time(tmp_path):
    dark = job({"ds2": GOOD}, late=None, model_late=None)
    found = fleet(dark, job({"ds2": GOOD}))
    now = {row[0]: row[1] for row in job_rows(found)}
    assert now == {"a": "not known", "b": "in time"}
    page = write_report(found, tmp_path)["html"].read_text(encoding="utf-8")
    assert '<span class="is-wait">… not known</span>' in page
    assert '<span class="is-good">✓ in time</span>' in page


def test_a_model_that_is_not_trusted_gives_the_fleet_no_figures():
    wrong = job({"ds2": GOOD}, cost_per_month=100.0, model_cost_per_month=150.0)
    wrong = wrong.model_copy(update={"distrust": ("the model's cost is off by 50 %",)})
    (row,) = job_rows(fleet(wrong))
    assert dict(zip(JOB_COLUMNS, row, strict=True))["saves a month"] == "–"
    said = fleet_headline(fleet(wrong, job({"ds2": GOOD})))
    assert "the model does not fit (1 job)" in said
    assert "180 USD can be saved for certain, on 1 job." in said


def test_the_policy_that_leads_stays_while_another_saves_hardly_more():
    more = ranged(0.146, 0.1235, 0.165), GOOD[1]
    both = job({"ds2": GOOD, "ours": more})
    spent = both.observed.model_copy(update={"cost_per_month": MONTH})
    both = both.model_copy(update={"observed": spent})
    assert both.best.policy == "ours"
    assert leading(both, None).policy == "ours"
    assert leading(both, "ds2").policy == "ds2"
    much = job({"ds2": GOOD, "ours": (ranged(0.3, 0.28, 0.32), GOOD[1])})
    assert leading(much, "ds2").policy == "ours"
    worse = job({"ds2": WORSE, "ours": GOOD})
    assert leading(worse, "ds2").policy == "ours"  # a better verdict counts at once
    assert leading(job({"ds2": LATE, "ours": GOOD}), "ds2").policy == "ours"
    assert leading(both, "gone").policy == "ours"
    assert leading(job({"ds2": LATE}), "ds2") is None


def test_the_gravest_condition_of_a_verdict_is_named_first():
    found = job({"ds2": WORSE}, days=2.0)
    summary = verdict_summary(found, found.best)
    assert [one.subject for one in summary.blocks] == ["saving", "days observed"]
    assert summary.sentence == headline(found)
    assert (summary.policy, summary.word) == ("ds2", "reject")
