"""The page of a shadow's scorecard: its sentence, its matrix, and its numbers."""

from __future__ import annotations

import json
import re

import pytest

from dsp_gym.whatif.headline import headline, monthly_saving, ranked
from dsp_gym.whatif.model_error import Estimated, ModelError
from dsp_gym.whatif.verdict_page import claim_rows, error_rows, write_page
from tests.unit.whatif.cards import GOOD, card

WORSE = {"saving": Estimated(-11.84, -12.5, -11.1), "later": Estimated(-0.2, -0.3, -0.1)}
FAR = ModelError((30.0, 10.0), (0.0, 0.0), (1.0, 1.0))


def page_of(evaluated, folder) -> str:
    return write_page(evaluated, folder / "card.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("figures", "days", "error", "said"),
    [
        # 730 hours at 2 an hour are 1,460 a month, of which 14.5 % are saved.
        (
            {"ds2": GOOD},
            2.0,
            None,
            "ds2 would save 212 USD a month (180 to 239), late +0.1 points; "
            "verdict: keep watching, 2 of 7 days seen.",
        ),
        (
            {"ds2": GOOD},
            7.0,
            None,
            "ds2 would save 212 USD a month (180 to 239), late +0.1 points; verdict: promote.",
        ),
        (
            {"ds2": WORSE},
            7.0,
            None,
            "ds2 would cost 17,286 USD a month more (16,206 to 18,250), late "
            "-20 points; verdict: reject, saving: -1,250 to -1,110 % (≥ 5 % needed).",
        ),
        (
            {"ds2": WORSE, "ours": GOOD},
            7.0,
            None,
            "ours would save 212 USD a month (180 to 239), late +0.1 points; verdict: promote.",
        ),
        (
            {"ds2": {}},
            7.0,
            FAR,
            "ds2: no claim, for the model's error on the observed run is too large; verdict: "
            "keep watching, model: beyond its bounds (errors within bounds needed).",
        ),
        ({}, 7.0, None, ""),
    ],
)
def test_the_headline_says_money_lateness_and_verdict(figures, days, error, said):
    evaluated = card(figures, days) if error is None else card(figures, days, error)
    assert headline(evaluated) == said


def test_policies_are_ranked_by_verdict_then_by_what_they_save_at_least():
    less = {**GOOD, "saving": Estimated(0.3, 0.08, 0.5)}
    evaluated = card({"bad": WORSE, "less": less, "more": GOOD}, 7.0)
    assert [one.policy for one in ranked(evaluated)] == ["more", "less", "bad"]
    assert monthly_saving(evaluated, "bad").value == pytest.approx(-11.84 * 1460)


def test_one_matrix_holds_every_policy_and_criterion(tmp_path):
    text = page_of(card({"ds2": WORSE, "ours": GOOD}, trips={"floor": 3}), tmp_path)
    matrix = text[text.index("<table") : text.index("</table>")]
    rows = re.findall(r"<tr.*?>(.*?)</tr>", matrix)
    cells = [re.sub("<.*?>", "|", row).strip("|").split("||") for row in rows]
    assert cells[0][:4] == ["policy", "verdict", "days observed", "coverage"]
    assert cells[1][0] == "needed"
    assert rows[2].startswith("<td>ours</td>")
    assert '<span class="is-wait">… 2 days of 7 days' not in matrix
    assert '<span class="is-wait">… 2 of 7 days' in matrix
    assert '<span class="is-bad">✗ -1,250 to -1,110 %' in matrix
    assert '<span class="is-good">✓ 1.5 a day' in matrix
    assert len(rows) == 4


def test_the_incumbent_is_in_front_and_the_page_needs_nothing_else(tmp_path):
    text = page_of(card({"ds2": GOOD}), tmp_path)
    (chart,) = map(json.loads, re.findall(r'type="application/json">(.*?)</script>', text))
    assert list(chart["colours"]) == ["incumbent, observed", "incumbent, by the model", "ds2"]
    assert chart["hidden"] == ["incumbent, by the model"]
    assert all(panel["lines"][0]["name"] == "incumbent, observed" for panel in chart["panels"])
    (latency,) = [panel for panel in chart["panels"] if panel["bound"] is not None]
    assert latency["bound"] == 2.0
    assert "<svg" not in text
    assert not re.search(r"<(link|img|script[^>]*src)", text)


def test_numbers_are_written_as_people_write_them(tmp_path):
    evaluated = card({"ds2": WORSE}, error=ModelError((1234.5, 1200.0), (0.0, 0.0), (1e-5, 1e-5)))
    rows = [*claim_rows(evaluated), *error_rows(evaluated)]
    text = " ".join(cell for row in rows for cell in row) + page_of(evaluated, tmp_path)
    shown = text.split("<script")[0]
    assert not re.search(r"\d[eE][+-]\d", shown)
    assert "1,234" in shown
    assert "+1,184 [+1,110, +1,250]" in shown
