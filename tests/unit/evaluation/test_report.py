from __future__ import annotations

import json
import re
from html.parser import HTMLParser

import pytest

from dsp_gym.errors import StorageError
from dsp_gym.evaluation.report import number, ranked_table, render_html, report_of, summary
from dsp_gym.evaluation.results import Results, render_markdown
from dsp_gym.evaluation.scorecard import (
    EPISODE_METRICS,
    RunRescale,
    RunTimeline,
    Saving,
    Scorecard,
    ScorecardCell,
    score,
)


def card(
    *, job: str = "q11", description: str = "A test", late: dict[str, float] | None = None
) -> Scorecard:
    cells = [
        ScorecardCell(
            policy=policy,
            job=job,
            load="calm",
            seed=seed,
            metrics=dict.fromkeys(EPISODE_METRICS, 2.0)
            | {"cost": cost + seed, "slo_s": 0.0, "slo_share": (late or {}).get(policy, 2.0)},
            trips={"cool-down": seed},
        )
        for policy, cost in (("ds2", 10.0), ("ours", 8.0))
        for seed in range(3)
    ]
    timelines = [
        RunTimeline(
            policy=policy, job=job, load="calm", seed=0, t_s=(60.0, 120.0),
            target_per_s=(100.0, 120.0), rate_per_s=(90.0, 130.0), cores=(3.0, 4.0),
            memory_mib=(900.0, 1200.0), latency_p95_s=(0.0, 3.0), slo_latency_s=2.0,
            rescales=(RunRescale(t_s=60, reason="busy 93 %"),) if policy == "ours" else (),
        )
        for policy in ("ds2", "ours")
    ]  # fmt: skip
    return Scorecard(
        reference="ds2",
        statistic="mean",
        config={"description": description},
        versions={"dsp-gym": "0"},
        rows=score(cells, reference="ds2", confidence=0.9, resamples=100),
        cells=tuple(cells),
        timelines=tuple(timelines),
    )


class Page(HTMLParser):
    """Collects everything that would be fetched."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.fetched: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        for name, value in attrs:
            if name in ("src", "href", "xlink:href") and not value.startswith("#"):
                self.fetched.append(value)


def charts_of(text: str) -> list[dict]:
    """The numbers of the page's charts."""
    found = re.findall(r'<script type="application/json">(.*?)</script>', text, re.DOTALL)
    return [json.loads(one) for one in found]


@pytest.fixture(scope="module")
def text() -> str:
    """The page of the small scorecard."""
    return render_html(card())


def test_the_report_is_one_page_that_fetches_nothing(text):
    page = Page(text)
    assert page.fetched == []
    assert "link" not in page.tags
    assert len(charts_of(text)) == 2  # cost against lateness, and one load over time


def test_the_page_begins_with_one_sentence_about_the_best_policy():
    text = render_html(card(late={"ds2": 0.01, "ours": 0.02}))
    assert '<h1>A test</h1>\n<p class="lead">ours costs 18 % less than ds2 and is late' in text


def test_policies_stand_in_rows_best_first():
    table = ranked_table(card(late={"ds2": 0.01, "ours": 0.02}), "q11")
    assert [row[0] for row in table.rows] == ["ours", "ds2"]
    assert table.head == ("policy", "cost, USD", "vs ds2", "late", "latency p95", "rescales")
    assert table.rows[1] == ("ds2", "11", "–", "1 %", "2 s", "2")


def test_pages_lead_with_four_columns_and_fold_the_whole_table():
    found = report_of(card(late={"ds2": 0.01, "ours": 0.02}))
    assert found.parts[0].lead.head == ["policy", "cost, USD", "vs ds2", "late", "rescales"]
    assert len(found.parts[0].table.head) == 10
    shown, whole, every = render_markdown(found).split('<details markdown="1">\n')
    assert "| policy | cost, USD | vs ds2 | late | rescales |" in shown
    assert whole.startswith("<summary>The whole table</summary>\n\n| policy | cost, USD | vs ds2 |")
    assert whole.endswith(" |\n\n</details>\n\n")
    assert every.startswith("<summary>All metrics</summary>\n\n|  | ds2 | ours |")


def test_a_policy_that_is_late_too_often_stands_below_and_is_not_the_best():
    (part,) = report_of(card(late={"ds2": 0.01, "ours": 0.2})).parts
    assert [row[0] for row in part.table.rows] == ["ds2", "ours"]
    assert part.emphasis == {0: "best"}


def test_nobody_is_best_where_everybody_is_late_too_often():
    assert report_of(card()).parts[0].emphasis == {}


def test_the_best_row_is_bold_and_the_readers_own_has_a_ground_of_its_own(tmp_path):
    found = card(late={"ds2": 0.01, "ours": 0.02})
    mine = {**found.config, "policies": [{"name": "ours", "policy": str(tmp_path)}]}
    text = render_html(found.model_copy(update={"config": mine}))
    assert '<tr class="best mine"><td>ours</td>' in text
    assert "<tr><td>ds2</td>" in text


def test_a_rescale_is_marked_with_its_reason(text):
    marks = [chart["marks"] for chart in charts_of(text) if "marks" in chart]
    assert marks == [[{"x": 60, "line": "ours", "text": "busy 93 %"}]]


def test_the_same_scorecard_gives_the_same_page(text):
    assert render_html(card()) == text


def test_names_are_text_in_the_page_not_markup():
    text = render_html(card(job="<q&11>", description="<b>"))
    assert "<q&11>" not in text
    assert "&lt;q&amp;11&gt;" in text
    assert "<b>" not in text


def test_the_page_shows_policies_metrics_and_what_was_run():
    text = render_html(card(description="Nightly"))
    for shown in (
        "<h1>Nightly</h1>",
        "<th>ours</th>",
        "cost against ds2",
        "cool-down",
        "All metrics",
    ):
        assert shown in text


def test_the_lead_counts_in_the_singular_and_says_which_way_is_better(text):
    assert (
        "2 policies on 1 job, 3 runs each on the same loads and seeds. Values are means "
        "with 95 % bootstrap intervals. Lower values are better. Differences"
    ) in text


def test_the_lead_says_that_a_higher_saving_is_better(text):
    one = card()
    saving = Saving(share=0.5, low=0.4, high=0.6)
    saved = one.model_copy(
        update={"rows": tuple(row.model_copy(update={"saving": saving}) for row in one.rows)}
    )
    lead = "Lower values are better; of the share of the possible saving, higher ones."
    assert lead in render_html(saved)
    assert lead not in text


def test_differences_stand_with_their_intervals():
    table = summary(card(), "q11")
    rows = {row[0]: row[1:] for row in table.rows}
    assert table.head == ("", "ds2", "ours")
    assert rows["SLO seconds"] == ("0", "0")
    assert rows["cost against ds2"][0] == "–"
    assert re.fullmatch(r"-18\.2 \[-\d+(\.\d)?, -\d+(\.\d)?\] %", rows["cost against ds2"][1])
    assert rows["  by cool-down"] == ("1", "1")


def test_intervals_are_left_to_the_wide_table():
    narrow, wide = (ranked_table(card(), "q11", wide=wide).rows[0] for wide in (False, True))
    assert narrow[1] == "11"
    assert re.fullmatch(r"11 \[\d+(\.\d)?, \d+(\.\d)?\]", wide[1])


def test_a_guardrail_that_never_acted_takes_no_room():
    quiet = card().model_copy(
        update={
            "rows": tuple(
                row.model_copy(update={"trips": {"bounds": 0.0, "cool-down": 0.5}})
                for row in card().rows
            )
        }
    )
    labels = [row[0] for row in summary(quiet, "q11").rows]
    assert "  by cool-down" in labels
    assert "  by bounds" not in labels


@pytest.mark.parametrize(
    ("value", "shown"), [(0.0, "0"), (1234567.0, "1,234,567"), (-0.5, "-0.5"), (99.96, "100")]
)
def test_numbers_have_three_digits_that_matter(value, shown):
    assert number(value) == shown


def test_earlier_scorecards_say_that_they_hold_interquartile_means():
    before = json.loads(card().to_json())
    del before["statistic"]
    assert "Values are interquartile means with" in render_html(
        Scorecard.from_json(json.dumps(before))
    )


def test_results_are_written_whole_and_folders_replace_earlier_ones(tmp_path):
    report = report_of(card())
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs/old.json").write_text("")
    results = Results("evaluation", report, {"runs/new.json": "{}", "results.json": "{}"}, {})
    assert results.write(tmp_path) == {"json": tmp_path / "results.json"}
    assert [file.name for file in (tmp_path / "runs").iterdir()] == ["new.json"]


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="file"):
        Results("evaluation", report_of(card()), {"a.json": ""}, {}).write(tmp_path / "file/out")


def saving_card() -> Scorecard:
    """The card of two policies with what there was to save, and the bound beside."""
    known = [c.model_copy(update={"bound": 5.0, "peak": 15.0}) for c in card().cells]
    least = [
        c.model_copy(
            update={
                "policy": "bound",
                "metrics": {"cost": 5.0, "slo_s": 0.0, "slo_share": 0.0},
                "trips": {},
            }
        )
        for c in known[:3]
    ]
    cells = (*known, *least)
    rows = score(cells, reference="ds2", confidence=0.9, resamples=100)
    return card().model_copy(update={"cells": cells, "rows": rows})


def test_the_share_of_the_possible_saving_stands_beside_how_late_it_was():
    table = summary(saving_card(), "q11")
    rows = {row[0]: row[1:] for row in table.rows}
    assert table.head == ("", "ds2", "ours", "bound")
    ds2, ours, bound = rows["share of the possible saving"]
    assert re.fullmatch(r"40 \[\d+, \d+\] %, 200 % late", ds2)
    assert ours.startswith("60 [")
    assert bound == "100 %, 0 % late"
    assert rows["rescales"][2] == "–"


def test_the_bound_is_drawn_and_explained(text):
    bounded = render_html(saving_card())
    assert "<th>bound</th>" in bounded
    assert "100 % at the bound" in bounded
    assert "share of the possible saving" not in text
