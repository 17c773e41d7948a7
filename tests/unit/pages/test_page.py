from __future__ import annotations

from html.parser import HTMLParser

import pytest

from dsp_gym.pages import Html, code, details, heading, note, page, section, table

NASTY = '<script>"q&11"</script> {style}'
SAFE = "&lt;script&gt;&quot;q&amp;11&quot;&lt;/script&gt; {style}"


class Document(HTMLParser):
    """Tags with what they stand in, and everything that would be fetched."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.paths: list[str] = []
        self.fetched: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.paths.append("/".join([*self.open, tag]))
        self.fetched += [value for name, value in attrs if name in ("src", "href")]
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def everything() -> str:
    return page(
        "Title",
        "Lead.",
        note("Careful."),
        section(
            "First",
            heading("Inside"),
            table(("a", "b"), [("1", "2"), ("3", "4")]),
            details("More", code("x: 1\ny: 2")),
        ),
    )


def test_a_page_is_whole_closes_what_it_opens_and_fetches_nothing():
    text = everything()
    document = Document(text)
    assert text.startswith("<!doctype html>\n")
    assert document.open == []
    assert document.fetched == []
    assert not {"html/head/link", "html/head/script"} & set(document.paths)
    assert text.count("<title>Title</title>") == text.count("<h1>Title</h1>") == 1


def test_parts_stand_in_their_order_each_in_its_place():
    paths = [path.removeprefix("html/body/") for path in Document(everything()).paths]
    assert paths[paths.index("h1") :][:7] == [
        "h1", "p", "p", "p/b", "section", "section/h2", "section/h3",
    ]  # fmt: skip
    assert "section/details/pre" in paths
    assert paths.count("section/div/table/tr") == 3
    assert paths.count("section/div/table/tr/th") == 2


@pytest.mark.parametrize(
    "made",
    [
        page(NASTY), page("", NASTY), section(NASTY), section("", NASTY), heading(NASTY),
        details(NASTY), details("", NASTY), note(NASTY), code(NASTY),
        table((NASTY,), []), table((), [(NASTY,)]),
    ],
)  # fmt: skip
def test_text_is_escaped_wherever_it_stands(made):
    assert SAFE in made.replace("&#x27;", "'")
    assert "<script" not in made


def test_markup_stands_as_it_is_also_in_a_cell():
    link = Html("<b>q11</b>")
    assert "<td><b>q11</b></td>" in table((), [(link, "2")])
    assert "\n<b>q11</b>\n" in section("x", link)


def test_markup_that_was_edited_as_text_is_text_again():
    assert "&lt;b&gt;" in section("x", Html("<b>") + "<i>")


def test_a_table_without_heads_has_rows_alone():
    assert table((), [("slots", "4")]).count("<tr>") == 1
    assert "<th>" not in table((), [("slots", "4")])


def test_sentences_in_a_table_wrap():
    assert '<table class="prose">' in table(("a",), [("b",)], prose=True)
    assert ".prose" in page("")


def test_on_cards_every_cell_has_its_head_before_it_but_for_the_title_and_whole_lines():
    text = table(("job", "now:", 'costs "a" month'), [("q1", "late", "3")], cards=True)
    assert '<table class="cards">' in text
    assert '<tr class="heads"><th>job</th><th>now</th>' in text
    assert '<td>q1</td><td class="across">late</td>' in text
    assert '<td data-label="costs &quot;a&quot; month">3</td>' in text
