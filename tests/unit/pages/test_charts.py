"""The data that a page passes to the script of its charts."""

import json
import math
import re

from hypothesis import given
from hypothesis import strategies as st

from dsp_gym.pages import Curve, Mark, Panel, ScatterPoint, choice, curves, page, scatter
from dsp_gym.pages.charts import SHOWN, pareto


def content(markup: str) -> dict:
    found = re.search(r'<script type="application/json">(.*?)</script>', markup, re.DOTALL)
    return json.loads(found[1])


def test_an_unknown_value_is_a_gap():
    drawn = content(curves("load", [0, 60, 120], [Panel("load", [Curve("a", [1, math.nan, 3])])]))
    assert drawn["panels"][0]["lines"][0]["values"] == [1, None, 3]


def test_lines_of_one_name_have_one_colour_in_all_panels():
    panels = [
        Panel("cores", [Curve("ds2", [1]), Curve("mdp", [2])]),
        Panel("latency", [Curve("mdp", [1]), Curve("ds2", [2])]),
    ]
    assert content(curves("two", [0], panels))["colours"] == {"ds2": 0, "mdp": 1}


def test_a_reason_cannot_end_the_script():
    marks = [Mark(0, "a", "</script><script>alert(1)</script>")]
    drawn = curves("load", [0], [Panel("load", [Curve("a", [1])])], marks)
    assert drawn.count("</script>") == 1
    assert content(drawn)["marks"][0]["text"] == "</script><script>alert(1)</script>"


def test_a_long_line_is_thinned_evenly():
    x = [float(second) for second in range(86_400)]
    drawn = content(curves("load", x, [Panel("load", [Curve("a", x)])]))
    steps = {later - earlier for earlier, later in zip(drawn["x"], drawn["x"][1:], strict=False)}
    assert len(drawn["x"]) <= SHOWN
    assert len(steps) == 1
    assert len(drawn["panels"][0]["lines"][0]["values"]) == len(drawn["x"])


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(0, 100)), min_size=1, max_size=20))
def test_nothing_undercuts_the_front_and_the_front_undercuts_all_else(pairs):
    front = pareto(pairs)
    assert all(any(x <= one[0] and y <= one[1] for x, y in front) for one in pairs)
    for x, y in front:
        assert not any(a <= x and b <= y and (a, b) != (x, y) for a, b in front)


def test_a_point_without_a_sentence_shows_its_name():
    drawn = scatter(
        "cost", [ScatterPoint("ds2", [1, 2], [3, 2])], x_label="late, %", y_label="cost"
    )
    assert content(drawn)["points"][0]["texts"] == ["ds2", "ds2"]


def test_a_page_carries_the_script_once_and_only_where_it_draws():
    drawn = curves("load", [0], [Panel("load", [Curve("a", [1])])])
    assert page("two", drawn, drawn).count("var uPlot=") == 1
    assert "var uPlot=" not in page("none", "text")


def test_one_part_needs_no_choice():
    drawn = curves("load", [0], [Panel("load", [Curve("a", [1])])])
    assert choice("Load", {"day": drawn}) == drawn
    assert choice("Load", {"day": drawn, "<night>": drawn}).count("<option>") == 2
    assert "<night>" not in choice("Load", {"day": drawn, "<night>": drawn})
