from __future__ import annotations

import re
import sys

import pytest

from dsp_gym.errors import MissingExtraError
from dsp_gym.pages import Html, figure, svg


def drawn(salt: str = "one", description: str = "a line") -> Html:
    with figure(2.0, 1.0, salt=salt, extra="train", purpose="drawing a test") as canvas:
        axis = canvas.subplots()
        axis.plot([0, 1], [0, 1])
        axis.set_title("words")
        return svg(canvas, description)


def test_a_figure_has_the_same_bytes_each_time():
    assert drawn() == drawn()


def test_two_figures_of_a_page_share_no_id():
    one, other = (set(re.findall(r'<clipPath id="([^"]+)"', drawn(salt))) for salt in "ab")
    assert one
    assert other
    assert not one & other


def test_a_figure_is_an_element_that_describes_itself_and_keeps_its_text():
    text = drawn(description='more "than" <that>')
    assert isinstance(text, Html)
    assert text.startswith(
        '<div class="wide drawn"><svg role="img" aria-label="more &quot;than&quot; '
    )
    assert text.endswith("</svg>\n</div>")
    assert re.search(r"<text [^>]*>words</text>", text)


def test_the_settings_of_the_user_change_nothing_and_are_left_alone():
    import matplotlib

    usual = drawn()
    with matplotlib.rc_context({"axes.facecolor": "red", "font.family": "monospace"}):
        assert drawn() == usual
        assert matplotlib.rcParams["axes.facecolor"] == "red"


def test_without_matplotlib_the_extra_that_brings_it_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r"drawing a test.*dsp-gym\[train\]"):
        drawn()
